//! Workloads that are left alone because of settings of their own processes.
//!
//! Problem: these settings take a look at each thread, so only cgroups of a plan are checked
//! ([`cpuset_writes`]). A workload that then stays has CPUs that the plan may have given to others, and keeps
//! a grant of CPUs that stay unused. Idea: such workloads are an input of the decision. A caller that finds a
//! setting that the plan would change decides again with these workloads as ones that stay
//! ([`Decision::left_because`]), until the plan changes no such setting.
//!
//! Invariants: a workload that is left alone has no grant and no aim, and its CPUs are held: those of its
//! cpuset, or else those that its threads are pinned to. Containers keep their grants, because their runtime
//! knows them. A workload for which only a move of pages would break a policy keeps its place and its grant.

use std::collections::BTreeMap;

use super::pins;
use crate::{
    hosted::ExternalGrants,
    plan::{Action, Plan},
    self_placement::CpusetWrites,
    turn::{Decision, Inputs, Refusal, RefusalCause, SelfPlaced, SelfPlacedWorkloads},
    workload::CgroupPath,
};
use numa_placement::{Allocations, Grant, Holder};

/// Writes of a plan, by cgroup.
pub fn cpuset_writes(plan: &Plan) -> BTreeMap<CgroupPath, CpusetWrites> {
    let mut writes: BTreeMap<CgroupPath, CpusetWrites> = BTreeMap::new();
    for step in &plan.steps {
        match &step.action {
            Action::SetCpus { cgroup, cpus } => {
                writes.entry(cgroup.clone()).or_default().cpus.push(cpus.clone());
            }
            Action::SetMems { cgroup, mems } => {
                writes.entry(cgroup.clone()).or_default().mems.push(mems.clone());
            }
            Action::MovePages { cgroup, from, to, .. } => {
                writes.entry(cgroup.clone()).or_default().moves.push((from.clone(), *to));
            }
            _ => {}
        }
    }
    writes
}

/// Reason why a workload stays where it is.
pub(super) fn refusal(stay: &SelfPlacedWorkloads, cgroup: &CgroupPath) -> Option<Refusal> {
    let one = stay.get(cgroup).filter(|one| !one.keeps_place)?;
    let (workload, cause) = (cgroup.clone(), RefusalCause::SelfPlacement);
    Some(Refusal { workload, cause, reason: one.reason.clone() })
}

/// CPUs of the workloads that stay, withheld from all others.
pub(super) fn withheld_grants(inputs: &Inputs<'_>, allocations: &Allocations) -> ExternalGrants {
    let of_container: BTreeMap<&CgroupPath, &Holder> = inputs.containers.cgroups().collect();
    let held = inputs.self_placed.iter().filter(|(_, one)| !one.keeps_place).filter_map(|(cgroup, one)| {
        let rule = inputs.declarations.rule(inputs.policy, cgroup).filter(|(_, rule)| rule.enforce);
        let own = match of_container.get(cgroup) {
            // A sharing container has no CPUs of its own.
            Some(holder) => {
                allocations.get(holder).filter(|grant| !grant.exclusive.is_empty()).map(|_| *holder)?
            }
            None => &Holder::cgroup(cgroup),
        };
        let asked = rule.and_then(|(_, rule)| rule.cpus).map_or(0, |cpus| cpus.get() as usize);
        // Threads that may use more CPUs than the workload asks for are spread, and hold none of them.
        let pinned = || Some(&one.pinned).filter(|cpus| cpus.len() <= asked).cloned();
        let cpus = pins::pin(inputs.sample, cgroup).map(|pin| pin.cpus).or_else(pinned)?;
        // Its own grant of these CPUs ends; CPUs that others were granted stay theirs.
        let others = allocations.iter().filter(|(holder, _)| {
            !holder.is_cgroup() && *holder != own && **holder != Holder::self_placed(cgroup)
        });
        let cpus = others.fold(cpus, |cpus, (_, grant)| cpus.difference(&grant.exclusive));
        let reason = format!("{cgroup} is left alone: {}", one.reason);
        let grant = Grant::taken_by_others(cpus, reason);
        (!grant.exclusive.is_empty()).then(|| (Holder::self_placed(cgroup), grant))
    });
    held.collect()
}

impl Decision {
    /// Workloads that must stay because the plan would change a setting in `found`. A cgroup above workloads
    /// has no place of its own: the workloads stay for which it would be written.
    pub fn left_because(
        &self,
        found: &SelfPlacedWorkloads,
        writes: &BTreeMap<CgroupPath, CpusetWrites>,
    ) -> SelfPlacedWorkloads {
        let mut left = SelfPlacedWorkloads::new();
        for (cgroup, one) in found {
            let moves_only = writes.get(cgroup).is_none_or(CpusetWrites::moves_only);
            let keeps_place = moves_only || self.in_place.contains(cgroup);
            if self.targets.contains_key(cgroup) {
                let reason = respected(&one.reason);
                left.insert(cgroup.clone(), SelfPlaced { reason, keeps_place, ..one.clone() });
                continue;
            }
            let reason = format!("it cannot be changed without {cgroup}, where {}", one.reason);
            let group = self.plan.groups.iter().filter(|group| group.contains(cgroup)).flatten();
            let below = group.filter(|member| member.is_within(cgroup) && self.targets.contains_key(member));
            for member in below {
                let of_group = || SelfPlaced { reason: reason.clone(), ..SelfPlaced::default() };
                left.entry(member.clone()).or_insert_with(of_group);
            }
        }
        left
    }

    /// Removes these cgroups, and the members of their groups, from the plan: for cgroups that another
    /// decision does not keep out.
    pub fn leave_self_placed(&mut self, hindrances: &SelfPlacedWorkloads) {
        let mut left: BTreeMap<CgroupPath, String> =
            hindrances.iter().map(|(cgroup, one)| (cgroup.clone(), respected(&one.reason))).collect();
        for group in &self.plan.groups {
            let Some((hindered, reason)) =
                group.iter().find_map(|one| Some((one, &hindrances.get(one)?.reason)))
            else {
                continue;
            };
            for member in group {
                let of_group = || format!("it cannot be changed without {hindered}, where {reason}");
                left.entry(member.clone()).or_insert_with(of_group);
            }
        }
        if left.is_empty() {
            return;
        }
        self.plan.steps.retain(|step| !left.contains_key(step.action.cgroup()));
        self.plan.groups.retain(|group| !group.iter().any(|member| left.contains_key(member)));
        // A cgroup above workloads has no target of its own.
        let workloads = left.into_iter().filter(|(cgroup, _)| self.targets.contains_key(cgroup));
        let workloads: Vec<_> = workloads.collect();
        for (cgroup, _) in &workloads {
            self.aims.remove(cgroup);
            self.targets.remove(cgroup);
        }
        let refused: Vec<Refusal> = workloads
            .into_iter()
            .map(|(workload, reason)| Refusal { workload, cause: RefusalCause::SelfPlacement, reason })
            .collect();
        self.refused.extend(refused);
    }
}

fn respected(reason: &str) -> String {
    format!("{reason} (self_placement = \"respect\")")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hosted::Cpuset,
        plan::Step,
        turn::{CpusetTarget, DriftStatus},
    };

    fn step(cgroup: &str, mems: &str) -> Step {
        let action = Action::SetMems { cgroup: CgroupPath::new(cgroup), mems: mems.parse().unwrap() };
        Step { action, reason: String::new() }
    }

    #[test]
    fn workload_that_is_left_alone_takes_its_group_along_and_no_other() {
        let mut decision = Decision::default();
        decision.plan.steps =
            [("/top", "0-1"), ("/top/a", "0-1"), ("/top/a", "1"), ("/b", "0"), ("/top/c", "1")]
                .map(|(cgroup, mems)| step(cgroup, mems))
                .into();
        decision.plan.groups = vec![["/top", "/top/a", "/top/c"].map(CgroupPath::new).into()];
        for cgroup in ["/top/a", "/top/c", "/b"] {
            let target =
                CpusetTarget { cgroup_id: None, cpuset: Cpuset::default(), standing: DriftStatus::OnItsWay };
            decision.targets.insert(CgroupPath::new(cgroup), target);
        }
        let writes = cpuset_writes(&decision.plan);
        assert_eq!(writes[&CgroupPath::new("/top/a")].mems.len(), 2);
        let one = SelfPlaced { reason: "process 7 is bound".into(), ..SelfPlaced::default() };
        let hindrances = [(CgroupPath::new("/top/a"), one)].into();
        decision.leave_self_placed(&hindrances);
        let left: Vec<_> = decision.plan.steps.iter().map(|step| step.action.cgroup().as_str()).collect();
        assert_eq!((left, decision.plan.groups.len()), (vec!["/b"], 0));
        let refused: Vec<_> =
            decision.refused.iter().map(|one| (one.workload.as_str(), one.reason.as_str())).collect();
        let expected = [
            ("/top/a", "process 7 is bound (self_placement = \"respect\")"),
            ("/top/c", "it cannot be changed without /top/a, where process 7 is bound"),
        ];
        assert_eq!(refused, expected);
        assert!(decision.refused.iter().all(|one| one.cause == RefusalCause::SelfPlacement));
    }
}
