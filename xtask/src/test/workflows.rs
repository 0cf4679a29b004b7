//! Workflows of GitHub without an error: syntax, expressions, permissions, actions named by a commit.
//!
//! No runner is here, so this is all that is known of them before they run. The network is not asked.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};

use crate::{command, setup, workspace::Workspace};

/// A workflow with an action that is named by a tag, which the owner of the action can move.
const MOVABLE: &str = "name: movable
on: workflow_dispatch
permissions: {}
concurrency: movable
jobs:
  one:
    runs-on: ubuntu-latest
    timeout-minutes: 1
    steps:
      - uses: actions/cache@v5
        with: {path: a, key: b}
";

/// Checks every workflow, and that the check can fail.
pub(super) fn lint(workspace: &Workspace) -> Result<()> {
    let program = setup::jactionlint(workspace)?;
    let folder = workspace.root().join(".github/workflows");
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
        paths.push(entry?.path());
    }
    ensure!(!paths.is_empty(), "{} is empty", folder.display());
    paths.sort();
    for path in paths {
        check(&program, &path)?;
    }
    let scratch = workspace.scratch()?;
    let movable = scratch.path().join("movable.yml");
    fs::write(&movable, MOVABLE).with_context(|| format!("write {}", movable.display()))?;
    let refusal = check(&program, &movable).err().context("an action that is named by a tag is accepted")?;
    ensure!(refusal.to_string().contains("unpinned-uses"), "it is refused for another reason: {refusal}");
    Ok(())
}

/// Scripts of steps are left to reviews: `shellcheck` may be absent, and another release of it finds other
/// things.
fn check(program: &Path, workflow: &Path) -> Result<()> {
    let mut lint = Command::new(program);
    lint.args(["--no-online", "--no-hints", "--strict-exit", "--shellcheck=", "--pyflakes="]);
    command::quietly(lint.arg(workflow)).map(drop)
}
