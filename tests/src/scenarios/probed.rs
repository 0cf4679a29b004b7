//! A kernel that refuses trampolines: each program that needs one runs as a kprobe, and `doctor` says so.
//!
//! Controls: with trampolines nothing is named; where kprobes without perf events are not to be had either,
//! the sources are missing, with every reason.

use std::fs;

use anyhow::{Context, Result};

use super::{
    refused::{TRAMPOLINES, bpf_sources, tells_them_apart},
    shipped::{DEBIANS, PARANOID, of_pod},
    workloads::Pair,
};
use crate::{check::Checks, product};

/// How the kernel says it.
const REFUSED: &str = "BPF_PROG_LOAD: Operation not permitted";

pub(super) fn trampolines_refused(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let diagnosis = product::doctor()?;
    for (_, source) in TRAMPOLINES {
        checks.equal(format!("with trampolines: {source}"), Some("ok"), diagnosis.status(source));
    }

    let diagnosis = product::doctor_without_trampolines(None)?;
    for (function, source) in TRAMPOLINES {
        checks.equal(format!("refused: {source}"), Some("degraded"), diagnosis.status(source));
        let detail = diagnosis.detail(source);
        let both = |detail: &str| {
            detail.contains(REFUSED) && detail.contains(&format!("attached as kprobe of {function}"))
        };
        checks.holds(
            format!("{source} names what was refused, and its kprobe"),
            detail.is_some_and(both),
            detail,
        );
    }
    let (report, _) = product::audit_without_trampolines(&["--sample", "5s"])?;
    let mut named = bpf_sources(&report);
    named.sort_unstable();
    let mut expected: Vec<&str> = TRAMPOLINES.iter().map(|(_, source)| *source).collect();
    expected.sort_unstable();
    checks.equal("refused: degraded sources of BPF", expected, named);
    tells_them_apart(checks, &report, &pair)?;

    // As Debian sets it and as the pod ships: kprobes of perf events are refused as well.
    fs::write(PARANOID, DEBIANS).with_context(|| format!("write {DEBIANS} to {PARANOID}"))?;
    let granted = of_pod()?;
    let granted: Vec<&str> = granted.iter().map(String::as_str).collect();
    let diagnosis = product::doctor_without_trampolines(Some(&granted))?;
    let symbols = fs::read_to_string("/proc/kallsyms").context("read the kernel's symbols")?;
    let without_perf_events = symbols.contains(" bpf_kprobe_multi_link_attach");
    checks.note("kprobes without perf events", &without_perf_events);
    for (function, source) in TRAMPOLINES {
        let wanted = if without_perf_events { "degraded" } else { "missing" };
        checks.equal(format!("no perf events either: {source}"), Some(wanted), diagnosis.status(source));
        let detail = diagnosis.detail(source);
        let how = if without_perf_events {
            format!("attached as kprobe.multi of {function}")
        } else {
            "kprobe.multi: BPF_".to_owned()
        };
        let all = |detail: &str| {
            detail.contains(REFUSED)
                && detail.contains("kernel.perf_event_paranoid is 3")
                && detail.contains(&how)
        };
        checks.holds(format!("{source} names every refusal"), detail.is_some_and(all), detail);
    }
    Ok(())
}
