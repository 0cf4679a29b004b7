//! Scores pools by the location of a container's devices and mounts.
//!
//! Problem: some of the things that a container uses have a location: a device, a disk, resources from a
//! device plugin. Each hint says "near these CPUs, nodes or packages". Idea: every hint gives a pool a score
//! between 0 (elsewhere) and 1 (here), which is smaller the more of the machine the pool is; the scores of
//! all hints are multiplied.
//!
//! The container's annotations select the hints. Scores are whole millionths, rounded down after each
//! multiplication, in the order of the hints: equal hints give equal scores.

use std::collections::BTreeSet;

use super::tree::{Pool, PoolTree};
use crate::{
    TopologyHint,
    settings::{PoolLevel, glob_matcher::GlobMatcher},
};
use numa_topology::{
    Topology,
    set::{CpuSet, NodeSet},
    text::printable,
};

/// Selection of hints, by a container's annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintRules {
    /// Kinds of hints that are used.
    pub kinds: BTreeSet<HintKind>,
    /// If not empty, only hints that match one of these are used.
    pub allow: Vec<HintPattern>,
    /// Hints that match one of these are ignored; takes precedence.
    pub deny: Vec<HintPattern>,
    /// Whether the container must not be placed outside its hints.
    pub strict: bool,
}

/// Kinds of hints by provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HintKind {
    /// `mount:PATH`.
    Mounts,
    /// `device:PATH`.
    Devices,
    /// `pod-resources:RESOURCE`.
    PodResources,
}

/// A filter of `allow.topologyhints` and `deny.topologyhints`: `KIND:PREFIX`, `KIND:GLOB`, or either without
/// the kind for all kinds.
#[derive(Debug, Clone)]
pub struct HintPattern {
    kind: Option<HintKind>,
    text: String,
    glob: Option<GlobMatcher>,
}

/// Score of a pool for all hints together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HintScore {
    /// Product of all scores, in millionths.
    product: u32,
    /// Product of the nonzero scores, in millionths; zero if all are zero.
    without_zeros: u32,
}

impl HintScore {
    #[cfg(test)]
    pub(super) const fn of(product: u32) -> Self {
        Self { product, without_zeros: product }
    }

    /// Does any hint score the pool above zero?
    pub(crate) const fn speaks_for(self) -> bool {
        self.without_zeros > 0
    }
}

/// The score 1.
const FULL: u32 = 1_000_000;

impl PartialEq for HintPattern {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.text) == (other.kind, &other.text)
    }
}

impl Eq for HintPattern {}

impl Default for HintRules {
    fn default() -> Self {
        let kinds = BTreeSet::from([HintKind::Mounts, HintKind::Devices, HintKind::PodResources]);
        Self { kinds, allow: Vec::new(), deny: Vec::new(), strict: false }
    }
}

impl HintKind {
    /// Parses the name in annotations or before the colon of a provider, singular or plural.
    pub fn named(text: &str) -> Option<Self> {
        match text {
            "mount" | "mounts" => Some(Self::Mounts),
            "device" | "devices" => Some(Self::Devices),
            "pod-resource" | "pod-resources" | "podresource" | "podresources" => Some(Self::PodResources),
            _ => None,
        }
    }
}

impl HintPattern {
    /// Parses a pattern; the error is that of the glob.
    ///
    /// # Errors
    /// If it is no pattern.
    pub fn new(text: &str) -> Result<Self, String> {
        let (kind, place) = match text.split_once(':') {
            Some((kind, place)) if HintKind::named(kind).is_some() => (HintKind::named(kind), place),
            _ => (None, text),
        };
        let glob = if place.contains(['*', '?', '[', '{']) {
            Some(GlobMatcher::of_paths(place).map_err(|fault| fault.to_string())?)
        } else {
            None
        };
        Ok(Self { kind, text: place.to_owned(), glob })
    }

    fn matches(&self, kind: Option<HintKind>, place: &str) -> bool {
        let found = match &self.glob {
            Some(glob) => glob.is_match(place),
            None => place.starts_with(&self.text),
        };
        found && (self.kind.is_none() || self.kind == kind)
    }
}

impl HintRules {
    /// Is the hint used?
    pub fn admit(&self, hint: &TopologyHint) -> bool {
        let (kind, place) = match hint.provider.split_once(':') {
            Some((kind, place)) => (HintKind::named(kind), place),
            None => (None, hint.provider.as_str()),
        };
        let says_something = !(hint.cpus.is_empty() && hint.nodes.is_empty() && hint.packages.is_empty());
        let wanted = kind.map_or(!self.kinds.is_empty(), |kind| self.kinds.contains(&kind));
        let denied = self.deny.iter().any(|pattern| pattern.matches(kind, place));
        let allowed = self.allow.is_empty() || self.allow.iter().any(|pattern| pattern.matches(kind, place));
        says_something && wanted && !denied && allowed
    }
}

/// The score of a pool for all hints in use; `None` without any.
pub fn score<'a>(
    tree: &PoolTree,
    pool: &Pool,
    hints: impl IntoIterator<Item = &'a TopologyHint>,
) -> Option<HintScore> {
    let mut scores = hints.into_iter().map(|hint| score_of_one(tree, pool, hint)).peekable();
    scores.peek()?;
    let times = |a: u32, b: u32| match u64::from(a) * u64::from(b) / u64::from(FULL) {
        // Only a zero gives a zero.
        0 if a > 0 && b > 0 => 1,
        product => u32::try_from(product).unwrap_or(FULL),
    };
    let start = HintScore { product: FULL, without_zeros: 0 };
    Some(scores.fold(start, |all, one| HintScore {
        product: times(all.product, one),
        without_zeros: match (all.without_zeros, one) {
            (sofar, 0) => sofar,
            (0, first) => first,
            (sofar, one) => times(sofar, one),
        },
    }))
}

/// The score of a pool for one hint, by the most exact location in the hint.
fn score_of_one(tree: &PoolTree, pool: &Pool, hint: &TopologyHint) -> u32 {
    if !hint.cpus.is_empty() {
        return fraction(hint.cpus.common(&pool.cpus), hint.cpus.len());
    }
    if hint.nodes.is_empty() { score_of_packages(tree, pool, hint) } else { score_of_nodes(pool, hint) }
}

fn score_of_nodes(pool: &Pool, hint: &TopologyHint) -> u32 {
    let near = !hint.nodes.is_disjoint(&pool.cpu_nodes) || !hint.nodes.is_disjoint(&pool.memory.all());
    if pool.is_of(PoolLevel::Numa) {
        FULL * u32::from(near)
    } else if pool.parent.is_none() {
        fraction(81, 100)
    } else {
        fraction(9 * usize::from(near), 10)
    }
}

fn score_of_packages(tree: &PoolTree, pool: &Pool, hint: &TopologyHint) -> u32 {
    if pool.parent.is_none() && !pool.is_of(PoolLevel::Package) {
        return fraction(9, 10);
    }
    if !pool.packages.iter().any(|package| hint.packages.contains(package)) {
        return 0;
    }
    let Some(parent) = pool.parent.filter(|_| !pool.is_of(PoolLevel::Package)) else { return FULL };
    if pool.is_of(PoolLevel::Numa) {
        let socket =
            tree.ancestors(pool.id).map(|id| tree.pool(id)).find(|above| above.is_of(PoolLevel::Package));
        return fraction(1, socket.map_or(1, |socket| socket.cpu_nodes.len()));
    }
    if pool.is_of(PoolLevel::Die) {
        return fraction(1, pool.cpu_nodes.len());
    }
    u32::try_from(u64::from(score_of_packages(tree, tree.pool(parent), hint)) * 9 / 10).unwrap_or(FULL)
}

fn fraction(part: usize, whole: usize) -> u32 {
    let millionths = part.saturating_mul(FULL as usize).checked_div(whole).unwrap_or(0);
    u32::try_from(millionths).unwrap_or(FULL)
}

/// CPUs and memory nodes that are inside a hint.
pub fn inside(tree: &PoolTree, machine: &Topology, hint: &TopologyHint) -> (CpuSet, NodeSet) {
    let (near, nodes) = if !hint.cpus.is_empty() {
        (hint.cpus.clone(), machine.nodes_of(&hint.cpus))
    } else if !hint.nodes.is_empty() {
        (machine.cpus_of(&hint.nodes), hint.nodes.clone())
    } else {
        let packages = machine.packages.iter().filter(|package| hint.packages.contains(&package.id));
        let near = packages.fold(CpuSet::new(), |near, package| near.union(&package.cpus));
        let nodes = machine.nodes_of(&near);
        (near, nodes)
    };
    let local = tree.local_memory(&nodes);
    (near, local)
}

/// Part of a grant that is outside a hint, for a container with strict hints; `None` if all is inside.
pub fn outside(
    tree: &PoolTree,
    machine: &Topology,
    hint: &TopologyHint,
    cpus: &CpuSet,
    mems: &NodeSet,
) -> Option<String> {
    let (near, local) = inside(tree, machine, hint);
    let what = if !near.is_empty() && !cpus.is_subset(&near) {
        format!("CPUs {}", cpus.difference(&near))
    } else if !mems.is_subset(&local) {
        format!("memory of nodes {}", mems.difference(&local))
    } else {
        return None;
    };
    Some(format!("{what} would be away from {}", printable(&hint.provider)))
}

#[cfg(test)]
mod tests;
