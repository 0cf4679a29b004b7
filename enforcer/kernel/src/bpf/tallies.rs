//! What a workload did, or had done to it, that is rare: counters by kind and detail. Pure.

use std::collections::BTreeMap;

use enforcer_common::tally::{reason, skip, step, what};
use enforcer_core::{
    memory_policy::PolicyMode,
    sample::{
        BalancerSteps, Count, CpusetWriteCounts, PageMoveReason, PageMoves, PageMovesByReason, Policies,
        ScanSkips,
    },
};

use super::changes::cpuset_file;

/// Counters of one row of the kernel side, as it names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tallies(BTreeMap<(u16, u16), [u64; 2]>);

impl Tallies {
    /// Puts one counter.
    pub(super) fn put(&mut self, what: u16, detail: u16, count: [u64; 2]) {
        self.0.insert((what, detail), count);
    }

    /// Adds what was counted elsewhere, or at another time.
    pub(super) fn add(&mut self, more: &Self) {
        self.0.add(&more.0);
    }

    /// What was counted after `start`.
    pub(super) fn since(&self, start: &Self) -> Self {
        Self(nonzero(self.0.minus(&start.0)))
    }

    /// Pages by the reason for which they were moved.
    pub fn page_moves(&self) -> PageMovesByReason {
        let mut moves = PageMovesByReason::new();
        for (detail, [moved, failed]) in self.of(what::PAGES) {
            moves.entry(page_move_reason(detail)).or_default().add(&PageMoves { moved, failed });
        }
        moves
    }

    /// What the kernel's balancer did with tasks.
    pub fn balancer(&self) -> BalancerSteps {
        let count = |step| self.times(what::BALANCER, step);
        BalancerSteps { moved: count(step::MOVED), swapped: count(step::SWAPPED), stuck: count(step::STUCK) }
    }

    /// Where it did not look, as far as that is told: of mappings, and of tasks.
    pub fn scan_skips(&self, mappings: bool, tasks: bool) -> Option<ScanSkips> {
        let count = |told: bool, skip| told.then(|| self.times(what::SKIPS, skip));
        (mappings || tasks).then(|| ScanSkips {
            one_node: count(tasks, skip::ONE_NODE),
            unsuitable: count(mappings, skip::UNSUITABLE),
            passed: count(mappings, skip::PASSED),
        })
    }

    /// Files of its cpuset that others wrote.
    pub fn cpuset_writes(&self) -> CpusetWriteCounts {
        let mut writes = CpusetWriteCounts::new();
        for (detail, [times, _]) in self.of(what::CPUSET_WRITES) {
            writes.entry(cpuset_file(detail)).or_default().add(&times);
        }
        writes
    }

    /// Memory policies that its threads set.
    pub fn policies(&self) -> Policies {
        let mut policies = Policies::new();
        for (detail, [times, _]) in self.of(what::TASK_POLICIES) {
            policies.entry(PolicyMode::from_number(detail)).or_default().tasks.add(&times);
        }
        for (detail, [times, _]) in self.of(what::RANGE_POLICIES) {
            policies.entry(PolicyMode::from_number(detail)).or_default().ranges.add(&times);
        }
        policies
    }

    fn times(&self, what: u16, detail: u16) -> u64 {
        self.0.get(&(what, detail)).map_or(0, |[times, _]| *times)
    }

    fn of(&self, what: u16) -> impl Iterator<Item = (u16, [u64; 2])> {
        self.0.range((what, 0)..=(what, u16::MAX)).map(|((_, detail), count)| (*detail, *count))
    }
}

/// The reason of a class of the kernel side.
fn page_move_reason(class: u16) -> PageMoveReason {
    match u8::try_from(class).unwrap_or(reason::OTHER) {
        reason::SYSCALL => PageMoveReason::Syscall,
        reason::MEMPOLICY => PageMoveReason::Mempolicy,
        reason::BALANCING => PageMoveReason::Balancing,
        reason::DEMOTION => PageMoveReason::Demotion,
        reason::DAMON => PageMoveReason::Damon,
        reason::COMPACTION => PageMoveReason::Compaction,
        _ => PageMoveReason::Other,
    }
}

/// The counts without those that are 0.
pub(super) fn nonzero<K: Ord, C: Count + PartialEq>(mut counts: BTreeMap<K, C>) -> BTreeMap<K, C> {
    counts.retain(|_, count| *count != C::default());
    counts
}

#[cfg(test)]
mod tests {
    use enforcer_common::change::file;
    use enforcer_core::sample::{CpusetFile, PolicyCounts};

    use super::*;

    fn tallies(counts: &[(u16, u16, [u64; 2])]) -> Tallies {
        let mut tallies = Tallies::default();
        for (what, detail, count) in counts {
            tallies.put(*what, *detail, *count);
        }
        tallies
    }

    #[test]
    fn each_kind_is_read_from_its_own_counters() {
        let all = tallies(&[
            (what::PAGES, u16::from(reason::BALANCING), [5, 1]),
            (what::PAGES, u16::from(reason::OTHER), [1, 0]),
            (what::PAGES, 99, [2, 0]),
            (what::BALANCER, step::MOVED, [7, 0]),
            (what::BALANCER, step::STUCK, [8, 0]),
            (what::SKIPS, skip::UNSUITABLE, [9, 0]),
        ]);
        let pages = |moved, failed| PageMoves { moved, failed };
        let expected = [(PageMoveReason::Balancing, pages(5, 1)), (PageMoveReason::Other, pages(3, 0))];
        assert_eq!(all.page_moves(), expected.into());
        assert_eq!(all.balancer(), BalancerSteps { moved: 7, swapped: 0, stuck: 8 });
        let skips = ScanSkips { one_node: None, unsuitable: Some(9), passed: Some(0) };
        assert_eq!(all.scan_skips(true, false), Some(skips));
        assert_eq!(all.scan_skips(false, false), None);
        let changed = tallies(&[
            (what::CPUSET_WRITES, file::MEMS, [3, 0]),
            (what::TASK_POLICIES, 2, [4, 0]),
            (what::RANGE_POLICIES, 2, [5, 0]),
            (what::RANGE_POLICIES, 77, [1, 0]),
        ]);
        assert_eq!(changed.cpuset_writes(), [(CpusetFile::Mems, 3)].into());
        let counts = |tasks, ranges| PolicyCounts { tasks, ranges };
        let expected = [(PolicyMode::Bind, counts(4, 5)), (PolicyMode::Unknown, counts(0, 1))];
        assert_eq!(changed.policies(), expected.into());
    }

    #[test]
    fn what_is_counted_after_a_start_and_added_again_is_the_same() {
        let start = tallies(&[(1, 0, [3, 1]), (2, 1, [5, 0])]);
        let now = tallies(&[(1, 0, [10, 1]), (2, 1, [5, 0]), (3, 0, [1, 0])]);
        let more = now.since(&start);
        assert_eq!(more, tallies(&[(1, 0, [7, 0]), (3, 0, [1, 0])]));
        let mut sum = start;
        sum.add(&more);
        assert_eq!(sum, now);
    }
}
