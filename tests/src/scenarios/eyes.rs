//! Does the kernel side see what happens, and count it right?

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result};

use crate::{check::Checks, process};

/// The tests of `enforcer/tests/kernel_side.rs`, as the guest finds them.
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

fn tests() -> Result<Vec<String>> {
    fs::metadata(TESTS).with_context(|| TESTS.to_owned())?;
    let list = process::run(Command::new(TESTS).args(["--list", "--format=terse"]), LIMIT)?;
    Ok(list.stdout.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
