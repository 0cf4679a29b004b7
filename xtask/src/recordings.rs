//! `cargo xtask recordings DIR`: new recordings of scenarios take the place of those that are kept.
//!
//! Each is of a scenario on the default kernel, and must replay now as it was recorded. One that does not is
//! reported and left where it is; the others are kept all the same. The tests that read them check their
//! sizes and which ones are missing. An audit (NAME.json) replaces the kept one of the same scenario, and no
//! scenario gets its first one here.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    command,
    product::{self, BuildProfile},
    setup,
    test::Scenarios,
    workspace::Workspace,
};

/// Where they are kept.
const KEPT: &str = "tests/fixtures/recordings";

/// Where audits are kept.
const AUDITS: &str = "tests/fixtures/audits";

/// Arguments of `recordings`.
#[derive(clap::Args)]
pub(crate) struct RecordingsArguments {
    /// Folder of NAME.rec, as `cargo xtask test --record DIR` leaves it
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Keeps all that can be kept; fails if one cannot.
pub(crate) fn run(workspace: &Workspace, arguments: &RecordingsArguments) -> Result<()> {
    let recordings = files_in(&arguments.dir, "rec")?;
    let audits = files_in(&arguments.dir, "json")?;
    ensure!(
        !recordings.is_empty() || !audits.is_empty(),
        "{} has neither NAME.rec nor NAME.json",
        arguments.dir.display()
    );
    setup::build_tools(workspace)?;
    let scenarios = Scenarios::build(workspace)?;
    let program = product::build(workspace, BuildProfile::Dev)?;
    let kept = workspace.root().join(KEPT);
    let mut refused = 0;
    for (name, path) in &recordings {
        let outcome = if name.contains('@') {
            Ok("left: it is of another kernel or container runtime".to_owned())
        } else if scenarios.has_product(name) {
            replayed(&program, path).and_then(|told| keep(&told, path, &kept.join(format!("{name}.rec"))))
        } else {
            Err(anyhow::anyhow!("no scenario of that name runs the product"))
        };
        match outcome {
            Ok(told) => println!("{name}: {told}"),
            Err(error) => {
                refused += 1;
                println!("{name}: not kept: {error:#}");
            }
        }
    }
    for (name, path) in audits {
        let place = workspace.root().join(AUDITS).join(format!("{name}.json"));
        if place.is_file() {
            put(&path, &place)?;
            println!("{name}: an audit");
        }
    }
    ensure!(refused == 0, "{refused} of {} recordings are not kept", recordings.len());
    Ok(())
}

/// Name and path of each file with this end, in order.
fn files_in(dir: &Path, wanted: &str) -> Result<Vec<(String, PathBuf)>> {
    let listing = || format!("list {}", dir.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(listing)? {
        let path = entry.with_context(listing)?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str())
            && path.extension().is_some_and(|end| end == wanted)
        {
            found.push((name.to_owned(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}

/// What the product tells of a recording that comes out as it was recorded; of any other it is an error.
fn replayed(program: &Path, recording: &Path) -> Result<Value> {
    let mut replay = Command::new(program);
    let told = command::quietly(replay.arg("replay").arg(recording).args(["-o", "json"]))?;
    serde_json::from_str(&told).context("read what the replay tells")
}

/// Puts a recording of which this is told in its place; returns what is to be said of it.
fn keep(told: &Value, recording: &Path, place: &Path) -> Result<String> {
    let ends = &told["recording"]["ends"];
    ensure!(ends.is_null(), "it ends {ends}");
    put(recording, place)?;
    let bytes = fs::metadata(place).with_context(|| format!("look at {}", place.display()))?.len();
    Ok(format!("{} turns, {} steps, {bytes} bytes", told["recording"]["turns"], told["recorded"]["steps"]))
}

/// Copies a file, unless it is there.
fn put(file: &Path, place: &Path) -> Result<()> {
    // To copy a file onto itself empties it.
    if file.canonicalize().ok() != place.canonicalize().ok() {
        fs::copy(file, place).with_context(|| format!("write {}", place.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_recording_takes_the_place_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let (new, place) = (dir.path().join("new.rec"), dir.path().join("old.rec"));
        fs::write(&new, "12345").unwrap();
        fs::write(&place, "old").unwrap();
        let told = |ends: Option<&str>| serde_json::json!({ "recording": { "turns": 3, "ends": ends }, "recorded": { "steps": 2 } });
        assert!(keep(&told(Some("in the middle of a turn")), &new, &place).is_err());
        assert_eq!(fs::read(&place).unwrap(), b"old");
        for from in [&new, &place] {
            assert_eq!(keep(&told(None), from, &place).unwrap(), "3 turns, 2 steps, 5 bytes");
            assert_eq!(fs::read(&place).unwrap(), b"12345", "also from its own place");
        }
    }

    #[test]
    fn what_the_product_refuses_is_not_kept() {
        assert!(replayed(Path::new("/bin/false"), Path::new("x.rec")).is_err());
        assert!(replayed(Path::new("/bin/echo"), Path::new("x.rec")).is_err(), "that is no JSON");
    }

    #[test]
    fn all_files_of_a_kind_are_found_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.rec", "a@5.10.rec", "README.md", "rec"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let names: Vec<_> = files_in(dir.path(), "rec").unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a@5.10", "b"]);
        assert!(files_in(Path::new("/nowhere"), "rec").is_err());
    }
}
