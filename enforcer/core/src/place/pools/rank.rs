//! The order in which pools are tried.
//!
//! Problem: for one container every pool has a dozen figures, and one pool has to be the first. Idea: a
//! list of keys, compared one after another; the first that differs decides, and the last one, the
//! pool's id, always does. Every key is computed from one pool and the demand alone, never from the two
//! that are compared: so the order is total, and nothing depends on the order of input.
//!
//! | key, in this order | better is |
//! |---|---|
//! | CPUs | isolated ones where wanted, then enough of those of the class, then too few |
//! | affinity | more |
//! | topology hints | the greater product; of two zeros the greater product without zeros |
//! | depth, where hints speak for the pool | deeper |
//! | memory | there at all |
//! | ordinary memory, where no kinds are asked for | room for half of what it could ever hold of the request |
//! | memory types | exactly those asked for |
//! | memory limit | room up to the limit; without a limit, up to twice the request |
//! | CPU limit of Burstable | more to use, up to the limit; without a limit the level that is configured, then deeper ones, then shallower; on that level more to use, on others the lower id |
//! | nodes of the memory | fewer |
//! | ordinary memory, where no kinds are asked for | room for all of the request |
//! | memory types | has those asked for |
//! | CPU priority, high or low | enough of that priority |
//! | depth | deeper |
//! | reserved | more left for each container there |
//! | isolated | more left |
//! | CPU priority, normal | enough of that priority |
//! | exclusive | more shared CPU time left |
//! | shared | fewer containers there, then more shared CPU time left |
//! | id | lower |
//!
//! A Burstable limit that no pool can hold so takes the pool where most of it can be used.

use std::cmp::Ordering;

use super::{
    classify::{CpuDemand, CpuLimit, Isolate},
    topology_hints::HintScore,
};
use crate::{place::CpuClass, policy::placement::CpuPriority};

/// The figures of one pool for one container. CPU time is in thousandths of a CPU; what is left may
/// be negative.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Id of the pool.
    pub pool: usize,
    /// Number of pools above it.
    pub depth: usize,
    /// Shared CPU time that can be had, before the request.
    pub shared: i64,
    /// Isolated CPUs that can be had, before the request.
    pub isolated: i64,
    /// CPU time of reserved CPUs that can be had, before the request.
    pub reserved: i64,
    /// [`super::affinity::score`].
    pub affinity: i64,
    /// [`super::topology_hints::score`]; absent when no hint counts.
    pub hints: Option<HintScore>,
    /// Its level against the one where Burstable containers without a limit go.
    pub level: LevelFit,
    /// Enough of its CPUs are of the priority asked for.
    pub priority_fits: bool,
    /// Containers of the same class in it.
    pub colocated: usize,
    /// What it has of memory.
    pub memory: MemoryStanding,
}

/// A level against the one that is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LevelFit {
    /// Larger pools.
    #[default]
    Shallower,
    /// Smaller pools.
    Deeper,
    /// The one.
    Exact,
}

/// The memory that a pool offers to one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent keys of one order")]
pub struct MemoryStanding {
    /// There is enough, perhaps by moving others.
    pub offered: bool,
    /// Ordinary memory has room for all of the request; false where kinds are asked for.
    pub wholly_ordinary: bool,
    /// It has room for half of what it could ever hold of the request; true where kinds are asked for.
    pub mostly_ordinary: bool,
    /// The offer is of exactly the types asked for.
    pub exact_types: bool,
    /// The pool itself has a node of every type asked for.
    pub has_types: bool,
    /// Bytes of the types asked for that the pool has.
    pub capacity: u64,
    /// Nodes of the offer.
    pub nodes: usize,
}

/// How far a container may go beyond the memory that it was promised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// Not at all, or nobody cares.
    #[default]
    Request,
    /// So many bytes in all.
    Bytes(u64),
}

/// The order for one container.
#[derive(Debug, Clone)]
pub struct Order<'a> {
    demand: &'a CpuDemand,
    memory_limit: MemoryLimit,
}

/// One key: its name in explanations, and the comparison, the better pool first.
type Key = (&'static str, fn(&Order<'_>, &Standing, &Standing) -> Ordering);

/// The keys, in order.
const KEYS: &[Key] = &[
    ("CPUs", |order, a, b| by_more(order.cpu_fit(a), order.cpu_fit(b))),
    ("affinity", |_, a, b| by_more(a.affinity, b.affinity)),
    ("topology hints", |_, a, b| by_more(a.hints, b.hints)),
    ("depth of the pools that hints speak for", |_, a, b| by_more(hinted_depth(a), hinted_depth(b))),
    ("memory", |_, a, b| by_more(a.memory.offered, b.memory.offered)),
    ("room in ordinary memory", |_, a, b| by_more(a.memory.mostly_ordinary, b.memory.mostly_ordinary)),
    ("exact memory types", |_, a, b| by_more(a.memory.exact_types, b.memory.exact_types)),
    ("room up to the memory limit", |order, a, b| by_more(order.memory_room(a), order.memory_room(b))),
    ("room up to the CPU limit", |order, a, b| by_more(order.cpu_room(a), order.cpu_room(b))),
    ("number of memory nodes", |_, a, b| a.memory.nodes.cmp(&b.memory.nodes)),
    ("room in ordinary memory", |_, a, b| by_more(a.memory.wholly_ordinary, b.memory.wholly_ordinary)),
    ("memory types", |_, a, b| by_more(a.memory.has_types, b.memory.has_types)),
    ("CPU priority", |order, a, b| {
        let of = |standing: &Standing| {
            matches!(order.demand.priority, CpuPriority::High | CpuPriority::Low) && standing.priority_fits
        };
        by_more(of(a), of(b))
    }),
    ("depth", |_, a, b| by_more(a.depth, b.depth)),
    ("reserved CPU time left for each container", |order, a, b| {
        // Fractions are compared crosswise: nothing is rounded.
        let share = |mine: &Standing, other: &Standing| {
            let containers = u64::try_from(other.colocated).unwrap_or(u64::MAX);
            i128::from(order.reserved_left(mine)) * (i128::from(containers) + 1)
        };
        by_more(share(a, b), share(b, a))
    }),
    ("isolated CPUs left", |order, a, b| by_more(order.isolated_left(a), order.isolated_left(b))),
    ("CPU priority", |order, a, b| {
        let of = |s: &Standing| order.demand.priority == CpuPriority::Normal && s.priority_fits;
        by_more(of(a), of(b))
    }),
    ("number of containers", |order, a, b| order.colocated(a).cmp(&order.colocated(b))),
    ("shared CPU time left", |order, a, b| by_more(order.shared_left(a), order.shared_left(b))),
    ("id", |_, a, b| a.pool.cmp(&b.pool)),
];

impl<'a> Order<'a> {
    /// For a container of this demand.
    pub const fn new(demand: &'a CpuDemand, memory_limit: MemoryLimit) -> Self {
        Self { demand, memory_limit }
    }

    /// The better pool is less.
    pub fn compare(&self, a: &Standing, b: &Standing) -> Ordering {
        self.first_difference(a, b).map_or(Ordering::Equal, |(_, ordering)| ordering)
    }

    /// The key that tells two pools apart.
    pub fn decided_by(&self, a: &Standing, b: &Standing) -> &'static str {
        self.first_difference(a, b).map_or("nothing", |(key, _)| key)
    }

    /// Sorts the pools, the best first.
    pub fn sort(&self, standings: &mut [Standing]) {
        standings.sort_unstable_by(|a, b| self.compare(a, b));
    }

    /// Sorts the best of the pools, so many of them, before all others, which stay in any order.
    pub fn sort_best(&self, standings: &mut [Standing], count: usize) {
        if count < standings.len() {
            standings.select_nth_unstable_by(count, |a, b| self.compare(a, b));
        }
        let count = count.min(standings.len());
        self.sort(&mut standings[..count]);
    }

    fn first_difference(&self, a: &Standing, b: &Standing) -> Option<(&'static str, Ordering)> {
        KEYS.iter().map(|(name, compare)| (*name, compare(self, a, b))).find(|(_, ordering)| ordering.is_ne())
    }

    /// 2: isolated CPUs where they are wanted, or enough of the others where not; 1: enough ordinary
    /// ones instead of isolated ones; 0: too few.
    fn cpu_fit(&self, standing: &Standing) -> u8 {
        match (self.demand.class, self.demand.isolate) {
            (CpuClass::Reserved, _) => u8::from(self.reserved_left(standing) >= 0) * 2,
            (_, Isolate::No) => u8::from(self.shared_left(standing) >= 0) * 2,
            (_, isolate) if self.shared_left(standing) >= 0 => {
                let isolated = self.isolated_fits(standing);
                if isolated { 2 } else { u8::from(isolate == Isolate::Prefer) }
            }
            _ => 0,
        }
    }

    fn wants_isolated(&self) -> bool {
        self.demand.full > 0 && self.demand.isolate != Isolate::No
    }

    fn isolated_left(&self, standing: &Standing) -> i64 {
        if self.wants_isolated() { standing.isolated.saturating_sub(signed(self.demand.full)) } else { 0 }
    }

    fn isolated_fits(&self, standing: &Standing) -> bool {
        self.wants_isolated() && self.isolated_left(standing) >= 0
    }

    /// What of the shared CPU time is left after the request. A container that asks for nothing wants a
    /// thousandth, so that it does not end where nothing is.
    fn shared_left(&self, standing: &Standing) -> i64 {
        let CpuDemand { class, full, fraction_milli, .. } = *self.demand;
        if class == CpuClass::Reserved {
            return 0;
        }
        let fraction = if full == 0 { fraction_milli.max(1) } else { fraction_milli };
        let sliced = if self.isolated_fits(standing) { 0 } else { full.saturating_mul(1000) };
        standing.shared.saturating_sub(signed(sliced)).saturating_sub(signed(fraction))
    }

    fn reserved_left(&self, standing: &Standing) -> i64 {
        if self.demand.class != CpuClass::Reserved {
            return 0;
        }
        standing.reserved.saturating_sub(signed(self.demand.fraction_milli))
    }

    fn memory_room(&self, standing: &Standing) -> u64 {
        match self.memory_limit {
            MemoryLimit::Request => 0,
            MemoryLimit::Bytes(limit) => standing.memory.capacity.min(limit),
        }
    }

    fn cpu_room(&self, standing: &Standing) -> (LevelFit, i64) {
        match self.demand.limit {
            CpuLimit::Request => (LevelFit::Shallower, 0),
            CpuLimit::Milli(limit) => (LevelFit::Shallower, standing.shared.min(signed(limit))),
            CpuLimit::Unlimited(_) if standing.level == LevelFit::Exact => (LevelFit::Exact, standing.shared),
            CpuLimit::Unlimited(_) => {
                (standing.level, i64::try_from(standing.pool).map_or(i64::MIN, i64::wrapping_neg))
            }
        }
    }

    /// Containers beside it; those with exclusive CPUs do not mind.
    fn colocated(&self, standing: &Standing) -> usize {
        if self.demand.class == CpuClass::Shared { standing.colocated } else { 0 }
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// More is better.
fn by_more<T: Ord + Copy>(a: T, b: T) -> Ordering {
    b.cmp(&a)
}

/// The depth of a pool that hints speak for.
fn hinted_depth(standing: &Standing) -> Option<usize> {
    standing.hints.filter(HintScore::speaks_for).map(|_| standing.depth)
}

#[cfg(test)]
mod tests;
