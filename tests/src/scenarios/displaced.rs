//! A container that loses its CPUs to another one goes to another node with its memory.

use anyhow::{Context, Result};

use super::pods::{LIMIT, MEBIBYTES, Node, alone, connected, cpus, mems, node_of, on_a_node, plan};
use crate::{
    check::Checks,
    cri::{Amounts, Container, Pod, Program},
    product::{self, Daemon, Report},
    wait,
};

/// Every class is aligned, and what fits no single node goes where it fits.
const CONFIG: &str = "[nri]\nplace = true\n[placement.hints]\npolicy = \"best-effort\"\n";

/// It holds 96 MiB that it touches again and again. What it reads goes through a pipe, so that it sleeps now
/// and then: the kernel takes no eBPF program down before each task has slept or been in user space, and one
/// that reads from `/dev/zero` to `/dev/null` does neither.
const BUSY: Program = Program {
    command: &["sh", "-c", "dd if=/dev/zero bs=96M | cat > /dev/null"],
    environment: &[],
    folder: None,
    cdi_devices: &[],
};

/// Containers of the class `BestEffort` are on both nodes. A Guaranteed one takes all CPUs of a node: the one
/// that was there ends without a critical finding, and comes home with its memory when the other is gone.
pub(super) fn goes_with_its_memory(checks: &mut Checks) -> Result<()> {
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    let daemon = Daemon::start_with("enforce", CONFIG)?;
    connected(&daemon)?;
    let nothing = Amounts::default();
    let [one, two] = ["one", "two"].map(|name| Pod::run(&node.cri, &plan(name, &nothing)));
    let (one, two) = (one?, two?);
    let both = [one.start_of("main", &nothing, &BUSY)?, two.start_of("main", &nothing, &BUSY)?];
    let homes = [cpus(&both[0])?, cpus(&both[1])?];
    checks.holds("the control: each is on a node of its own", homes[0].is_disjoint(&homes[1]), &homes);

    let (guest, taking) = alone(&node.cri, "guest", &Amounts::guaranteed(4, MEBIBYTES))?;
    let taken = cpus(&taking)?;
    let displaced = homes.iter().position(|home| home.is_subset(&taken));
    let displaced = displaced.with_context(|| format!("{taken:?} are of no home of {homes:?}"))?;
    let (shared, home_cpus) = (&both[displaced], &homes[displaced]);
    let home = shared.first_look()?.mems;
    checks.equal("memory nodes of the one that is displaced at first", 1, home.len());
    let away = cpus(shared)?;
    let near = node_of(&away, &node.machine)?.context("it is on no single node")?;
    checks.holds("it had to leave its CPUs", away.is_disjoint(home_cpus), (home_cpus, &away));
    let near = [u32::try_from(near)?].into_iter().collect();
    let followed = wait::until("its memory nodes are those near its CPUs", LIMIT, || {
        Ok((mems(shared)? == near).then_some(()))
    });
    checks.holds("its memory nodes are those near its CPUs", followed.is_ok(), mems(shared)?);
    let fine = wait::until("the audit has no critical finding about it", LIMIT, || {
        let (report, _) = product::audit(&["--sample", "2s"])?;
        Ok((critical(&report, shared) == 0).then_some(()))
    });
    checks.holds("the audit has no critical finding about it", fine.is_ok(), fine.err());

    guest.remove()?;
    let back = wait::until("it is at home again", LIMIT, || {
        Ok((cpus(shared)? == *home_cpus && mems(shared)? == home).then_some(()))
    });
    checks.holds("it is at home again, with its memory", back.is_ok(), (cpus(shared)?, mems(shared)?));
    daemon.ends_well(checks)
}

/// Critical findings about a container.
fn critical(report: &Report, container: &Container) -> usize {
    let findings = report.get("/findings").and_then(serde_json::Value::as_array);
    let about = |finding: &&serde_json::Value| {
        finding["severity"] == "critical" && finding["object"] == container.cgroup.path()
    };
    findings.map_or(0, |findings| findings.iter().filter(about).count())
}
