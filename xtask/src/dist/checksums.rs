//! `SHA256SUMS`, as `sha256sum --check` reads it.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};

use crate::command;

/// Name of the file.
const SUMS: &str = "SHA256SUMS";

/// Writes the checksums of all files in `place`, sorted by name; returns the lines.
pub(super) fn write(place: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(place).with_context(|| format!("list {}", place.display()))? {
        names.push(entry?.file_name());
    }
    names.sort();
    let sums = command::quietly(Command::new("sha256sum").arg("--").args(&names).current_dir(place))?;
    let path = place.join(SUMS);
    fs::write(&path, &sums).with_context(|| format!("write {}", path.display()))?;
    Ok(sums.lines().map(str::to_owned).collect())
}

/// SHA-256 of one file, in hexadecimal digits.
pub(super) fn of(file: &Path) -> Result<String> {
    let line = command::quietly(Command::new("sha256sum").arg("--").arg(file))?;
    line.split_whitespace().next().map(str::to_owned).context("sha256sum printed nothing")
}
