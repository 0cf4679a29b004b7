//! Is the reported remote traffic true?
//!
//! Programs that know what they touch (touch/) run side by side: all local, all remote, and between; with
//! pages of both sizes, as threads, as processes, and as a thread that travels. The kernel's balancer is off,
//! which leaves the figure to the estimate from placement. What is reported is held against what was done
//! while the audit sampled. The local program is the control: no figure that is the same for all can pass.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    cgroup::Cgroup,
    check::Checks,
    memory,
    product::{self, Report},
    touch::{Counts, Plan, Touching},
};

/// Samples that a figure must come from.
const ENOUGH_SAMPLES: u64 = 1_000;

/// Farthest that a figure of so many samples may be from the truth.
const TOLERANCE: f64 = 0.05;

/// Time that usually gives enough samples: up to three workloads share a CPU and its hundred ticks a second.
const USUAL_SECONDS: u64 = 30;

/// Longest audit: an emulated CPU that stands still loses its ticks for good, half of them on a busy host.
const MOST_SECONDS: u64 = 200;

/// Audits until each figure comes from enough samples.
const ATTEMPTS: usize = 3;

/// CPUs of a node in the guests' topologies.
const CPUS_PER_NODE: u32 = 2;

/// One workload.
struct Case {
    name: &'static str,
    /// Its processes: the threads of each.
    processes: Vec<Vec<Plan>>,
    small_pages: bool,
    /// Node that it runs on; none where it travels.
    src: Option<u32>,
}

/// A case that runs.
struct Running {
    case: Case,
    cgroup: Cgroup,
    processes: Vec<Touching>,
}

/// Every proportion, from both nodes.
pub(super) fn proportions(checks: &mut Checks) -> Result<()> {
    traffic(checks, proportions_on(&[(0, 1), (1, 0)]))
}

/// Every proportion; each node is the source or the target of something.
pub(super) fn proportions_on_four_nodes(checks: &mut Checks) -> Result<()> {
    traffic(checks, proportions_on(&[(0, 3), (2, 1)]))
}

/// Huge pages, several threads, several processes, and threads that travel.
pub(super) fn kinds(checks: &mut Checks) -> Result<()> {
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "always").context("allow huge pages")?;
    let half_away = || Plan::staying(cpu_of(0), &[(cpu_of(0), 8), (cpu_of(1), 8)]);
    let travelling = |away| Plan {
        runs_on: [vec![cpu_of(1); away], vec![cpu_of(0); 10 - away]].concat(),
        holds: vec![(cpu_of(0), 40)],
        stints: None,
    };
    let stays = |name, processes| Case { name, processes, small_pages: true, src: Some(0) };
    let travels = |name, away| Case { src: None, ..stays(name, vec![vec![travelling(away)]]) };
    let huge =
        |name, (src, dst), near, far| Case { small_pages: false, ..split(name, (src, dst), near, far) };
    let cases = vec![
        huge("huge-10", (1, 0), 72, 8),
        huge("huge-90", (1, 0), 8, 72),
        stays("threads-50", vec![vec![half_away(), half_away()]]),
        stays("processes-50", vec![vec![half_away()], vec![half_away()]]),
        travels("travels-10", 1),
        travels("travels-90", 9),
    ];
    traffic(checks, cases)
}

/// Runs the cases side by side.
fn traffic(checks: &mut Checks, cases: Vec<Case>) -> Result<()> {
    let mut running = cases.into_iter().map(Running::start).collect::<Result<Vec<_>>>()?;
    for one in &mut running {
        one.counts()?;
    }
    let (report, meanwhile) = audit(&mut running)?;
    for (one, truth) in running.iter().zip(meanwhile) {
        one.check_memory(checks)?;
        one.check_figures(checks, &report, truth)?;
    }
    Ok(())
}

/// All local, all remote, and between, on these pairs of nodes in turn.
fn proportions_on(routes: &[(u32, u32)]) -> Vec<Case> {
    let cases =
        [("away-0", 40, 0), ("away-10", 36, 4), ("away-50", 20, 20), ("away-90", 4, 36), ("away-100", 0, 40)];
    let on_routes = cases.into_iter().zip(routes.iter().cycle());
    on_routes.map(|((name, near, far), route)| split(name, *route, near, far)).collect()
}

/// One thread that stays, with so many MiB on its own node and on another.
fn split(name: &'static str, (src, dst): (u32, u32), near: usize, far: usize) -> Case {
    let thread = Plan::staying(cpu_of(src), &[(cpu_of(src), near), (cpu_of(dst), far)]);
    Case { name, processes: vec![vec![thread]], small_pages: true, src: Some(src) }
}

/// The first CPU of a node. The others are left to the product: a guest with all CPUs busy takes the host's
/// from other guests.
fn cpu_of(node: u32) -> u32 {
    node * CPUS_PER_NODE
}

/// Audits until each figure comes from enough samples; also tells what was done during the last one.
fn audit(running: &mut [Running]) -> Result<(Report, Vec<Counts>)> {
    let mut seconds = USUAL_SECONDS;
    let mut attempt = 1;
    loop {
        let before = running.iter_mut().map(Running::counts).collect::<Result<Vec<_>>>()?;
        let (report, _) = product::audit(&["--sample", &format!("{seconds}s")])?;
        let after = running.iter_mut().map(Running::counts).collect::<Result<Vec<_>>>()?;
        let mut fewest = u64::MAX;
        for one in &*running {
            fewest = fewest.min(samples(report.workload(&one.cgroup)?).unwrap_or(0));
        }
        println!("{fewest} samples or more each in {seconds} s");
        if fewest >= ENOUGH_SAMPLES || attempt == ATTEMPTS {
            let meanwhile = before.iter().zip(after).map(|(before, after)| after.since(*before));
            return Ok((report, meanwhile.collect()));
        }
        attempt += 1;
        seconds = (seconds * ENOUGH_SAMPLES * 11 / 10 / fewest.max(1)).clamp(USUAL_SECONDS, MOST_SECONDS);
    }
}

impl Running {
    fn start(case: Case) -> Result<Self> {
        let cgroup = Cgroup::create(&format!("/work/{}", case.name))?;
        let start = |threads: &Vec<Plan>| Touching::start(&cgroup, threads, case.small_pages);
        let processes = case.processes.iter().map(start).collect::<Result<_>>()?;
        Ok(Self { case, cgroup, processes })
    }

    /// Of all its processes. The first call sets them going.
    fn counts(&mut self) -> Result<Counts> {
        self.processes.iter_mut().try_fold(Counts::default(), |sum, process| Ok(sum.and(process.counts()?)))
    }

    /// The truth about touches is one only while the pages are where they were put.
    fn check_memory(&self, checks: &mut Checks) -> Result<()> {
        for (process, threads) in self.processes.iter().zip(&self.case.processes) {
            let found = memory::anonymous_by_node(process.pid())?;
            for (node, mebibytes) in held(threads) {
                let what = format!("{}: KiB on node {node}, by numa_maps", self.case.name);
                let there = found.get(&node).copied().unwrap_or(0);
                checks.holds(what, is_about(there << 10, mebibytes), there);
            }
            let huge = memory::huge_share(process.pid())?;
            let right = if self.case.small_pages { huge == 0.0 } else { huge > 0.9 };
            checks.holds(format!("{}: share of huge pages, by smaps_rollup", self.case.name), right, huge);
        }
        Ok(())
    }

    fn check_figures(&self, checks: &mut Checks, report: &Report, truth: Counts) -> Result<()> {
        let name = self.case.name;
        let workload = report.workload(&self.cgroup)?;
        let truth = truth.remote_ratio().context("nothing was touched")?;
        let found = workload.pointer("/traffic/remoteRatio").and_then(Value::as_f64);
        let samples = samples(workload);
        checks.holds(
            format!("{name}: remote ratio within {TOLERANCE} of {truth:.4}"),
            found.is_some_and(|found| (found - truth).abs() <= TOLERANCE),
            (found, samples),
        );
        checks.holds(
            format!("{name}: samples"),
            samples.is_some_and(|samples| samples >= ENOUGH_SAMPLES),
            samples,
        );
        let source = workload.pointer("/traffic/source").and_then(Value::as_str);
        checks.equal(format!("{name}: source of the figure"), Some("placement"), source);
        for (node, mebibytes) in held(self.case.processes.iter().flatten()) {
            let there = workload.pointer(&format!("/bytesByNuma/{node}/anon")).and_then(Value::as_u64);
            let what = format!("{name}: anonymous bytes reported on node {node}");
            let processes = self.processes.len() as u64;
            checks.holds(
                what,
                there.is_some_and(|there| is_about(there / processes, mebibytes / processes)),
                there,
            );
        }
        if let Some(src) = self.case.src {
            let node = src.to_string();
            checks.equal(format!("{name}: nodes of its CPUs"), Some(&*node), workload["numaNodes"].as_str());
        }
        Ok(())
    }
}

/// MiB that threads hold on each node.
fn held<'a>(threads: impl IntoIterator<Item = &'a Plan>) -> BTreeMap<u32, u64> {
    let mut by_node = BTreeMap::new();
    for (cpu, mebibytes) in threads.into_iter().flat_map(|thread| &thread.holds) {
        *by_node.entry(cpu / CPUS_PER_NODE).or_insert(0) += *mebibytes as u64;
    }
    by_node
}

/// Is it what was put there, and no more than a process's own memory on top?
fn is_about(bytes: u64, mebibytes: u64) -> bool {
    (mebibytes << 20..(mebibytes + 1) << 20).contains(&bytes)
}

/// Observations behind the traffic figure.
fn samples(workload: &Value) -> Option<u64> {
    workload.pointer("/traffic/samples")?.as_u64()
}
