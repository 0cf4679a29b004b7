//! CPUs that every pool has left.
//!
//! Problem: a pool's CPUs also belong to the pools above and below it, so CPUs of one container are missing
//! in several pools, and promised shared CPU time of a pool must stay in it. Idea: add up per pool the
//! promises in it and below. The room of a pool is the minimum over itself and the pools above it. The
//! exclusive CPUs that may be *sliced* from it are also limited by every pool below, so that each of these
//! keeps its promises.
//!
//! A pool in use by containers without a promise keeps a thousandth of a CPU, so at least one whole CPU: it
//! is never emptied. The same holds for holders of other engines with CPUs that are not a pool: their scope
//! keeps their promises and at least one CPU. A displaced holder counts twice, where it is and where it will
//! move back to.
//!
//! Terminology: *granted* is shared CPU time in thousandths of a CPU. Cost: O(holders + pools) to build,
//! O(depth) per later holder.

use std::collections::BTreeMap;

use super::{
    cpus::{CpuGroups, pick},
    tree::{Pool, PoolTree},
};
use crate::{Allocations, CpuClass, Grant, Holder, settings::CpuPriority};
use numa_topology::set::CpuSet;

/// CPUs of all pools.
#[derive(Debug, Clone)]
pub(super) struct CpuSupply<'a> {
    tree: &'a PoolTree,
    /// Exclusive CPUs of all holders.
    taken: CpuSet,
    pools: Vec<PoolUse>,
    /// Granted CPU time of reserved CPUs.
    reserved_granted: u64,
    /// Number of reserved CPUs.
    reserved_cpus: usize,
    /// Number of containers on reserved CPUs.
    reserved_containers: usize,
    /// Promises in scopes that are not the shared CPUs of a pool.
    scopes: BTreeMap<CpuSet, u64>,
}

/// Use of one pool.
#[derive(Debug, Clone, Copy, Default)]
struct PoolUse {
    /// Granted in it and below.
    granted: u64,
    /// Number of containers in it and below without a promise.
    idle_users: usize,
    /// Number of containers in it, not below.
    containers: usize,
    /// Number of shared CPUs in it that are not exclusive.
    sharable: usize,
    /// Number of free isolated CPUs.
    isolated: usize,
}

impl<'a> CpuSupply<'a> {
    /// The supply after all allocations, except those of excluded holders.
    pub(super) fn new(
        tree: &'a PoolTree,
        allocations: &Allocations,
        leave_out: impl Fn(&Holder) -> bool,
    ) -> Self {
        let mut supply = Self {
            tree,
            taken: CpuSet::new(),
            pools: vec![PoolUse::default(); tree.pools().len()],
            reserved_granted: 0,
            reserved_cpus: tree.root().reserved.len(),
            reserved_containers: 0,
            scopes: BTreeMap::new(),
        };
        for (_, grant) in allocations.iter().filter(|(holder, _)| !leave_out(holder)) {
            supply.enter(grant);
        }
        supply.count();
        supply
    }

    /// Adds a grant.
    pub(super) fn add(&mut self, grant: &Grant) {
        self.enter(grant);
        if !grant.exclusive.is_empty() {
            self.count();
        }
    }

    fn enter(&mut self, grant: &Grant) {
        self.taken.extend(&grant.exclusive);
        let shared = grant.shared.as_ref();
        if grant.class == CpuClass::Reserved {
            self.reserved_granted = self.reserved_granted.saturating_add(shared.map_or(0, |s| s.milli_cpus));
            self.reserved_containers += 1;
            return;
        }
        let named = self.pool_of(grant);
        if let Some(id) = named {
            self.pools[id].containers += 1;
        }
        let Some(shared) = shared else { return };
        let id = named.or_else(|| self.smallest(&shared.scope)).unwrap_or(self.tree.root().id);
        let serving = match &shared.fallback_cpus {
            Some(fallback_cpus) => fallback_cpus.clone(),
            // Reserved CPUs serve no promise, see [`SharedCpus::reserved`](crate::SharedCpus::reserved).
            None => shared.scope.difference(&shared.reserved),
        };
        if self.tree.pool(id).sharable != serving && grant.class != CpuClass::Preserved {
            let promised = self.scopes.entry(serving).or_default();
            *promised = promised.saturating_add(shared.milli_cpus);
        }
        let idle = shared.milli_cpus == 0 && grant.class != CpuClass::Preserved;
        for above in std::iter::once(id).chain(self.tree.ancestors(id)) {
            let pool = &mut self.pools[above];
            pool.granted = pool.granted.saturating_add(shared.milli_cpus);
            pool.idle_users += usize::from(idle);
        }
    }

    /// The pool of a grant, or the smallest one with the CPUs that were chosen.
    pub(super) fn pool_of(&self, grant: &Grant) -> Option<usize> {
        if grant.is_chosen() {
            return self.smallest(&grant.exclusive);
        }
        self.tree.id_of(grant.pool.as_deref()?)
    }

    /// The smallest pool that contains a scope.
    fn smallest(&self, scope: &CpuSet) -> Option<usize> {
        self.tree.pools().iter().find(|pool| scope.is_subset(&pool.cpus)).map(|pool| pool.id)
    }

    fn count(&mut self) {
        for pool in self.tree.pools() {
            let (sharable, isolated) = (pool.sharable.apart(&self.taken), pool.isolated.apart(&self.taken));
            (self.pools[pool.id].sharable, self.pools[pool.id].isolated) = (sharable, isolated);
        }
    }

    /// Exclusive CPUs of all holders.
    pub(super) const fn taken(&self) -> &CpuSet {
        &self.taken
    }

    /// Shared CPU time that can be promised in a pool; negative if it is overcommitted.
    pub(super) fn shared(&self, id: usize) -> i64 {
        self.least(id, |_, pool| signed(pool.sharable, pool.granted))
    }

    /// Shared CPU time that can be taken from a pool as exclusive CPUs. On a machine with isolated CPUs the
    /// root is never emptied: sharing containers could run nowhere else.
    pub(super) fn sliceable(&self, id: usize) -> i64 {
        let root = self.tree.root();
        let is_kept = |id: usize| id == root.id && !root.isolated.is_empty();
        self.least(id, |id, pool| {
            signed(pool.sharable, pool.granted) - i64::from(pool.idle_users > 0 || is_kept(id))
        })
    }

    fn least(&self, id: usize, left: impl Fn(usize, &PoolUse) -> i64) -> i64 {
        let above = self.tree.ancestors(id).map(|above| left(above, &self.pools[above]));
        above.fold(left(id, &self.pools[id]), i64::min)
    }

    /// Number of available isolated CPUs in a pool.
    pub(super) fn isolated(&self, id: usize) -> usize {
        self.pools[id].isolated
    }

    /// Available CPU time of reserved CPUs in a pool; all of it is granted at the root.
    pub(super) fn reserved(&self, id: usize) -> i64 {
        let of_pool = signed(self.tree.pool(id).reserved.len(), 0);
        of_pool.min(signed(self.reserved_cpus, self.reserved_granted))
    }

    /// Number of containers in a pool, not below it, with this class.
    pub(super) fn colocated(&self, id: usize, class: CpuClass) -> usize {
        match class {
            CpuClass::Reserved if id == self.tree.root().id => self.reserved_containers,
            CpuClass::Reserved => 0,
            _ => self.pools[id].containers,
        }
    }

    /// `count` isolated CPUs of a pool.
    pub(super) fn take_isolated(
        &self,
        groups: &CpuGroups,
        from: &CpuConstraints<'_>,
        count: usize,
    ) -> Option<CpuSet> {
        let free = from.within(self.tree.pool(from.pool).isolated.difference(&self.taken));
        from.pick(groups, &free, count)
    }

    /// `count` shared CPUs of a pool, so that every pool and every scope keeps its promises, and this one an
    /// additional `fraction_milli`.
    pub(super) fn take_shared(
        &self,
        groups: &CpuGroups,
        from: &CpuConstraints<'_>,
        count: usize,
        fraction_milli: u64,
    ) -> Option<CpuSet> {
        let wanted = i64::try_from(count).ok()?.checked_mul(1000)?;
        let fraction = i64::try_from(fraction_milli).ok()?;
        if self.sliceable(from.pool) < wanted.checked_add(fraction)? {
            return None;
        }
        let pool = self.tree.pool(from.pool);
        let mut free = from.within(self.parts(groups, pool, from.priority));
        for (scope, promised) in &self.scopes {
            self.protect(scope, *promised, count, &mut free);
        }
        from.pick(groups, &free, count)
    }

    /// CPUs of a pool that can be taken without affecting promises of the pools below it.
    fn parts(&self, groups: &CpuGroups, pool: &Pool, priority: CpuPriority) -> CpuSet {
        let mut parts = pool.sharable.difference(&self.taken);
        for child in pool.children.iter().map(|child| self.tree.pool(*child)) {
            let free = child.sharable.difference(&self.taken);
            let inside = self.parts(groups, child, priority);
            let quota = usize::try_from(self.sliceable(child.id).max(0) / 1000).unwrap_or(usize::MAX);
            let chosen = if inside.len() <= quota {
                inside
            } else {
                pick(groups, &inside, quota, priority).unwrap_or_default()
            };
            parts = parts.difference(&free.difference(&chosen));
        }
        parts
    }

    /// Removes the highest CPUs from `free`, as many as a scope needs for its promises whatever else is
    /// taken.
    fn protect(&self, scope: &CpuSet, promised: u64, count: usize, free: &mut CpuSet) {
        let there = scope.len() - scope.common(&self.taken);
        let keep = usize::try_from(promised.div_ceil(1000)).unwrap_or(usize::MAX).max(1);
        let spare = there.saturating_sub(keep);
        if count <= spare {
            return;
        }
        let inside = scope.intersection(free);
        for cpu in inside.iter().skip(spare) {
            free.remove(cpu);
        }
    }
}

/// Constraints for choosing exclusive CPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuConstraints<'a> {
    /// Id of the pool.
    pub(super) pool: usize,
    /// Priority between fast and slow CPUs.
    pub(super) priority: CpuPriority,
    /// Allowed CPUs.
    pub(super) allowed: Option<&'a CpuSet>,
    /// CPUs that it had before, and keeps as far as possible.
    pub(super) had: Option<&'a CpuSet>,
    /// Places that should each give an equal part: those of its hints.
    pub(super) near: &'a [CpuSet],
}

impl CpuConstraints<'_> {
    fn within(&self, cpus: CpuSet) -> CpuSet {
        match self.allowed {
            Some(allowed) => cpus.intersection(allowed),
            None => cpus,
        }
    }

    fn pick(&self, groups: &CpuGroups, free: &CpuSet, count: usize) -> Option<CpuSet> {
        if let Some(had) = self.had.map(|had| had.intersection(free)).filter(|had| !had.is_empty()) {
            if had.len() >= count {
                return pick(groups, &had, count, self.priority);
            }
            let more = pick(groups, &free.difference(&had), count - had.len(), self.priority)?;
            return Some(had.union(&more));
        }
        if let Some(cpus) = self.pick_near(groups, free, count) {
            return Some(cpus);
        }
        pick(groups, free, count, self.priority)
    }

    /// An equal part from each place, at least one CPU, and the rest from any place; `None` if a place cannot
    /// give its part.
    fn pick_near(&self, groups: &CpuGroups, free: &CpuSet, count: usize) -> Option<CpuSet> {
        let part = count.checked_div(self.near.len())?.max(1);
        let mut picked = CpuSet::new();
        for near in self.near {
            let part = part.min(count - picked.len());
            let here = near.intersection(free).difference(&picked);
            picked.extend(&pick(groups, &here, part, self.priority)?);
        }
        let rest = pick(groups, &free.difference(&picked), count - picked.len(), self.priority)?;
        Some(picked.union(&rest))
    }
}

/// CPU time of whole CPUs minus the promises.
fn signed(cpus: usize, promised: u64) -> i64 {
    let time = i64::try_from(cpus).unwrap_or(i64::MAX).saturating_mul(1000);
    time.saturating_sub(i64::try_from(promised).unwrap_or(i64::MAX))
}
