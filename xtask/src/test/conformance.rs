//! The vectors of the reference implementations, through `tests/conformance`, counted one by one.
//!
//! The program says per file how many passed and names what failed; here it is only read, so a line
//! that it prints and its exit status must agree.

use std::{
    env,
    io::{BufRead, BufReader},
    path::{self, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use super::tally::TestTally;
use crate::{product, progress::ProgressStep, workspace::Workspace};

/// Names a further folder of vectors; below the folder that `cargo xtask` was called in.
const FURTHER: &str = "CONFORMANCE_DIR";

/// What one line of the program says.
#[derive(Debug, PartialEq, Eq)]
enum VectorLine<'a> {
    /// Vectors of a file that passed.
    Passed { file: &'a str, vectors: usize },
    /// A vector that did not, and why.
    Failed { name: &'a str, why: &'a str },
    /// Anything else.
    Other,
}

/// Reads `FILE: N passed, N failed` and `  FAILED NAME: WHY`.
fn read(line: &str) -> VectorLine<'_> {
    if let Some(failure) = line.strip_prefix("  FAILED ") {
        let (name, why) = failure.split_once(": ").unwrap_or((failure, ""));
        return VectorLine::Failed { name, why };
    }
    let Some((file, counts)) = line.split_once(": ") else { return VectorLine::Other };
    let passed = counts.split_once(" passed, ").and_then(|(passed, _)| passed.parse().ok());
    passed.map_or(VectorLine::Other, |vectors| VectorLine::Passed { file, vectors })
}

/// Runs every vector and counts each.
pub(super) fn run(workspace: &Workspace, tally: &mut TestTally) -> Result<()> {
    let program = product::build_conformance(workspace)?;
    let step = ProgressStep::begin("conformance");
    let mut command = Command::new(&program);
    if let Some(further) = env::var_os(FURTHER).filter(|folder| !folder.is_empty()) {
        command.env(FURTHER, path::absolute(PathBuf::from(further)).context(FURTHER)?);
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", program.display()))?;
    let stdout = child.stdout.take().context("the conformance program has no standard output")?;
    let (mut of, mut failed) = (String::new(), 0);
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("read what the conformance program says")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        match read(&line) {
            VectorLine::Passed { file, vectors } => {
                file.clone_into(&mut of);
                tally.add(vectors);
            }
            VectorLine::Failed { name, why } => {
                failed += 1;
                tally.fail(format!("conformance {of} {name}"), why);
            }
            VectorLine::Other => {}
        }
    }
    let status = child.wait().context("wait for the conformance program")?;
    if !status.success() && failed == 0 {
        tally.fail("conformance", format!("the program ended with {status}, and named no vector"));
    }
    step.done();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_program() {
        for (line, wanted) in [
            ("merge.json: 304 passed, 0 failed", VectorLine::Passed { file: "merge.json", vectors: 304 }),
            (
                "  FAILED a-1: expected 0+, actual 1+",
                VectorLine::Failed { name: "a-1", why: "expected 0+, actual 1+" },
            ),
            (
                "  FAILED /x: cannot be listed: no such file",
                VectorLine::Failed { name: "/x", why: "cannot be listed: no such file" },
            ),
            ("/srv/vectors", VectorLine::Other),
            ("719 passed, 0 failed", VectorLine::Other),
            ("", VectorLine::Other),
        ] {
            assert_eq!(read(line), wanted, "{line}");
        }
    }
}
