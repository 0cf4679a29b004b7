//! Do cold pages go to the slower node, hot ones not, and do they come back?
//!
//! The workload writes 160 MiB once and reads 20 of them. The controls: before the daemon is there nothing
//! goes anywhere; a neighbour on the same node that is as cold and not declared stays; and the kernel's own
//! way, asked for as much, takes the hot pages, too, and does not ask whether the cpuset allows the node.

use std::{fs, thread::sleep, time::Duration};

use anyhow::{Context, Result};

use crate::{
    cgroup::Cgroup,
    check::Checks,
    layers::Layered,
    process::Running,
    product::{self, Daemon, label},
    wait,
};

/// Memory of the workload, and of it what is hot first and later, in MiB.
const ALL: usize = 160;
const FIRST: std::ops::Range<usize> = 0..20;
const LATER: std::ops::Range<usize> = 100..120;
/// Memory of the neighbour.
const NEIGHBOUR: usize = 40;
/// The node without CPUs.
const SLOW: u32 = 2;
/// Longest time for what the daemon does in rounds, emulated and on a busy host.
const LIMIT: Duration = Duration::from_mins(8);
/// Part of what moved that is counted at least: the kernel may move a page for reasons of its own.
const COUNTED: f64 = 0.99;
/// So long that everything cold would be found and moved, were it declared.
const LONG: Duration = Duration::from_secs(15);

const MOVED: &str = "numa_enforcer_workload_tier_moved_bytes_total";
const HALVINGS: &str = "numa_enforcer_workload_demotion_halvings";
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

fn config(workload: &Cgroup) -> String {
    let path = workload.path();
    format!(
        "[memory.demotion]\nidle = \"5s\"\nbytes_per_second = \"40MiB\"\n\
         [[workload]]\nname = \"{path}\"\ncgroup = \"{path}\"\nenforce = false\ndemotion = true\n"
    )
}

/// On the node that is nearest to its CPU, which may also use the slow one.
fn layered(path: &str, mems: &str, mebibytes: usize) -> Result<(Cgroup, Layered)> {
    let cgroup = Cgroup::with_cpuset(path, "0", mems)?;
    let program = Layered::start(&cgroup, mebibytes)?;
    Ok((cgroup, program))
}

pub(super) fn cold_down_hot_back(checks: &mut Checks) -> Result<()> {
    let (cgroup, mut program) = layered("/work/tiered", "0,2", ALL)?;
    let (_, neighbour) = layered("/work/neighbour", "0,2", NEIGHBOUR)?;
    // Others run on that CPU, as on any machine. A processor that has nothing else to do keeps translations,
    // and marks no page again: one that is emulated keeps them for ever, and what is hot looks cold to
    // every source.
    let _other = Running::hog(&Cgroup::with_cpuset("/work/other", "0", "1")?, 4)?;
    program.read(FIRST)?;
    sleep(LONG);
    checks.equal("without the daemon: MiB on the slow node", 0.0, program.mebibytes_on(SLOW, 0..ALL)?);

    let daemon = Daemon::start_with("enforce", &config(&cgroup))?;
    let down = wait::until("cold pages are on the slow node", LIMIT, || {
        Ok(Some(program.mebibytes_on(SLOW, 0..ALL)?).filter(|down| *down >= 130.0))
    });
    if down.is_err() {
        checks.note("explained", &product::run(&["explain", cgroup.path()])?.stdout);
    }
    checks.above("MiB on the slow node, of 140 that are cold", 129.9, Some(down?));
    // A few rounds more, in which nothing should happen.
    sleep(LONG);
    checks.equal("hot MiB on the slow node", 0.0, program.mebibytes_on(SLOW, FIRST)?);
    checks.equal("the neighbour's MiB on the slow node", 0.0, neighbour.mebibytes_on(SLOW, 0..NEIGHBOUR)?);
    let moved = |direction: &str| {
        let metrics = daemon.metrics_after_ticks(2)?;
        Ok::<_, anyhow::Error>(metrics.sum(MOVED, &[label(&cgroup), ("direction", direction)]))
    };
    checks.above("bytes down, by the metrics", COUNTED * 130.0 * 1_048_576.0, Some(moved("down")?));
    // Each question to the program makes it touch its own code and stack, which were cold.
    checks.below("bytes up, by the metrics", 1_048_576.0, Some(moved("up")?));
    let halvings = || daemon.labelled(HALVINGS, &[label(&cgroup)]);
    checks.equal("halvings", Some(0.0), halvings()?);

    program.read(LATER)?;
    let back = wait::until("what is hot now came back", LIMIT, || {
        Ok(Some(program.mebibytes_on(SLOW, LATER)?).filter(|slow| *slow < 2.0))
    });
    if back.is_err() {
        checks.note("explained", &product::run(&["explain", cgroup.path()])?.stdout);
    }
    back?;
    checks.above("bytes up, by the metrics", COUNTED * 18.0 * 1_048_576.0, Some(moved("up")?));
    checks.above("halvings", 0.5, halvings()?);
    product::comes_to_say(checks, "explain tells of it", &["explain", cgroup.path()], "wanted back")?;
    drop(daemon);

    // The kernel's own way, asked for a little more than is cold.
    let (naive, mut program) = layered("/work/naive", "0,2", ALL)?;
    program.read(FIRST)?;
    sleep(Duration::from_secs(5));
    fs::write(DEMOTION, "1").context("switch the kernel's demotion on")?;
    // It fails when it could not take as much.
    let _asked_too_much = naive.write("memory.reclaim", "200M");
    fs::write(DEMOTION, "0").context("switch the kernel's demotion off")?;
    checks.above("control: hot MiB on the slow node", 0.0, Some(program.mebibytes_on(SLOW, FIRST)?));
    Ok(())
}

pub(super) fn stay_in_the_cpuset(checks: &mut Checks) -> Result<()> {
    let (cgroup, program) = layered("/work/bound", "0", NEIGHBOUR)?;
    let daemon = Daemon::start_with("enforce", &config(&cgroup))?;
    daemon.metrics_after_ticks(2)?;
    let explained = wait::until("the daemon says why nothing moves", LIMIT, || {
        let explained = product::run(&["explain", cgroup.path()])?.stdout;
        Ok(Some(explained).filter(|text| text.contains("no slower memory")))
    })?;
    checks.note("explained", &explained);
    sleep(LONG);
    checks.equal("MiB outside of the cpuset", 0.0, program.mebibytes_on(SLOW, 0..NEIGHBOUR)?);
    checks.equal("the kernel's demotion", "false", fs::read_to_string(DEMOTION)?.trim());
    drop(daemon);

    // The kernel of the guest does not look at cpusets: the daemon must know.
    fs::write(DEMOTION, "1").context("switch the kernel's demotion on")?;
    let _asked_too_much = cgroup.write("memory.reclaim", "20M");
    let outside = program.mebibytes_on(SLOW, 0..NEIGHBOUR)?;
    checks.above("control: MiB outside of the cpuset by the kernel's own demotion", 0.0, Some(outside));
    checks.equal(
        "doctor on the kernel's demotion",
        Some("degraded"),
        product::doctor()?.status("kernel-demotion"),
    );
    let daemon = Daemon::start_with("enforce", &config(&cgroup))?;
    let reason = wait::until("the daemon has tried it", LIMIT, || daemon.degraded("kernel-demotion"))?;
    checks.holds("the daemon saw that it bypasses cpusets", reason.contains("bypasses cpusets"), &reason);
    let left = fs::read_dir("/sys/fs/cgroup")?.flatten().map(|one| one.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("scratch")).collect();
    checks.holds("and left no scratch cgroup", left.is_empty(), &left);
    Ok(())
}
