//! What does it cost to have cold pages moved by `move_pages`, by the kernel's reclaim or by DAMON, and what
//! else do these move?
//!
//! The load of `tiers-cold-down-hot-back`, once for each backend: 160 MiB of which 20 are read, and a
//! neighbour that is as cold and not declared. Each has to move the cold set by itself, and no page of the
//! neighbour; hot pages must stay with `move_pages`, and are told of the others. The controls: while the
//! kernel's demotion is off reclaim must not be used; and what a killed daemon leaves of DAMON must be gone
//! with the next one.

use std::{
    fs,
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::{
    cgroup::Cgroup,
    check::Checks,
    layers::Layered,
    process::Running,
    product::{self, Daemon, label},
    wait,
};

const ALL: usize = 160;
const HOT: Range<usize> = 0..20;
const NEIGHBOUR: usize = 40;
/// The node without CPUs.
const SLOW: u32 = 2;
/// Of 140 that are cold.
const WANTED: f64 = 130.0;
const LIMIT: Duration = Duration::from_mins(4);
const LONG: Duration = Duration::from_secs(15);
const MIB: f64 = 1_048_576.0;

const CARRIED: &str = "numa_enforcer_workload_demoted_bytes_total";
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";
const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
/// The kdamond that moves, behind those that watch: the thread of it, while it is on.
const MOVER: &str = "/sys/kernel/mm/damon/admin/kdamonds/16/pid";

/// What a backend came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Came {
    backend: &'static str,
    seconds: f64,
    cold_share: f64,
    /// Most at any look until the cold set was down, and some rounds later.
    hot_mebibytes: [f64; 2],
    neighbour_mebibytes: f64,
    carried_mebibytes: f64,
    /// Of the thread that watches, decides, moves and writes.
    daemon_cpu_seconds: f64,
    kdamond_cpu_seconds: f64,
    cpu_seconds_per_gibibyte: f64,
}

fn config(workload: &Cgroup, backend: &str) -> String {
    let path = workload.path();
    format!(
        "[memory.demotion]\nidle = \"5s\"\nbytes_per_second = \"40MiB\"\nbackend = \"{backend}\"\n\
         [[workload]]\nname = \"{path}\"\ncgroup = \"{path}\"\nenforce = false\ndemotion = true\n"
    )
}

fn switch_demotion(on: bool) -> Result<()> {
    fs::write(DEMOTION, if on { "1" } else { "0" }).context("the kernel's demotion")
}

pub(super) fn one_after_another(checks: &mut Checks) -> Result<()> {
    // Others run on that CPU, or what is hot would look cold to every source (see tiers-cold-down-hot-back).
    let _other = Running::hog(&Cgroup::with_cpuset("/work/other", "0", "1")?, 4)?;
    for backend in ["move-pages", "reclaim", "damos"] {
        switch_demotion(backend == "reclaim")?;
        match moves(checks, backend) {
            Ok(came) => judge(checks, &came),
            Err(error) => checks.broken(&error.context(backend)),
        }
        switch_demotion(false)?;
        checks.equal(format!("{backend}: kdamonds that are left"), "0", fs::read_to_string(KDAMONDS)?.trim());
    }
    refused(checks)?;
    killed(checks)
}

fn judge(checks: &mut Checks, came: &Came) {
    let backend = came.backend;
    checks.note("backend", came);
    checks.above(format!("{backend}: share of the cold set that is down"), 0.92, Some(came.cold_share));
    checks.above(format!("{backend}: MiB that it moved itself"), 120.0, Some(came.carried_mebibytes));
    checks.equal(format!("{backend}: MiB of the neighbour"), 0.0, came.neighbour_mebibytes);
    if backend == "move-pages" {
        checks.equal("move-pages: hot MiB that moved", [0.0; 2], came.hot_mebibytes);
    }
}

fn moves(checks: &Checks, backend: &'static str) -> Result<Came> {
    // Reclaim checks no cpuset here, so a workload that it moves must be allowed on every slower node.
    let mems = if backend == "reclaim" { "0,2-3" } else { "0,2" };
    let cgroup = Cgroup::with_cpuset(&format!("/work/{backend}"), "0", mems)?;
    let mut program = Layered::start(&cgroup, ALL)?;
    let beside = Cgroup::with_cpuset(&format!("/work/beside-{backend}"), "0", "0,2")?;
    let neighbour = Layered::start(&beside, NEIGHBOUR)?;
    program.read(HOT)?;
    sleep(Duration::from_secs(2));
    let daemon = Daemon::start_with("enforce", &config(&cgroup, backend))?;
    let (began, over, mover) = (Instant::now(), AtomicBool::new(false), AtomicU64::new(0));
    let mut hottest = 0.0f64;
    let down = thread::scope(|scope| {
        scope.spawn(|| watch_mover(&over, &mover));
        let down = wait::until("cold pages are on the slow node", LIMIT, || {
            hottest = hottest.max(program.mebibytes_on(SLOW, HOT)?);
            Ok(Some(program.mebibytes_on(SLOW, HOT.end..ALL)?).filter(|down| *down >= WANTED))
        });
        over.store(true, Ordering::Relaxed);
        down
    });
    let seconds = began.elapsed().as_secs_f64();
    let ours = cpu_of_thread(daemon.pid(), "cold-pages")?;
    // A few rounds more, in which nothing should happen.
    sleep(LONG);
    let later = program.mebibytes_on(SLOW, HOT)?;
    checks.note(format!("{backend} explained"), &product::run(&["explain", cgroup.path()])?.stdout);
    let neighbour_mebibytes = neighbour.mebibytes_on(SLOW, 0..NEIGHBOUR)?;
    let metrics = daemon.metrics_after_ticks(2)?;
    let carried = metrics.sum(CARRIED, &[label(&cgroup), ("backend", backend)]) / MIB;
    daemon.end()?;
    let down = down?;
    let theirs = Duration::from_nanos(mover.load(Ordering::Relaxed)).as_secs_f64();
    Ok(Came {
        backend,
        seconds,
        cold_share: down / 140.0,
        hot_mebibytes: [hottest, later],
        neighbour_mebibytes,
        carried_mebibytes: carried,
        daemon_cpu_seconds: ours,
        kdamond_cpu_seconds: theirs,
        cpu_seconds_per_gibibyte: (ours + theirs) / (down / 1024.0),
    })
}

/// Sums what the kdamond took that moves, a new thread in each round, until it is over.
fn watch_mover(over: &AtomicBool, nanos: &AtomicU64) {
    let (mut ended, mut latest) = (0, (String::new(), 0));
    while !over.load(Ordering::Relaxed) {
        let pid = fs::read_to_string(MOVER).unwrap_or_default().trim().to_owned();
        let taken = on_cpu(&format!("/proc/{pid}")).unwrap_or_default();
        if pid != latest.0 {
            ended += latest.1;
            latest = (pid, 0);
        }
        latest.1 = taken.max(latest.1);
        nanos.store(ended + latest.1, Ordering::Relaxed);
        sleep(Duration::from_millis(20));
    }
}

/// Nanoseconds that a thread was on a CPU, by its directory: the first number of `schedstat`.
fn on_cpu(dir: &str) -> Result<u64> {
    let path = format!("{dir}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    text.split(' ').next().unwrap_or_default().parse().with_context(|| format!("{path}: {text:?}"))
}

fn cpu_of_thread(pid: u32, name: &str) -> Result<f64> {
    let tasks = format!("/proc/{pid}/task");
    for task in fs::read_dir(&tasks).with_context(|| format!("read {tasks}"))? {
        let dir = task.context("read an entry")?.path();
        if fs::read_to_string(dir.join("comm"))?.trim() == name {
            return Ok(Duration::from_nanos(on_cpu(&dir.display().to_string())?).as_secs_f64());
        }
    }
    anyhow::bail!("process {pid} has no thread {name}")
}

/// Reclaim is asked for, and stands back.
fn refused(checks: &mut Checks) -> Result<()> {
    let cgroup = Cgroup::with_cpuset("/work/refused", "0", "0,2")?;
    let mut program = Layered::start(&cgroup, NEIGHBOUR)?;
    program.read(0..4)?;
    let daemon = Daemon::start_with("enforce", &config(&cgroup, "reclaim"))?;
    let reason =
        wait::until("the daemon says that demotion is off", LIMIT, || daemon.degraded("demotion-backend"))?;
    checks.holds("and why", reason.contains("the kernel's demotion is off"), &reason);
    wait::until("cold pages are on the slow node", LIMIT, || {
        Ok(Some(program.mebibytes_on(SLOW, 4..NEIGHBOUR)?).filter(|down| *down >= 25.0))
    })?;
    let metrics = daemon.metrics_after_ticks(2)?;
    let by = |backend| metrics.sum(CARRIED, &[label(&cgroup), ("backend", backend)]) / MIB;
    checks.equal("MiB by reclaim while the kernel's demotion is off", 0.0, by("reclaim"));
    checks.above("MiB by move-pages instead", 24.0, Some(by("move-pages")));
    let explained = product::run(&["explain", cgroup.path()])?.stdout;
    let explained = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    checks.equal("times that it is explained", 1, explained.matches("and not by reclaim").count());
    drop(program);
    daemon.end().map(drop)
}

/// A daemon that is killed leaves its kdamonds on, and the next one takes them down.
fn killed(checks: &mut Checks) -> Result<()> {
    let cgroup = Cgroup::with_cpuset("/work/killed", "0", "0,2")?;
    let _program = Layered::start(&cgroup, NEIGHBOUR)?;
    let daemon = Daemon::start_with("enforce", &config(&cgroup, "damos"))?;
    let count = || -> Result<Option<String>> { Ok(Some(fs::read_to_string(KDAMONDS)?.trim().to_owned())) };
    wait::until("the daemon has its kdamonds", LIMIT, || Ok(count()?.filter(|count| count != "0")))?;
    daemon.process().kill()?;
    checks.equal("kdamonds of a daemon that was killed", Some("17".to_owned()), count()?);
    let daemon = Daemon::start_with("enforce", "")?;
    let left =
        wait::until("the next one has taken them down", LIMIT, || Ok(count()?.filter(|count| count == "0")))?;
    checks.equal("kdamonds that are left", "0", left.as_str());
    daemon.end().map(drop)
}
