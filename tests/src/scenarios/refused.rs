//! The same binary where the kernel refuses some of what it needs: each part is named, and the next best
//! source takes its place.
//!
//! Controls: with nothing refused, nothing is named; what is not refused goes on working.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{audit::remote_traffic, eyes::SOURCES, workloads::Pair};
use crate::{
    check::Checks,
    process,
    product::{self, Report},
};

/// Type information of the kernel.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// What stands in its place.
const STAND_IN: &str = "/tmp/btf";

/// The degraded source that means counters of the CPU, which no guest has.
const HARDWARE: &str = "bpf:hardware";

/// What a process without this capability must say, as the kernel says it.
const REFUSED: &str = "not permitted";

/// Functions that get trampolines, and the programs that need them.
pub(super) const TRAMPOLINES: [(&str, &str); 5] = [
    ("task_numa_fault", "bpf:hint-faults"),
    ("out_of_memory", "bpf:oom-constraint"),
    ("wakeup_kswapd", "bpf:kswapd-wanted"),
    ("cpuset_write_resmask", "bpf:cpuset-writes"),
    ("do_set_mempolicy", "bpf:policies"),
];

/// Sources that read the kernel's memory by address.
const BY_ADDRESS: [&str; 4] = ["bpf:oom-constraint", "bpf:cpuset-writes", "bpf:policies", "task-iterator"];

/// Shows this guest other type information, for as long as it lives.
pub(super) fn replace_btf(bytes: &[u8]) -> Result<()> {
    fs::write(STAND_IN, bytes).with_context(|| format!("write {STAND_IN}"))?;
    let mount =
        process::run(Command::new("mount").args(["-o", "bind", STAND_IN, BTF]), Duration::from_secs(10))?;
    ensure!(mount.status == Some(0), "hide {BTF}: {}", mount.stderr);
    Ok(())
}

/// BPF's degraded sources, without the one that every guest has.
pub(super) fn bpf_sources(report: &Report) -> Vec<&str> {
    report.degraded().into_iter().filter(|source| source.starts_with("bpf") && *source != HARDWARE).collect()
}

/// The two workloads are told apart, and their traffic is estimated.
pub(super) fn estimates(checks: &mut Checks, report: &Report, pair: &Pair) -> Result<()> {
    for cgroup in [&pair.away_cgroup, &pair.home_cgroup] {
        let source = source_of(report.workload(cgroup)?);
        checks.equal(format!("{}: source of the figure", cgroup.path()), Some("placement"), source);
    }
    tells_them_apart(checks, report, pair)
}

/// The two workloads are told apart.
pub(super) fn tells_them_apart(checks: &mut Checks, report: &Report, pair: &Pair) -> Result<()> {
    let away = report.workload(&pair.away_cgroup)?;
    checks.equal("away: verdict", Some("misaligned"), away["verdict"].as_str());
    checks.above("away: remote residency", 0.9, away["remoteResidency"].as_f64());
    checks.above("away: remote traffic", 0.9, remote_traffic(away));
    checks.holds("away: its threads are counted", away["tasks"].as_u64().is_some(), &away["tasks"]);
    let home = report.workload(&pair.home_cgroup)?;
    checks.equal("home: verdict", Some("aligned"), home["verdict"].as_str());
    checks.below("home: remote traffic", 0.1, remote_traffic(home));
    Ok(())
}

/// Where a workload's traffic figure comes from.
pub(super) fn source_of(workload: &Value) -> Option<&str> {
    workload.pointer("/traffic/source")?.as_str()
}

/// Why hinting faults are not where a workload's traffic figure comes from.
pub(super) fn why_no_faults(workload: &Value) -> Option<&str> {
    let silent = workload.pointer("/traffic/silent")?.as_array()?;
    silent.iter().find(|entry| entry["source"] == "hint-faults")?["reason"].as_str()
}

/// A process that may make maps and may not load what traces: each hook is refused by name.
pub(super) fn no_cap_perfmon(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let (whole, _) = product::audit(&["--sample", "2s"])?;
    checks.equal("with CAP_PERFMON, degraded sources of BPF", Vec::new(), bpf_sources(&whole));

    let (report, _) = product::audit_without(&["PERFMON", "SYS_ADMIN"], &["--sample", "2s"])?;
    for source in SOURCES {
        let reason = report.reason(source);
        let named = reason.is_some_and(|reason| reason.contains(REFUSED));
        checks.holds(format!("without it, {source} says what was refused"), named, reason);
    }
    estimates(checks, &report, &pair)
}

/// A kernel without the functions that trampolines go on: what needs them says which, and all else works.
pub(super) fn no_fentry(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let diagnosis = product::doctor()?;
    for (_, source) in TRAMPOLINES {
        checks.equal(format!("before: {source}"), Some("ok"), diagnosis.status(source));
    }

    replace_btf(&without_functions(fs::read(BTF).with_context(|| format!("read {BTF}"))?)?)?;
    let diagnosis = product::doctor()?;
    for source in SOURCES {
        let function = TRAMPOLINES.iter().find(|(_, of)| *of == source).map(|(function, _)| function);
        let wanted = if function.is_some() { "missing" } else { "ok" };
        checks.equal(format!("without fentry: {source}"), Some(wanted), diagnosis.status(source));
        if let Some(function) = function {
            let detail = diagnosis.detail(source);
            let named = detail.is_some_and(|detail| detail.contains(function));
            checks.holds(format!("{source} says that {function} is not there"), named, detail);
        }
    }
    let (report, _) = product::audit(&["--sample", "5s"])?;
    estimates(checks, &report, &pair)?;
    let reason = why_no_faults(report.workload(&pair.away_cgroup)?);
    let named = reason.is_some_and(|reason| reason.contains(TRAMPOLINES[0].0));
    checks.holds("the figure says why hinting faults are silent", named, reason);
    Ok(())
}

/// A kernel that keeps its memory from BPF: what reads by address is missing and says why, and the rest,
/// which reads what it is handed, goes on.
pub(super) fn lockdown_confidentiality(checks: &mut Checks) -> Result<()> {
    mount_securityfs()?;
    let pair = Pair::start()?;
    let diagnosis = product::doctor()?;
    checks.equal("doctor on the lockdown", Some("degraded"), diagnosis.status("lockdown"));
    for source in SOURCES {
        let wanted = if BY_ADDRESS.contains(&source) { "missing" } else { "ok" };
        checks.equal(format!("confidential: {source}"), Some(wanted), diagnosis.status(source));
        if wanted == "missing" {
            let detail = diagnosis.detail(source);
            let named = detail.is_some_and(|detail| detail.contains("lockdown is confidentiality"));
            checks.holds(format!("{source} says that it is the lockdown"), named, detail);
        }
    }
    let (report, _) = product::audit(&["--sample", "5s"])?;
    for source in BY_ADDRESS {
        let named = report.reason(source).is_some_and(|reason| reason.contains("lockdown"));
        checks.holds(
            format!("the audit says that the lockdown keeps {source}"),
            named,
            report.reason(source),
        );
    }
    tells_them_apart(checks, &report, &pair)
}

/// The control: this mode forbids nothing that is done here.
pub(super) fn lockdown_integrity(checks: &mut Checks) -> Result<()> {
    mount_securityfs()?;
    let diagnosis = product::doctor()?;
    let detail = diagnosis.detail("lockdown");
    checks.equal("doctor on the lockdown", Some("ok"), diagnosis.status("lockdown"));
    checks.holds("it is locked down", detail.is_some_and(|detail| detail.ends_with("is integrity")), detail);
    for source in SOURCES {
        checks.equal(format!("integrity: {source}"), Some("ok"), diagnosis.status(source));
    }
    Ok(())
}

/// As every distribution does.
fn mount_securityfs() -> Result<()> {
    let mount = ["-t", "securityfs", "securityfs", "/sys/kernel/security"];
    let mount = process::run(Command::new("mount").args(mount), Duration::from_secs(10))?;
    ensure!(mount.status == Some(0), "mount securityfs: {}", mount.stderr);
    Ok(())
}

/// The same type information, with other names for these functions.
fn without_functions(mut types: Vec<u8>) -> Result<Vec<u8>> {
    for (function, _) in TRAMPOLINES {
        let name = [b"\0", function.as_bytes(), b"\0"].concat();
        let at = types.windows(name.len()).position(|window| window == name);
        types[at.with_context(|| format!("{BTF} has no {function}"))? + 1] = b'~';
    }
    Ok(types)
}
