//! The order in which pools are tried.
//!
//! Problem: every pool has a dozen figures for one container, and one pool has to be the first. Idea: a list
//! of keys, compared in order; the first that differs decides, and the last one, the pool's id, always does.
//! Every key depends on one pool and the demand alone, never on the other pool. So the order is total and
//! independent of the order of input.
//!
//! | key, in this order | better is |
//! |---|---|
//! | CPUs | isolated ones if wanted, then enough of those of the class, then too few |
//! | affinity | more |
//! | topology hints | the greater product; of two zeros the greater product without zeros |
//! | depth, if hints score the pool | deeper |
//! | memory | there at all |
//! | ordinary memory, if no kinds are requested | room for half of what it could ever hold of the request |
//! | memory types | exactly the requested ones |
//! | memory limit | room up to the limit; without a limit, up to twice the request |
//! | CPU limit of Burstable | more to use, up to the limit; without a limit the configured level, then deeper ones, then shallower; on that level more to use, on others the lower id |
//! | nodes of the memory | fewer |
//! | ordinary memory, if no kinds are requested | room for all of the request |
//! | memory types | has the requested ones |
//! | CPU priority, high or low | enough of that priority |
//! | depth | deeper |
//! | reserved | more left for each container there |
//! | isolated | more left |
//! | CPU priority, normal | enough of that priority |
//! | exclusive | more shared CPU time left |
//! | shared | fewer containers there, then more shared CPU time left |
//! | id | lower |
//!
//! If no pool can hold a Burstable limit, the pool with the most usable CPU time wins.

use std::cmp::Ordering;

use super::{
    classify::{CpuDemand, CpuLimit, Isolate},
    topology_hints::HintScore,
};
use crate::{CpuClass, settings::CpuPriority};

/// Figures of one pool for one container. CPU time is in thousandths of a CPU; remaining amounts may be
/// negative.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolScore {
    /// Id of the pool.
    pub pool: usize,
    /// Number of its ancestors.
    pub depth: usize,
    /// Available shared CPU time, before the request.
    pub shared: i64,
    /// Available isolated CPUs, before the request.
    pub isolated: i64,
    /// Available CPU time of reserved CPUs, before the request.
    pub reserved: i64,
    /// [`super::affinity::score`].
    pub affinity: i64,
    /// [`super::topology_hints::score`]; `None` without hints.
    pub hints: Option<HintScore>,
    /// Its level relative to that of Burstable containers without a limit.
    pub level: LevelFit,
    /// Whether enough of its CPUs have the requested priority.
    pub priority_fits: bool,
    /// Containers of the same class in it.
    pub colocated: usize,
    /// Its memory.
    pub memory: MemoryScore,
}

/// A level relative to the wanted one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LevelFit {
    /// Larger pools.
    #[default]
    Shallower,
    /// Smaller pools.
    Deeper,
    /// The wanted level.
    Exact,
}

/// Memory that a pool offers to one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent keys of one order")]
pub struct MemoryScore {
    /// Whether there is enough, possibly after moving others.
    pub offered: bool,
    /// Whether ordinary memory has room for all of the request; false if kinds are requested.
    pub wholly_ordinary: bool,
    /// Whether it has room for half of what it could ever hold of the request; true if kinds are requested.
    pub mostly_ordinary: bool,
    /// Whether the offer has exactly the requested types.
    pub exact_types: bool,
    /// Whether the pool itself has a node of every requested type.
    pub has_types: bool,
    /// Bytes of the requested types in the pool.
    pub capacity: u64,
    /// Number of nodes of the offer.
    pub nodes: usize,
}

/// How far a container may exceed its promised memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MemoryLimit {
    /// No limit that matters.
    #[default]
    Request,
    /// Total bytes.
    Bytes(u64),
}

/// The order for one container.
#[derive(Debug, Clone)]
pub struct PoolOrder<'a> {
    demand: &'a CpuDemand,
    memory_limit: MemoryLimit,
}

/// A key: its name in explanations, and the comparison, better pools first.
type PoolKey = (&'static str, fn(&PoolOrder<'_>, &PoolScore, &PoolScore) -> Ordering);

/// All keys, in order.
const KEYS: &[PoolKey] = &[
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
        let of = |standing: &PoolScore| {
            matches!(order.demand.priority, CpuPriority::High | CpuPriority::Low) && standing.priority_fits
        };
        by_more(of(a), of(b))
    }),
    ("depth", |_, a, b| by_more(a.depth, b.depth)),
    ("reserved CPU time left for each container", |order, a, b| {
        // Fractions are compared by cross-multiplication, without rounding.
        let share = |mine: &PoolScore, other: &PoolScore| {
            let containers = u64::try_from(other.colocated).unwrap_or(u64::MAX);
            i128::from(order.reserved_left(mine)) * (i128::from(containers) + 1)
        };
        by_more(share(a, b), share(b, a))
    }),
    ("isolated CPUs left", |order, a, b| by_more(order.isolated_left(a), order.isolated_left(b))),
    ("CPU priority", |order, a, b| {
        let of = |s: &PoolScore| order.demand.priority == CpuPriority::Normal && s.priority_fits;
        by_more(of(a), of(b))
    }),
    ("number of containers", |order, a, b| order.colocated(a).cmp(&order.colocated(b))),
    ("shared CPU time left", |order, a, b| by_more(order.shared_left(a), order.shared_left(b))),
    ("id", |_, a, b| a.pool.cmp(&b.pool)),
];

impl<'a> PoolOrder<'a> {
    /// The order for a container with this demand.
    pub const fn new(demand: &'a CpuDemand, memory_limit: MemoryLimit) -> Self {
        Self { demand, memory_limit }
    }

    /// Better pools compare as less.
    pub fn compare(&self, a: &PoolScore, b: &PoolScore) -> Ordering {
        self.first_difference(a, b).map_or(Ordering::Equal, |(_, ordering)| ordering)
    }

    /// The key that distinguishes two pools.
    pub fn decided_by(&self, a: &PoolScore, b: &PoolScore) -> &'static str {
        self.first_difference(a, b).map_or("nothing", |(key, _)| key)
    }

    /// Sorts the pools, best first.
    pub fn sort(&self, standings: &mut [PoolScore]) {
        standings.sort_unstable_by(|a, b| self.compare(a, b));
    }

    /// Moves the `count` best pools to the front in order; the others stay in any order.
    pub(crate) fn sort_best(&self, standings: &mut [PoolScore], count: usize) {
        if count < standings.len() {
            standings.select_nth_unstable_by(count, |a, b| self.compare(a, b));
        }
        let count = count.min(standings.len());
        self.sort(&mut standings[..count]);
    }

    fn first_difference(&self, a: &PoolScore, b: &PoolScore) -> Option<(&'static str, Ordering)> {
        KEYS.iter().map(|(name, compare)| (*name, compare(self, a, b))).find(|(_, ordering)| ordering.is_ne())
    }

    /// 2: isolated CPUs if wanted, or enough of the others if not; 1: enough ordinary ones instead of
    /// isolated ones; 0: too few.
    fn cpu_fit(&self, standing: &PoolScore) -> u8 {
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

    fn isolated_left(&self, standing: &PoolScore) -> i64 {
        if self.wants_isolated() { standing.isolated.saturating_sub(signed(self.demand.full)) } else { 0 }
    }

    fn isolated_fits(&self, standing: &PoolScore) -> bool {
        self.wants_isolated() && self.isolated_left(standing) >= 0
    }

    /// Shared CPU time that remains after the request. A container without a request counts as a thousandth,
    /// so that it does not go where nothing is left.
    fn shared_left(&self, standing: &PoolScore) -> i64 {
        let CpuDemand { class, full, fraction_milli, .. } = *self.demand;
        if class == CpuClass::Reserved {
            return 0;
        }
        let fraction = if full == 0 { fraction_milli.max(1) } else { fraction_milli };
        let sliced = if self.isolated_fits(standing) { 0 } else { full.saturating_mul(1000) };
        standing.shared.saturating_sub(signed(sliced)).saturating_sub(signed(fraction))
    }

    fn reserved_left(&self, standing: &PoolScore) -> i64 {
        if self.demand.class != CpuClass::Reserved {
            return 0;
        }
        standing.reserved.saturating_sub(signed(self.demand.fraction_milli))
    }

    fn memory_room(&self, standing: &PoolScore) -> u64 {
        match self.memory_limit {
            MemoryLimit::Request => 0,
            MemoryLimit::Bytes(limit) => standing.memory.capacity.min(limit),
        }
    }

    fn cpu_room(&self, standing: &PoolScore) -> (LevelFit, i64) {
        match self.demand.limit {
            CpuLimit::Request => (LevelFit::Shallower, 0),
            CpuLimit::Milli(limit) => (LevelFit::Shallower, standing.shared.min(signed(limit))),
            CpuLimit::Unlimited(_) if standing.level == LevelFit::Exact => (LevelFit::Exact, standing.shared),
            CpuLimit::Unlimited(_) => {
                (standing.level, i64::try_from(standing.pool).map_or(i64::MIN, i64::wrapping_neg))
            }
        }
    }

    /// Containers of the same class there; irrelevant with exclusive CPUs.
    fn colocated(&self, standing: &PoolScore) -> usize {
        if self.demand.class == CpuClass::Shared { standing.colocated } else { 0 }
    }
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Greater is better.
fn by_more<T: Ord + Copy>(a: T, b: T) -> Ordering {
    b.cmp(&a)
}

/// Depth of a pool that hints score.
fn hinted_depth(standing: &PoolScore) -> Option<usize> {
    standing.hints.filter(|score| score.speaks_for()).map(|_| standing.depth)
}

#[cfg(test)]
mod tests;
