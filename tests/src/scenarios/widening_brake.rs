//! Is a workload slowed down that fills its memory faster than a node is added, and does it go on whatever
//! becomes of the daemon?
//!
//! A brake lasts as long as the write that it waits for, half a second at most; a write takes longer while
//! pages of other cgroups are moved ([`super::widening_slow`]), and the scenario sees that one is in
//! progress. The control of the killed daemon kills the watching process as well: then the workload stays
//! frozen until the next daemon or `restore`.

use std::{fs, thread::sleep, time::Duration, time::Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::{
    widening::{Fate, LIMIT, fate, guarding, kills, mebibytes_on},
    widening_slow::{
        Elsewhere, GROWN, Moving, RATE, closely, filler, growing, mebibytes_of, sleeper, writes_under_way,
    },
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

/// The workload's own bound, far above its memory: 4 GiB as the kernel writes them.
const ITS_HIGH: &str = "4294967296";

/// The kernel's own demotion.
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

/// Longer than a brake is ever to last.
const STILL: Duration = Duration::from_secs(4);

/// Cgroup of the workload that is slowed down, on one CPU of node 0. It is empty yet: otherwise it would be
/// widened with the other one.
fn at_work(path: &str) -> Result<Cgroup> {
    Cgroup::with_cpuset(path, "0", "0")
}

/// A daemon that may slow this one down, and has seen how long a write can take.
fn braking(cgroup: &Cgroup, keys: &str, elsewhere: &Elsewhere) -> Result<Daemon> {
    let other = Cgroup::with_cpuset(&format!("{}-before", cgroup.path()), "1", "0")?;
    let _sleeper = sleeper(&other)?;
    let rules = product::rules(&[cgroup, &other]).replace("cpus = 2", "cpus = 1");
    let daemon = Daemon::start_with("enforce", &format!("{rules}{keys}"))?;
    wait::until("the brake has a watching process", LIMIT, || {
        Ok((daemon.value("numa_enforcer_memory_brake_watched")? == Some(1.0)).then_some(()))
    })?;
    // A workload is watched after a turn has seen it.
    daemon.metrics_after_ticks(2)?;
    let hog = growing(&other, RATE)?;
    let moving = elsewhere.moving()?;
    closely("a node is asked for", || Ok((writes_under_way(daemon.pid())? > 0).then_some(())))?;
    closely("it was added", || Ok((writes_under_way(daemon.pid())? == 0).then_some(())))?;
    moving.end()?;
    hog.kill()?;
    Ok(daemon)
}

/// A hog that is slowed down just now.
struct Slowed {
    hog: Running,
    /// The write that is waited for waits for this.
    moving: Moving,
    /// MiB per second by which it grew before.
    rate: f64,
}

/// A hog that fills node 0 while pages of others are moved: returns when it is slowed down.
fn slowed_down(
    checks: &mut Checks,
    (daemon, cgroup): (&Daemon, &Cgroup),
    (file, before): (&str, &str),
    elsewhere: &Elsewhere,
) -> Result<Slowed> {
    let _sleeper = sleeper(cgroup)?;
    daemon.metrics_after_ticks(2)?;
    let hog = growing(cgroup, RATE)?;
    let (begun, had) = (Instant::now(), mebibytes_of(cgroup)?);
    let moving = elsewhere.moving()?;
    closely("it is slowed down", || Ok((cgroup.read(file)? != before).then_some(())))?;
    let rate = (mebibytes_of(cgroup)? - had) / begun.elapsed().as_secs_f64();
    let under_way = writes_under_way(daemon.pid())?;
    checks.equal(format!("{}: writes under way when it is slowed down", cgroup.path()), 1, under_way);
    Ok(Slowed { hog, moving, rate })
}

/// How long it takes until a file holds this again.
fn until_it_holds(cgroup: &Cgroup, file: &str, value: &str) -> Result<Duration> {
    let begun = Instant::now();
    closely("it goes on", || Ok((cgroup.read(file)? == value).then_some(begun.elapsed())))
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
    let one = found.first().and_then(|name| name.to_str()).context("no watching process")?;
    one.parse().context("read a process id")
}

/// Scenario 17.
pub(super) fn ends_with_the_daemon(checks: &mut Checks) -> Result<()> {
    let elsewhere = Elsewhere::new()?;
    checks
        .note("seconds that a write takes while pages of others are moved", &elsewhere.takes().as_secs_f64());
    let _filler = filler()?;
    for (index, what) in ["killed", "control"].iter().enumerate() {
        let cgroup = at_work(&format!("/work/braked{index}"))?;
        let daemon = braking(&cgroup, FREEZE, &elsewhere)?;
        let Slowed { mut hog, moving, .. } =
            slowed_down(checks, (&daemon, &cgroup), ("cgroup.freeze", "0"), &elsewhere)?;
        let pid = daemon.pid();
        if *what == "killed" {
            signal(pid, Signal::KILL)?;
            let took = until_it_holds(&cgroup, "cgroup.freeze", "0")?;
            checks.below(format!("{what}: seconds until it goes on"), 2.0, Some(took.as_secs_f64()));
            daemon.process().kill()?;
            moving.end()?;
        } else {
            // The daemon must not see the end of the watching process before it is killed itself.
            signal(pid, Signal::STOP)?;
            signal(watchdog()?, Signal::KILL)?;
            daemon.process().kill()?;
            sleep(STILL);
            checks.equal(format!("{what}: it stands still"), "1".to_owned(), cgroup.read("cgroup.freeze")?);
            moving.end()?;
            let daemon = guarding(&[&cgroup], "")?;
            product::comes_to_print(checks, "the next daemon says so", "is released")?;
            daemon.ends_well(checks)?;
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
    let elsewhere = Elsewhere::new()?;
    checks
        .note("seconds that a write takes while pages of others are moved", &elsewhere.takes().as_secs_f64());
    let _filler = filler()?;
    let cgroup = at_work("/work/high")?;
    cgroup.write("memory.high", ITS_HIGH)?;
    let daemon = braking(&cgroup, HIGH, &elsewhere)?;
    let Slowed { mut hog, moving, rate } =
        slowed_down(checks, (&daemon, &cgroup), ("memory.high", ITS_HIGH), &elsewhere)?;
    let had = mebibytes_of(&cgroup)?;
    let lasted = until_it_holds(&cgroup, "memory.high", ITS_HIGH)?;
    let took = mebibytes_of(&cgroup)? - had;
    checks.note("how long it was slowed down", &lasted);
    checks.above("control: MiB per second that it takes before", 5.0, Some(rate));
    checks.below("MiB per second that it takes meanwhile", rate / 2.0, Some(took / lasted.as_secs_f64()));
    checks.equal("it does not stand still", "0".to_owned(), cgroup.read("cgroup.freeze")?);
    moving.end()?;
    checks.equal("it lives", Fate::Lives, fate(&mut hog, GROWN)?);
    checks.equal("oom and oom_kill", [0, 0], kills(&cgroup)?);
    let on = mebibytes_on(&hog)?;
    checks.equal("MiB on slower nodes", [0, 0], [on[2], on[3]]);
    let metrics = daemon.metrics_after_ticks(2)?;
    let used = metrics.sum("numa_enforcer_memory_brakes_total", &[("result", "applied")]);
    checks.above("brakes in the metrics", 0.5, Some(used));
    product::comes_to_say(checks, "status says what is used", &["status"], "high, watched by process")?;
    product::comes_to_say(
        checks,
        "explain tells it",
        &["explain", cgroup.path()],
        "was slowed down (memory.high =",
    )?;
    hog.kill()?;

    // With memory.high the kernel would send all of the workload to slower memory.
    fs::write(DEMOTION, "1").context("switch the kernel's demotion on")?;
    let checked = product::run(&["run", "--check", "--config", "/tmp/numa-enforcer.toml"])?;
    checks.equal("a configuration with both: exit status", Some(64), checked.status);
    checks.holds("the reason is told", checked.stderr.contains("demotion is on"), &checked.stderr);
    fs::write(DEMOTION, "0").context("switch the kernel's demotion off")?;
    daemon.ends_well(checks)?;
    product::run(&["restore", "--state-dir", STATE])?;
    Ok(())
}
