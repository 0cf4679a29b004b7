//! Sums and differences of counts: of numbers, of each field of a structure, of each entry of a map.
//!
//! Counts that went back differ by 0: local accesses may, as the difference of two counters.

use std::collections::BTreeMap;

use numa_topology::id::NodeId;

use super::{
    BalancerSteps, EventCounts, HardwareAccesses, HintFaults, NodeBytes, OtherPageMoves, PageMoves,
    Placements, PolicyCounts, RunTime, ScanSkips,
};

/// A count, or several.
pub trait Count: Clone + Default {
    /// Adds another count.
    fn add(&mut self, more: &Self);

    /// Counts since an earlier reading.
    #[must_use]
    fn minus(&self, earlier: &Self) -> Self;

    /// The sum with another count.
    #[must_use]
    fn plus(&self, more: &Self) -> Self {
        let mut sum = self.clone();
        sum.add(more);
        sum
    }
}

impl Count for u64 {
    fn add(&mut self, more: &Self) {
        *self = self.saturating_add(*more);
    }

    fn minus(&self, earlier: &Self) -> Self {
        self.saturating_sub(*earlier)
    }
}

impl Count for [u64; 2] {
    fn add(&mut self, more: &Self) {
        self.iter_mut().zip(more).for_each(|(sum, more)| sum.add(more));
    }

    fn minus(&self, earlier: &Self) -> Self {
        [self[0].minus(&earlier[0]), self[1].minus(&earlier[1])]
    }
}

/// An unknown count adds nothing, and was 0 before it was known.
impl<C: Count> Count for Option<C> {
    fn add(&mut self, more: &Self) {
        if let Some(more) = more {
            self.get_or_insert_default().add(more);
        }
    }

    fn minus(&self, earlier: &Self) -> Self {
        let nothing = C::default();
        self.as_ref().map(|now| now.minus(earlier.as_ref().unwrap_or(&nothing)))
    }
}

impl<K: Ord + Clone, C: Count> Count for BTreeMap<K, C> {
    fn add(&mut self, more: &Self) {
        for (key, more) in more {
            self.entry(key.clone()).or_default().add(more);
        }
    }

    fn minus(&self, earlier: &Self) -> Self {
        let nothing = C::default();
        let more = self.iter().map(|(key, now)| (key, now.minus(earlier.get(key).unwrap_or(&nothing))));
        more.map(|(key, more)| (key.clone(), more)).collect()
    }
}

/// A sum is in ascending order of (source, destination).
impl Count for Vec<Placements> {
    fn add(&mut self, more: &Self) {
        for one in more {
            match self.binary_search_by_key(&one.route(), Placements::route) {
                Ok(at) => self[at] = self[at].with(one, u64::saturating_add),
                Err(at) => self.insert(at, *one),
            }
        }
    }

    fn minus(&self, earlier: &Self) -> Self {
        let had = |one: &Placements| earlier.iter().find(|had| had.route() == one.route());
        let more = |one: &Placements| had(one).map_or(*one, |had| one.with(had, u64::saturating_sub));
        self.iter().map(more).collect()
    }
}

impl Placements {
    fn route(&self) -> (NodeId, NodeId) {
        (self.src_numa, self.dst_numa)
    }

    fn with(&self, other: &Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            migrated: of(self.migrated, other.migrated),
            started: of(self.started, other.started),
            misplaced: of(self.misplaced, other.misplaced),
            ..*self
        }
    }
}

macro_rules! counts {
    ($($counts:ty { $($field:ident),+ })+) => {$(
        impl Count for $counts {
            fn add(&mut self, more: &Self) {
                $(self.$field.add(&more.$field);)+
            }

            fn minus(&self, earlier: &Self) -> Self {
                Self { $($field: self.$field.minus(&earlier.$field)),+ }
            }
        }
    )+};
}

counts! {
    NodeBytes { anon, file, shmem, file_mapped, kernel }
    RunTime { ns, misplaced_ns, samples }
    HintFaults { local, remote, migrated, migrate_failed }
    HardwareAccesses { local, remote, samples }
    PageMoves { moved, failed }
    OtherPageMoves { own, elsewhere }
    PolicyCounts { tasks, ranges }
    BalancerSteps { moved, swapped, stuck }
    ScanSkips { one_node, unsuitable, passed }
    EventCounts { told, forgotten, ring_full, limited }
}
