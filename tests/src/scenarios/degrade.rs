//! The same binary on machines that lack something: it says what, and does the rest.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{audit::remote_traffic, workloads::Pair};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    process::{self, Running},
    product::{self, Report},
};

/// Type information of the kernel, without which CO-RE programs cannot be loaded.
const BTF: &str = "/sys/kernel/btf/vmlinux";

const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";

/// Prefix of the degraded sources that mean BPF.
const BPF: &str = "bpf";

/// The degraded source that means counters of the CPU.
const HARDWARE: &str = "bpf:hardware";

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
    checks.equal("exit status of one tick in enforce mode", Some(0), output.status);
    checks.equal("the cpuset after it", before, cgroup.cpuset()?);
    Ok(())
}

/// A kernel without BTF.
pub(super) fn no_btf(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let (whole, _) = product::audit(&["--sample", "2s"])?;
    checks.equal("with BTF, degraded sources of BPF", Vec::new(), bpf_sources(&whole));

    hide_btf()?;
    let (report, _) = product::audit(&["--sample", "2s"])?;
    sees_without_bpf(checks, &report, &pair)
}

/// Makes this guest look like one whose kernel has no type information.
pub(super) fn hide_btf() -> Result<()> {
    fs::write("/tmp/empty", "").context("create an empty file")?;
    let mount =
        process::run(Command::new("mount").args(["-o", "bind", "/tmp/empty", BTF]), Duration::from_secs(10))?;
    ensure!(mount.status == Some(0), "hide {BTF}: {}", mount.stderr);
    Ok(())
}

/// A process that may not load BPF programs.
pub(super) fn no_cap_bpf(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let (whole, _) = product::audit(&["--sample", "2s"])?;
    checks.equal("with CAP_BPF, degraded sources of BPF", Vec::new(), bpf_sources(&whole));

    let (report, _) = product::audit_without_bpf(&["--sample", "2s"])?;
    sees_without_bpf(checks, &report, &pair)
}

/// BPF is named as missing, and residency, which needs none, still tells the workloads apart.
fn sees_without_bpf(checks: &mut Checks, report: &Report, pair: &Pair) -> Result<()> {
    let sources = bpf_sources(report);
    checks.holds("without it, BPF is a degraded source", !sources.is_empty(), &sources);
    let away = report.workload(&pair.away_cgroup)?;
    checks.equal("away: verdict", Some("misaligned"), away["verdict"].as_str());
    checks.above("away: remote residency", 0.9, away["remoteResidency"].as_f64());
    checks.holds("away: its threads are counted", away["tasks"].as_u64().is_some(), &away["tasks"]);
    let home = report.workload(&pair.home_cgroup)?;
    checks.equal("home: verdict", Some("aligned"), home["verdict"].as_str());
    Ok(())
}

/// A guest has no counters of memory accesses, so these are always missing.
fn bpf_sources(report: &Report) -> Vec<&str> {
    report.degraded().into_iter().filter(|source| source.starts_with(BPF) && *source != HARDWARE).collect()
}

/// NUMA balancing is off: hinting faults are silent, and silence is not called local.
pub(super) fn balancing_off(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let (report, _) = product::audit(&["--sample", "5s"])?;
    checks.equal("off: the setting in the report", Some(0), setting(&report));
    checks.holds("off: it is named as degraded", report.degraded().contains(&BALANCING), report.degraded());
    let away = report.workload(&pair.away_cgroup)?;
    checks.above("off: remote traffic of away", 0.9, remote_traffic(away));
    checks.equal(
        "off: source of the figure",
        Some("placement"),
        away.pointer("/traffic/source").and_then(Value::as_str),
    );
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
