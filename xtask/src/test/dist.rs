//! A release is the same from every folder: one commit, made in the working copy and in a clone with another
//! path.
//!
//! Each file that is equal counts one. It takes two release builds, so it plays only by
//! name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, anyhow, ensure};

use super::tally::TestTally;
use crate::{
    architecture::Architecture,
    command,
    dist::{self, ReleaseCommit},
    workspace::Workspace,
};

/// What is compared.
const ARCHITECTURES: [Architecture; 1] = [Architecture::Amd64];

/// Folder of the clone: longer than most, as lengths of paths may matter too.
const CLONE: &str = "a-clone-with-a-path-of-another-length/numa-enforcer";

/// Tools that a clone takes from the working copy instead of building them again.
const SHARED: [&str; 2] = ["tools", "rig"];

/// Makes both and compares.
pub(super) fn run(workspace: &Workspace, tally: &mut TestTally) -> Result<()> {
    let commit = ReleaseCommit::of(workspace)?;
    ensure!(!commit.is_dirty, "files differ from the commit, and a clone would not have them: commit first");
    let first = dist::make(workspace, &ARCHITECTURES)?;
    let scratch = workspace.scratch()?;
    let clone = clone(workspace, &scratch.path().join(CLONE))?;
    let second = dist::make(&clone, &ARCHITECTURES)?;
    for (name, outcome) in compared(&first.sums, &second.sums) {
        tally.outcome(&format!("dist {name}"), outcome);
    }
    if !tally.succeeded() {
        println!("compare {} with {}", first.place.display(), scratch.keep().display());
    }
    Ok(())
}

/// The commit of the working copy in another folder.
fn clone(workspace: &Workspace, root: &Path) -> Result<Workspace> {
    let mut git = Command::new("git");
    command::quietly(git.args(["clone", "--quiet", "--shared"]).arg(workspace.root()).arg(root))?;
    let target = root.join("target");
    fs::create_dir(&target).with_context(|| format!("create {}", target.display()))?;
    for name in SHARED {
        let link = target.join(name);
        symlink(workspace.target().join(name), &link).with_context(|| format!("link {}", link.display()))?;
    }
    Ok(Workspace::at(root))
}

/// The names in two lists of checksums; an error where one list has another sum, or no such name.
fn compared(first: &[String], second: &[String]) -> Vec<(String, Result<()>)> {
    let [first, second] = [first, second].map(|lines| {
        let pairs = lines.iter().filter_map(|line| line.split_once("  "));
        pairs.map(|(sum, name)| (name, sum)).collect::<BTreeMap<_, _>>()
    });
    let names: BTreeSet<_> = first.keys().chain(second.keys()).copied().collect();
    let outcome = |name: &str| match (first.get(name), second.get(name)) {
        (Some(one), Some(other)) if one == other => Ok(()),
        (Some(_), Some(_)) => Err(anyhow!("another folder gives other bytes")),
        _ => Err(anyhow!("only one folder gives it")),
    };
    names.into_iter().map(|name| (name.to_owned(), outcome(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_differs_or_is_missing_is_an_error() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let first = lines(&["aa  same", "bb  other", "cc  missing"]);
        let second = lines(&["aa  same", "b0  other", "dd  new"]);
        let failed: Vec<_> =
            compared(&first, &second).into_iter().map(|(name, outcome)| (name, outcome.is_err())).collect();
        let expected = [("missing", true), ("new", true), ("other", true), ("same", false)];
        assert_eq!(failed, expected.map(|(name, is_error)| (name.to_owned(), is_error)));
    }

    #[test]
    fn a_clone_has_the_commit_of_the_working_copy() {
        let (workspace, place) = (Workspace::find().unwrap(), tempfile::tempdir().unwrap());
        let clone = clone(&workspace, &place.path().join(CLONE)).unwrap();
        let [here, there] = [&workspace, &clone].map(|one| ReleaseCommit::of(one).unwrap());
        assert_eq!((here.hash, here.seconds), (there.hash, there.seconds));
        assert!(!there.is_dirty);
    }
}
