//! Does a workload live that fills its memory node, and does one that may not be helped get told why?
//!
//! The control in each is the same load without the daemon, or where it may not help: the kernel kills it
//! with half of the machine empty. A kill because of full memory nodes shows in `memory.events` as `oom_kill`
//! without `oom` (Documentation/admin-guide/cgroup-v2.rst).

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{
    cgroup::Cgroup,
    check::Checks,
    memory,
    process::Running,
    product::{self, Daemon, STATE},
    wait,
};

/// Memory of a hog: more than a node has.
pub(super) const MEBIBYTES: usize = 600;

/// Longest time for a hog to take that, or to be killed: a bound on a hang.
pub(super) const LIMIT: Duration = Duration::from_mins(5);

/// MiB per second by which it grows where a node is to be added in time: what is left then lasts for more
/// than a second, in which the daemon's thread must run once. Emulated, on a busy host, it may have to wait
/// for that alone while others go on.
const RATE: usize = 40;

const WIDENINGS: &str = "numa_enforcer_memory_widenings_total";

/// The kernel's own setting of huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// What became of a hog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Lives,
    Killed,
}

/// A cgroup at home on a node, by its number: two CPUs and the memory of it.
pub(super) fn at_home(path: &str, node: usize) -> Result<Cgroup> {
    let (cpus, mems) = [("0-1", "0"), ("2-3", "1")].get(node).copied().context("no such node")?;
    Cgroup::with_cpuset(path, cpus, mems)
}

/// Declares these workloads, with further keys for each.
fn declared(workloads: &[&Cgroup], keys: &str) -> String {
    let rules: Vec<String> =
        workloads.iter().map(|one| format!("{}{keys}\n", product::rules(&[one]))).collect();
    rules.concat()
}

/// A daemon that guards these.
pub(super) fn guarding(workloads: &[&Cgroup], keys: &str) -> Result<Daemon> {
    let daemon = Daemon::start_with("enforce", &declared(workloads, keys))?;
    // A workload is watched after a turn has seen it.
    daemon.metrics_after_ticks(2)?;
    Ok(daemon)
}

/// Waits until a hog has its memory, or is gone; returns where it is then.
pub(super) fn fate(hog: &mut Running, mebibytes: usize) -> Result<Fate> {
    let wanted = (mebibytes as u64) << 10;
    wait::until("the hog has its memory or is killed", LIMIT, || {
        if hog.has_ended()? {
            return Ok(Some(Fate::Killed));
        }
        // It may end at any moment.
        let has = memory::anonymous_kib(hog.pid()).unwrap_or(0);
        Ok((has >= wanted).then_some(Fate::Lives))
    })
}

/// `oom` and `oom_kill` of `memory.events`.
pub(super) fn kills(cgroup: &Cgroup) -> Result<[u64; 2]> {
    let text = cgroup.read("memory.events")?;
    let of = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    Ok([of("oom").context("no oom")?, of("oom_kill").context("no oom_kill")?])
}

/// Anonymous MiB of a process on each of four nodes.
pub(super) fn mebibytes_on(hog: &Running) -> Result<[u64; 4]> {
    let by_node = memory::anonymous_by_node(hog.pid())?;
    Ok([0, 1, 2, 3].map(|node| by_node.get(&node).copied().unwrap_or(0) >> 10))
}

/// [`outlives_full_node`] on the faster node.
pub(super) fn before_the_oom_killer(checks: &mut Checks) -> Result<()> {
    outlives_full_node(checks, 0)
}

/// [`outlives_full_node`] on the other fast node.
pub(super) fn before_the_oom_killer_on_node_1(checks: &mut Checks) -> Result<()> {
    outlives_full_node(checks, 1)
}

/// Scenarios 1, 2 and 5 of the design: without the daemon the workload is killed, with it the workload lives,
/// also after the kswapd of its node has given up.
fn outlives_full_node(checks: &mut Checks, node: usize) -> Result<()> {
    let control = at_home(&format!("/work/control{node}"), node)?;
    let mut hog = Running::growing(&control, MEBIBYTES, RATE)?;
    checks.equal(
        format!("node {node}, control: without the daemon"),
        Fate::Killed,
        fate(&mut hog, MEBIBYTES)?,
    );
    checks.equal(format!("node {node}, control: oom and oom_kill"), [0, 1], kills(&control)?);

    let cgroup = at_home(&format!("/work/home{node}"), node)?;
    let daemon = guarding(&[&cgroup], "")?;
    let mut hog = Running::growing(&cgroup, MEBIBYTES, RATE)?;
    checks.equal(format!("node {node}: with the daemon"), Fate::Lives, fate(&mut hog, MEBIBYTES)?);
    checks.equal(format!("node {node}: oom and oom_kill"), [0, 0], kills(&cgroup)?);
    checks.equal(format!("node {node}: its memory nodes"), "0-1".to_owned(), cgroup.cpuset()?.1);
    let on = mebibytes_on(&hog)?;
    checks.note(format!("node {node}: MiB on each node"), &on);
    checks.equal(format!("node {node}: MiB on slower nodes"), [0, 0], [on[2], on[3]]);
    let metrics = daemon.metrics_after_ticks(2)?;
    let widened = |stage| metrics.sum(WIDENINGS, &[("stage", stage), ("result", "applied")]);
    checks.equal(
        format!("node {node}: nodes added in time and late"),
        [1.0, 0.0],
        ["widen", "emergency"].map(widened),
    );
    checks.equal(format!("node {node}: it stays as wide"), "0-1".to_owned(), cgroup.cpuset()?.1);

    // A daemon that is started again takes over what was added, and restore takes it back.
    daemon.process().kill()?;
    let daemon = guarding(&[&cgroup], "")?;
    checks.equal(format!("node {node}: after a restart"), "0-1".to_owned(), cgroup.cpuset()?.1);
    let explained = product::run(&["explain", cgroup.path()])?;
    checks.note(format!("node {node}: explain"), &explained.stdout);
    daemon.ends_well(checks)?;
    hog.kill()?;
    product::run(&["restore", "--state-dir", STATE])?;
    checks.equal(format!("node {node}: after restore"), node.to_string(), cgroup.cpuset()?.1);
    Ok(())
}

/// Scenario 3: as fast as it can, with huge pages and without.
pub(super) fn at_full_speed(checks: &mut Checks) -> Result<()> {
    let runs = checks.runs(5);
    for huge in ["never", "always"] {
        fs::write(HUGE_PAGES, huge).with_context(|| format!("write {HUGE_PAGES}"))?;
        let control = at_home(&format!("/work/control-{huge}"), 0)?;
        let mut hog = Running::growing(&control, MEBIBYTES, 0)?;
        checks.equal(
            format!("huge pages {huge}: without the daemon"),
            Fate::Killed,
            fate(&mut hog, MEBIBYTES)?,
        );
        for run in 0..runs {
            let cgroup = at_home(&format!("/work/{huge}{run}"), run % 2)?;
            let daemon = guarding(&[&cgroup], "")?;
            let mut hog = Running::growing(&cgroup, MEBIBYTES, 0)?;
            let what = format!("huge pages {huge}, run {run}");
            checks.equal(format!("{what}: with the daemon"), Fate::Lives, fate(&mut hog, MEBIBYTES)?);
            let metrics = daemon.metrics_after_ticks(2)?;
            let late = metrics.sum(WIDENINGS, &[("stage", "emergency")]);
            checks.below(format!("{what}: late triggers"), 1.5, Some(late));
            hog.kill()?;
            daemon.end()?;
            product::run(&["restore", "--state-dir", STATE])?;
        }
        all_at_once(checks, huge, 4)?;
    }
    Ok(())
}

/// Several processes in a new cgroup fill the node within a second.
fn all_at_once(checks: &mut Checks, huge: &str, processes: usize) -> Result<()> {
    let what = format!("huge pages {huge}, {processes} at once");
    let control = at_home(&format!("/work/control-{huge}-{processes}"), 1)?;
    let died = killed_of(&control, processes, 0)?;
    checks.holds(format!("{what}: without the daemon some are killed"), died > 0, died);
    let cgroup = at_home(&format!("/work/{huge}-{processes}"), 1)?;
    let daemon = guarding(&[&cgroup], "")?;
    checks.equal(format!("{what}: killed with the daemon"), 0, killed_of(&cgroup, processes, 0)?);
    daemon.end()?;
    product::run(&["restore", "--state-dir", STATE]).map(drop)
}

/// Scenario 6: the other socket's memory before slower memory, and that only where it may.
pub(super) fn in_order(checks: &mut Checks) -> Result<()> {
    let filled = at_home("/work/filler", 1)?;
    let filler = Running::hog(&filled, node_free_mebibytes(1)?.saturating_sub(40))?;
    for (lower, expected) in [("true", Fate::Lives), ("false", Fate::Killed)] {
        let cgroup = at_home(&format!("/work/lower-{lower}"), 0)?;
        let daemon = guarding(&[&cgroup], &format!("lower_tiers = {lower}"))?;
        let mut hog = Running::growing(&cgroup, MEBIBYTES, 100)?;
        let found = fate(&mut hog, MEBIBYTES)?;
        checks.equal(format!("lower tiers {lower}"), expected, found);
        if found == Fate::Lives {
            let on = mebibytes_on(&hog)?;
            checks.equal("lower tiers true: MiB on node 1", 0, on[1]);
            checks.holds("lower tiers true: MiB on the slower node of its socket", on[2] > 0, on);
        } else {
            checks.equal("lower tiers false: its memory nodes", "0".to_owned(), cgroup.cpuset()?.1);
            product::comes_to_print(
                checks,
                "lower tiers false: the refusal is told",
                "no node that it may have has room",
            )?;
        }
        daemon.end()?;
    }
    drop(filler);
    Ok(())
}

/// Scenarios 8 and 10, and strict ones: a workload that reaches its own limit, one declared to stay, and one
/// below a cgroup that is too narrow.
pub(super) fn where_it_may(checks: &mut Checks) -> Result<()> {
    let limited = at_home("/work/limited", 0)?;
    limited.write("memory.max", "100M")?;
    // A workload without a process is not watched, and the limit is reached before a further turn sees one
    // with a process.
    let sleeper = Running::spawn(Command::new("sleep").arg("100000"))?;
    limited.adopt(sleeper.pid())?;
    let daemon = guarding(&[&limited], "")?;
    let mut hog = Running::growing(&limited, 300, 100)?;
    checks.equal("limited: its own limit", Fate::Killed, fate(&mut hog, 300)?);
    daemon.metrics_after_ticks(2)?;
    checks.equal("limited: its memory nodes", "0".to_owned(), limited.cpuset()?.1);
    product::comes_to_print(checks, "limited: the reason is told", "memcg_limit")?;
    daemon.end()?;
    sleeper.kill()?;

    let strict = at_home("/work/strict", 0)?;
    let daemon = guarding(&[&strict], "strict_memory = true")?;
    let mut hog = Running::growing(&strict, MEBIBYTES, 100)?;
    checks.equal("strict: it is not helped", Fate::Killed, fate(&mut hog, MEBIBYTES)?);
    checks.equal("strict: its memory nodes", "0".to_owned(), strict.cpuset()?.1);
    product::comes_to_print(checks, "strict: the refusal is told", "declared to stay")?;
    daemon.end()?;

    nested(checks)
}

/// A foreign cgroup above is left alone; one of the daemon's is widened first.
fn nested(checks: &mut Checks) -> Result<()> {
    let _slice = at_home("/work/theirs", 0)?;
    let leaf = at_home("/work/theirs/leaf", 0)?;
    let daemon = guarding(&[&leaf], "")?;
    let mut hog = Running::growing(&leaf, MEBIBYTES, 100)?;
    checks.equal("theirs: it cannot be helped", Fate::Killed, fate(&mut hog, MEBIBYTES)?);
    product::comes_to_print(
        checks,
        "theirs: the cgroup that is too narrow is told",
        "/work/theirs above it allows only 0",
    )?;
    daemon.end()?;

    // One that the daemon has set, while it was declared.
    let slice = Cgroup::with_cpuset("/work/ours", "2-3", "0-1")?;
    let declared = format!("{}numa_nodes = \"0\"\n", product::rules(&[&slice]));
    // A workload without a process is not placed, and no process may be in it once there is a cgroup below.
    let sleeper = Running::spawn(Command::new("sleep").arg("100000"))?;
    slice.adopt(sleeper.pid())?;
    let daemon = Daemon::start_with("enforce", &declared)?;
    wait::until("the slice is on node 0", LIMIT, || {
        Ok((slice.cpuset()? == ("0-1".to_owned(), "0".to_owned())).then_some(()))
    })?;
    daemon.end()?;
    sleeper.kill()?;
    let leaf = at_home("/work/ours/leaf", 0)?;
    let daemon = guarding(&[&leaf], "")?;
    let mut hog = Running::growing(&leaf, MEBIBYTES, 100)?;
    checks.equal("ours: it is helped", Fate::Lives, fate(&mut hog, MEBIBYTES)?);
    checks.equal("ours: memory nodes of the leaf", "0-1".to_owned(), leaf.read("cpuset.mems.effective")?);
    checks.equal("ours: memory nodes above it", "0-1".to_owned(), slice.cpuset()?.1);
    product::comes_to_print(checks, "ours: the order is told", "after /work/ours above it has 0-1")?;
    daemon.end().map(drop)
}

/// The matrix: rates, processes, huge pages and nodes, each with its control. Takes long.
pub(super) fn over_the_matrix(checks: &mut Checks) -> Result<()> {
    let (runs, mut cell) = (checks.runs(5), 0);
    for huge in ["never", "always"] {
        fs::write(HUGE_PAGES, huge).with_context(|| format!("write {HUGE_PAGES}"))?;
        for node in [0, 1] {
            for (processes, rate) in [(1, 20), (1, 100), (1, 200), (1, 0), (4, 20), (4, 0)] {
                cell += 1;
                let what = format!("huge pages {huge}, node {node}, {processes} at {rate} MiB/s");
                let begun = Instant::now();
                let control = at_home(&format!("/work/control{cell}"), node)?;
                let died = killed_of(&control, processes, rate)?;
                checks.holds(format!("{what}: control"), died > 0, died);
                for run in 0..runs {
                    let cgroup = at_home(&format!("/work/cell{cell}-{run}"), node)?;
                    let daemon = guarding(&[&cgroup], "")?;
                    let died = killed_of(&cgroup, processes, rate)?;
                    checks.equal(format!("{what}, run {run}: killed"), 0, died);
                    let metrics = daemon.metrics_after_ticks(1)?;
                    let latency = "numa_enforcer_memory_widening_latency_seconds";
                    let quantiles = ["0.5", "0.99"].map(|q| metrics.sum(latency, &[("quantile", q)]));
                    checks.note(format!("{what}, run {run}: trigger to written, s (p50, p99)"), &quantiles);
                    daemon.end()?;
                    product::run(&["restore", "--state-dir", STATE])?;
                }
                checks.note(format!("{what}: seconds"), &begun.elapsed().as_secs());
            }
        }
    }
    Ok(())
}

/// How many of these are killed while they take the memory of one hog together.
fn killed_of(cgroup: &Cgroup, processes: usize, rate: usize) -> Result<usize> {
    let each = MEBIBYTES / processes;
    let start = |_| Running::growing(cgroup, each, rate / processes);
    let mut hogs = (0..processes).map(start).collect::<Result<Vec<_>>>()?;
    let mut killed = 0;
    for hog in &mut hogs {
        killed += usize::from(fate(hog, each)? == Fate::Killed);
    }
    Ok(killed)
}

pub(super) fn node_free_mebibytes(node: u32) -> Result<usize> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = text
        .lines()
        .find(|line| line.contains(" MemFree:"))
        .with_context(|| format!("{path} has no MemFree"))?;
    let kib = line.split_ascii_whitespace().rev().nth(1).context("no amount")?;
    Ok(kib.parse::<usize>().with_context(|| format!("{path}: {line:?}"))? >> 10)
}
