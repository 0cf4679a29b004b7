//! Parsers of annotation values: words and lists.
//!
//! Each parser returns `None` for an unknown text; none guesses.

use std::{collections::BTreeSet, time::Duration};

use super::super::topology_hints::{HintKind, HintPattern, HintRules};
use crate::settings::{HumanDuration, MemoryTypes};

/// Maximum number of patterns of one list.
const PATTERN_LIMIT: usize = 64;

/// Same values as Go's `strconv.ParseBool`, which the other families use.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

pub(super) fn memory_types(text: &str) -> Option<MemoryTypes> {
    let mut parts = text.split(',').map(str::trim);
    parts.try_fold(MemoryTypes::default(), |types, part| {
        Some(match part.to_ascii_lowercase().as_str() {
            "dram" => MemoryTypes { dram: true, ..types },
            "pmem" => MemoryTypes { pmem: true, ..types },
            "hbm" => MemoryTypes { hbm: true, ..types },
            "mixed" | "all" => MemoryTypes { dram: true, pmem: true, hbm: true },
            _ => return None,
        })
    })
}

pub(super) fn hint_kinds(text: &str) -> Option<BTreeSet<HintKind>> {
    match (switch(text), text) {
        (Some(true), _) | (_, "all") => Some(HintRules::default().kinds),
        (Some(false), _) | (_, "none") => Some(BTreeSet::new()),
        _ => text.split(',').map(|kind| HintKind::named(kind.trim())).collect(),
    }
}

/// Elements are separated by commas or lines; a line may begin with a dash and be quoted, as in YAML.
pub(super) fn hint_patterns(text: &str) -> Option<Vec<HintPattern>> {
    let elements = text
        .split([',', '\n'])
        .map(|element| element.trim().trim_start_matches("- ").trim().trim_matches(['"', '\'']))
        .filter(|element| !element.is_empty());
    let patterns: Vec<_> = elements
        .take(PATTERN_LIMIT + 1)
        .map(|element| HintPattern::new(element).ok())
        .collect::<Option<_>>()?;
    (patterns.len() <= PATTERN_LIMIT).then_some(patterns)
}

/// One duration, or several in sequence: `1m30s`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let unit = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let (one, after) = rest.split_at(digits + unit);
        sum = sum.checked_add(one.parse::<HumanDuration>().ok()?.get())?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}
