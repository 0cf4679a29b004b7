//! Is it seen that a workload runs on a node where it should not, though nothing moves there?
//!
//! Threads that start on idle CPUs are on both nodes from then on, and counting moves would never tell.
//! The control is the second half: with a cpuset on one node, what was counted until then stays as it is.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

use super::moves::{MISPLACED, MOVED, RUN_TIME, there_and_back};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    hog::Hog,
    process::Running,
    product::{Daemon, Metrics, label},
    wait,
};

/// One for each CPU of the guest, so that no idle one draws a thread away.
const THREADS: usize = 4;

/// Share of the run time that node 1 has at least: a half, unless the host gives its CPUs less time than the
/// others.
const SHARE: f64 = 0.1;

/// Seconds on a CPU that are enough to judge by.
const ENOUGH: f64 = 8.0;

/// Longest time for them.
const LIMIT: Duration = Duration::from_mins(3);

const MISPLACED_TIME: &str = "numa_enforcer_workload_misplaced_run_time_seconds_total";

/// Less than one tick of the clock that counts run time.
const NOTHING: f64 = 0.005;

/// A tick of each thread: a read may fall between the two counters of one.
const TICKS: f64 = 0.05;

/// Seconds of a workload on nodes 0 and 1.
fn seconds(metrics: &Metrics, name: &str, cgroup: &Cgroup) -> [f64; 2] {
    ["0", "1"].map(|node| metrics.sum(name, &[("numa_node", node), label(cgroup)]))
}

/// What they rose by on each of the nodes.
fn rise(name: &str, cgroup: &Cgroup, before: &Metrics, after: &Metrics) -> [f64; 2] {
    let [before, after] = [before, after].map(|metrics| seconds(metrics, name, cgroup));
    [after[0] - before[0], after[1] - before[1]]
}

/// Spinning threads without a cpuset, then with one.
pub(super) fn without_a_move(checks: &mut Checks) -> Result<()> {
    let cgroup = Cgroup::create("/work/spread")?;
    let spinners =
        Hog { cgroup: cgroup.folder(), mebibytes: 1, threads: THREADS, pause_ms: 0, mebibytes_per_second: 0 };
    let spinners = Running::hog_of(&spinners)?;
    let daemon = Daemon::start_counting("observe", &[&cgroup], "numa_nodes = \"0\"\n")?;
    // Before the turn of which the metrics are, and at the end after it: the kernel's count is the larger
    // one.
    let moved = kernel_moves(spinners.pid())?;
    // The first decision says where it should be; the kernel side knows that a turn later.
    let begin = daemon.metrics_after_ticks(4)?;
    let spread = wait::until("the threads run", LIMIT, || {
        let now = daemon.metrics_after_ticks(1)?;
        let ran: f64 = rise(RUN_TIME, &cgroup, &begin, &now).iter().sum();
        Ok((ran >= ENOUGH).then_some(now))
    })?;
    let moved = kernel_moves(spinners.pid())? - moved;
    let [near, far] = rise(RUN_TIME, &cgroup, &begin, &spread);
    checks.above("without a cpuset: share of run time on node 1", SHARE, Some(far / (near + far)));
    let misplaced = rise(MISPLACED_TIME, &cgroup, &begin, &spread);
    checks.below("without a cpuset: misplaced time on node 0", NOTHING, Some(misplaced[0]));
    checks.below("without a cpuset: time on node 1 is misplaced", TICKS, Some((misplaced[1] - far).abs()));
    let between = |metrics: &Metrics| there_and_back(metrics, MOVED, Some(&cgroup)).iter().sum::<f64>();
    let counted = between(&spread) - between(&begin);
    println!("{counted} moves between nodes are counted meanwhile, {moved} by the kernel between any CPUs");
    #[expect(clippy::cast_precision_loss, reason = "a few moves")]
    let most = moved as f64 + 0.5;
    checks.below("without a cpuset: moves between nodes, at most those of the kernel", most, Some(counted));

    cgroup.write("cpuset.cpus", "0-1")?;
    let settled = daemon.metrics_after_ticks(2)?;
    let later = wait::until("the threads run on", LIMIT, || {
        let now = daemon.metrics_after_ticks(1)?;
        Ok((rise(RUN_TIME, &cgroup, &settled, &now)[0] >= ENOUGH).then_some(now))
    })?;
    let [_, far] = rise(RUN_TIME, &cgroup, &settled, &later);
    checks.below("with a cpuset: further run time on node 1", NOTHING, Some(far));
    let misplaced = rise(MISPLACED_TIME, &cgroup, &settled, &later);
    checks.below("with a cpuset: further misplaced time", NOTHING, Some(misplaced.iter().sum()));
    let misplaced = |metrics| there_and_back(metrics, MISPLACED, Some(&cgroup)).iter().sum::<f64>();
    let further = misplaced(&later) - misplaced(&settled);
    checks.below("with a cpuset: further misplaced tasks", 0.5, Some(further));
    Ok(())
}

/// How often the kernel moved the threads of a process to another CPU.
fn kernel_moves(pid: u32) -> Result<u64> {
    let folder = format!("/proc/{pid}/task");
    let mut sum = 0;
    for entry in fs::read_dir(&folder).with_context(|| format!("list {folder}"))? {
        let path = entry?.path().join("sched");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let line = text.lines().find(|line| line.starts_with("se.nr_migrations"));
        let count = line.and_then(|line| line.split(':').nth(1)?.trim().parse::<u64>().ok());
        sum += count.with_context(|| format!("{} without moves", path.display()))?;
    }
    Ok(sum)
}
