//! Every path and type that ARCHITECTURE.md names exists.
//!
//! A map with stale names is worse than none. A text in backticks is a path if it ends in `.rs`, or has a `/`
//! and begins with a known folder: from the root of the repository, from `enforcer/src`, or from `enforcer`
//! (`core/src/model` is `enforcer/core/src/model`). Names in a table column with the heading `module` are
//! modules of `enforcer/placement/src`, or paths as above. A text of letters alone that begins with a capital and
//! has a small letter after it is a type or a trait of this repository.

use std::path::Path;

use super::Violation;

const PAGE: &str = "ARCHITECTURE.md";

/// Where a path may begin.
const BASES: [&str; 3] = ["", "enforcer/src/", "enforcer/"];

/// Where modules of a table are.
const MODULES: &str = "enforcer/placement/src/";

/// Heading of the first column of a table of modules.
const HEADING: &str = "module";

/// Words of the language that look like the name of a type.
const LANGUAGE: [&str; 1] = ["None"];

/// Paths in `page` at which nothing `exists`, relative to the root of the repository, and types that are not
/// `defined`.
pub(super) fn check(
    page: &str,
    exists: impl Fn(&str) -> bool,
    defined: impl Fn(&str) -> bool,
) -> Vec<Violation> {
    let at = |path: &str| BASES.iter().any(|base| exists(&format!("{base}{path}")));
    let top = |path: &str| path.split_once('/').is_some_and(|(folder, _)| !folder.is_empty() && at(folder));
    let module = |name: &str| {
        exists(&format!("{MODULES}{name}")) || exists(&format!("{MODULES}{name}.rs")) || at(name)
    };
    let mut lost = Vec::new();
    let mut among_modules = false;
    for (number, line) in (1..).zip(page.lines()) {
        let first = line.strip_prefix('|').and_then(|row| row.split('|').next());
        among_modules = first.is_some_and(|cell| among_modules || cell.trim() == HEADING);
        let modules = first.filter(|_| among_modules).unwrap_or_default();
        let broken = names(modules).filter(|name| !module(name));
        let rest = line.strip_prefix('|').and_then(|row| row.strip_prefix(modules)).unwrap_or(line);
        let paths = names(rest).filter(|name| is_rust_file(name) || top(name));
        let types = names(rest).filter(|name| is_type(name) && !defined(name));
        for found in broken.chain(paths.filter(|path| !at(path))).chain(types) {
            lost.push(Violation {
                rule: "names-lead-somewhere",
                path: PAGE.to_owned(),
                line: number,
                found: found.to_owned(),
            });
        }
    }
    lost
}

/// What stands in backticks.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_rust_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "rs") && !name.contains(' ')
}

fn is_type(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_uppercase())
        && letters.next().is_some_and(|c| c.is_ascii_lowercase())
        && letters.all(|c| c.is_ascii_alphanumeric())
        && !LANGUAGE.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_nowhere_is_found_and_nothing_else_is() {
        let there = [
            "docs",
            "docs/adr",
            "enforcer/core",
            "enforcer/core/src/model",
            "enforcer/src/observe",
            "enforcer/src/run.rs",
            "enforcer/placement/src/grant.rs",
            "enforcer/placement/src/hints/cpu",
        ];
        let page = "`run.rs`, `docs/adr`, `core/src/model`, `/proc/PID`, `Gate`, `None`, `TOML`, `meta.load/x`, `//!`, `cargo x.rs`\n\
                    `engine.rs`, `observe/gone`, `there.rs`, `Gone`\n\
                    | module | what |\n|---|---|\n| `grant`, `hints/cpu`, `core/src/model` | `nothing` |\n\
                    | `nearest` | `docs/lost` |\n\n| a | b |\n| `nearest` | |\n";
        let found = check(page, |path| there.contains(&path), |name| name == "Gate");
        let found: Vec<_> = found.iter().map(|one| (one.line, one.found.as_str())).collect();
        let expected = [
            (2, "engine.rs"),
            (2, "observe/gone"),
            (2, "there.rs"),
            (2, "Gone"),
            (6, "nearest"),
            (6, "docs/lost"),
        ];
        assert_eq!(found, expected);
    }
}
