//! Whole pods placed step by step, by the built program: `tests/cases`.
//!
//! A case is a machine, a policy, steps and claims after each step (tests/cases/README.md). The test runs
//! `numa-enforcer plan --steps` and reads only its JSON. Two invariants are checked after every step of every
//! case: exclusive CPUs belong to one container, and every container has a CPU.

mod claim;
mod clusters;
mod format;
mod machine;
mod play;
mod state;

use std::{fs, path::PathBuf};

/// Where the cases are.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/cases")
}

/// Plays every case of a file; fails with everything that is wrong in it.
fn all_of(file: &str) {
    let path = folder().join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let cases: Vec<format::Case> =
        serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(!cases.is_empty(), "{} has no cases", path.display());
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            play::play(case).err().map(|why| format!("{}: {why}\n  ({})", case.name, case.says))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {} cases of {file}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn pods_are_placed_in_pools_as_the_cases_say() {
    all_of("pools.yaml");
}

#[test]
fn pods_are_placed_by_hints_as_the_cases_say() {
    all_of("hints.yaml");
}

#[test]
fn a_wrong_claim_is_found() {
    let text = "
- case: wrong
  says: the CPU is another
  machine: 'sockets:1 cores:4 threads:1'
  config: {hints: {policy: restricted}}
  steps:
    - create: p
      containers: [c cpu=1 memory=1Gi]
      expect: [p/c cpus is 3]
";
    let cases: Vec<format::Case> = serde_saphyr::from_str(text).unwrap();
    let why = play::play(&cases[0]).unwrap_err();
    assert!(why.contains("p/c cpus is 3") && why.contains("`0`"), "{why}");
}
