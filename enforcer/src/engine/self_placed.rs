//! Asks, before anything of a plan is written and before memory nodes are guarded, what that would change of
//! what processes have set themselves.
//!
//! A plan is asked about in observe mode as well: what it would leave alone is told before it is done. Only
//! cgroups of a plan are looked at, and those that may be widened: these once, and again now and then.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    decide::{Decision, cpuset_writes},
    declarations::Declarations,
    degraded::Degraded,
    policy::Policy,
    self_placement::CpusetWrites,
    widening::Guarded,
    workload::CgroupPath,
};

use super::{Engine, Source, TOPOLOGY_EVERY};
use crate::enforce::self_placed::Depth;

/// Turns between two looks at what may be widened: to read all policies of a process walks its page tables.
const AGAIN_EVERY: u64 = 10 * TOPOLOGY_EVERY;

/// Cgroups by the kernel's ids, and why each is not widened.
pub(super) type SelfPlacedGuarded = BTreeMap<(CgroupPath, Option<u64>), Option<String>>;

/// Takes out of a decision what would change it; returns what could not be looked at.
pub(super) fn leave(
    source: &mut dyn Source,
    decision: &mut Decision,
    policy: &Policy,
    declarations: &Declarations,
) -> Option<Degraded> {
    let writes = cpuset_writes(&decision.plan);
    if writes.is_empty() {
        return None;
    }
    let respects = |cgroup: &CgroupPath| declarations.respects_self_placement(policy, cgroup);
    let (hindrances, degraded) = source.self_placed(&writes, &respects, Depth::AllPolicies);
    decision.leave_self_placed(&hindrances);
    degraded
}

impl Engine {
    /// Leaves out whom an added memory node would take a policy from. The kernel rewrites policies by
    /// position: one that binds to the second of two nodes binds to the second of three.
    pub(super) fn leave_self_placed(&mut self, guarded: &mut Vec<Guarded>, declarations: &Declarations) {
        let key = |one: &Guarded| (one.cgroup.clone(), one.cgroup_id);
        let now: BTreeSet<_> = guarded.iter().map(key).collect();
        self.self_placed.retain(|one, _| now.contains(one));
        if self.totals.ticks.is_multiple_of(AGAIN_EVERY) {
            self.self_placed.clear();
        }
        let policy = &self.policy;
        for one in guarded.iter().filter(|one| !one.strict && !one.spares.is_empty()) {
            let depth = match self.self_placed.get(&key(one)) {
                None => Depth::AllPolicies,
                // What threads have set themselves since is cheap to read.
                Some(None) if self.totals.ticks.is_multiple_of(TOPOLOGY_EVERY) => Depth::ThreadPolicy,
                Some(_) => continue,
            };
            let wide = one.spares.iter().fold(one.mems.clone(), |mems, spare| mems.union(&spare.nodes()));
            let writes = CpusetWrites { mems: vec![wide], ..CpusetWrites::default() };
            let respects = |cgroup: &CgroupPath| declarations.respects_self_placement(policy, cgroup);
            let writes = [(one.cgroup.clone(), writes)].into();
            let (found, _) = self.source.self_placed(&writes, &respects, depth);
            let reason = found.into_values().next();
            if let Some(reason) = &reason {
                tracing::info!("{} is not widened when its memory nodes are full: {reason}", one.cgroup);
            }
            self.self_placed.insert(key(one), reason);
        }
        for one in guarded {
            if let Some(Some(reason)) = self.self_placed.get(&(one.cgroup.clone(), one.cgroup_id)) {
                one.spares.clear();
                one.bound = Some(reason.clone());
            }
        }
    }
}
