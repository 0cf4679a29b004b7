//! Things that are made once and kept: built aside, then renamed into place.
//!
//! The name of a thing holds a hash of its recipe. A thing that is there is complete, because the
//! rename is the last step; an interrupted build leaves only scratch folders, which the next build
//! sweeps away. One build at a time, held off by a lock file.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::progress::ProgressStep;

/// Prefix of scratch folders.
const SCRATCH: &str = ".making-";

/// The thing called `name` made by `recipe`; `make` is given the path at which to leave it.
pub(super) fn keep(
    dir: &Path,
    name: &str,
    recipe: &[&str],
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let place = dir.join(format!("{name}-{:016x}", key(recipe)));
    if place.exists() {
        return Ok(place);
    }
    aside(dir, &place, |unfinished| {
        let step = ProgressStep::begin(format!("make {name}"));
        make(unfinished).with_context(|| format!("make {name}"))?;
        step.done();
        Ok(())
    })?;
    Ok(place)
}

/// Makes what belongs at `place` in a scratch folder of `dir` and renames it; nothing if it is there.
pub(crate) fn aside(dir: &Path, place: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let lock =
        File::create(dir.join(".lock")).with_context(|| format!("create a lock in {}", dir.display()))?;
    lock.lock().context("wait for another build of the same things")?;
    if place.exists() {
        return Ok(());
    }
    sweep(dir)?;
    let scratch =
        tempfile::Builder::new().prefix(SCRATCH).tempdir_in(dir).context("create a scratch folder")?;
    let unfinished = scratch.path().join("unfinished");
    make(&unfinished)?;
    fs::rename(&unfinished, place).with_context(|| format!("put {} in place", place.display()))
}

/// Hash of a recipe. It need not be the same under another compiler: the thing is then made anew.
pub(crate) fn key(recipe: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    recipe.hash(&mut hasher);
    hasher.finish()
}

/// Removes what interrupted builds left; the caller holds the lock.
fn sweep(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            fs::remove_dir_all(entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_thing_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = keep(dir.path(), "x", &["a"], |at| Ok(fs::write(at, "1")?)).unwrap();
        let second = keep(dir.path(), "x", &["a"], |_| bail!("made twice")).unwrap();
        assert_eq!(first, second);
        assert_eq!(fs::read_to_string(second).unwrap(), "1");
    }

    #[test]
    fn another_recipe_is_another_thing() {
        let dir = tempfile::tempdir().unwrap();
        let one = keep(dir.path(), "x", &["a"], |at| Ok(fs::write(at, "1")?)).unwrap();
        let other = keep(dir.path(), "x", &["b"], |at| Ok(fs::write(at, "2")?)).unwrap();
        assert_ne!(one, other);
    }

    #[test]
    fn a_failed_build_leaves_nothing_and_a_killed_one_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(format!("{SCRATCH}killed"));
        fs::create_dir(&left).unwrap();
        let failed = keep(dir.path(), "x", &["a"], |at| {
            fs::write(at, "half")?;
            bail!("broken")
        });
        assert!(failed.is_err());
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [".lock"], "only the lock stays");
    }
}
