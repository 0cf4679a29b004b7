//! Thousands of cgroups come and go: does the kernel side forget them, and does the daemon stay as small?
//!
//! Most are created below a workload, where the kernel side alone watches them from their first moment; some
//! hold a short-lived process and are workloads of their own. Meanwhile a program of the watched workload
//! moves a known number of times, and each of its moves must be counted.
//!
//! The controls: while a batch lives it is in the map and among the workloads, so that there was something
//! to forget.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};

use super::moves::{MOVED, there_and_back};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    memory,
    process::Running,
    product::{Daemon, Metrics},
    touch::{Plan, Touching},
    wait,
};

/// Batches of cgroups, one after another.
const BATCHES: usize = 20;

/// Cgroups of a batch below a watched workload.
const HEIRS: u32 = 240;

/// Cgroups of a batch with a process of their own.
const WORKLOADS: u32 = 10;

/// Batches until the daemon has had a thousand cgroups, after which it should grow no more.
const WARM: usize = 4;

/// Moves of the program that stays.
const MOVES: u32 = 100;

/// Anonymous memory that the daemon may have more of after four thousand further cgroups, in KiB: pages that
/// its allocator keeps, not 64 bytes for each of them.
const SLACK_KIB: u64 = 256;

/// Longest time for the kernel to let go of a batch, and for the moves.
const LIMIT: Duration = Duration::from_mins(3);

const WATCHED: &str = "numa_enforcer_kernel_side_cgroups_watched";
const WORKLOAD: &str = "numa_enforcer_workload_info";
const LOST: &str = "numa_enforcer_kernel_side_lost_total";

/// A batch of cgroups, until it is removed.
struct Batch {
    heirs: Vec<PathBuf>,
    workloads: Vec<(Cgroup, Running)>,
}

impl Batch {
    fn make(number: usize, watched: &Cgroup) -> Result<Self> {
        let heir = |one| {
            let path = watched.folder().join(format!("heir-{number}-{one}"));
            fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
            Ok(path)
        };
        let heirs = (0..HEIRS).map(heir).collect::<Result<_>>()?;
        let workload = |one| {
            let cgroup = Cgroup::create(&format!("/churn/{number}-{one}"))?;
            let process = Running::spawn(Command::new("sleep").arg("1000"))?;
            cgroup.adopt(process.pid())?;
            Ok((cgroup, process))
        };
        let workloads = (0..WORKLOADS).map(workload).collect::<Result<_>>()?;
        Ok(Self { heirs, workloads })
    }

    fn remove(self) -> Result<()> {
        self.heirs.iter().try_for_each(|path| remove(path))?;
        for (cgroup, process) in self.workloads {
            process.kill()?;
            remove(&cgroup.folder())?;
        }
        Ok(())
    }
}

/// A killed process leaves its cgroup a moment later.
fn remove(cgroup: &Path) -> Result<()> {
    let what = format!("{} is removed", cgroup.display());
    wait::until(&what, LIMIT, || Ok(Some(fs::remove_dir(cgroup)?)))
}

/// Five thousand cgroups under a daemon that observes.
pub(super) fn forgotten(checks: &mut Checks) -> Result<()> {
    let steady = Cgroup::create("/work/steady")?;
    let plan = Plan { runs_on: vec![0, 2], holds: vec![(0, 8)], stints: Some(MOVES.into()) };
    let mut program = Touching::start(&steady, &[plan], true)?;
    Cgroup::create("/churn")?;
    let daemon = Daemon::start_counting("observe", &[&steady], "")?;
    let begin = daemon.metrics_after_ticks(2)?;
    let watched = |metrics: &Metrics| metrics.sum(WATCHED, &[]);
    let at_first = watched(&begin);
    program.counts()?;

    let mut memory = Vec::new();
    for number in 1..=BATCHES {
        let batch = Batch::make(number, &steady)?;
        wait::until(&format!("batch {number} is watched, and its processes are workloads"), LIMIT, || {
            let now = daemon.metrics_after_ticks(0)?;
            let all = watched(&now) >= at_first + f64::from(HEIRS + WORKLOADS);
            Ok((all && batch.workloads.iter().all(|(cgroup, _)| now.has(WORKLOAD, cgroup))).then_some(()))
        })?;
        batch.remove()?;
        memory.push(memory::anonymous_kib(daemon.pid())?);
    }
    checks.equal("batches that were watched while they lived", BATCHES, memory.len());
    println!("KiB of the daemon after each batch: {memory:?}");
    let left = wait::until("the kernel side has forgotten them", LIMIT, || {
        let left = watched(&daemon.metrics_after_ticks(1)?);
        Ok((left <= at_first).then_some(left))
    });
    checks.equal("cgroups watched in the end, as at first", Some(at_first), left.ok());
    let (warm, end) = (memory[WARM - 1], memory[BATCHES - 1]);
    checks.holds("the daemon is as small as after the first thousand", end <= warm + SLACK_KIB, (warm, end));

    let moved = wait::until("the program has moved", LIMIT, || {
        Ok(Some(program.counts()?).filter(|counts| counts.moves >= u64::from(MOVES)))
    })?;
    let after = daemon.metrics_after_ticks(3)?;
    let counted = |metrics| there_and_back(metrics, MOVED, Some(&steady)).iter().sum::<f64>();
    checks.equal("moves of the program that stays, by itself", u64::from(MOVES), moved.moves);
    checks.equal("moves of the program that stays", f64::from(MOVES), counted(&after) - counted(&begin));
    checks.below("events that are in no counter", 0.5, Some(after.sum(LOST, &[])));
    Ok(())
}
