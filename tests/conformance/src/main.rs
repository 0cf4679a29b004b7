//! Conformance: the placement engines against vectors computed with the reference implementations.
//!
//! A vector is an input and its required outcome (vectors/README.md). The program runs every `*.json` of the
//! project's own folder, and of another folder that `CONFORMANCE_DIR` names. The keys of each vector
//! determine its kind, not the file name.
//!
//! Invariant: only a vector that ran counts as passed. A folder without vectors, a vector of unknown shape, a
//! panic and a timeout each count as a failure with its cause.
#![expect(clippy::print_stdout, reason = "a command-line program")]

mod cpu;
mod folder;
mod machine;
mod merge;
mod run;
mod vector;

use std::{
    env, panic,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Environment variable that names another folder of vectors.
const FURTHER: &str = "CONFORMANCE_DIR";

/// The project's own vectors.
fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

fn main() -> ExitCode {
    let further = env::var_os(FURTHER).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    // A panic is reported as the failure of its vector.
    panic::set_hook(Box::new(|_| ()));
    let (mut passed, mut failed) = (0, 0);
    for folder in [own()].into_iter().chain(further) {
        println!("{}", folder.display());
        for file in folder::run(&folder) {
            println!("{}: {} passed, {} failed", file.name, file.passed, file.failures.len());
            for failure in &file.failures {
                println!("  FAILED {failure}");
            }
            passed += file.passed;
            failed += file.failures.len();
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vector_of_the_project_passes() {
        let files = folder::run(&own());
        assert!(files.iter().all(|file| file.passed > 0), "a file without vectors");
        let failures: Vec<_> = files.iter().flat_map(|file| &file.failures).collect();
        assert!(failures.is_empty(), "{failures:#?}");
    }
}
