//! Does the kernel side see what happens, and count it right?

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::degrade;
use crate::{check::Checks, process, product};

/// The tests of `enforcer/tests/kernel_side`, as the guest finds them.
const TESTS: &str = "/inject/kernel-side";

/// Longest time for all of them: emulated, with a balancer that scans once a second.
const LIMIT: Duration = Duration::from_secs(200);

/// The product's own tests of the kernel side, on a kernel that has all of it and a machine with two
/// nodes. `CI` makes a test fail that would skip.
pub(super) fn kernel_side(checks: &mut Checks) -> Result<()> {
    let names = tests()?;
    checks.holds("there are tests", names.len() > 5, names.len());
    for name in names {
        let arguments = ["--exact", &name, "--nocapture"];
        let output = process::run(Command::new(TESTS).args(arguments).env("CI", "true"), LIMIT)?;
        let passed = output.status == Some(0) && !output.stdout.contains("skipped:");
        let said = if passed { String::new() } else { format!("{}{}", output.stdout, output.stderr) };
        checks.holds(name, passed, said);
    }
    Ok(())
}

/// The sources of the kernel side, as `doctor` names them.
const SOURCES: [&str; 8] = [
    "bpf:placement",
    "bpf:run-time",
    "bpf:hint-faults",
    "bpf:cgroup-tree",
    "bpf:pressure",
    "bpf:oom-victim",
    "bpf:oom-constraint",
    "task-iterator",
];

/// Everything works here; without the kernel's types run time alone is left, and each of the others
/// says why it is not.
pub(super) fn what_needs_what(checks: &mut Checks) -> Result<()> {
    let diagnosis = doctor()?;
    for source in SOURCES {
        checks.equal(format!("{source} with BTF"), Some("ok"), status(&diagnosis, source));
    }
    degrade::hide_btf()?;
    let diagnosis = doctor()?;
    for source in SOURCES {
        let wanted = if source == "bpf:run-time" { "ok" } else { "missing" };
        checks.equal(format!("{source} without BTF"), Some(wanted), status(&diagnosis, source));
    }
    Ok(())
}

fn doctor() -> Result<Value> {
    let output = product::run(&["doctor", "-o", "json"])?;
    ensure!(output.status == Some(0), "doctor failed: {}", output.stderr);
    serde_json::from_str(&output.stdout).context("read the diagnosis")
}

fn status<'a>(diagnosis: &'a Value, source: &str) -> Option<&'a str> {
    let checks = diagnosis["checks"].as_array()?;
    checks.iter().find(|check| check["name"] == source)?["status"].as_str()
}

fn tests() -> Result<Vec<String>> {
    fs::metadata(TESTS).with_context(|| TESTS.to_owned())?;
    let list = process::run(Command::new(TESTS).args(["--list", "--format=terse"]), LIMIT)?;
    Ok(list.stdout.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
