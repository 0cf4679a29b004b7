//! Does the kernel side see what happens, and count it right?

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result};

use super::refused::replace_btf;
use crate::{check::Checks, process, product};

/// The tests of `enforcer/tests/kernel_side`, as the guest finds them.
const TESTS: &str = "/inject/kernel-side";

/// Longest time for one of them, above what they wait for themselves: emulated, with a balancer that scans
/// once a second.
const LIMIT: Duration = Duration::from_secs(400);

/// Why a test of mappings skips before Linux 6.1; no later kernel lacks the field.
const LACKING: &str = "the kernel has no field bpf_iter_link_info.task.pid";

/// Modules of these tests that a host with one node skips, or that judge what another kernel makes of the
/// programs.
const OF_TWO_NODES: [&str; 5] = ["balancer::", "hinting_faults::", "pages::", "pressure::", "verifier::"];

/// What the tests of the host cannot show in the same run.
pub(super) fn two_nodes(checks: &mut Checks) -> Result<()> {
    let of_two_nodes = |name: &String| OF_TWO_NODES.iter().any(|module| name.starts_with(module));
    run(checks, tests()?.into_iter().filter(of_two_nodes).collect())
}

/// All of the product's own tests of the kernel side.
pub(super) fn kernel_side(checks: &mut Checks) -> Result<()> {
    run(checks, tests()?)
}

/// Runs tests on a kernel that has all of it and a machine with two nodes. `CI` makes a test fail that would
/// skip.
fn run(checks: &mut Checks, names: Vec<String>) -> Result<()> {
    checks.holds("there are tests", names.len() > 5, names.len());
    for name in names {
        let arguments = ["--exact", &name, "--nocapture"];
        let output = process::run(Command::new(TESTS).args(arguments).env("CI", "true"), LIMIT)?;
        let skipped = output.stdout.contains("skipped:");
        // The one thing that the oldest kernel of the matrix lacks, by its own name for it.
        let lacking = output.stdout.contains(LACKING) && name.starts_with("mappings::");
        if lacking {
            println!("{name} skips: {LACKING}");
        }
        let passed = output.status == Some(0) && (!skipped || lacking);
        let said = if passed { String::new() } else { format!("{}{}", output.stdout, output.stderr) };
        checks.holds(name, passed, said);
    }
    Ok(())
}

/// The sources of the kernel side, as `doctor` names them.
pub(super) const SOURCES: [&str; 13] = [
    "bpf:placement",
    "bpf:run-time",
    "bpf:hint-faults",
    "bpf:cgroup-tree",
    "bpf:pressure",
    "bpf:kswapd-wanted",
    "bpf:oom-victim",
    "bpf:oom-constraint",
    "bpf:page-moves",
    "bpf:balancer",
    "bpf:cpuset-writes",
    "bpf:policies",
    "task-iterator",
];

/// Everything works here; without the kernel's types run time alone is left, and each of the others
/// says why it is not.
pub(super) fn what_needs_what(checks: &mut Checks) -> Result<()> {
    let diagnosis = product::doctor()?;
    for source in SOURCES {
        checks.equal(format!("{source} with BTF"), Some("ok"), diagnosis.status(source));
    }
    replace_btf(b"")?;
    let diagnosis = product::doctor()?;
    for source in SOURCES {
        let wanted = if source == "bpf:run-time" { "ok" } else { "missing" };
        checks.equal(format!("{source} without BTF"), Some(wanted), diagnosis.status(source));
    }
    Ok(())
}

fn tests() -> Result<Vec<String>> {
    fs::metadata(TESTS).with_context(|| TESTS.to_owned())?;
    let list = process::run(Command::new(TESTS).args(["--list", "--format=terse"]), LIMIT)?;
    Ok(list.stdout.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
