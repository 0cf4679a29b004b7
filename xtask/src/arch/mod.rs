//! `cargo xtask arch`: the invariants of ARCHITECTURE.md that can be read off the source.
//!
//! A boundary that only a document keeps is gone within a year. Each rule here has a name, is described in
//! ARCHITECTURE.md under that name, and is checked against every Rust file of the repository, line by line,
//! with comments cut off and each `use` as whole paths. It is a text search on purpose: fast, and without a
//! compiler. Code that it does not understand is left to review. It changes no file.

mod names;
mod promises;
mod rules;
mod source;

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};

pub(crate) use source::SourceFile;

/// A line that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Name of the rule.
    pub(crate) rule: &'static str,
    /// File, relative to the root of the repository.
    pub(crate) path: String,
    /// Line number from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    /// What was found.
    pub(crate) found: String,
}

/// Checks the repository at `root` and prints every violation.
pub(crate) fn run(root: &Path) -> Result<()> {
    let files = source::read_tree(root)?;
    let read = |name: &str| {
        let path = root.join(name);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let mut violations = rules::check(&files);
    for (folder, allowed) in rules::PURE {
        let manifest = format!("{folder}/Cargo.toml");
        violations.extend(rules::dependencies(&manifest, allowed, &read(&manifest)?)?);
    }
    for folder in rules::stage_folders() {
        violations.extend(rules::stages(&folder, &read(&format!("{folder}/Cargo.toml"))?)?);
    }
    violations.extend(promises::check(&read("SPECIFICATION.md")?, &files));
    let types = source::types(&files);
    violations.extend(names::check(
        &read("ARCHITECTURE.md")?,
        |path| root.join(path).exists(),
        |name| types.contains(name),
    ));
    for Violation { rule, path, line, found } in &violations {
        eprintln!("{path}:{line}: {rule}: {found}");
    }
    if !violations.is_empty() {
        bail!("{} violations of ARCHITECTURE.md in {} files", violations.len(), files.len());
    }
    println!("arch: {} files keep the invariants", files.len());
    Ok(())
}
