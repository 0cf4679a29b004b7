//! Rust files as the rules see them: paths with `/`, lines without comments.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

/// Folders that hold no source of ours.
const SKIPPED: [&str; 4] = ["target", ".git", "fixtures", "generated"];

/// A Rust file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Relative to the root of the repository.
    pub(crate) path: String,
    /// The text as it is.
    pub(crate) text: String,
}

impl SourceFile {
    /// Lines of code with their numbers, `//` comments cut off.
    ///
    /// A `//` within a string literal cuts the line as well: a rule can miss something there, but
    /// cannot report what is not code.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line.split("//").next().unwrap_or("").trim()))
    }

    /// Lines of code in front of the file's own test module.
    pub(crate) fn product_code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code().take_while(|(_, line)| *line != "#[cfg(test)]")
    }
}

/// Every Rust file below `root`, in the order of their paths.
pub(crate) fn read_tree(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
            let entry = entry.with_context(|| format!("listing {}", folder.display()))?;
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().with_context(|| format!("looking at {}", path.display()))?;
            if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|e| e == "rs") {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
                let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                files.push(SourceFile { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
