//! Limits that the cgroups above a workload set, and which of them may be widened for it.
//!
//! Problem: a cgroup has at most what those above it have. A cpuset that asks for more is refused (v1) or cut
//! (v2), and the workload is not where it should be. Idea: check before anything is written. A cgroup above
//! that the daemon has set itself and is too narrow is widened first, from the top down. If it has another
//! owner nothing is tried, and the refusal names it and its set.
//!
//! Invariant: a cgroup is widened only if the daemon has set it and it has no place of its own.
//!
//! A cgroup with all that the one above it has is taken to inherit. If it is set to exactly that, the write
//! is cut, and taken back with its reason.
//!
//! Cost: one look at each cgroup above, and only for workloads that are not in place or are declared.

use std::collections::BTreeMap;

use super::partition;
use crate::{
    declarations::Declarations,
    hosted::{CgroupBounds, Containers, Cpuset},
    plan::{Action, Step},
    sample::CgroupSample,
    turn::Inputs,
    workload::CgroupPath,
};
use numa_topology::{
    Topology,
    id::{CpuId, Id, NodeId},
    set::{IdSet, NodeSet},
};

/// Sets that a cgroup above a workload must be widened to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AncestorWidening {
    pub(super) cpus: Option<SetChange<CpuId>>,
    pub(super) mems: Option<SetChange<NodeId>>,
}

/// Old and new set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SetChange<T: Id> {
    from: IdSet<T>,
    to: IdSet<T>,
}

impl<T: Id> SetChange<T> {
    fn of(now: Option<&IdSet<T>>, wanted: Option<&IdSet<T>>) -> Option<Self> {
        let (now, wanted) = now.zip(wanted)?;
        (!wanted.is_subset(now)).then(|| Self { from: now.clone(), to: now.union(wanted) })
    }

    fn add(one: &mut Option<Self>, other: Option<Self>) {
        match (one.as_mut(), other) {
            (Some(one), Some(other)) => one.to.extend(&other.to),
            (None, other) => *one = other,
            (Some(_), None) => {}
        }
    }
}

impl AncestorWidening {
    /// Adds room for the other's workload.
    pub(super) fn add(&mut self, other: Self) {
        SetChange::add(&mut self.cpus, other.cpus);
        SetChange::add(&mut self.mems, other.mems);
    }

    /// The steps, memory nodes first: they cost nothing.
    pub(super) fn steps(self, cgroup: &CgroupPath) -> impl Iterator<Item = Step> {
        let why = "so that those below it can be set";
        let mems = self.mems.map(|SetChange { from, to }| Step {
            reason: format!("memory nodes {from} become {to}, {why}"),
            action: Action::SetMems { cgroup: cgroup.clone(), mems: to },
        });
        let cpus = self.cpus.map(|SetChange { from, to }| Step {
            reason: format!("CPUs {from} become {to}, {why}"),
            action: Action::SetCpus { cgroup: cgroup.clone(), cpus: to },
        });
        mems.into_iter().chain(cpus)
    }
}

/// The limit of one resource, and the cgroup that causes it.
#[derive(Debug)]
struct AncestorLimit<T: Id> {
    /// The cgroup that causes the limit, and its set; absent if unknown.
    most: Option<(CgroupPath, IdSet<T>)>,
    /// Set of the last cgroup on the way down.
    passed_on: Option<IdSet<T>>,
}

impl<T: Id> AncestorLimit<T> {
    const NONE: Self = Self { most: None, passed_on: None };

    /// Adds the next cgroup on the way down, with its set.
    fn below(&mut self, cgroup: &CgroupPath, has: Option<&IdSet<T>>, can_be_widened: bool) {
        let Some(has) = has.filter(|has| !has.is_empty()) else { return };
        // A partition root has CPUs that the cgroup above no longer has.
        if self.passed_on.as_ref().is_some_and(|above| !has.is_subset(above)) {
            self.most = None;
        }
        let inherits = self.passed_on.as_ref() == Some(has);
        if !inherits && !can_be_widened {
            let left = self.most.as_ref().map_or_else(|| has.clone(), |(_, most)| most.intersection(has));
            if self.most.as_ref().is_none_or(|(_, most)| *most != left) {
                self.most = Some((cgroup.clone(), left));
            }
        }
        self.passed_on = Some(has.clone());
    }

    /// Names the cgroup that lacks some of `wanted`.
    fn lacks(&self, what: &str, wanted: Option<&IdSet<T>>) -> Option<String> {
        let (cgroup, most) = self.most.as_ref()?;
        let wanted = wanted.filter(|wanted| !wanted.is_subset(most))?;
        Some(format!("{what} {wanted} cannot be had: {cgroup} above it allows only {most}"))
    }
}

/// The most memory nodes that a workload may have.
#[derive(Debug)]
pub(super) struct AncestorMems {
    /// The cgroup that causes the limit, and its set; absent without a limit.
    pub(super) most: Option<(CgroupPath, NodeSet)>,
    /// Cgroups that may be widened, with their nodes, from the top down.
    pub(super) ours: Vec<(CgroupPath, NodeSet)>,
}

/// Limits of the cgroups above a workload.
#[derive(Debug)]
pub(super) struct AncestorLimits {
    cpus: AncestorLimit<CpuId>,
    mems: AncestorLimit<NodeId>,
    /// Cgroups that may be widened, with their sets, from the top down.
    ours: Vec<(CgroupPath, Cpuset)>,
}

impl AncestorLimits {
    /// Looks at each cgroup above `cgroup`, from the top down.
    pub(super) fn of(inputs: &Inputs<'_>, cgroup: &CgroupPath) -> Self {
        let chain: Vec<CgroupPath> = cgroup.ancestors().collect();
        let mut above = Self { cpus: AncestorLimit::NONE, mems: AncestorLimit::NONE, ours: Vec::new() };
        for path in chain.into_iter().rev() {
            let Some(CgroupSample { cpus_effective, mems_effective, .. }) = inputs.sample.cgroups.get(&path)
            else {
                continue;
            };
            let ours =
                (inputs.written.0)(&path) && !has_own_place(inputs.declarations, inputs.containers, &path);
            // CPUs that the daemon's partitions took from a cgroup are still its own to give.
            let cpus_effective = cpus_effective
                .as_ref()
                .map(|cpus| cpus.union(&partition::taken_from(inputs.sample, inputs.partitioned, &path)));
            above.cpus.below(&path, cpus_effective.as_ref(), ours);
            above.mems.below(&path, mems_effective.as_ref(), ours);
            if ours {
                let has = Cpuset { cpus: cpus_effective, mems: mems_effective.clone() };
                above.ours.push((path, has));
            }
        }
        above
    }

    /// The most that the workload can have.
    pub(super) fn bounds(&self) -> Option<CgroupBounds> {
        let (cpus, mems) = (self.cpus.most.as_ref(), self.mems.most.as_ref());
        let named = mems.map(|(path, _)| path).or(cpus.map(|(path, _)| path))?.clone();
        Some(CgroupBounds {
            cgroup: named,
            cpus: cpus.map(|(_, cpus)| cpus.clone()),
            mems: mems.map(|(_, mems)| mems.clone()),
        })
    }

    /// The most memory nodes that it can have, and the cgroups above that may be widened for them.
    pub(super) fn mems(&self) -> AncestorMems {
        let ours = self.ours.iter().filter_map(|(path, has)| Some((path.clone(), has.mems.clone()?)));
        AncestorMems { most: self.mems.most.clone(), ours: ours.collect() }
    }

    /// The cgroups to widen before the workload can be set to this goal, or the cgroup that is too narrow.
    pub(super) fn make_room(&self, goal: &Cpuset) -> Result<BTreeMap<CgroupPath, AncestorWidening>, String> {
        let lacking = [
            self.cpus.lacks("CPUs", goal.cpus.as_ref()),
            self.mems.lacks("memory nodes", goal.mems.as_ref()),
        ];
        let lacking: Vec<String> = lacking.into_iter().flatten().collect();
        if !lacking.is_empty() {
            return Err(lacking.join("; "));
        }
        let widened = self.ours.iter().map(|(path, has)| {
            let widening = AncestorWidening {
                cpus: SetChange::of(has.cpus.as_ref(), goal.cpus.as_ref()),
                mems: SetChange::of(has.mems.as_ref(), goal.mems.as_ref()),
            };
            (path.clone(), widening)
        });
        Ok(widened.filter(|(_, widening)| *widening != AncestorWidening::default()).collect())
    }

    /// Names the cgroup above that leaves the workload less than the machine has, and its set.
    pub(super) fn narrows(&self, machine: &Topology) -> Option<String> {
        let all = (machine.online_cpus(), machine.memory_nodes());
        let cpus = self.cpus.most.as_ref().filter(|(_, most)| !all.0.is_subset(most));
        let mems = self.mems.most.as_ref().filter(|(_, most)| !all.1.is_subset(most));
        let cpus = cpus.map(|(path, most)| format!("{path} above it allows only CPUs {most}"));
        let mems = mems.map(|(path, most)| format!("{path} above it allows only memory nodes {most}"));
        let both: Vec<String> = cpus.into_iter().chain(mems).collect();
        (!both.is_empty()).then(|| both.join(", "))
    }
}

/// Does the cgroup have a place of its own?
fn has_own_place(declarations: &Declarations, containers: &Containers, cgroup: &CgroupPath) -> bool {
    declarations.asks_for(cgroup) || containers.cgroups().any(|(path, _)| path == cgroup)
}

#[cfg(test)]
mod tests;
