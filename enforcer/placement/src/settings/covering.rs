//! Decides whether one glob matches everything that another one matches.
//!
//! Problem: the first matching entry counts, so an entry after a wider one never does, and its author
//! believes that it does. Idea: both globs are automata, and every path through the narrower one is followed
//! in the wider one at the same time. All characters that neither glob names are equivalent, so one symbol
//! stands for them.
//!
//! Invariant: a positive answer is always right. For globs with classes or alternatives beside wildcards, and
//! if the search is too long, the answer is negative.
//! Cost: bounded by an [`Effort`], which all comparisons of one configuration share.

use std::collections::BTreeSet;

/// Remaining steps for comparisons.
#[derive(Debug, Clone)]
pub struct Effort(u64);

/// Steps for a whole configuration: a fraction of a second.
const STEPS: u64 = 4_000_000;
/// Steps for the first check of two entries.
const PAIR: u64 = 20;

impl Default for Effort {
    fn default() -> Self {
        Self(STEPS)
    }
}

impl Effort {
    /// So many steps.
    pub const fn of(steps: u64) -> Self {
        Self(steps)
    }

    /// Uses up `steps`; false if fewer are left.
    fn take(&mut self, steps: usize) -> bool {
        let left = self.0.checked_sub(u64::try_from(steps).unwrap_or(u64::MAX));
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    /// Uses up the steps for the first check of two entries.
    pub fn take_pair(&mut self) -> bool {
        let left = self.0.checked_sub(PAIR);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

/// Part of a glob that a character is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GlobPart {
    Char(char),
    /// Any character; `/` only if `apart` is false.
    One,
    /// Any number of such characters.
    Many,
    /// Any text.
    All,
    /// The next part is optional, up to this many steps ahead.
    Skip(usize),
}

/// Does `wide` match every text that `narrow` matches? `apart` says whether `*` and `?` stop at a `/`, as in
/// paths; `matches` is the glob `wide` itself.
pub fn covers(
    wide: &str,
    narrow: &str,
    apart: bool,
    matches: impl Fn(&str) -> bool,
    effort: &mut Effort,
) -> bool {
    if wide == narrow {
        return true;
    }
    let Some(inner) = steps(narrow, apart) else { return false };
    if inner.iter().all(|step| matches!(step, GlobPart::Char(_))) {
        return matches(narrow);
    }
    let Some(outer) = steps(wide, apart) else { return false };
    includes(&outer, &inner, apart, effort)
}

/// Steps of a glob; none for a glob with classes, alternatives or escapes.
fn steps(glob: &str, apart: bool) -> Option<Vec<GlobPart>> {
    if glob.contains(['[', ']', '{', '}', '\\']) || !apart && glob.contains('/') {
        return None;
    }
    let mut found = Vec::new();
    let names: Vec<&str> = if apart { glob.split('/').collect() } else { vec![glob] };
    let mut is_open = false;
    for (index, name) in names.iter().enumerate() {
        // The slash after `/**/` is its own step.
        if index > 0 && !is_open {
            found.push(GlobPart::Char('/'));
        }
        is_open = false;
        if apart && *name == "**" {
            match index {
                0 => return None,
                _ if index + 1 == names.len() => found.push(GlobPart::All),
                _ => {
                    found.extend([GlobPart::Skip(3), GlobPart::All, GlobPart::Char('/')]);
                    is_open = true;
                }
            }
            continue;
        }
        found.extend(name.chars().map(|one| match one {
            '*' => GlobPart::Many,
            '?' => GlobPart::One,
            other => GlobPart::Char(other),
        }));
    }
    Some(found)
}

/// A character, or any that neither glob names.
type Symbol = Option<char>;

fn includes(outer: &[GlobPart], inner: &[GlobPart], apart: bool, effort: &mut Effort) -> bool {
    let named = |step: &GlobPart| if let GlobPart::Char(one) = step { Some(Some(*one)) } else { None };
    let mut symbols: BTreeSet<Symbol> = outer.iter().chain(inner).filter_map(named).collect();
    symbols.extend([None, Some('/')]);
    let first = |steps: &[GlobPart]| closure(steps, [0].into());
    let outer_first = first(outer);
    let mut waiting: Vec<(usize, BTreeSet<usize>)> =
        first(inner).into_iter().map(|at| (at, outer_first.clone())).collect();
    let mut seen = BTreeSet::new();
    while let Some((at, reached)) = waiting.pop() {
        if at == inner.len() && !reached.contains(&outer.len()) {
            return false;
        }
        if at == inner.len() || !seen.insert((at, reached.clone())) {
            continue;
        }
        for symbol in &symbols {
            let next = after(inner, at, *symbol, apart);
            if next.is_empty() {
                continue;
            }
            if !effort.take(reached.len() + next.len() + 1) {
                return false;
            }
            let moved = reached.iter().flat_map(|at| after(outer, *at, *symbol, apart)).collect();
            let moved = closure(outer, moved);
            let next = closure(inner, next);
            waiting.extend(next.into_iter().map(|at| (at, moved.clone())));
        }
    }
    true
}

/// Positions after a symbol.
fn after(steps: &[GlobPart], at: usize, symbol: Symbol, apart: bool) -> BTreeSet<usize> {
    let is_any = !apart || symbol != Some('/');
    match steps.get(at) {
        Some(GlobPart::Char(one)) if symbol == Some(*one) => [at + 1].into(),
        Some(GlobPart::One) if is_any => [at + 1].into(),
        Some(GlobPart::Many) if is_any => [at].into(),
        Some(GlobPart::All) => [at].into(),
        _ => BTreeSet::new(),
    }
}

/// These positions, and those reachable from them without a symbol.
fn closure(steps: &[GlobPart], mut positions: BTreeSet<usize>) -> BTreeSet<usize> {
    let mut waiting: Vec<usize> = positions.iter().copied().collect();
    while let Some(at) = waiting.pop() {
        let reached: &[usize] = match steps.get(at) {
            Some(GlobPart::Many | GlobPart::All) => &[at + 1],
            Some(GlobPart::Skip(behind)) => &[at + 1, at + behind],
            _ => &[],
        };
        waiting.extend(reached.iter().filter(|at| positions.insert(**at)));
    }
    positions
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        CgroupPath,
        settings::{CgroupGlob, NameGlob},
    };

    fn of_paths(wide: &str, narrow: &str) -> bool {
        let wide: CgroupGlob = wide.parse().unwrap();
        wide.covers(&narrow.parse().unwrap(), &mut Effort::default())
    }

    fn of_names(wide: &str, narrow: &str) -> bool {
        let wide: NameGlob = wide.parse().unwrap();
        wide.covers(&narrow.parse().unwrap(), &mut Effort::default())
    }

    #[test]
    fn a_wider_glob_covers_a_narrower_one_and_not_the_other_way_round() {
        for (wide, narrow) in [
            ("/a/*", "/a/b"),
            ("/a/*", "/a/b*"),
            ("/a/*", "/a/?"),
            ("/a/**", "/a/b/c"),
            ("/a/**", "/a/*/c"),
            ("/a/**", "/a/b/**"),
            ("/a/**", "/a/*"),
            ("/**", "/a/**"),
            ("/a/**/d", "/a/b/c/d"),
            ("/a/**/d", "/a/*/d"),
            ("/a/**/d", "/a/d"),
            ("/*/b", "/a/b"),
            ("/a*c", "/ab*c"),
            ("/{a,b}/*", "/a/b"),
        ] {
            assert!(of_paths(wide, narrow), "{wide} covers {narrow}");
            assert!(!of_paths(narrow, wide), "{narrow} covers {wide}");
        }
        for (wide, narrow) in
            [("*", "a"), ("redis*", "redis-1.service"), ("redis*", "redis-*"), ("*b*", "a*bc")]
        {
            assert!(of_names(wide, narrow), "{wide} covers {narrow}");
            assert!(!of_names(narrow, wide), "{narrow} covers {wide}");
        }
        for (one, other) in [("/a/*", "/b/c"), ("/a/*", "/a/b/c"), ("/a/b*", "/a/*b"), ("/a/**", "/a")] {
            assert!(!of_paths(one, other) && !of_paths(other, one), "{one} and {other}");
        }
    }

    #[test]
    fn long_globs_end_the_search_without_a_word() {
        let stars = "*a".repeat(300);
        let wide: NameGlob = format!("{stars}*").parse().unwrap();
        let narrow: NameGlob = format!("*b{stars}").parse().unwrap();
        let mut effort = Effort::of(1000);
        assert!(!wide.covers(&narrow, &mut effort));
        assert!(!effort.take_pair(), "nothing is left for others");
    }

    proptest! {
        #[test]
        fn a_glob_matches_what_the_globs_that_it_covers_match(
            wide in "(/([ab*?]{1,3}|\\*\\*)){1,3}", narrow in "(/([ab*?]{1,3}|\\*\\*)){1,3}",
            paths in proptest::collection::vec("(/[abc]{1,3}){1,4}", 24),
        ) {
            let (Ok(wide), Ok(narrow)) = (wide.parse::<CgroupGlob>(), narrow.parse::<CgroupGlob>()) else {
                return Ok(());
            };
            let covers = wide.covers(&narrow, &mut Effort::default());
            for path in paths.iter().map(|path| CgroupPath::new(path)) {
                prop_assert!(!covers || !narrow.matches(&path) || wide.matches(&path), "{wide} {narrow} {path}");
            }
        }
    }
}
