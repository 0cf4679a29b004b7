//! Every promise of SPECIFICATION.md is held by something that exists.
//!
//! The last column of a table names tests and scenarios in backticks. A name that the repository does not
//! define is a promise without a check, and a violation.

use super::{SourceFile, Violation};

/// Heading of the last column of a table of promises.
const HEADING: &str = "held by";

/// What measures instead of asserting.
const BENCH: &str = "cargo xtask bench";

/// Names in the last column of `specification` that no file defines.
pub(crate) fn check(specification: &str, files: &[SourceFile]) -> Vec<Violation> {
    let mut broken = Vec::new();
    let mut among_promises = false;
    for (number, line) in (1..).zip(specification.lines()) {
        let Some(column) = last_column(line) else {
            among_promises = false;
            continue;
        };
        if column.trim() == HEADING {
            among_promises = true;
        }
        if !among_promises {
            continue;
        }
        for name in names(column).filter(|name| !name.starts_with(BENCH) && !defined(name, files)) {
            broken.push(Violation {
                rule: "promises-are-held",
                path: "SPECIFICATION.md".to_owned(),
                line: number,
                found: name.to_owned(),
            });
        }
    }
    broken
}

/// The last column, if the line is a row of a table.
fn last_column(line: &str) -> Option<&str> {
    line.trim().strip_prefix('|')?.strip_suffix('|')?.rsplit('|').next()
}

/// What stands in backticks.
fn names(column: &str) -> impl Iterator<Item = &str> {
    column.split('`').skip(1).step_by(2)
}

fn defined(name: &str, files: &[SourceFile]) -> bool {
    let (test, scenario) = (format!("fn {name}("), format!("\"{name}\""));
    files.iter().any(|file| file.text.contains(&test) || file.text.contains(&scenario))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_without_a_holder_is_found() {
        let file = SourceFile { path: "a.rs".into(), text: "fn kept() {}\n\"eyes-open\"".into() };
        let specification = "| promise | held by |\n|---|---|\n| a | `kept`, `eyes-open`, `cargo xtask bench` |\n\
             | `b` | `broken` |\n`prose`\n| x |\n| `other` |\n";
        let found = check(specification, &[file]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].found.as_str()), (4, "broken"));
    }
}
