//! The same binary on machines that lack something: it says what, and does the rest.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    audit::remote_traffic,
    refused::{bpf_sources, estimates, replace_btf, source_of, why_no_faults},
    workloads::Pair,
};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    process::Running,
    product::{self, Report},
};

const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";

/// The degraded source that says that run time is not counted.
const RUN_TIME: &str = "bpf:run-time";

/// The degraded source that means balancing is off.
const BALANCING: &str = "numa-balancing";

/// A machine with one node: nothing can be misaligned, and nothing is written.
pub(super) fn one_node(checks: &mut Checks) -> Result<()> {
    let cgroup = Cgroup::with_cpuset("/work/only", "0-1", "0")?;
    let _hog = Running::hog(&cgroup, 64)?;
    let (report, status) = product::audit(&["--sample", "2s"])?;
    checks.equal("exit status of the audit", Some(0), status);
    let nodes = report.get("/topology/nodes").and_then(Value::as_array).map(Vec::len);
    checks.equal("nodes in the report", Some(1), nodes);
    checks.equal("verdict", Some("aligned"), report.workload(&cgroup)?["verdict"].as_str());
    checks.holds("balancing is not missed", !report.degraded().contains(&BALANCING), report.degraded());
    checks.equal("findings", Some(0), report.get("/findings").and_then(Value::as_array).map(Vec::len));

    let before = cgroup.cpuset()?;
    let output = product::run(&["run", "--mode", "enforce", "--once", "--state-dir", product::STATE])?;
    checks.equal("exit status of one turn in enforce mode", Some(0), output.status);
    checks.equal("the cpuset after it", before, cgroup.cpuset()?);
    Ok(())
}

/// A kernel without BTF.
pub(super) fn no_btf(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let (whole, _) = product::audit(&["--sample", "2s"])?;
    checks.equal("with BTF, degraded sources of BPF", Vec::new(), bpf_sources(&whole));

    replace_btf(b"")?;
    let (report, _) = product::audit(&["--sample", "5s"])?;
    let sources = bpf_sources(&report);
    checks.holds("without it, BPF is a degraded source", !sources.is_empty(), &sources);
    checks.holds("without it, run time is counted all the same", !sources.contains(&RUN_TIME), &sources);
    estimates(checks, &report, &pair)
}

/// A process that may not load BPF programs.
pub(super) fn no_cap_bpf(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let (whole, _) = product::audit(&["--sample", "2s"])?;
    checks.equal("with CAP_BPF, degraded sources of BPF", Vec::new(), bpf_sources(&whole));

    let (report, _) = product::audit_without(&["BPF", "PERFMON", "SYS_ADMIN"], &["--sample", "5s"])?;
    let reason = report.reason("bpf");
    checks.holds("without it, BPF as a whole is a degraded source", reason.is_some(), reason);
    estimates(checks, &report, &pair)
}

/// NUMA balancing is off: hinting faults are silent, and silence is not called local.
pub(super) fn balancing_off(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let (report, _) = product::audit(&["--sample", "5s"])?;
    checks.equal("off: the setting in the report", Some(0), setting(&report));
    checks.holds("off: it is named as degraded", report.degraded().contains(&BALANCING), report.degraded());
    let away = report.workload(&pair.away_cgroup)?;
    checks.above("off: remote traffic of away", 0.9, remote_traffic(away));
    checks.equal("off: source of the figure", Some("placement"), source_of(away));
    let why = why_no_faults(away);
    checks.holds("off: it says why", why.is_some_and(|why| why.contains(NUMA_BALANCING)), why);
    checks.equal("off: verdict", Some("misaligned"), away["verdict"].as_str());

    fs::write(NUMA_BALANCING, "1").context("switch NUMA balancing on")?;
    let (report, _) = product::audit(&["--sample", "2s"])?;
    checks.equal("on: the setting in the report", Some(1), setting(&report));
    checks.holds("on: nothing is said of it", !report.degraded().contains(&BALANCING), report.degraded());
    Ok(())
}

fn setting(report: &Report) -> Option<u64> {
    report.get("/settings/numaBalancing")?.as_u64()
}
