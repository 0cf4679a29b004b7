//! Workloads that are left alone because of what their processes have set themselves.
//!
//! What that is takes a look at each thread, so it is read only for cgroups of a plan, when there is one
//! ([`cpuset_writes`]). A workload that is left alone leaves the plan with everything of its group: half of a
//! group is worse than nothing. It keeps its grant and is looked at again with the next plan.

use std::collections::BTreeMap;

use super::{Decision, Refusal, RefusalCause};
use crate::{
    plan::{Action, Plan},
    self_placement::CpusetWrites,
    workload::CgroupPath,
};

/// What a plan writes to cpusets, by cgroup.
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
            _ => {}
        }
    }
    writes
}

impl Decision {
    /// Leaves these cgroups, and what is of one group with them, as they are.
    pub fn leave_self_placed(&mut self, hindrances: &BTreeMap<CgroupPath, String>) {
        let mut left: BTreeMap<CgroupPath, String> = hindrances
            .iter()
            .map(|(cgroup, reason)| (cgroup.clone(), format!("{reason} (self_placement = \"respect\")")))
            .collect();
        for group in &self.plan.groups {
            let Some((hindered, reason)) = group.iter().find_map(|one| Some((one, hindrances.get(one)?)))
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
        let refused: Vec<Refusal> = workloads
            .map(|(workload, reason)| Refusal { workload, cause: RefusalCause::SelfPlacement, reason })
            .collect();
        self.refused.extend(refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decide::{Standing, Target},
        place::Cpuset,
        plan::Step,
    };

    fn step(cgroup: &str, mems: &str) -> Step {
        let action = Action::SetMems { cgroup: CgroupPath::new(cgroup), mems: mems.parse().unwrap() };
        Step { action, reason: String::new() }
    }

    #[test]
    fn a_workload_that_is_left_alone_takes_its_group_along_and_nobody_else() {
        let mut decision = Decision::default();
        decision.plan.steps =
            [("/top", "0-1"), ("/top/a", "0-1"), ("/top/a", "1"), ("/b", "0"), ("/top/c", "1")]
                .map(|(cgroup, mems)| step(cgroup, mems))
                .into();
        decision.plan.groups = vec![["/top", "/top/a", "/top/c"].map(CgroupPath::new).into()];
        for cgroup in ["/top/a", "/top/c", "/b"] {
            let target = Target { cgroup_id: None, cpuset: Cpuset::default(), standing: Standing::OnItsWay };
            decision.targets.insert(CgroupPath::new(cgroup), target);
        }
        let writes = cpuset_writes(&decision.plan);
        assert_eq!(writes[&CgroupPath::new("/top/a")].mems.len(), 2);
        let hindrances = [(CgroupPath::new("/top/a"), "process 7 is bound".to_owned())].into();
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
