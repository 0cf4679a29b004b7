//! A container whose CPUs become another's goes to another node with its memory.

use anyhow::{Context, Result};

use super::pods::{LIMIT, Node, connected, cpus, mems, node_of, on_a_node, plan};
use crate::{
    check::Checks,
    cri::{Amounts, Container, Pod, Program},
    product::{self, Daemon, Report},
    wait,
};

/// Every class is aligned, and what fits no single node goes where it fits.
const CONFIG: &str = "[nri]\nplace = true\n[placement.hints]\npolicy = \"best-effort\"\n";

/// It holds 96 MiB that it touches again and again.
const BUSY: Program =
    Program { command: &["dd", "if=/dev/zero", "of=/dev/null", "bs=96M"], environment: &[], folder: None };

/// Two Guaranteed containers fill a node; the `BestEffort` one that was there ends without a critical
/// finding, and comes home with its memory when they are gone.
pub(super) fn goes_with_its_memory(checks: &mut Checks) -> Result<()> {
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    let daemon = Daemon::start_with("enforce", CONFIG)?;
    connected(&daemon)?;
    let pod = Pod::run(&node.cri, &plan("best-effort", &Amounts::default()))?;
    let shared = pod.start_of("main", &Amounts::default(), &BUSY)?;
    let home = shared.first_look()?.mems;
    checks.equal("memory nodes of the BestEffort container at first", 1, home.len());
    let home_cpus = cpus(&shared)?;

    // Guaranteed ones until its node is full.
    let mut guests = Vec::new();
    for name in ["a", "b", "c", "d"] {
        guests.push(node.exclusive(name)?);
        if cpus(&shared)?.is_disjoint(&home_cpus) {
            break;
        }
    }
    let away = cpus(&shared)?;
    let near = node_of(&away, &node.machine)?.context("it is on no single node")?;
    checks.holds("it had to leave its CPUs", away.is_disjoint(&home_cpus), (&home_cpus, &away));
    let near = [u32::try_from(near)?].into_iter().collect();
    let followed = wait::until("its memory nodes are those near its CPUs", LIMIT, || {
        Ok((mems(&shared)? == near).then_some(()))
    });
    checks.holds("its memory nodes are those near its CPUs", followed.is_ok(), mems(&shared)?);
    let fine = wait::until("the audit has no critical finding about it", LIMIT, || {
        let (report, _) = product::audit(&["--sample", "2s"])?;
        Ok((critical(&report, &shared) == 0).then_some(()))
    });
    checks.holds("the audit has no critical finding about it", fine.is_ok(), fine.err());

    for (pod, _) in guests {
        pod.remove()?;
    }
    let back = wait::until("it is at home again", LIMIT, || {
        Ok((cpus(&shared)? == home_cpus && mems(&shared)? == home).then_some(()))
    });
    checks.holds("it is at home again, with its memory", back.is_ok(), (cpus(&shared)?, mems(&shared)?));
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
