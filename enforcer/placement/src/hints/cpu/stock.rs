//! Free CPUs during an assignment, counted by group.
//!
//! Every decision of the allocator depends on the number of free CPUs in a core, cache, node or socket. The
//! counts are computed once and updated with each CPU that is taken.
//!
//! CPUs that must be in the result (*kept* ones) count as free, so that a group without other CPUs in use is
//! still whole, but they cost nothing. Without any, they have no influence.

use std::cmp::Reverse;

use crate::layout::{CpuLayout, Level};
use numa_topology::{id::CpuId, set::CpuSet};

/// Free CPUs, and the number that is still needed.
#[derive(Debug)]
pub(super) struct Stock<'a> {
    layout: &'a CpuLayout,
    free: CpuSet,
    /// By level, then by group.
    counts: [Vec<usize>; Level::COUNT],
    kept: CpuSet,
    taken: CpuSet,
    needed: usize,
}

impl<'a> Stock<'a> {
    /// Stock of the available CPUs, of which `needed` are wanted in addition to the kept ones, which are
    /// available too. CPUs outside the layout are ignored.
    pub(super) fn new(layout: &'a CpuLayout, available: &CpuSet, kept: CpuSet, needed: usize) -> Self {
        let mut counts = Level::ALL.map(|level| vec![0; layout.count(level)]);
        let free = layout.known(available);
        for group_index in free.iter().filter_map(|cpu| layout.group_index(cpu)) {
            for level in Level::ALL {
                counts[level as usize][group_index.group(level)] += 1;
            }
        }
        Self { layout, free, counts, kept, taken: CpuSet::new(), needed }
    }

    /// Layout of the CPUs.
    pub(super) const fn layout(&self) -> &'a CpuLayout {
        self.layout
    }

    /// Free CPUs, including kept ones.
    pub(super) const fn free(&self) -> &CpuSet {
        &self.free
    }

    /// Number of CPUs that are still needed.
    pub(super) const fn needed(&self) -> usize {
        self.needed
    }

    /// Increases the number of needed CPUs.
    pub(super) const fn need(&mut self, more: usize) {
        self.needed += more;
    }

    /// The CPUs taken, including kept ones.
    pub(super) fn into_taken(mut self) -> CpuSet {
        self.taken.extend(&self.kept);
        self.taken
    }

    /// Free CPUs of a group.
    pub(super) fn count(&self, level: Level, group: usize) -> usize {
        self.counts[level as usize][group]
    }

    /// Kept CPUs of a group.
    pub(super) fn kept(&self, level: Level, group: usize) -> usize {
        if self.kept.is_empty() { 0 } else { self.kept.common(self.layout.members(level, group)) }
    }

    /// Is it one of the kept CPUs?
    pub(super) fn is_kept(&self, cpu: CpuId) -> bool {
        self.kept.contains(cpu)
    }

    /// Number of these CPUs that count as needed ones: all but the kept ones.
    pub(super) fn cost(&self, cpus: &CpuSet) -> usize {
        cpus.len() - cpus.common(&self.kept)
    }

    /// Is every CPU of the group free?
    pub(super) fn is_whole(&self, level: Level, group: usize) -> bool {
        self.count(level, group) == self.layout.members(level, group).len()
    }

    /// Takes these CPUs, which are free.
    pub(super) fn take(&mut self, cpus: &CpuSet) {
        self.needed = self.needed.saturating_sub(self.cost(cpus));
        for cpu in cpus.iter() {
            if !self.free.remove(cpu) {
                continue;
            }
            let Some(group_index) = self.layout.group_index(cpu) else { continue };
            for level in Level::ALL {
                self.counts[level as usize][group_index.group(level)] -= 1;
            }
        }
        self.taken.extend(cpus);
    }

    /// Groups of a level that have free CPUs: most kept CPUs first, then fewest free ones, then by id.
    pub(super) fn order(&self, level: Level) -> Vec<usize> {
        self.sorted(level, |_| 0)
    }

    /// [`Stock::order`], sorted first by the order of the groups of another level that they are in. If a
    /// group is in several of those, the first counts.
    pub(super) fn order_within(&self, level: Level, outer: Level, order: &[usize]) -> Vec<usize> {
        let mut ranks = vec![usize::MAX; self.layout.count(level)];
        let mut outer_ranks = vec![usize::MAX; self.layout.count(outer)];
        for (rank, group) in order.iter().enumerate() {
            outer_ranks[*group] = rank;
        }
        for group_index in self.free.iter().filter_map(|cpu| self.layout.group_index(cpu)) {
            let rank = &mut ranks[group_index.group(level)];
            *rank = (*rank).min(outer_ranks[group_index.group(outer)]);
        }
        self.sorted(level, |group| ranks[group])
    }

    fn sorted(&self, level: Level, rank: impl Fn(usize) -> usize) -> Vec<usize> {
        let mut groups: Vec<_> = (0..self.layout.count(level))
            .filter(|group| self.count(level, *group) > 0)
            .map(|group| (rank(group), Reverse(self.kept(level, group)), self.count(level, group), group))
            .collect();
        groups.sort_unstable();
        groups.into_iter().map(|(.., group)| group).collect()
    }
}
