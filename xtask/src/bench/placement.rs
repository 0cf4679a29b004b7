//! The benches of the pure core: what a merge, an assignment, a whole admission cost.
//!
//! They are divan benches (`enforcer/core/benches`), which print a tree with a table beside it; here
//! it becomes lines of the one table of `cargo xtask bench`. A line that is not understood is an
//! error: a figure must not get lost silently.

use anyhow::{Context, Result, bail, ensure};

use super::table::{BenchFigures, row};
use crate::{command, product, workspace::Workspace};

/// Marks a name in the tree; each level before it is as wide.
const BRANCHES: [&str; 2] = ["├─ ", "╰─ "];

/// First column of figures.
const FASTEST: &str = "fastest";

/// Runs all benches; the lines of the table.
pub(super) fn measure(workspace: &Workspace) -> Result<Vec<String>> {
    let mut cargo = product::cargo(workspace)?;
    cargo.args(["bench", "--quiet", "--package", "numa-placement", "--bench", "*"]);
    let lines = read(&command::quietly(&mut cargo)?)?;
    ensure!(!lines.is_empty(), "the benches of the core printed no figures");
    Ok(lines)
}

/// Every leaf of the trees.
fn read(text: &str) -> Result<Vec<String>> {
    let (mut lines, mut names, mut at) = (Vec::new(), Vec::<String>::new(), 0);
    for line in text.lines() {
        let chars: Vec<char> = line.chars().collect();
        let part = |from: usize, to: usize| {
            chars.get(from..to.min(chars.len())).map(|part| part.iter().collect::<String>().trim().to_owned())
        };
        if let Some(found) = line.find(FASTEST).filter(|_| !is_branch(line)) {
            at = line[..found].chars().count();
            names = vec![part(0, at).unwrap_or_default()];
        } else if let Some(depth) = depth(line) {
            names.truncate(depth + 1);
            names.push(part(3 * (depth + 1), at).with_context(|| format!("no name in `{line}`"))?);
            let figures: Vec<_> =
                part(at, chars.len()).unwrap_or_default().split('│').map(str::to_owned).collect();
            let [fastest, slowest, median, ..] = &figures[..] else { bail!("no figures in `{line}`") };
            if !median.trim().is_empty() {
                let figures = BenchFigures {
                    median: nanoseconds(median)?,
                    min: nanoseconds(fastest)?,
                    max: nanoseconds(slowest)?,
                };
                lines.push(timed(&names.join(" "), figures));
            }
        }
    }
    Ok(lines)
}

fn is_branch(line: &str) -> bool {
    BRANCHES.iter().any(|branch| line.contains(branch))
}

/// How deep in the tree the name of a line is; none for a line without one.
fn depth(line: &str) -> Option<usize> {
    let found = BRANCHES.iter().filter_map(|branch| line.find(branch)).min()?;
    Some(line[..found].chars().count() / 3)
}

/// Reads `4.697 ns`.
fn nanoseconds(figure: &str) -> Result<f64> {
    let refused = || format!("`{}` is no duration", figure.trim());
    let (number, unit) = figure.trim().split_once(' ').with_context(refused)?;
    let number: f64 = number.parse().with_context(refused)?;
    let scale = match unit {
        "ps" => 1e-3,
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => bail!(refused()),
    };
    Ok(number * scale)
}

/// A line in the unit that suits its median.
fn timed(name: &str, BenchFigures { median, min, max }: BenchFigures<f64>) -> String {
    let units = [("ms", 1e6), ("us", 1e3), ("ns", 1.0)];
    let (unit, scale) = units.into_iter().find(|(_, scale)| median >= *scale).unwrap_or(units[2]);
    let shown = |nanoseconds: f64| format!("{:.2}", nanoseconds / scale);
    row([name, &shown(median), &shown(min), &shown(max), unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
Timer precision: 20 ns
merge            fastest       │ slowest       │ median        │ mean          │ samples │ iters
├─ top                         │               │               │               │         │
│  ╰─ c: d       0.308 ns      │ 0.597 ns      │ 0.311 ns      │ 0.316 ns      │ 100     │ 409600
│                9.74 Gitem/s  │ 5.025 Gitem/s │ 9.646 Gitem/s │ 9.493 Gitem/s │         │
╰─ all masks                   │               │               │               │         │
   ├─ single     3.105 µs      │ 8.485 µs      │ 3.325 µs      │ 3.559 µs      │ 100     │ 100
   ╰─ consts                   │               │               │               │         │
      ╰─ 64      39.47 µs      │ 1.2 ms        │ 39.48 µs      │ 41.48 µs      │ 100     │ 100

cpu    fastest       │ slowest       │ median        │ mean          │ samples │ iters
╰─ a   2 s           │ 3 s           │ 2.5 s         │ 2.5 s         │ 100     │ 100
";

    #[test]
    fn every_leaf_of_the_trees_becomes_a_line() {
        let lines = read(PRINTED).unwrap();
        let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            words,
            [
                vec!["merge", "top", "c:", "d", "0.31", "0.31", "0.60", "ns"],
                vec!["merge", "all", "masks", "single", "3.33", "3.10", "8.48", "us"],
                vec!["merge", "all", "masks", "consts", "64", "39.48", "39.47", "1200.00", "us"],
                vec!["cpu", "a", "2500.00", "2000.00", "3000.00", "ms"],
            ]
        );
    }

    #[test]
    fn a_figure_that_is_not_understood_is_an_error() {
        assert!(read(&PRINTED.replace("39.48 µs", "39.48 xs")).is_err());
        assert!(read(&PRINTED.replace("3.325 µs", "soon")).is_err());
    }
}
