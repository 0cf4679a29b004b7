//! Does the audit see what is wrong, and only that?

use anyhow::Result;
use serde_json::Value;

use super::workloads::Pair;
use crate::{check::Checks, ids::Ids, memory, product};

/// A workload with its memory on node 0 and its CPUs on node 1 is reported. Its twin, which differs in its
/// CPUs alone, is not.
pub(super) fn misaligned(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    checks.above(
        "share of away's pages on node 0, by numa_maps",
        0.9,
        Some(memory::share_on(pair.away.pid(), 0)?),
    );
    checks.equal("CPUs of away, by /proc", Ids::from([2, 3]), pair.away.cpus_allowed()?);

    let (report, status) = product::audit(&["--sample", "5s"])?;
    checks.equal("exit status of an audit that found something", Some(1), status);

    let away = report.workload(&pair.away_cgroup)?;
    checks.equal("away: verdict", Some("misaligned"), away["verdict"].as_str());
    checks.equal("away: nodes of its CPUs", Some("1"), away["numaNodes"].as_str());
    checks.above("away: remote residency", 0.9, away["remoteResidency"].as_f64());
    checks.above("away: remote traffic", 0.9, remote_traffic(away));
    checks.above(
        "away: anonymous bytes on node 0",
        60e6,
        away.pointer("/bytesByNuma/0/anon").and_then(Value::as_f64),
    );
    checks.holds("away: has findings", !findings(away).is_empty(), findings(away));

    let home = report.workload(&pair.home_cgroup)?;
    checks.equal("home: verdict", Some("aligned"), home["verdict"].as_str());
    checks.equal("home: nodes of its CPUs", Some("0"), home["numaNodes"].as_str());
    checks.below("home: remote residency", 0.1, home["remoteResidency"].as_f64());
    checks.below("home: remote traffic", 0.1, remote_traffic(home));
    checks.holds("home: has no findings", findings(home).is_empty(), findings(home));
    Ok(())
}

/// Remote share of a workload's accesses.
pub(super) fn remote_traffic(workload: &Value) -> Option<f64> {
    workload.pointer("/traffic/remoteRatio")?.as_f64()
}

fn findings(workload: &Value) -> Vec<&str> {
    workload["findings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
