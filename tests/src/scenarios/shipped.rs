//! What the shipped unit and the shipped pods may do is enough on a host that is set as Debian sets it.
//!
//! The capabilities are read from the files that are shipped. Control: with all capabilities nothing is
//! named as degraded.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::refused::{bpf_sources, estimates};
use super::workloads::Pair;
use crate::{check::Checks, preset::Preset, product};

const UNIT: &str = include_str!("../../../deploy/systemd/numa-enforcer.service");
const ENFORCE: &str = include_str!("../../../deploy/systemd/enforce.conf");

pub(super) const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// Debian's own setting.
pub(super) const DEBIANS: &str = "3";

pub(super) const RUN_TIME: &str = "bpf:run-time";

/// Names without `CAP_` of what the unit grants.
fn of_unit() -> Result<Vec<String>> {
    granted_by(UNIT)
}

/// The same in enforce mode, with the drop-in.
pub(super) fn of_enforcing_unit() -> Result<Vec<String>> {
    Ok([of_unit()?, granted_by(ENFORCE)?].concat())
}

fn granted_by(unit: &str) -> Result<Vec<String>> {
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names = line.context("the unit has no CapabilityBoundingSet=")?.split_whitespace();
    Ok(names.map(|name| name.trim_start_matches("CAP_").to_owned()).collect())
}

/// The same of the pod in observe mode.
pub(super) fn of_pod() -> Result<Vec<String>> {
    Ok(Preset::observe()?.daemon.capabilities)
}

/// With exactly these, and perf events refused, run time per node is counted and the cause is named.
pub(super) fn privileges(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let (whole, _) = product::audit(&["--sample", "2s"])?;
    checks.equal("with all capabilities, degraded sources of BPF", Vec::new(), bpf_sources(&whole));

    fs::write(PARANOID, DEBIANS).with_context(|| format!("write {DEBIANS} to {PARANOID}"))?;
    for (shipped, granted) in [("unit", of_unit()?), ("pod", of_pod()?)] {
        ensure!(!granted.is_empty(), "the {shipped} grants nothing");
        let granted: Vec<&str> = granted.iter().map(String::as_str).collect();
        let (report, _) = product::audit_with_only(&granted, &["--sample", "2s"])?;
        checks.equal(format!("{shipped}: degraded sources of BPF"), vec![RUN_TIME], bpf_sources(&report));
        let reason = report.reason(RUN_TIME);
        let named = reason.is_some_and(|reason| reason.contains("kernel.perf_event_paranoid is 3"));
        checks.holds(format!("{shipped}: the setting is named as the cause"), named, reason);
        let diagnosis = product::doctor_with_only(&granted)?;
        checks.equal(format!("{shipped}: doctor on run time"), Some("degraded"), diagnosis.status(RUN_TIME));
        let detail = diagnosis.detail(RUN_TIME);
        let named = detail.is_some_and(|detail| detail.contains("kernel.perf_event_paranoid is 3"));
        checks.holds(format!("{shipped}: doctor names the setting"), named, detail);
        let traffic = diagnosis.status("traffic:placement");
        checks.equal(format!("{shipped}: run time is that of the programs"), Some("ok"), traffic);
        estimates(checks, &report, &pair)?;
    }
    Ok(())
}
