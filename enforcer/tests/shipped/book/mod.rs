//! docs/ as a book: every page is in its summary, every link leads somewhere, every command can be typed, and
//! the pages that are generated are current.
//!
//! What the pages say is for people to check; this keeps them from pointing at what is no longer there. The
//! README is read with them.

mod commands;
mod links;
mod reference;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The root of the working copy.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every page, by its path from the root: docs/ and below, and the README.
pub(super) fn pages() -> BTreeMap<PathBuf, String> {
    let mut pending = vec![PathBuf::from("docs")];
    let mut found = vec![PathBuf::from("README.md")];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            match () {
                () if root().join(&path).is_dir() => pending.push(path),
                () if path.extension().is_some_and(|extension| extension == "md") => found.push(path),
                () => {}
            }
        }
    }
    let text = |path: &PathBuf| fs::read_to_string(root().join(path)).unwrap();
    found.into_iter().map(|path| (path.clone(), text(&path))).collect()
}

/// The lines of a page that are prose, and those of its blocks of code.
fn split(page: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut prose, mut code) = (Vec::new(), Vec::new());
    let mut inside = false;
    for line in page.lines() {
        match () {
            () if line.trim_start().starts_with("```") => inside = !inside,
            () if inside => code.push(line),
            () => prose.push(line),
        }
    }
    (prose, code)
}
