//! Every source that the program can call degraded, against the runbook's table of them.
//!
//! The names are looked for in the program's text, because most of them are only said on hosts that no test
//! has: the first word of each `Degraded::new`, of what is counted by a `DegradedTally`, and of the subjects
//! of the topology. What is written in another way has to be named here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::RUNBOOK;

/// What stands in place of a name, and the names that it stands for.
const ELSEWHERE: [(&str, &[&str]); 12] = [
    ("Self::UNFIT", &["placement"]),
    ("TaskIterator::SOURCE", &["task-iterator"]),
    ("self.hook.source()", &["bpf"]),
    ("STALE", &["bpf"]),
    // Subjects of a topology, and of the callers of `unread`; the test looks for both.
    ("*source", &[]),
    ("subject.source", &[]),
    ("source", &["exposure", "cold-start-signal"]),
    // Kinds that a daemon may publish, by what the server said.
    ("unpublished_source", &["publish", "nrt-owned-by-other", "numatopologies-owned-by-other"]),
    ("unserved_source", &["nrt-not-served", "numatopologies-not-served"]),
    // Collections that the daemon follows; what an extender follows is in its log.
    ("collection.source", &["pod-watch"]),
    // Slices of the DRA driver.
    ("SOURCE", &["dra"]),
    ("self.0.stream.name", &["stdout", "log"]),
];

/// Files of the program, without those that only test it.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name.ends_with("tests") || ["fixture", "fake", "degraded"].contains(&name) {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ends| ends == "rs") {
            found.push(path);
        }
    }
}

/// The text of a file without its tests.
fn program(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned()
}

/// The feature that a literal at the beginning of `text` names: `cgroup` of `"cgroup:/a"` and of
/// `format!("cgroup:{path}"`.
fn feature(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let literal = text.strip_prefix("format!(").unwrap_or(text).strip_prefix('"')?;
    literal.split(['"', ':', '{']).next()
}

/// By feature, where it is.
fn in_the_program() -> BTreeMap<String, PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let crates = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    for folder in crates.filter(|path| path.join("Cargo.toml").exists()).chain([root.to_owned()]) {
        sources(&folder.join("src"), &mut files);
    }
    let mut found = BTreeMap::new();
    for path in files {
        let text = program(&path);
        let after = |words: &'static str| text.split(words).skip(1);
        for said in after("Degraded::new(") {
            if let Some(name) = feature(said) {
                found.insert(name.to_owned(), path.clone());
                continue;
            }
            let written = said.trim_start().split(',').next().unwrap();
            let known = ELSEWHERE.iter().find(|(expression, _)| *expression == written);
            let (_, names) = known.unwrap_or_else(|| panic!("{}: what is {written}?", path.display()));
            found.extend(names.iter().map(|name| ((*name).to_owned(), path.clone())));
        }
        let counted = after("degraded.add(").chain(after(".unread("));
        let subjects = after("SourceEffect {").filter_map(|subject| subject.split("source: ").nth(1));
        for name in counted.chain(subjects).filter_map(feature) {
            found.insert(name.to_owned(), path.clone());
        }
    }
    found
}

/// The first cells of the table of the runbook.
fn in_the_runbook() -> BTreeSet<String> {
    let (_, section) = RUNBOOK.split_once("\n## NumaEnforcerDegraded\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    cells.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`').to_owned()).collect()
}

#[test]
fn every_source_that_can_be_missing_has_its_line_and_no_other_has() {
    let (program, runbook) = (in_the_program(), in_the_runbook());
    let missing: Vec<_> = program.iter().filter(|(name, _)| !runbook.contains(*name)).collect();
    assert!(missing.is_empty(), "not in the runbook: {missing:?}");
    let stale: Vec<_> = runbook.iter().filter(|name| !program.contains_key(*name)).collect();
    assert!(stale.is_empty(), "in the runbook alone: {stale:?}");
    assert!(program.len() > 40, "{program:?}");
}
