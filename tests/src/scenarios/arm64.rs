//! Does the product for arm64 do on an arm64 kernel what it promises?
//!
//! One guest with two nodes with CPUs and one of memory alone: what the audit sees, what the kernel side
//! counts with, what the daemon writes, and that all of it can be undone.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;

use super::{
    audit::remote_traffic, correct::corrected, eyes::SOURCES, refused::bpf_sources, rig, workloads::Pair,
};
use crate::{
    check::Checks,
    ids::Ids,
    memory,
    process::Running,
    product::{self, Daemon, Report},
    topology::Topology,
};

/// The machine.
pub(super) const TOPOLOGY: &str = "2s-memory";

/// From the machine to a daemon that was killed and undone.
pub(super) fn smoke(checks: &mut Checks) -> Result<()> {
    let wanted = Topology::load(TOPOLOGY)?;
    rig::nodes(checks, &wanted)?;
    let diagnosis = product::doctor()?;
    for source in SOURCES {
        checks.equal(source, Some("ok"), diagnosis.status(source));
    }
    let pair = Pair::start()?;
    let (report, status) = product::audit(&["--sample", "3s"])?;
    checks.equal("exit status of an audit that found something", Some(1), status);
    topology(checks, &report, &wanted)?;
    let degraded: BTreeMap<_, _> =
        report.degraded().into_iter().map(|source| (source, report.reason(source))).collect();
    checks.note("what is degraded", &degraded);
    checks.equal("degraded sources of BPF", Vec::new(), bpf_sources(&report));

    let away = report.workload(&pair.away_cgroup)?;
    checks.equal("away: verdict", Some("misaligned"), away["verdict"].as_str());
    checks.above("away: remote residency", 0.9, away["remoteResidency"].as_f64());
    checks.above("away: remote traffic", 0.9, remote_traffic(away));
    let home = report.workload(&pair.home_cgroup)?;
    checks.equal("home: verdict", Some("aligned"), home["verdict"].as_str());
    checks.below("home: remote traffic", 0.1, remote_traffic(home));
    enforced_and_undone(checks, &pair)
}

/// The daemon puts CPUs and pages together; killed, `restore` takes back what it wrote.
fn enforced_and_undone(checks: &mut Checks, pair: &Pair) -> Result<()> {
    let originals = pair.away_cgroup.cpuset()?;
    let daemon = Daemon::start("enforce", &[&pair.away_cgroup])?;
    let node = corrected(&pair.away_cgroup, &pair.away)?;
    checks.comes_to_hold("the pages of away are with its CPUs", super::correct::LIMIT, || {
        let share = memory::share_on(pair.away.pid(), node)?;
        Ok((share > 0.9, share))
    })?;
    daemon.process().kill()?;
    let output = product::run(&["restore", "--state-dir", product::STATE])?;
    checks.equal("exit status of restore", Some(0), output.status);
    checks.equal("the cpuset of away after restore", &originals, &pair.away_cgroup.cpuset()?);
    checks.equal(
        "CPUs of away after restore, by /proc",
        Ids::from([2, 3]),
        Running::cpus_allowed(&pair.away)?,
    );
    Ok(())
}

/// Nodes, CPUs and distances in the report are those of the machine.
fn topology(checks: &mut Checks, report: &Report, wanted: &Topology) -> Result<()> {
    let nodes = report.get("/topology/nodes").and_then(Value::as_array).cloned().unwrap_or_default();
    checks.equal("nodes in the report", wanted.nodes.len(), nodes.len());
    for (number, (node, found)) in wanted.nodes.iter().zip(&nodes).enumerate() {
        let cpus = found["cpus"].as_str().unwrap_or_default();
        checks.equal(format!("report: CPUs of node {number}"), node.cpus()?, crate::ids::parse(cpus)?);
    }
    Ok(())
}
