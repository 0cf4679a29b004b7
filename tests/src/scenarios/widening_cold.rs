//! Does a workload that is declared to stay live because cold pages of its neighbour go to slower memory?
//!
//! The neighbour may be on the full node and on slow memory and nowhere else, so nothing of it can go to a
//! node as good. It reads a small part of what it has, again and again, and the OOM killer may not take it:
//! there is one outcome without help. The control is the same two with the same daemon, and the neighbour not
//! declared for demotion: the one that stays is killed.
//!
//! At the usual rate next to nothing goes down here, a page in a round, so that what goes is what was
//! missing.

use std::{collections::BTreeSet, fs, ops::Range, path::Path};

use anyhow::{Context, Result};

use super::{
    widening::{Fate, LIMIT, kills, mebibytes_on, node_free_mebibytes},
    widening_relief::RELIEVED,
};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    layers::Layered,
    memory,
    process::Running,
    product::{self, Daemon, STATE},
    wait,
};

/// What the neighbour leaves free, in MiB: more than the amount below which a node is short.
const LEFT: usize = 130;
/// So many MiB more than are free are wanted: more than the kernel finds without help.
const OVER: usize = 60;
/// What a node of this size has when nothing is missing: twice `min_headroom`.
const CALM: usize = 128;
/// Watermarks and whole huge pages.
const SLACK: usize = 40;
/// What the neighbour reads, in MiB.
const HOT: Range<usize> = 0..20;
/// MiB per second by which the one that stays grows: an emulated machine needs seconds to see what is cold
/// and to move it.
const RATE: usize = 4;
/// The slow node of their socket.
const SLOW: u32 = 2;

const DEMOTION: &str = "[memory.demotion]\nidle = \"5s\"\nbytes_per_second = \"1KiB\"\n";
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

pub(super) fn makes_room(checks: &mut Checks) -> Result<()> {
    // Others run on the neighbour's CPU, as on any machine: an emulated one that has nothing else to do marks
    // no page again.
    let _other = Running::hog(&Cgroup::with_cpuset("/work/other", "0", "1")?, 4)?;
    for demotes in [false, true] {
        let outcome = beside(checks, demotes);
        if outcome.is_err() || !checks.passed() {
            println!("the daemon printed:\n{}", Daemon::printed());
        }
        outcome?;
    }
    Ok(())
}

/// The neighbour keeps to the cpuset that it has.
fn config(neighbour: &Cgroup, strict: &Cgroup, demotes: bool) -> String {
    let path = neighbour.path();
    let stays = product::rules(&[strict]).replace("cpus = 2", "cpus = 1");
    let demotion = if demotes { DEMOTION } else { "" };
    format!(
        "{demotion}[[workload]]\nname = \"{path}\"\ncgroup = \"{path}\"\nenforce = false\ndemotion = {demotes}\n\
         {stays}strict_memory = true\n"
    )
}

fn beside(checks: &mut Checks, demotes: bool) -> Result<()> {
    let what = if demotes { "with demotion" } else { "control" };
    let neighbour = Cgroup::with_cpuset(&format!("/work/neighbour-{demotes}"), "0", "0,2")?;
    let strict = Cgroup::with_cpuset(&format!("/work/strict-{demotes}"), "1", "0")?;
    let daemon = Daemon::start_with("enforce", &config(&neighbour, &strict, demotes))?;
    daemon.metrics_after_ticks(1)?;
    // What the kernel could take back would let the control live.
    fs::write(DROP_CACHES, "3").with_context(|| format!("write {DROP_CACHES}"))?;
    let free = node_free_mebibytes(0)?;
    checks.note(format!("{what}: free MiB before"), &free);
    let size = free.checked_sub(LEFT).context("the node is full already")?;
    let mut layered = Layered::start(&neighbour, size)?;
    let protect = format!("/proc/{}/oom_score_adj", layered.pid());
    fs::write(&protect, "-1000").with_context(|| format!("write {protect}"))?;
    layered.read(HOT)?;
    // Longer than it takes to find cold pages.
    daemon.metrics_after_ticks(6)?;
    let down = || layered.mebibytes_on(SLOW, 0..size);
    checks.below(format!("{what}: MiB that are on slow memory before"), 3.0, Some(down()?));

    let wanted = node_free_mebibytes(0)? + OVER;
    checks.note(format!("{what}: MiB that are wanted"), &wanted);
    let mut hog = Running::growing(&strict, wanted, RATE)?;
    let (found, mems) = course(&mut hog, &strict, wanted)?;
    let expected = if demotes { Fate::Lives } else { Fate::Killed };
    checks.equal(format!("{what}: the one that stays"), expected, found);
    checks.equal(format!("{what}: its oom and oom_kill"), [0, u64::from(!demotes)], kills(&strict)?);
    checks.equal(format!("{what}: those of the neighbour"), [0, 0], kills(&neighbour)?);
    checks.equal(format!("{what}: its memory nodes all the while"), BTreeSet::from(["0".to_owned()]), mems);
    // Until nothing is missing any more.
    let metrics = daemon.metrics_after_ticks(5)?;
    let widened = metrics.sum("numa_enforcer_memory_widenings_total", &[]);
    checks.equal(format!("{what}: widenings"), 0, count(widened));
    let relieved = |cause| mebibytes(metrics.sum(RELIEVED, &[("cause", cause)]));
    checks.equal(
        format!("{what}: MiB of neighbours that went to a node as good"),
        0,
        count(relieved("neighbour")),
    );
    let explained = product::run(&["explain", neighbour.path()])?.stdout;
    checks.note(format!("{what}: MiB of cold pages that made room"), &relieved("cold"));
    if found != expected {
        checks.note(format!("{what}: explain of the neighbour"), &explained);
        anyhow::bail!("{what}: it is {found:?}, so nothing else can be told");
    }
    if demotes {
        let own = mebibytes_on(&hog)?;
        checks.holds("the one that stays is at home", own[0] >= wanted as u64 && own[1..] == [0; 3], own);
        let went = down()?;
        let most = f64::from(u32::try_from(OVER + CALM + SLACK)?);
        let cold = f64::from(u32::try_from(size - HOT.len())?);
        checks.above("control of the next: MiB that were cold", most, Some(cold));
        checks.below("MiB that went, no more than were missing", most, Some(went));
        checks.above("MiB that went because they were missing", went - 8.0, Some(relieved("cold")));
        checks.above("and that is not nothing", 20.0, Some(relieved("cold")));
        let whole = f64::from(u32::try_from(HOT.len())?);
        checks.equal(
            "MiB that are hot, and still on fast memory",
            count(whole),
            count(layered.mebibytes_on(0, HOT)?),
        );
        let told = format!("so that {}, which is declared to stay, has room", strict.path());
        let explain = ["explain", neighbour.path()];
        product::comes_to_say(checks, "explain of the neighbour names the other workload", &explain, &told)?;
        daemon.metrics_after_ticks(3)?;
        checks.below("MiB that went later, when nothing was missing", 3.0, Some(down()? - went));
        checks.equal("the one that stays is there", false, hog.has_ended()?);
    } else {
        checks.equal("control: MiB on slow memory", 0, count(down()?));
        checks.equal("control: MiB of cold pages that made room", 0, count(relieved("cold")));
        checks.holds("control: the neighbour lives", Path::new(&protect).exists(), layered.pid());
    }
    checks.equal(format!("{what}: exit status of the daemon"), Some(0), daemon.end()?);
    product::run(&["restore", "--state-dir", STATE])?;
    Ok(())
}

/// What becomes of it, and all that its memory nodes were until then.
fn course(hog: &mut Running, strict: &Cgroup, mebibytes: usize) -> Result<(Fate, BTreeSet<String>)> {
    let (wanted, mut mems) = ((mebibytes as u64) << 10, BTreeSet::new());
    let found = wait::until("it has its memory or is killed", LIMIT, || {
        mems.insert(strict.cpuset()?.1);
        if hog.has_ended()? {
            return Ok(Some(Fate::Killed));
        }
        // It may end at any moment.
        let has = memory::anonymous_kib(hog.pid()).unwrap_or(0);
        Ok((has >= wanted).then_some(Fate::Lives))
    })?;
    Ok((found, mems))
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / 1_048_576.0
}

#[expect(clippy::cast_possible_truncation, reason = "some hundred MiB")]
fn count(number: f64) -> i64 {
    number.round() as i64
}
