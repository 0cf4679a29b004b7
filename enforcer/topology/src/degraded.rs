//! Missing sources and failed readings, by name.
//!
//! A missing source is never a silent pass: it becomes a degraded entry, and the reports show it.

use std::{collections::BTreeMap, fmt};

/// Names of sources that explain a missing figure.
pub mod source {
    /// The kernel side as a whole.
    pub const BPF: &str = "bpf";
    /// Hardware counters of memory accesses.
    pub const HARDWARE: &str = "bpf:hardware";
    /// NUMA hinting faults.
    pub const HINT_FAULTS: &str = "bpf:hint-faults";
}

/// A missing source and its consequence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Degraded {
    /// Short stable name: `bpf`, `task-iterator`, `numa-balancing`, `hmat`, `cgroup:/a/b`.
    pub source: String,
    /// Why it is missing, with path, value and cause.
    pub reason: String,
    /// What the report lacks because of it.
    pub effect: String,
}

impl Degraded {
    /// A degraded source, the cause, and the consequence.
    pub fn new(source: impl Into<String>, reason: impl Into<String>, effect: impl Into<String>) -> Self {
        Self { source: source.into(), reason: reason.into(), effect: effect.into() }
    }
}

/// `SOURCE: REASON; EFFECT`.
impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, reason, effect } = self;
        write!(f, "{source}: {reason}; {effect}")
    }
}

/// Limit of like objects that are listed one by one.
const LISTED: usize = 5;

/// Degraded entries of many like objects (a thousand cgroups, ten thousand threads): the first few
/// of a kind are listed, the others counted.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DegradedTally {
    entries: Vec<Degraded>,
    counts: BTreeMap<(&'static str, &'static str), usize>,
}

impl DegradedTally {
    /// Adds `kind:object`, for example `cgroup:/a/b`.
    pub fn add(
        &mut self,
        kind: &'static str,
        object: impl fmt::Display,
        reason: impl fmt::Display,
        effect: &'static str,
    ) {
        let count = self.counts.entry((kind, effect)).or_default();
        *count += 1;
        if *count <= LISTED {
            self.entries.push(Degraded::new(format!("{kind}:{object}"), reason.to_string(), effect));
        }
    }

    /// Adds a single entry.
    pub fn push(&mut self, entry: Degraded) {
        self.entries.push(entry);
    }

    /// All entries; a kind with more than a few has one entry with the number of the others.
    pub fn into_entries(self) -> Vec<Degraded> {
        let mut entries = self.entries;
        for ((kind, effect), count) in self.counts {
            if let Some(more) = count.checked_sub(LISTED).filter(|more| *more > 0) {
                entries.push(Degraded::new(
                    kind,
                    format!("{more} more like the {LISTED} that are listed"),
                    effect,
                ));
            }
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_of_a_kind_are_six_entries() {
        let mut tally = DegradedTally::default();
        for n in 0..1000 {
            tally.add("cgroup", format_args!("/c{n}"), "gone", "not audited");
        }
        tally.add("node", 3, "cut short", "no counters");
        let entries = tally.into_entries();
        assert_eq!(entries.len(), 7);
        assert_eq!(entries[0], Degraded::new("cgroup:/c0", "gone", "not audited"));
        assert_eq!(entries[6], Degraded::new("cgroup", "995 more like the 5 that are listed", "not audited"));
    }
}
