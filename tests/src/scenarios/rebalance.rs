//! Four workloads with their CPUs and memory swapped between two nodes: which means brings them together, how
//! soon, and how much is copied?
//!
//! Each has a CPU of its own on one node, and its memory and its memory node are the other; it is declared
//! with the policy `none`: its cpuset is as it should be, so that nothing but a plan of moves changes
//! anything. The control is the same four without the daemon. The kernel's own balancing, numad and the
//! daemon side by side are a scenario of their own; for the first two the four may allocate on both nodes,
//! as the kernel does not look at memory of one.
//!
//! What is remote is told by `/proc`: pages on another node than that of the one CPU that the process may
//! use.

use std::{
    fs,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::{
    cgroup::Cgroup,
    check::Checks,
    memory,
    process::{self, Running},
    product::Daemon,
    wait,
};

/// Memory of each.
const MEBIBYTES: usize = 64;
/// `name`, its CPU, and a CPU beside its memory, on a machine with CPUs 0-1 on node 0 and 2-3 on node 1.
const FOUR: [(&str, u32, u32); 4] = [("a", 0, 2), ("b", 1, 3), ("c", 2, 0), ("d", 3, 1)];
/// Turns within which the daemon must have brought them together: a minute of a guest that is alone.
const TURNS: f64 = 30.0;
/// The same where it is not.
const STARVED: Duration = Duration::from_mins(5);
/// Within this, numad has been told, and what ended is gone.
const LIMIT: Duration = Duration::from_mins(1);
/// Time for which everything else is looked at.
const WATCHED: Duration = Duration::from_secs(40);
const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const NUMAD: &str = "/usr/bin/numad";

/// Four that run.
struct Four(Vec<(Cgroup, Running)>);

/// Measurements of one means of bringing them together.
#[derive(Debug, Serialize)]
struct Course {
    seconds_until_below_a_fifth: Option<f64>,
    /// That ended until then; nothing for all but the daemon.
    turns: Option<f64>,
    mebibytes_moved: u64,
    most_remote_at_the_end: f64,
}

/// With the daemon they come together, without it they do not.
pub(super) fn four(checks: &mut Checks) -> Result<()> {
    told(checks, brought_together)
}

/// What the kernel's balancing, numad and the daemon make of the same four, each alone, one after the other.
pub(super) fn peers(checks: &mut Checks) -> Result<()> {
    told(checks, each_alone)
}

/// Plays a scenario, and shows what the daemon printed if it does not end well.
fn told(checks: &mut Checks, story: impl FnOnce(&mut Checks) -> Result<()>) -> Result<()> {
    let outcome = story(checks);
    if outcome.is_err() || !checks.passed() {
        println!("the daemon printed:\n{}", Daemon::printed());
    }
    outcome
}

fn brought_together(checks: &mut Checks) -> Result<()> {
    let unplaced = alone(None, |_| Ok(()), || Ok(None))?;
    checks.above("control, without any: remote share of the most local one", 0.9, Some(unplaced.1));
    checks.note("without any", &unplaced.0);

    let four = Four::start(None)?;
    let before = migrated()?;
    let daemon = Daemon::start_with("enforce", &four.configuration())?;
    let begin = Instant::now();
    wait::until("less than a tenth of all four is remote", STARVED, || {
        Ok((four.remote()?.1 < 0.1).then_some(()))
    })?;
    checks.note("seconds until less than a tenth of all four is remote", &begin.elapsed().as_secs_f64());
    // A machine that plays several guests gives each less, and turns come later. Few samples are enough for a
    // turn to judge by: each of the four runs on one CPU and has its memory on one node.
    checks.below("turns of the daemon until then", TURNS, daemon.ticks()?);
    sleep(WATCHED);
    checks.below("remote share of the worst, later", 0.1, Some(four.remote()?.1));
    let moved = mebibytes(migrated()? - before);
    #[expect(clippy::cast_precision_loss, reason = "some hundred MiB")]
    let ratio = moved as f64 / (FOUR.len() * MEBIBYTES) as f64;
    checks.below("moved bytes over misplaced ones", 1.2, Some(ratio));
    let moves = |outcome| daemon.labelled("numa_enforcer_rebalance_moves_total", &[("outcome", outcome)]);
    checks.equal("moves that were begun", Some(4.0), moves("begun")?);
    checks.equal("moves that were taken back", Some(0.0), moves("reverted")?);
    checks.note("moves that held", &moves("held")?);
    checks.note("the daemon: MiB moved", &moved);
    drop(daemon);
    four.end()
}

/// Seconds mean something with `cargo xtask test --release rebalance-peers` on a quiet host alone, because
/// the kernel is optimised; the number of the daemon's turns says the same everywhere.
///
/// Each begins when the four are misplaced: balancing is switched on, numad is started, the daemon, which
/// runs already as the kernel does, reads a configuration that declares them.
fn each_alone(checks: &mut Checks) -> Result<()> {
    let kernel =
        alone(Some("0-1"), |_| fs::write(BALANCING, "1").context("switch balancing on"), || Ok(None))?.0;
    checks.holds("the kernel's balancing moves memory", kernel.mebibytes_moved > 0, kernel.mebibytes_moved);
    checks.note("the kernel's balancing alone", &kernel);
    fs::write(BALANCING, "0").with_context(|| format!("write {BALANCING}"))?;
    let daemon = Daemon::start_by_itself("enforce", "[rebalance]\nenabled = true\n")?;
    daemon.metrics_after_ticks(1)?;
    let ours = alone(None, |four| daemon.reload(&four.configuration()), || daemon.ticks())?.0;
    checks.note("the daemon", &ours);
    daemon.ends_well(checks)?;
    let seconds = |course: &Course| course.seconds_until_below_a_fifth;
    checks.below(
        "seconds of the daemon over those of the kernel",
        1.0 / 3.0,
        seconds(&ours).zip(seconds(&kernel)).map(|(ours, kernel)| ours / kernel),
    );
    checks.below("turns of the daemon until then, of which one judges and one carries out", 4.0, ours.turns);
    checks.holds(
        "the daemon moves no more than what is misplaced",
        ours.mebibytes_moved <= (FOUR.len() * MEBIBYTES) as u64,
        ours.mebibytes_moved,
    );
    // By itself it leaves processes alone that have less than 300 MiB: these it is told of (numad(8), `-p`).
    let numad = |four: &Four| {
        let command = |arguments: &[&str]| {
            let mut command = Command::new(NUMAD);
            command.args(arguments);
            command
        };
        let numad = Running::spawn(&mut command(&["-i", "2:5"]))?;
        for (_, hog) in &four.0 {
            let told = process::run(&mut command(&["-p", &hog.pid().to_string()]), LIMIT)?;
            ensure!(told.status == Some(0), "numad -p failed: {}", told.stderr);
        }
        Ok(numad)
    };
    checks.note("numad", &alone(Some("0-1"), numad, || Ok(None))?.0);
    Ok(())
}

/// The course of four with something that is started, and the remote share of the most local one at the end.
/// `count` counts turns.
fn alone<T>(
    mems: Option<&str>,
    start: impl FnOnce(&Four) -> Result<T>,
    count: impl Fn() -> Result<Option<f64>>,
) -> Result<(Course, f64)> {
    let four = Four::start(mems)?;
    let before = migrated()?;
    let first = count()?;
    let begin = Instant::now();
    let other = start(&four)?;
    let (mut below, mut turns) = (None, None);
    while begin.elapsed() < WATCHED {
        if below.is_none() && four.remote()?.1 < 0.2 {
            below = Some(begin.elapsed().as_secs_f64());
            turns = count()?.zip(first).map(|(now, first)| now - first);
        }
        sleep(Duration::from_millis(50));
    }
    let (least, most) = four.remote()?;
    let mebibytes_moved = mebibytes(migrated()? - before);
    drop(other);
    four.end()?;
    let course =
        Course { seconds_until_below_a_fifth: below, turns, mebibytes_moved, most_remote_at_the_end: most };
    Ok((course, least))
}

impl Four {
    /// Memory is allocated beside other CPUs than those that they then run on.
    fn start(mems: Option<&str>) -> Result<Self> {
        let start = |(name, cpu, memory): (&str, u32, u32)| {
            let path = format!("/four/{name}");
            let cgroup = Cgroup::with_cpuset(&path, &memory.to_string(), &node_of(memory).to_string())?;
            let hog = Running::hog(&cgroup, MEBIBYTES)?;
            if let Some(mems) = mems {
                cgroup.write("cpuset.mems", mems)?;
            }
            cgroup.write("cpuset.cpus", &cpu.to_string())?;
            Ok((cgroup, hog))
        };
        FOUR.into_iter().map(start).collect::<Result<_>>().map(Self)
    }

    /// The remote share of the best and of the worst.
    fn remote(&self) -> Result<(f64, f64)> {
        let (mut least, mut most) = (1.0_f64, 0.0_f64);
        for (_, hog) in &self.0 {
            let cpu = *hog.cpus_allowed()?.iter().next().context("no CPU is allowed")?;
            let remote = 1.0 - memory::share_on(hog.pid(), node_of(cpu))?;
            (least, most) = (least.min(remote), most.max(remote));
        }
        Ok((least, most))
    }

    fn configuration(&self) -> String {
        let rule = |(cgroup, _): &(Cgroup, Running)| {
            let path = cgroup.path();
            format!("[[workload]]\nname = \"{path}\"\ncgroup = \"{path}\"\ncpus = 1\npolicy = \"none\"\n")
        };
        let rules: String = self.0.iter().map(rule).collect();
        format!("[rebalance]\nenabled = true\n{rules}")
    }

    fn end(self) -> Result<()> {
        for (cgroup, hog) in self.0 {
            hog.kill()?;
            wait::until("an ended cgroup is empty", LIMIT, || Ok(cgroup.remove().ok()))?;
        }
        Ok(())
    }
}

const fn node_of(cpu: u32) -> u32 {
    cpu / 2
}

/// Pages that were moved since the boot, by whomever.
fn migrated() -> Result<u64> {
    const PATH: &str = "/proc/vmstat";
    let text = fs::read_to_string(PATH).with_context(|| format!("read {PATH}"))?;
    let value = text.lines().find_map(|line| line.strip_prefix("pgmigrate_success "));
    Ok(value.with_context(|| format!("{PATH} has no pgmigrate_success"))?.trim().parse()?)
}

const fn mebibytes(pages: u64) -> u64 {
    pages / 256
}
