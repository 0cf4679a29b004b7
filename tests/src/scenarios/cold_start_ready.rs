//! Containers that begin on slow memory and say themselves when they are ready, through the container
//! runtime.
//!
//! All of them run the same program, which never stops to grow, so that nothing but what it says and the time
//! can end it. The control says nothing and has slow memory only for as long as was asked for, also while
//! others say that they are ready, and although the daemon is killed meanwhile.

use std::{
    env, fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::pods::{LIMIT, connected, told};
use crate::{
    check::Checks,
    containerd::Containerd,
    cri::{Amounts, Container, Cri, Plan, Pod, Program},
    ids::Ids,
    memory,
    product::{self, Daemon},
    server, wait,
};

/// The nodes without CPUs.
const SLOW: [u32; 2] = [2, 3];
const ASKS: [(&str, &str); 3] = [
    ("engine.numa-enforcer.io", "pools"),
    ("memory-type.numa-enforcer.io", "dram,pmem"),
    ("cold-start.numa-enforcer.io", "{duration: 240s}"),
];
/// As long as they ask for: what is done meanwhile takes two minutes of a busy machine.
const DURATION: Duration = Duration::from_mins(4);
const CONFIG: &str = "[nri]\nplace = true\nexpose = true\n";
/// What the daemon mounts into them, and in it what they write to and what says that it was heard.
const FOLDER: &str = ".numa-enforcer";
const SOCKET: &str = "notify";
const HEARD: &str = "ready";
/// MiB that a container may have, more than it ever takes.
const MEBIBYTES: i64 = 280;
/// Grows by a MiB each second, so for longer than [`DURATION`], and by more than a hundredth in five seconds.
/// Ready after 15 seconds.
const SERVE: [&str; 7] =
    ["serve", "--mebibytes", "265", "--mebibytes-per-second", "1", "--ready-after", "15"];
/// Turns after which it must have its memory: one may be under way when it says so, one hears it, and one
/// more is for a beginning that was not noted yet.
const TURNS: f64 = 3.5;

/// A container that reports ready gets fast memory in the next turn, another one when its time is up. A
/// killed daemon changes neither.
pub(super) fn ends_when_said(checks: &mut Checks) -> Result<()> {
    told(checks, story)
}

fn story(checks: &mut Checks) -> Result<()> {
    let (containerd, cri) = Containerd::start()?;
    let daemon = exposing()?;
    let silent = Starting::new(checks, &cri, "silent", false)?;
    let first = Starting::new(checks, &cri, "first", true)?;
    first.says_so()?;
    first.is_let_in(checks, &daemon)?;
    checks.equal("nodes of the silent one meanwhile", &silent.slow, &silent.mems()?);
    daemon.metrics_after_ticks(2)?;
    let ends = |one: &Starting| Ok::<_, anyhow::Error>((one.sees(SOCKET)?, one.sees(HEARD)?));
    checks.equal("the silent one: its socket, and what was heard", (true, false), ends(&silent)?);
    checks.equal("the other one: its socket, and what was heard", (false, true), ends(&first)?);

    // Heard while nothing may be done about it, and by a daemon that is killed.
    let second = Starting::new(checks, &cri, "second", true)?;
    checks.equal("exit status of pause", Some(0), product::run(&["pause"])?.status);
    checks.equal("the second one: what was heard before", false, second.sees(HEARD)?);
    second.says_so()?;
    wait::until("it was heard", LIMIT, || Ok(second.sees(HEARD)?.then_some(())))?;
    daemon.metrics_after_ticks(2)?;
    checks.equal("nodes of the second one while paused", &second.slow, &second.mems()?);
    daemon.process().kill()?;
    let daemon = exposing()?;
    daemon.metrics_after_ticks(2)?;
    for one in [&silent, &second] {
        checks.equal(
            format!("nodes of the {} one after a kill of the daemon, paused", one.name),
            &one.slow,
            &one.mems()?,
        );
    }
    checks.equal("exit status of resume", Some(0), product::run(&["resume"])?.status);
    second.is_let_in(checks, &daemon)?;

    checks.equal("nodes of the silent one all the while", &silent.slow, &silent.mems()?);
    silent.is_wide()?;
    let lasted = silent.begun.elapsed().as_secs_f64();
    checks.above("seconds that the silent one had slow memory only", DURATION.as_secs_f64(), Some(lasted));
    silent.is_explained(checks, "its time is up")?;
    daemon.ends_well(checks)?;
    containerd.stop()
}

fn exposing() -> Result<Daemon> {
    let daemon = Daemon::start_with("enforce", CONFIG)?;
    connected(&daemon)?;
    // What an emulated machine takes to start with would make the first answer late.
    daemon.metrics_after_ticks(1)?;
    Ok(daemon)
}

/// A container that begins on slow memory.
struct Starting<'a> {
    name: &'static str,
    _pod: Pod<'a>,
    container: Container<'a>,
    begun: Instant,
    /// The nodes that it began on.
    slow: Ids,
}

impl<'a> Starting<'a> {
    fn new(checks: &mut Checks, cri: &'a Cri, name: &'static str, says: bool) -> Result<Self> {
        let begun = Instant::now();
        let program = env::current_exe().context("own path")?;
        let folder = program.parent().and_then(|folder| folder.to_str()).context("own folder")?;
        let command = [&[program.to_str().context("own name")?], SERVE.as_slice()].concat();
        let socket = format!("/{FOLDER}/{SOCKET}");
        let variable = [(server::SOCKET, socket.as_str())];
        let environment = if says { variable.as_slice() } else { &[] };
        let program = Program { command: &command, environment, folder: Some(folder), cdi_devices: &[] };
        let amounts = [Amounts::guaranteed(1, MEBIBYTES)];
        let pod = Pod::run(cri, &Plan { name, annotations: &ASKS, containers: &amounts })?;
        let container = pod.start_of("main", &amounts[0], &program)?;
        let slow = container.first_look()?.mems;
        let every = Ids::from(SLOW);
        checks.holds(
            format!("nodes of the {name} one at first"),
            !slow.is_empty() && slow.is_subset(&every),
            &slow,
        );
        Ok(Self { name, _pod: pod, container, begun, slow })
    }

    fn mems(&self) -> Result<Ids> {
        self.container.cgroup.ids("cpuset.mems.effective")
    }

    /// Is there such a file for it to see?
    fn sees(&self, file: &str) -> Result<bool> {
        let path = format!("/proc/{}/root/{FOLDER}/{file}", self.container.pid()?);
        fs::exists(&path).with_context(|| format!("look for {path}"))
    }

    fn says_so(&self) -> Result<()> {
        wait::until("it says that it is ready", LIMIT, || {
            Ok(self.container.has_said(server::SAID)?.then_some(()))
        })
        .with_context(|| self.container.printed().unwrap_or_default())
    }

    fn is_wide(&self) -> Result<Ids> {
        wait::until("it has fast memory as well", LIMIT, || {
            Ok(Some(self.mems()?).filter(|mems| !mems.is_subset(&self.slow)))
        })
    }

    /// It said so, and has fast memory in no time; what it takes from then on is there.
    fn is_let_in(&self, checks: &mut Checks, daemon: &Daemon) -> Result<()> {
        let name = self.name;
        let before = daemon.ticks()?.context("the daemon has taken no turn")?;
        let mems = self.is_wide()?;
        let turns = daemon.ticks()?.map(|turns| turns - before);
        checks.below(format!("turns until the {name} one has fast memory"), TURNS, turns);
        let seconds = self.begun.elapsed().as_secs_f64();
        checks.note(format!("seconds that the {name} one had slow memory only"), &seconds);
        checks.holds(format!("nodes of the {name} one then"), mems.is_superset(&self.slow), &mems);
        let pid = self.container.pid()?;
        let there = memory::anonymous_by_node(pid)?;
        let fast = wait::until("it has pages on fast memory", LIMIT, || {
            let fast: u64 = mems.difference(&self.slow).filter_map(|node| anonymous(pid, *node)).sum();
            Ok((fast >= 4 << 10).then_some(fast))
        })?;
        checks.note(format!("KiB of the {name} one on fast memory"), &fast);
        for node in &self.slow {
            let (before, after) = (there.get(node).copied().unwrap_or(0), anonymous(pid, *node).unwrap_or(0));
            checks.holds(
                format!("KiB of the {name} one on node {node}, which was not moved"),
                after >= before,
                [before, after],
            );
        }
        self.is_explained(checks, "it has said that it is ready")
    }

    fn is_explained(&self, checks: &mut Checks, why: &str) -> Result<()> {
        let what = format!("explain tells of the {} one: {why}", self.name);
        let explain = ["explain", self.container.cgroup.path()];
        product::comes_to_say(checks, &what, &explain, &format!("its cold start is over: {why}"))
    }
}

/// KiB on a node, where there are any.
fn anonymous(pid: u32, node: u32) -> Option<u64> {
    memory::anonymous_by_node(pid).ok()?.get(&node).copied()
}
