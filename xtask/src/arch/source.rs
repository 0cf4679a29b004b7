//! Rust files as the rules see them: paths with `/`, lines without comments, what each `use` names as whole
//! paths.

use std::{collections::BTreeSet, fs, path::Path};

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

/// What code says: the paths that it imports, and all other lines.
#[derive(Debug, Default)]
pub(crate) struct Code<'a> {
    /// Whole paths, braces expanded and without what they are renamed to, each with the line where its `use`
    /// begins.
    pub(crate) imports: Vec<(usize, String)>,
    /// Lines that belong to no `use`.
    pub(crate) rest: Vec<(usize, &'a str)>,
}

impl<'a> Code<'a> {
    /// Takes lines of code apart.
    pub(crate) fn of(lines: impl Iterator<Item = (usize, &'a str)>) -> Self {
        let mut code = Self::default();
        let mut open: Option<(usize, String)> = None;
        for (number, line) in lines {
            let begun = open.take().or_else(|| imported(line).map(|_| (number, String::new())));
            let Some((begin, mut text)) = begun else {
                code.rest.push((number, line));
                continue;
            };
            text.push_str(line);
            if text.contains(';') {
                let tree = imported(&text).and_then(|tree| tree.split(';').next()).unwrap_or_default();
                code.imports.extend(expand("", tree).into_iter().map(|path| (begin, path)));
            } else {
                open = Some((begin, text));
            }
        }
        code
    }
}

/// Path after the `use` at the beginning of a line, with any visibility.
fn imported(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub").map_or(line, |rest| match rest.trim_start().strip_prefix('(') {
        Some(scope) => scope.split_once(')').map_or(scope, |(_, after)| after).trim_start(),
        None => rest.trim_start(),
    });
    rest.strip_prefix("use ").map(|tree| tree.trim_start_matches("::"))
}

/// The paths of a tree of a `use`, each behind `prefix`.
fn expand(prefix: &str, tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((path, branches)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree).trim();
        let own = path == "self" && !prefix.is_empty();
        let path = if own { prefix.trim_end_matches("::").to_owned() } else { format!("{prefix}{path}") };
        return vec![path];
    };
    let prefix = format!("{prefix}{}", path.trim());
    let branches = branches.trim_end().strip_suffix('}').unwrap_or(branches);
    let mut depth = 0_usize;
    let apart = branches.split(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    apart.filter(|branch| !branch.trim().is_empty()).flat_map(|branch| expand(&prefix, branch)).collect()
}

/// Names of the types and traits that `files` define, those of tests not among them.
pub(crate) fn types(files: &[SourceFile]) -> BTreeSet<&str> {
    files.iter().flat_map(SourceFile::product_code).filter_map(|(_, line)| defined(line)).collect()
}

/// The type or trait that a line of code begins to define.
fn defined(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub") || *word == "unsafe");
    let keyword = words.next()?;
    let name = words.next().filter(|_| ["struct", "enum", "trait", "type", "union"].contains(&keyword))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_use_names_is_whole_paths_and_everything_else_is_the_rest() {
        let text = "use a::b;\nfn f() {}\npub(crate) use crate::{\n    c::{self, d as e,},\n    // not this\n    g::*,\n};\n\
                    pub use ::h::{i};\nlet reuse = use_me();";
        let file = SourceFile { path: "x.rs".into(), text: text.into() };
        let Code { imports, rest } = Code::of(file.code());
        let paths: Vec<_> = imports.iter().map(|(line, path)| (*line, path.as_str())).collect();
        let expected = [(1, "a::b"), (3, "crate::c"), (3, "crate::c::d"), (3, "crate::g::*"), (8, "h::i")];
        assert_eq!(paths, expected);
        assert_eq!(rest, [(2, "fn f() {}"), (9, "let reuse = use_me();")]);
    }

    #[test]
    fn types_are_what_is_defined_in_front_of_the_tests() {
        let text = "pub(crate) struct A<'a> {\n    // struct No\n}\npub unsafe trait B: Send {}\ntype C = A;\n\
                    enum D {}\nlet structure = x;\n#[cfg(test)]\nmod tests { }\nstruct E;";
        let files = [SourceFile { path: "x.rs".into(), text: text.into() }];
        assert_eq!(Vec::from_iter(types(&files)), ["A", "B", "C", "D"]);
    }
}
