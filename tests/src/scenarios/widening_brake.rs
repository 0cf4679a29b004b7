//! Is a workload slowed down that fills its memory faster than a node is added, and does it go on whatever becomes of the daemon?
//!
//! A brake lasts as long as the write that it waits for, which is seconds while somebody else's pages are moved
//! ([`super::widening_slow`]). The control of the killed daemon is one whose watching process was killed as well: then the workload
//! stands still until somebody comes.

use std::{fs, thread::sleep, time::Duration, time::Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    widening::{END, Fate, LIMIT, at_home, fate, guarding, kills, mebibytes_on},
    widening_relief::words,
    widening_slow::{Elsewhere, GROWN, Moving, RATE, closely, filler, joined, soon_full},
};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    process::Running,
    product::{self, Daemon, STATE},
    wait,
};

const FREEZE: &str = "\n[memory.widening]\nbrake = \"freeze\"\n";
const HIGH: &str = "\n[memory.widening]\nbrake = \"high\"\n";

/// Somebody's own bound, far above what it has: 4 GiB as the kernel writes them.
const ITS_HIGH: &str = "4294967296";

/// The kernel's own demotion.
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

/// Longer than a brake is ever to last.
const STILL: Duration = Duration::from_secs(4);

/// A daemon that may slow this one down, and has seen that a write can take long.
fn braking(cgroup: &Cgroup, keys: &str, elsewhere: &mut Elsewhere) -> Result<Daemon> {
    let other = at_home(&format!("{}-before", cgroup.path()), 0)?;
    let daemon = Daemon::start_with("enforce", &format!("{}{keys}", product::rules(&[cgroup, &other])))?;
    wait::until("somebody watches over the brake", LIMIT, || {
        Ok((daemon.value("numa_enforcer_memory_brake_watched")? == Some(1.0)).then_some(()))
    })?;
    let hog = Running::growing(&other, GROWN, RATE)?;
    soon_full()?;
    joined(elsewhere.moving())?;
    closely("it was widened", || Ok((other.cpuset()?.1 == "0-1").then_some(())))?;
    hog.kill()?;
    Ok(daemon)
}

/// A hog that fills node 0, while pages of others are moved: returns when it is slowed down, with MiB per second by which it grew
/// before.
fn slowed_down(
    cgroup: &Cgroup,
    (file, before): (&str, &str),
    elsewhere: &mut Elsewhere,
) -> Result<(Running, Moving, f64)> {
    let hog = Running::growing(cgroup, GROWN, RATE)?;
    closely("it grows", || Ok((mebibytes_of(cgroup)? > 10.0).then_some(())))?;
    let (begun, had) = (Instant::now(), mebibytes_of(cgroup)?);
    soon_full()?;
    let rate = (mebibytes_of(cgroup)? - had) / begun.elapsed().as_secs_f64();
    let write = elsewhere.moving();
    closely("it is slowed down", || Ok((cgroup.read(file)? != before).then_some(())))?;
    Ok((hog, write, rate))
}

/// How long it takes until a file holds this again.
fn until_it_holds(cgroup: &Cgroup, file: &str, value: &str) -> Result<Duration> {
    let begun = Instant::now();
    closely("it goes on", || Ok((cgroup.read(file)? == value).then_some(begun.elapsed())))
}

fn mebibytes_of(cgroup: &Cgroup) -> Result<f64> {
    let bytes: f64 = cgroup.read("memory.current")?.parse().context("read memory.current")?;
    Ok(bytes / f64::from(1 << 20))
}

fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no such process id")?;
    kill_process(pid, signal).with_context(|| format!("send {signal:?}"))
}

/// The process that watches over the daemon's brakes.
fn watchdog() -> Result<u32> {
    let commands = fs::read_dir("/proc").context("list /proc")?.filter_map(|entry| {
        let entry = entry.ok()?;
        let command = fs::read_to_string(entry.path().join("cmdline")).ok()?;
        command.split('\0').nth(1)?.eq("watch-brake").then(|| entry.file_name())
    });
    let found: Vec<_> = commands.collect();
    let one = found.first().and_then(|name| name.to_str()).context("nobody watches")?;
    one.parse().context("read a process id")
}

/// Scenario 17.
pub(super) fn outlives_nobody(checks: &mut Checks) -> Result<()> {
    let mut elsewhere = Elsewhere::new()?;
    let _filler = filler()?;
    for (index, what) in ["killed", "control"].iter().enumerate() {
        let cgroup = at_home(&format!("/work/braked{index}"), 0)?;
        let daemon = braking(&cgroup, FREEZE, &mut elsewhere)?;
        let (mut hog, write, _rate) = slowed_down(&cgroup, ("cgroup.freeze", "0"), &mut elsewhere)?;
        let pid = daemon.pid();
        if *what == "killed" {
            signal(pid, Signal::KILL)?;
            let took = until_it_holds(&cgroup, "cgroup.freeze", "0")?;
            checks.below(format!("{what}: seconds until it goes on"), 2.0, Some(took.as_secs_f64()));
            daemon.process().kill()?;
            joined(write)?;
        } else {
            // It must not see that nobody watches any more before it is killed.
            signal(pid, Signal::STOP)?;
            signal(watchdog()?, Signal::KILL)?;
            daemon.process().kill()?;
            sleep(STILL);
            checks.equal(format!("{what}: it stands still"), "1".to_owned(), cgroup.read("cgroup.freeze")?);
            joined(write)?;
            let daemon = guarding(&[&cgroup], "")?;
            checks.holds("the next daemon says so", Daemon::printed().contains("is released"), "not told");
            checks.equal("exit status of the daemon", Some(0), daemon.process().terminate(END)?);
        }
        checks.equal(format!("{what}: in the end"), "0".to_owned(), cgroup.read("cgroup.freeze")?);
        checks.equal(format!("{what}: it lives"), Fate::Lives, fate(&mut hog, GROWN)?);
        hog.kill()?;
        product::run(&["restore", "--state-dir", STATE])?;
    }
    Ok(())
}

/// Scenario 16.
pub(super) fn slows_down(checks: &mut Checks) -> Result<()> {
    let mut elsewhere = Elsewhere::new()?;
    let _filler = filler()?;
    let cgroup = at_home("/work/high", 0)?;
    cgroup.write("memory.high", ITS_HIGH)?;
    let daemon = braking(&cgroup, HIGH, &mut elsewhere)?;
    let (mut hog, write, rate) = slowed_down(&cgroup, ("memory.high", ITS_HIGH), &mut elsewhere)?;
    let had = mebibytes_of(&cgroup)?;
    let lasted = until_it_holds(&cgroup, "memory.high", ITS_HIGH)?;
    let took = mebibytes_of(&cgroup)? - had;
    checks.note("how long it was slowed down", &lasted);
    checks.above("control: MiB per second that it takes before", 5.0, Some(rate));
    checks.below("MiB per second that it takes meanwhile", rate / 2.0, Some(took / lasted.as_secs_f64()));
    checks.equal("it does not stand still", "0".to_owned(), cgroup.read("cgroup.freeze")?);
    joined(write)?;
    checks.equal("it lives", Fate::Lives, fate(&mut hog, GROWN)?);
    checks.equal("oom and oom_kill", [0, 0], kills(&cgroup)?);
    let on = mebibytes_on(&hog)?;
    checks.equal("MiB on slower nodes", [0, 0], [on[2], on[3]]);
    let metrics = daemon.metrics_after_ticks(2)?;
    let used = metrics.sum("numa_enforcer_memory_brakes_total", &[("result", "applied")]);
    checks.above("brakes in the metrics", 0.5, Some(used));
    let status = product::run(&["status"])?.stdout;
    checks.holds("status says what is used", words(&status).contains("high, watched by process"), &status);
    let explained = product::run(&["explain", cgroup.path()])?.stdout;
    checks.holds(
        "explain tells it",
        words(&explained).contains("was slowed down (memory.high ="),
        &explained,
    );
    hog.kill()?;

    // With memory.high the kernel would send all of the workload to slower memory.
    fs::write(DEMOTION, "1").context("switch the kernel's demotion on")?;
    let checked = product::run(&["run", "--check", "--config", "/tmp/numa-enforcer.toml"])?;
    checks.equal("a configuration with both: exit status", Some(64), checked.status);
    checks.holds("the reason is told", checked.stderr.contains("demotion is on"), &checked.stderr);
    fs::write(DEMOTION, "0").context("switch the kernel's demotion off")?;
    checks.equal("exit status of the daemon", Some(0), daemon.process().terminate(END)?);
    product::run(&["restore", "--state-dir", STATE])?;
    Ok(())
}
