//! A node on which nothing happens: what does a daemon cost that keeps two hundred containers in place?
//!
//! That nothing is written is asserted. Time and memory are printed as notes, and mean something with
//! `cargo xtask test --release node-idle` alone; emulation makes every instruction slow, so the share of a CPU is a bound
//! from above on what a real one needs.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::pods::{CONFIG, END, connected, told};
use crate::{
    check::Checks,
    containerd::Containerd,
    cri::{Amounts, Cri, Plan, Pod},
    memory,
    product::Daemon,
};

/// Containers, all of one pod: each pod has a process of the runtime beside it, and they are not what is measured.
const CONTAINERS: usize = 200;
/// Turns after which everybody is where it should be: a plan has a bounded number of steps.
const SETTLED: u32 = 3;
/// Turns that are measured.
const TURNS: u32 = 12;
/// Between two turns, as it is without a word in the configuration.
const INTERVAL: Duration = Duration::from_secs(10);
/// Of `utime` and `stime` in a second: `USER_HZ`, the same for every program on every kernel that is booted here.
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
    daemon.metrics_after_ticks(SETTLED)?;
    let containers = daemon.value("numa_enforcer_nri_containers")?;
    checks.equal("containers that the daemon knows", Some(200.0), containers);

    let (before, start) = (cpu_seconds(daemon.pid())?, Instant::now());
    let actions = daemon.metrics_after_ticks(0)?.sum("numa_enforcer_actions_total", &[]);
    let later = daemon.metrics_after_ticks(TURNS)?.sum("numa_enforcer_actions_total", &[]);
    let share = (cpu_seconds(daemon.pid())? - before) / start.elapsed().as_secs_f64();
    checks.equal("steps that were tried meanwhile", 0.0, later - actions);
    checks.note("percent of one CPU", &format!("{:.2}", share * 100.0));
    let mebibytes =
        |kib: u64| Ok::<_, anyhow::Error>(format!("{:.1}", f64::from(u32::try_from(kib)?) / 1024.0));
    checks.note("MiB of the daemon", &mebibytes(memory::resident_kib(daemon.pid())?)?);
    checks.note("MiB of it anonymous", &mebibytes(memory::anonymous_kib(daemon.pid())?)?);
    checks.equal("exit status of the daemon after SIGTERM", Some(0), daemon.process().terminate(END)?);
    // To stop two hundred at once takes longer than a call may.
    containerd.kill()
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

/// CPU time of a process, by `utime` and `stime` of `/proc/PID/stat`.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    // The name before it may hold anything.
    let fields = text.rsplit_once(')').with_context(|| format!("{path}: {text:?}"))?.1;
    let mut times = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
    let (Some(Ok(user)), Some(Ok(system))) = (times.next(), times.next()) else {
        anyhow::bail!("{path} has no times: {text:?}");
    };
    Ok((f64::from(user) + f64::from(system)) / USER_HZ)
}
