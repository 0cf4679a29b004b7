//! Room of node sets, computed once for all workloads that may allocate on the same set, and the time for
//! which it is reliable.
//!
//! Problem: of hundreds of workloads most share a handful of node sets, and a look each 100 ms at an idle
//! host costs more than the rest of the daemon. Idea: a set is computed once per look; and a node with much
//! free memory needs no look until a good part of that could be gone.
//!
//! Terminology. A *view* is a set of nodes, its room, and its marks. The *rest* is the time to the next look.
//! A node is assumed to take some time to fill ([`FillSpeed`]), however large it is: its bandwidth grows with
//! it. If that is wrong the kernel still reports ([`super::PressureSign`]); without the kernel's reports a
//! shorter time is assumed. The sum of free memory costs a tenth of reading each node: while that hardly
//! shrinks, no workload fills a node.
//!
//! Cost: one comparison of sets for each workload and view; no allocation in a look.

use std::time::Duration;

use super::{
    guard::Guard,
    stage::{NodeSetHeadroom, PressureMarks},
};
use crate::policy::WideningSettings;
use numa_topology::set::NodeSet;

/// Assumed speed at which an empty node can be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FillSpeed {
    /// The kernel does not report that memory gets short.
    Unreported,
    /// The kernel reports it.
    Reported,
    /// The kernel reports it, and nothing has gone for many looks: a sudden start is rare, and the kernel
    /// reports a workload that fills a node faster than assumed.
    Still,
}

impl FillSpeed {
    /// Least time in which the node is filled.
    const fn filled(self) -> Duration {
        match self {
            Self::Unreported => Duration::from_millis(500),
            Self::Reported => Duration::from_secs(1),
            Self::Still => Duration::from_secs(4),
        }
    }
}

/// Shortest rest: with less time left a workload is armed and looked at without a rest.
const SHORTEST: Duration = Duration::from_millis(100);
/// Part of the spare room until a workload is armed that may go before the nodes are looked at one by one.
const PARTS_OF_SPARE: u64 = 8;
/// A look is due after this part of the time to the end: until then the rate may have doubled.
const PARTS_OF_TIME_LEFT: u64 = 4;

/// The views of the latest look.
#[derive(Debug, Clone, Default)]
pub(super) struct Views {
    views: Vec<NodeSetView>,
    /// Index of the view of each guard.
    of: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct NodeSetView {
    /// The first guard with this view.
    first: usize,
    sight: NodeSetHeadroom,
    marks: PressureMarks,
}

impl Views {
    /// Reserves memory for so many guards.
    pub(super) fn reserve(&mut self, guards: usize) {
        self.views.clear();
        self.of.clear();
        self.views.reserve(guards);
        self.of.reserve(guards);
    }

    /// Computes the views of these guards.
    pub(super) fn take(
        &mut self,
        settings: &WideningSettings,
        guards: &[Guard],
        sight: impl Fn(&NodeSet) -> NodeSetHeadroom,
    ) {
        let Self { views, of } = self;
        views.clear();
        of.clear();
        for (at, guard) in guards.iter().enumerate() {
            let same = |view: &NodeSetView| {
                let first = guards.get(view.first);
                first.is_some_and(|one| one.raised == guard.raised && one.of.mems == guard.of.mems)
            };
            let index = views.iter().position(same).unwrap_or_else(|| {
                let sight = sight(&guard.of.mems);
                let marks = PressureMarks::of(settings, sight.capacity).raised(guard.raised, sight.capacity);
                views.push(NodeSetView { first: at, sight, marks });
                views.len() - 1
            });
            of.push(index);
        }
    }

    /// Room and marks of the guard with this index.
    pub(super) fn get(&self, guard: usize) -> Option<(NodeSetHeadroom, PressureMarks)> {
        self.views.get(*self.of.get(guard)?).map(|view| (view.sight, view.marks))
    }

    /// Time to the next look while no workload is armed.
    pub(super) fn rest(&self, pace: FillSpeed) -> Duration {
        let filled = pace.filled();
        self.views.iter().map(|view| view.rest(filled)).min().unwrap_or(filled).max(SHORTEST)
    }

    /// Returns true if `gone` bytes less in any view leave every workload calm; `guards` is their number.
    pub(super) fn can_spare(&self, guards: usize, gone: u64) -> bool {
        let spares = |view: &NodeSetView| gone <= view.marks.spare(view.sight.room) / PARTS_OF_SPARE;
        self.of.len() == guards && self.views.iter().all(spares)
    }

    /// [`Self::rest`] after at most a part of the spare room has gone.
    pub(super) fn shorter_rest(&self, pace: FillSpeed) -> Duration {
        let rest = self.rest(pace);
        let part = rest / u32::try_from(PARTS_OF_SPARE).unwrap_or(u32::MAX);
        rest.saturating_sub(part).max(SHORTEST)
    }
}

impl NodeSetView {
    fn rest(&self, filled: Duration) -> Duration {
        let Self { sight, marks, .. } = self;
        if sight.capacity == 0 {
            // The room of its nodes is unknown, so it shortens nothing.
            return filled;
        }
        let spare = u128::from(marks.spare(sight.room).min(sight.capacity));
        let ns = spare * filled.as_nanos() / u128::from(sight.capacity);
        let by_room = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        let by_rate = sight.time_left_ns().map(|left| Duration::from_nanos(left / PARTS_OF_TIME_LEFT));
        by_rate.map_or(by_room, |by_rate| by_rate.min(by_room))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{widening::ProtectedWorkload, workload::CgroupPath};

    const GIB: u64 = 1 << 30;
    const CAPACITY: u64 = 100 * GIB;

    fn guard(mems: &str, raised: u8) -> Guard {
        let mems: NodeSet = mems.parse().unwrap();
        let of = ProtectedWorkload {
            cgroup: CgroupPath::new("/a"),
            cgroup_id: None,
            home: mems.clone(),
            kept: NodeSet::new(),
            cpu_nodes: mems.clone(),
            mems,
            spares: Vec::new(),
            strict: false,
            above: Vec::new(),
            bound: None,
            bytes: BTreeMap::new(),
        };
        Guard { raised, ..Guard::new(of) }
    }

    fn views(guards: &[Guard], sight: impl Fn(&NodeSet) -> NodeSetHeadroom) -> Views {
        let mut views = Views::default();
        views.take(&WideningSettings::default(), guards, sight);
        views
    }

    fn one(room: u64, rate: u64) -> Views {
        views(&[guard("0", 0)], |_| NodeSetHeadroom { headroom: room, room, capacity: CAPACITY, rate })
    }

    #[test]
    fn a_set_is_seen_once_and_each_guard_gets_its_view() {
        let guards = [guard("0", 0), guard("1", 0), guard("0", 0), guard("0", 1), guard("0-1", 0)];
        let seen = std::cell::Cell::new(0);
        let views = views(&guards, |mems| {
            seen.set(seen.get() + 1);
            let room = mems.iter().map(|node| GIB << node.0).sum();
            NodeSetHeadroom { room, capacity: CAPACITY, ..NodeSetHeadroom::default() }
        });
        assert_eq!(seen.get(), 4, "two have the same nodes and the same marks");
        let rooms: Vec<u64> = (0..guards.len()).map(|at| views.get(at).unwrap().0.room / GIB).collect();
        assert_eq!(rooms, [1, 2, 1, 1, 3]);
        let spare = |at: usize| views.get(at).unwrap().1.spare(CAPACITY);
        assert!(spare(3) < spare(0), "its marks are raised");
        assert!(views.get(guards.len()).is_none());
    }

    #[test]
    fn rests_by_what_is_free_and_by_how_fast_it_goes() {
        // Armed with 8 GiB left.
        for (room, gib_per_s, pace, expected_ms) in [
            (CAPACITY, 0, FillSpeed::Still, 3680),
            (CAPACITY, 0, FillSpeed::Reported, 920),
            (CAPACITY, 0, FillSpeed::Unreported, 460),
            (58 * GIB, 0, FillSpeed::Still, 2000),
            (58 * GIB, 0, FillSpeed::Reported, 500),
            (58 * GIB, 0, FillSpeed::Unreported, 250),
            (9 * GIB, 0, FillSpeed::Reported, 100),
            (0, 0, FillSpeed::Still, 100),
            (60 * GIB, 60, FillSpeed::Reported, 250),
            (60 * GIB, 60, FillSpeed::Still, 250),
            (60 * GIB, 600, FillSpeed::Reported, 100),
        ] {
            let rest = one(room, gib_per_s * GIB).rest(pace);
            assert_eq!(rest.as_millis(), expected_ms, "{} GiB, {gib_per_s} GiB/s, {pace:?}", room / GIB);
        }
        assert_eq!(
            Views::default().rest(FillSpeed::Reported),
            FillSpeed::Reported.filled(),
            "no workload is guarded"
        );
    }

    #[test]
    fn an_eighth_of_what_may_go_can_be_spared() {
        let views = views(&[guard("0", 0), guard("1", 0)], |mems| {
            let room = if mems.contains(numa_topology::id::NodeId(0)) { CAPACITY } else { 24 * GIB };
            NodeSetHeadroom { headroom: room, room, capacity: CAPACITY, rate: 0 }
        });
        // Armed with 8 GiB left, 16 GiB may go of the second.
        for (gone, expected) in [(0, true), (2 * GIB, true), (2 * GIB + 1, false), (u64::MAX, false)] {
            assert_eq!(views.can_spare(2, gone), expected, "{gone}");
        }
        assert!(!views.can_spare(3, 0), "of one of them nothing is known");
        assert_eq!(views.rest(FillSpeed::Reported).as_millis(), 160);
        assert_eq!(views.shorter_rest(FillSpeed::Reported).as_millis(), 140);
        assert!(!one(7 * GIB, 0).can_spare(1, 1), "a workload is near already");
    }

    proptest! {
        /// A workload that fills a node no faster than assumed is seen before it falls below the mark.
        #[test]
        fn no_workload_falls_from_calm_below_the_mark_between_two_looks(
            room in 0..=CAPACITY,
            rate in 0..=CAPACITY,
            pace in prop_oneof![Just(FillSpeed::Unreported), Just(FillSpeed::Reported), Just(FillSpeed::Still)],
        ) {
            let views = one(room, 0);
            let rest = views.rest(pace);
            let gone = u128::from(rate) * rest.as_nanos() / pace.filled().as_nanos();
            let (_, marks) = views.get(0).unwrap();
            let spare = u128::from(marks.spare(room));
            prop_assert!(gone <= spare || rest == SHORTEST, "{gone} of {spare} in {rest:?}");
        }

        /// The same holds after a look that was left out.
        #[test]
        fn no_workload_falls_below_the_mark_after_a_look_that_was_left_out(
            room in 0..=CAPACITY,
            rate in 0..=CAPACITY,
            gone in 0..=CAPACITY / 8,
            pace in prop_oneof![Just(FillSpeed::Reported), Just(FillSpeed::Still)],
        ) {
            let views = one(room, 0);
            prop_assume!(views.can_spare(1, gone));
            let rest = views.shorter_rest(pace);
            let gone = u128::from(gone) + u128::from(rate) * rest.as_nanos() / pace.filled().as_nanos();
            let (_, marks) = views.get(0).unwrap();
            let spare = u128::from(marks.spare(room));
            prop_assert!(gone <= spare || rest == SHORTEST, "{gone} of {spare} in {rest:?}");
        }
    }
}
