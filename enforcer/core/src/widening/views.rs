//! What sets of nodes have together, worked out once for all workloads that may allocate on the same, and how
//! long that can be relied on.
//!
//! Problem: of hundreds of workloads most share a handful of node sets, and a look each 100 ms at a host on
//! which nothing happens costs more than everything else that the daemon does there. Idea: a set is seen once
//! per look; and a node on which much is free needs no look until a good part of that could be gone.
//!
//! Terminology. A *view* is a set of nodes, what it has, and the marks that apply. The *rest* is the time to
//! the next look. A node is assumed not to be filled in less than some time ([`Pace`]), however large it is:
//! its bandwidth grows with it. Where that is wrong the kernel still tells ([`super::Sign`]), and where the
//! kernel tells nothing, less is assumed. What is free on all nodes together is told for a tenth of what it
//! takes to ask each of them: as long as that shrinks by next to nothing, nobody fills one.
//!
//! Cost: one comparison of sets for each workload and view; no allocation in a look.

use std::time::Duration;

use super::{
    guard::Guard,
    stage::{Marks, Sight},
};
use crate::{policy::WideningSettings, set::NodeSet};

/// How fast a node may be filled of which everything was free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// The kernel does not tell when memory gets short.
    Untold,
    /// It does.
    Told,
    /// It does, and nothing has gone for many looks: mostly nobody begins, and who fills a node faster is
    /// told of by the kernel.
    Still,
}

impl Pace {
    /// Least time in which it is filled.
    const fn filled(self) -> Duration {
        match self {
            Self::Untold => Duration::from_millis(500),
            Self::Told => Duration::from_secs(1),
            Self::Still => Duration::from_secs(4),
        }
    }
}

/// Shortest rest: what is nearer is armed, and looked at without one.
const SHORTEST: Duration = Duration::from_millis(100);
/// Part of what may go until somebody is armed that may have gone while nobody looks at the nodes one by one.
const PARTS_OF_SPARE: u64 = 8;
/// Time before the end at which a look is due at the latest, as parts of it: by then it may have become twice
/// as fast.
const PARTS_OF_TIME_LEFT: u64 = 4;

/// The views of the latest look.
#[derive(Debug, Clone, Default)]
pub(super) struct Views {
    views: Vec<View>,
    /// Which of them is that of each guard.
    of: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct View {
    /// The first guard that has it.
    first: usize,
    sight: Sight,
    marks: Marks,
}

impl Views {
    /// Makes room for so many guards.
    pub(super) fn reserve(&mut self, guards: usize) {
        self.views.clear();
        self.of.clear();
        self.views.reserve(guards);
        self.of.reserve(guards);
    }

    /// Sees what each of these has.
    pub(super) fn take(
        &mut self,
        settings: &WideningSettings,
        guards: &[Guard],
        sight: impl Fn(&NodeSet) -> Sight,
    ) {
        let Self { views, of } = self;
        views.clear();
        of.clear();
        for (at, guard) in guards.iter().enumerate() {
            let same = |view: &View| {
                let first = guards.get(view.first);
                first.is_some_and(|one| one.raised == guard.raised && one.of.mems == guard.of.mems)
            };
            let index = views.iter().position(same).unwrap_or_else(|| {
                let sight = sight(&guard.of.mems);
                let marks = Marks::of(settings, sight.capacity).raised(guard.raised, sight.capacity);
                views.push(View { first: at, sight, marks });
                views.len() - 1
            });
            of.push(index);
        }
    }

    /// What the guard of this number has.
    pub(super) fn get(&self, guard: usize) -> Option<(Sight, Marks)> {
        self.views.get(*self.of.get(guard)?).map(|view| (view.sight, view.marks))
    }

    /// Time to the next look while nobody is armed.
    pub(super) fn rest(&self, pace: Pace) -> Duration {
        let filled = pace.filled();
        self.views.iter().map(|view| view.rest(filled)).min().unwrap_or(filled).max(SHORTEST)
    }

    /// May so much be gone from any of these, which are those of so many guards, without anybody being near?
    pub(super) fn can_spare(&self, guards: usize, gone: u64) -> bool {
        let spares = |view: &View| gone <= view.marks.spare(view.sight.room) / PARTS_OF_SPARE;
        self.of.len() == guards && self.views.iter().all(spares)
    }

    /// [`Self::rest`] of which so much is gone at most.
    pub(super) fn shorter_rest(&self, pace: Pace) -> Duration {
        let rest = self.rest(pace);
        let part = rest / u32::try_from(PARTS_OF_SPARE).unwrap_or(u32::MAX);
        rest.saturating_sub(part).max(SHORTEST)
    }
}

impl View {
    fn rest(&self, filled: Duration) -> Duration {
        let Self { sight, marks, .. } = self;
        if sight.capacity == 0 {
            // Nothing is known of its nodes, and nothing is concluded.
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
    use crate::{widening::Guarded, workload::CgroupPath};

    const GIB: u64 = 1 << 30;
    const CAPACITY: u64 = 100 * GIB;

    fn guard(mems: &str, raised: u8) -> Guard {
        let mems: NodeSet = mems.parse().unwrap();
        let of = Guarded {
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

    fn views(guards: &[Guard], sight: impl Fn(&NodeSet) -> Sight) -> Views {
        let mut views = Views::default();
        views.take(&WideningSettings::default(), guards, sight);
        views
    }

    fn one(room: u64, rate: u64) -> Views {
        views(&[guard("0", 0)], |_| Sight { headroom: room, room, capacity: CAPACITY, rate })
    }

    #[test]
    fn a_set_is_seen_once_and_everybody_gets_what_is_theirs() {
        let guards = [guard("0", 0), guard("1", 0), guard("0", 0), guard("0", 1), guard("0-1", 0)];
        let seen = std::cell::Cell::new(0);
        let views = views(&guards, |mems| {
            seen.set(seen.get() + 1);
            let room = mems.iter().map(|node| GIB << node.0).sum();
            Sight { room, capacity: CAPACITY, ..Sight::default() }
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
            (CAPACITY, 0, Pace::Still, 3680),
            (CAPACITY, 0, Pace::Told, 920),
            (CAPACITY, 0, Pace::Untold, 460),
            (58 * GIB, 0, Pace::Still, 2000),
            (58 * GIB, 0, Pace::Told, 500),
            (58 * GIB, 0, Pace::Untold, 250),
            (9 * GIB, 0, Pace::Told, 100),
            (0, 0, Pace::Still, 100),
            (60 * GIB, 60, Pace::Told, 250),
            (60 * GIB, 60, Pace::Still, 250),
            (60 * GIB, 600, Pace::Told, 100),
        ] {
            let rest = one(room, gib_per_s * GIB).rest(pace);
            assert_eq!(rest.as_millis(), expected_ms, "{} GiB, {gib_per_s} GiB/s, {pace:?}", room / GIB);
        }
        assert_eq!(Views::default().rest(Pace::Told), Pace::Told.filled(), "nobody is guarded");
    }

    #[test]
    fn an_eighth_of_what_may_go_can_be_spared() {
        let views = views(&[guard("0", 0), guard("1", 0)], |mems| {
            let room = if mems.contains(crate::id::NodeId(0)) { CAPACITY } else { 24 * GIB };
            Sight { headroom: room, room, capacity: CAPACITY, rate: 0 }
        });
        // Armed with 8 GiB left, 16 GiB may go of the second.
        for (gone, expected) in [(0, true), (2 * GIB, true), (2 * GIB + 1, false), (u64::MAX, false)] {
            assert_eq!(views.can_spare(2, gone), expected, "{gone}");
        }
        assert!(!views.can_spare(3, 0), "of one of them nothing is known");
        assert_eq!(views.rest(Pace::Told).as_millis(), 160);
        assert_eq!(views.shorter_rest(Pace::Told).as_millis(), 140);
        assert!(!one(7 * GIB, 0).can_spare(1, 1), "somebody is near already");
    }

    proptest! {
        /// Whoever fills a node in no less than is assumed is seen before it would be looked at closely.
        #[test]
        fn nobody_gets_from_calm_below_the_mark_unseen(
            room in 0..=CAPACITY,
            rate in 0..=CAPACITY,
            pace in prop_oneof![Just(Pace::Untold), Just(Pace::Told), Just(Pace::Still)],
        ) {
            let views = one(room, 0);
            let rest = views.rest(pace);
            let gone = u128::from(rate) * rest.as_nanos() / pace.filled().as_nanos();
            let (_, marks) = views.get(0).unwrap();
            let spare = u128::from(marks.spare(room));
            prop_assert!(gone <= spare || rest == SHORTEST, "{gone} of {spare} in {rest:?}");
        }

        /// The same after a look that was left out.
        #[test]
        fn nor_does_who_was_passed_over(
            room in 0..=CAPACITY,
            rate in 0..=CAPACITY,
            gone in 0..=CAPACITY / 8,
            pace in prop_oneof![Just(Pace::Told), Just(Pace::Still)],
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
