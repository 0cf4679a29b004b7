//! A node on which nothing happens: what does a daemon cost that keeps two hundred containers in place?
//!
//! It is asked for every turn first, and then left to itself: it leaves out turns on a host where nothing
//! runs.
//!
//! That nothing is written is asserted. Time and memory are printed as notes, and mean something with `cargo
//! xtask test --release node-idle` alone; emulation makes every instruction slow, so the share of a CPU is a
//! bound from above on what a real one needs.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::pods::{CONFIG, connected, told};
use crate::{
    check::Checks,
    containerd::Containerd,
    cri::{Amounts, Cri, Plan, Pod},
    memory,
    product::Daemon,
};

/// Containers, all of one pod: each pod has a process of the runtime beside it, and they are not what is
/// measured.
const CONTAINERS: usize = 200;
/// Turns after which every container is where it should be: a plan has a bounded number of steps.
const SETTLED: u32 = 3;
/// Turns that are measured.
const TURNS: u32 = 6;
/// Turns that are due while a daemon is left to itself: it takes one of thirty.
const DUE: u32 = 60;
/// Answers that are measured.
const ANSWERS: u32 = 20;
/// Readings of a file of which the mean is told.
const READINGS: u32 = 50_000;
/// Between two turns, as it is without a word in the configuration.
const INTERVAL: Duration = Duration::from_secs(10);
/// CPUs that are busy where something runs.
const BUSY: f64 = 0.25;
/// Turns of so many that a daemon may take which is left to itself: one each five minutes, and some for what
/// settles.
const RESTING: f64 = 8.0;
/// Of `utime` and `stime` in a second: `USER_HZ`, the same for every program on every kernel that is booted
/// here.
const USER_HZ: f64 = 100.0;

/// Two hundred containers that sleep.
pub(super) fn of_two_hundred(checks: &mut Checks) -> Result<()> {
    told(checks, story)
}

fn story(checks: &mut Checks) -> Result<()> {
    let (containerd, cri) = Containerd::start()?;
    let daemon = Daemon::start_every(INTERVAL, "enforce", CONFIG)?;
    connected(&daemon)?;
    let _pod = herd(&cri)?;
    let metrics = daemon.metrics_after_ticks(SETTLED)?;
    let of = |name| metrics.sum(name, &[]);
    checks.equal("containers that the daemon knows", 200.0, of("numa_enforcer_nri_containers"));
    let calls = of("numa_enforcer_nri_calls_total");
    checks.above("calls that a decision was about", 200.0, Some(calls));
    checks.note(
        "milliseconds of a decision on average",
        &format!("{:.2}", of("numa_enforcer_nri_deciding_seconds_total") * 1e3 / calls),
    );
    let creations = |series: &str, labels: &[(&str, &str)]| {
        metrics.sum(&format!("numa_enforcer_nri_create_duration_seconds_{series}"), labels)
    };
    checks.equal("creations with a timed answer", 200.0, creations("count", &[]));
    for bound in ["0.005", "0.01", "0.025", "0.05"] {
        let within = creations("bucket", &[("le", bound)]);
        checks.note(format!("of these, answered within {bound} s"), &within);
    }
    let taken = turns(checks, &daemon, TURNS, "percent of one CPU, with every turn")?;
    checks.above("turns meanwhile", f64::from(TURNS / 2), Some(taken));
    answers(checks, &daemon)?;
    checks
        .note("microseconds of one CPU for a reading of a file", &format!("{:.1}", reading_seconds()? * 1e6));
    let mebibytes =
        |kib: u64| Ok::<_, anyhow::Error>(format!("{:.1}", f64::from(u32::try_from(kib)?) / 1024.0));
    let resident = memory::resident_kib(daemon.pid())?;
    checks.holds("the daemon takes less than 40 MB", resident * 1024 < 40_000_000, mebibytes(resident)?);
    checks.note("MiB of it anonymous", &mebibytes(memory::anonymous_kib(daemon.pid())?)?);
    daemon.ends_well(checks)?;
    let daemon = Daemon::start_by_itself("enforce", CONFIG)?;
    connected(&daemon)?;
    // Until every container is where it should be, or it rests already.
    thread::sleep(INTERVAL * SETTLED);
    let containers = daemon.value("numa_enforcer_nri_containers")?;
    checks.equal("containers that the daemon knows which is left to itself", Some(200.0), containers);
    let (began, before, own) = (Instant::now(), idle_seconds()?, CpuTime::of(daemon.pid())?);
    let threads = of_threads(daemon.pid())?;
    let taken = turns(checks, &daemon, DUE, "percent of one CPU, left to itself")?;
    let per_thread = of_threads(daemon.pid())?;
    let cpus = f64::from(u32::try_from(thread::available_parallelism()?.get())?);
    let own = CpuTime::of(daemon.pid())?.since(own);
    let not_others = idle_seconds()? - before + own.user + own.system;
    let busy = cpus - not_others / began.elapsed().as_secs_f64();
    checks.above("turns meanwhile, left to itself", 0.0, Some(taken));
    checks.note("turns meanwhile, left to itself", &taken);
    checks.note("CPUs that others kept busy meanwhile", &format!("{busy:.2}"));
    for (name, now) in per_thread {
        let spent = now.since(threads.get(&name).copied().unwrap_or_default());
        checks.note("seconds of a CPU, and the thread", &format!("{} {name}", spent.shown(1.0)));
    }
    // Emulated beside others, a runtime alone may keep more of a CPU busy.
    checks.holds("it leaves out turns if nothing runs", taken <= RESTING || busy > BUSY, (taken, busy));
    checks.equal("exit status of that daemon after SIGTERM", Some(0), daemon.end()?);
    // To stop two hundred at once takes longer than a call may.
    containerd.kill()
}

/// Cost of turns without requests, as an answer with all metrics may cost more than a turn. Returns the
/// number of turns.
fn turns(checks: &mut Checks, daemon: &Daemon, due: u32, what: &str) -> Result<f64> {
    let seen = || -> Result<(f64, f64)> {
        let metrics = daemon.metrics_after_ticks(0)?;
        let of = |name| metrics.sum(name, &[]);
        Ok((of("numa_enforcer_ticks_total"), of("numa_enforcer_actions_total")))
    };
    let (first_turn, first_step) = seen()?;
    let (start, before) = (Instant::now(), CpuTime::of(daemon.pid())?);
    thread::sleep(INTERVAL * due);
    let (elapsed, spent) = (start.elapsed().as_secs_f64(), CpuTime::of(daemon.pid())?.since(before));
    let (last_turn, last_step) = seen()?;
    checks.equal("steps that were tried meanwhile", 0.0, last_step - first_step);
    checks.note(what, &spent.shown(elapsed / 100.0));
    Ok(last_turn - first_turn)
}

/// What an answer with all metrics costs.
fn answers(checks: &mut Checks, daemon: &Daemon) -> Result<()> {
    let before = CpuTime::of(daemon.pid())?;
    for _ in 0..ANSWERS {
        daemon.ticks()?;
    }
    let spent = CpuTime::of(daemon.pid())?.since(before);
    checks.note("milliseconds of one CPU for an answer", &spent.shown(f64::from(ANSWERS) / 1e3));
    Ok(())
}

/// All of them together ask for two CPUs.
fn herd(cri: &Cri) -> Result<Pod<'_>> {
    let amounts = vec![Amounts::burstable(10, 1); CONTAINERS];
    let pod = Pod::run(cri, &Plan { name: "herd", annotations: &[], containers: &amounts })?;
    for (number, amounts) in amounts.iter().enumerate() {
        pod.start(&format!("idle-{number:03}"), amounts)?;
    }
    Ok(pod)
}

/// Seconds in which CPUs idled since the boot, of all together.
fn idle_seconds() -> Result<f64> {
    const UPTIME: &str = "/proc/uptime";
    let text = fs::read_to_string(UPTIME).with_context(|| format!("read {UPTIME}"))?;
    let idle = text.split_whitespace().nth(1).with_context(|| format!("{UPTIME}: {text:?}"))?;
    idle.parse().with_context(|| format!("{UPTIME}: {text:?}"))
}

/// CPU time that the kernel and this program take to read a file of `/proc` once, in seconds.
pub fn reading_seconds() -> Result<f64> {
    let before = CpuTime::of(process::id())?;
    for _ in 0..READINGS {
        fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    }
    let spent = CpuTime::of(process::id())?.since(before);
    Ok((spent.user + spent.system) / f64::from(READINGS))
}

/// CPU time of the threads of a process, those of one name together.
fn of_threads(pid: u32) -> Result<BTreeMap<String, CpuTime>> {
    let dir = format!("/proc/{pid}/task");
    let mut times = BTreeMap::<String, CpuTime>::new();
    for thread in fs::read_dir(&dir).with_context(|| format!("list {dir}"))? {
        let thread = thread.with_context(|| format!("list {dir}"))?.path();
        // One that ends meanwhile is not among those that are asked about.
        let Ok(name) = fs::read_to_string(thread.join("comm")) else { continue };
        let Ok(CpuTime { user, system }) = CpuTime::in_file(&thread.join("stat")) else { continue };
        let sum = times.entry(name.trim().to_owned()).or_default();
        *sum = CpuTime { user: sum.user + user, system: sum.system + system };
    }
    Ok(times)
}

/// CPU time of a process or thread, in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct CpuTime {
    user: f64,
    system: f64,
}

impl CpuTime {
    fn of(pid: u32) -> Result<Self> {
        Self::in_file(Path::new(&format!("/proc/{pid}/stat")))
    }

    /// By `utime` and `stime`.
    fn in_file(file: &Path) -> Result<Self> {
        let path = file.display();
        let text = fs::read_to_string(file).with_context(|| format!("read {path}"))?;
        // The name before it may hold anything.
        let fields = text.rsplit_once(')').with_context(|| format!("{path}: {text:?}"))?.1;
        let mut times = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
        let (Some(Ok(user)), Some(Ok(system))) = (times.next(), times.next()) else {
            anyhow::bail!("{path} has no times: {text:?}");
        };
        Ok(Self { user: f64::from(user) / USER_HZ, system: f64::from(system) / USER_HZ })
    }

    fn since(self, before: Self) -> Self {
        Self { user: self.user - before.user, system: self.system - before.system }
    }

    /// All of it in units of so many seconds, and what of it is the kernel's.
    fn shown(self, unit: f64) -> String {
        format!("{:.2} ({:.2} of it in the kernel)", (self.user + self.system) / unit, self.system / unit)
    }
}
