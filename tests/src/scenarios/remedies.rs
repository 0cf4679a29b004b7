//! Advice is action: what the one-shot audit advises is carried out in a shell, word by word and one after
//! the other, and the next audit has the finding no longer, and no other one worse.
//!
//! The host is prepared so that advice for an empty machine would be wrong: CPUs that are right beside memory
//! that is not, cgroups above that confine CPUs or memory, pages that no write of a cpuset moves, a container
//! with containers in it, huge pages, CPUs of another owner's partition, and a node that is full.

use std::{collections::BTreeMap, fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    cgroup::Cgroup,
    check::Checks,
    hog::Hog,
    ids::Ids,
    memory,
    process::{self, Running},
    product::{self, Report},
    wait,
};

/// Two nodes of four CPUs and 512 MiB each.
pub(super) const TOPOLOGY: &str = "ccx";

/// Memory of most workloads: enough to outweigh a program's own pages, quick to move.
const MEBIBYTES: usize = 48;

/// Memory of the workload that does not fit on a full node, and what that node can still give.
const MUCH: usize = 96;
const LEFT: u64 = 48;

/// Huge pages of 2 MiB that each node has.
const HUGE_PAGES: u64 = 28;

/// More remedies than there are workloads are remedies that bring others about.
const MOST_REMEDIES: usize = 12;

/// Longest time for a command: a bound on a hang.
const LIMIT: Duration = Duration::from_mins(3);

/// Names of containers, as runtimes give them.
const OUTER: &str = "/docker/0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";
const INNER: &str = "docker/1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e";

pub(super) fn are_carried_out(checks: &mut Checks) -> Result<()> {
    let host = Host::prepare()?;
    let before = Findings::read()?;
    let right = before.of(&host.right_cpus);
    let alone = format!("echo 1 > {}", host.right_cpus.folder().join("cpuset.mems").display());
    let is_alone = |one: &&Finding| one.remedy.as_deref() == Some(alone.as_str());
    checks.holds("CPUs that are right are left", !right.is_empty() && right.iter().all(is_alone), &right);
    for cgroup in [&host.boxed, &host.narrow, &host.inner, &host.huge] {
        let found = before.of(cgroup);
        let critical = found.iter().any(|one| one.severity == Severity::Critical && one.remedy.is_some());
        checks.holds(format!("{}: critical, with a remedy", cgroup.path()), critical, found);
    }
    let swept = before.of(&host.narrow);
    let by_process =
        |one: &&Finding| one.remedy.as_ref().is_some_and(|remedy| remedy.contains("migratepages"));
    checks.holds("pages that no write moves are moved by process", swept.iter().all(by_process), &swept);
    let tight = before.of(&host.tight);
    let named = tight.iter().any(|one| one.obstacle.contains("/work/tight above it"));
    checks.holds("the cgroup above that has to be changed is named", named, &tight);
    let has_remedy = tight.iter().any(|one| one.remedy.is_some());
    checks.holds("and there is no command that it would make useless", !has_remedy, &tight);

    // The control: without a remedy, and with a wrong one, the finding stays.
    let wrong = format!("echo 0 > {}", host.inner.folder().join("cpuset.mems").display());
    let finding = before.worst(&host.inner)?;
    for (what, command) in [("no remedy", "true"), ("a wrong remedy", wrong.as_str())] {
        carry_out(checks, command)?;
        let found = Findings::read()?.0.get(&finding.id).map(|one| one.severity);
        checks.equal(format!("{what} leaves the finding"), Some(finding.severity), found);
    }

    carry_out_all(checks)?;
    checks.equal("CPUs that were right", "4", host.right_cpus.read("cpuset.cpus")?.as_str());
    for (cgroup, process) in [
        (&host.right_cpus, &host.right_cpus_process),
        (&host.boxed, &host.boxed_process),
        (&host.narrow, &host.narrow_process),
        (&host.inner, &host.inner_process),
        (&host.huge, &host.huge_process),
    ] {
        let node = u32::from(cgroup.ids("cpuset.cpus.effective")?.is_subset(&Ids::from([4, 5, 6, 7])));
        let share = memory::share_on(process.pid(), node)?;
        checks.above(format!("share of {}'s pages on node {node}", cgroup.path()), 0.9, Some(share));
    }
    drop(host.neighbour);
    full_node(checks, &host.partition)
}

/// Memory that belongs on a node without room, while the CPUs beside it are those of a partition and of
/// others, has no remedy; when the node has room again, it has one.
fn full_node(checks: &mut Checks, partition: &Cgroup) -> Result<()> {
    checks.equal("the partition", "root", partition.read("cpuset.cpus.partition")?.as_str());
    let late = Cgroup::with_cpuset("/work/late", "3", "1")?;
    let late_process = Running::hog(&late, MUCH)?;
    let filling = Cgroup::with_cpuset("/work/filler", "3", "0")?;
    let mebibytes = usize::try_from(available_mebibytes(0)?.saturating_sub(LEFT))?;
    let filler = Running::hog_of(&Hog { pause_ms: 500, ..hog(&filling, mebibytes) })?;

    let full = Findings::read()?;
    let found = full.of(&late);
    let has_remedy = found.iter().any(|one| one.remedy.is_some());
    checks.holds("no remedy names a node that is full", !found.is_empty() && !has_remedy, &found);
    let names = ["partition /part", "partition of /part"];
    let named = found.iter().any(|one| names.iter().any(|name| one.obstacle.contains(name)));
    checks.holds("the partition beside its memory is named", named, &found);

    filler.kill()?;
    wait::until("node 0 has room again", LIMIT, || {
        Ok((available_mebibytes(0)? > MUCH as u64 + LEFT / 2).then_some(()))
    })?;
    let again = Findings::read()?;
    let found = again.of(&late);
    let has_remedy = found.iter().any(|one| one.remedy.is_some());
    checks.holds("with room it has a remedy", has_remedy, &found);
    carry_out_all(checks)?;
    checks.above("share of its pages on node 0", 0.9, Some(memory::share_on(late_process.pid(), 0)?));
    checks.equal("the partition is as it was", Ids::from([7]), partition.ids("cpuset.cpus")?);
    Ok(())
}

/// What is misplaced, and how.
struct Host {
    /// CPUs and memory of node 1, with node 0 allowed besides.
    right_cpus: Cgroup,
    right_cpus_process: Running,
    /// Has the CPUs of the cgroup above it, which are of node 0; its memory is on node 1.
    boxed: Cgroup,
    boxed_process: Running,
    /// It and the cgroup above it may use memory of node 0 alone; its pages are on node 1 all the same, where
    /// no write of a cpuset moves them.
    narrow: Cgroup,
    narrow_process: Running,
    /// The cgroup above it allows it CPUs of node 1 and memory of node 0.
    tight: Cgroup,
    _tight_process: Running,
    /// Container in a container: CPUs of node 1, memory of node 0.
    inner: Cgroup,
    inner_process: Running,
    _outer_process: Running,
    /// CPUs of node 0, huge pages of node 1.
    huge: Cgroup,
    huge_process: Running,
    /// Another owner's, with the only CPU of node 1 that no other workload is pinned to.
    partition: Cgroup,
    _partition_process: Running,
    /// The same of node 0.
    neighbour: Running,
}

impl Host {
    fn prepare() -> Result<Self> {
        let partition = Cgroup::with_cpuset("/part", "7", "1")?;
        let partition_process = quiet_hog(&partition, 8)?;
        partition.write("cpuset.cpus.partition", "root")?;
        let neighbour = quiet_hog(&Cgroup::with_cpuset("/work/neighbour", "3", "0")?, 8)?;

        let right_cpus = Cgroup::with_cpuset("/work/right-cpus", "4", "1")?;
        let right_cpus_process = quiet_hog(&right_cpus, MEBIBYTES)?;
        right_cpus.write("cpuset.mems", "0-1")?;

        let confined = Cgroup::with_cpuset("/work/box", "0-1", "0-1")?;
        let boxed = Cgroup::create(confined.child("db").path())?;
        boxed.write("cpuset.mems", "1")?;
        let boxed_process = quiet_hog(&boxed, MEBIBYTES)?;
        // Pages stay where they are while their node is allowed.
        boxed.write("cpuset.mems", "0-1")?;

        let above = Cgroup::with_cpuset("/work/narrow", "0-1", "0")?;
        let narrow = Cgroup::create(above.child("db").path())?;
        let narrow_process = quiet_hog(&narrow, MEBIBYTES)?;
        let pid = narrow_process.pid().to_string();
        let output = process::run(Command::new("migratepages").args([pid.as_str(), "0", "1"]), LIMIT)?;
        ensure!(output.status == Some(0), "migratepages: {output:?}");

        let above = Cgroup::with_cpuset("/work/tight", "6", "0")?;
        let tight = Cgroup::create(above.child("db").path())?;
        let tight_process = quiet_hog(&tight, MEBIBYTES)?;

        let inner = Cgroup::with_cpuset(&format!("{OUTER}/{INNER}"), "5", "0")?;
        let inner_process = quiet_hog(&inner, MEBIBYTES)?;
        let outer_process = quiet_hog(&Cgroup::create(&format!("{OUTER}/init"))?, 8)?;

        let huge = Cgroup::with_cpuset("/work/huge", "2", "1")?;
        count_huge_pages(&huge)?;
        let huge_process = Running::huge_hog(&hog(&huge, MEBIBYTES))?;
        Ok(Self {
            right_cpus,
            right_cpus_process,
            boxed,
            boxed_process,
            narrow,
            narrow_process,
            tight,
            _tight_process: tight_process,
            inner,
            inner_process,
            _outer_process: outer_process,
            huge,
            huge_process,
            partition,
            _partition_process: partition_process,
            neighbour,
        })
    }
}

/// Gives each node huge pages, and has the cgroup say which it uses.
fn count_huge_pages(cgroup: &Cgroup) -> Result<()> {
    for node in 0..2 {
        let path = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages");
        fs::write(&path, HUGE_PAGES.to_string()).with_context(|| format!("write to {path}"))?;
    }
    let path = cgroup.path();
    let above = path.match_indices('/').map(|(end, _)| Cgroup::at(if end == 0 { "/" } else { &path[..end] }));
    for cgroup in above {
        cgroup.write("cgroup.subtree_control", "+hugetlb")?;
    }
    Ok(())
}

pub(super) fn hog(cgroup: &Cgroup, mebibytes: usize) -> Hog {
    Hog { cgroup: cgroup.folder(), mebibytes, threads: 1, pause_ms: 200, mebibytes_per_second: 0 }
}

fn quiet_hog(cgroup: &Cgroup, mebibytes: usize) -> Result<Running> {
    Running::hog_of(&hog(cgroup, mebibytes))
}

/// What a node can give: free pages, and those of files.
pub(super) fn available_mebibytes(node: u32) -> Result<u64> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let kib = |field: &str| -> u64 {
        let line = text.lines().find_map(|line| line.split_once(field));
        let value = line.and_then(|(_, value)| value.split_whitespace().next());
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    Ok(["MemFree:", "Active(file):", "Inactive(file):"].into_iter().map(kib).sum::<u64>() >> 10)
}

/// Carries out the first remedy there is, audits, and so on, until there is none.
fn carry_out_all(checks: &mut Checks) -> Result<()> {
    let mut before = Findings::read()?;
    for _ in 0..MOST_REMEDIES {
        let Some((one, remedy)) = before.first_remedy() else { return Ok(()) };
        carry_out(checks, &remedy)?;
        let mut after = Findings::default();
        // The kernel may still be moving pages.
        checks.comes_to_hold(format!("{} is gone", one.id), LIMIT, || {
            after = Findings::read()?;
            Ok((!after.0.contains_key(&one.id), after.0.get(&one.id).cloned()))
        })?;
        let worse: Vec<_> = after.0.values().filter(|found| before.is_worse(found)).collect();
        checks.holds(format!("after {remedy:?}: no other finding is worse"), worse.is_empty(), &worse);
        if after.0.contains_key(&one.id) {
            return Ok(());
        }
        before = after;
    }
    checks.holds("remedies come to an end", before.first_remedy().is_none(), &before);
    Ok(())
}

pub(super) fn carry_out(checks: &mut Checks, remedy: &str) -> Result<()> {
    let output = process::run(Command::new("sh").args(["-c", remedy]), LIMIT)?;
    checks.equal(format!("exit status of {remedy:?}"), Some(0), output.status);
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    Info,
    Warning,
    Critical,
}

/// A finding, as an audit prints it.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) id: String,
    severity: Severity,
    object: String,
    pub(super) remedy: Option<String>,
    obstacle: String,
}

/// Those of one audit, by id. What threads accessed is not asked: a moment says nothing of the next.
#[derive(Debug, Default)]
pub(super) struct Findings(BTreeMap<String, Finding>);

impl Findings {
    pub(super) fn read() -> Result<Self> {
        let (report, _) = product::audit(&[])?;
        Self::of_report(&report)
    }

    fn of_report(report: &Report) -> Result<Self> {
        let list = report.get("/findings").and_then(Value::as_array).context("an audit without findings")?;
        let mut findings = BTreeMap::new();
        for one in list {
            let text = |name: &str| one[name].as_str().map(str::to_owned);
            let severity = match text("severity").as_deref() {
                Some("critical") => Severity::Critical,
                Some("warning") => Severity::Warning,
                _ => Severity::Info,
            };
            let finding = Finding {
                id: text("id").context("a finding without an id")?,
                severity,
                object: text("object").context("a finding about nothing")?,
                remedy: text("remedy"),
                obstacle: text("obstacle").unwrap_or_default(),
            };
            findings.insert(finding.id.clone(), finding);
        }
        Ok(Self(findings))
    }

    pub(super) fn of(&self, cgroup: &Cgroup) -> Vec<&Finding> {
        self.0.values().filter(|one| one.object == cgroup.path()).collect()
    }

    pub(super) fn worst(&self, cgroup: &Cgroup) -> Result<Finding> {
        let worst = self.of(cgroup).into_iter().max_by_key(|one| one.severity).cloned();
        worst.with_context(|| format!("nothing is found about {}", cgroup.path()))
    }

    /// The first remedy in the order of a report: the worst first, then by id.
    fn first_remedy(&self) -> Option<(Finding, String)> {
        let mut found: Vec<_> = self.0.values().collect();
        found.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.id.cmp(&b.id)));
        found.into_iter().find_map(|one| Some((one.clone(), one.remedy.clone()?)))
    }

    /// Is this one new, or worse than it was? One that had an obstacle and has a remedy now may be.
    fn is_worse(&self, found: &Finding) -> bool {
        self.0.get(&found.id).is_none_or(|was| {
            was.severity < found.severity && !(was.remedy.is_none() && found.remedy.is_some())
        })
    }
}
