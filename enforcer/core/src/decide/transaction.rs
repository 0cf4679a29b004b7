//! Groups of workloads with steps that must be done together.
//!
//! Problem: one workload gets exclusive CPUs, and the workloads that share them must leave. If one cannot
//! leave, or the new one cannot come, a half-applied change is worse than none. Idea: workloads that give a
//! CPU up and the workload that gets it exclusively form one group. If any step of a group fails, the done
//! steps of the group are taken back. Within a group, givers come first.
//!
//! A workload gives up CPUs of its old target that its new one lacks. A workload that was never placed gives
//! nothing, like all undeclared workloads of the host: otherwise one that cannot be placed would keep all
//! others from their places.
//!
//! Workloads that need the same cgroup above to be widened form one group too: it is widened once, before all
//! of them.
//!
//! Cost: one look at each CPU that changes hands.

use std::collections::{BTreeMap, BTreeSet};

use super::above::AncestorWidening;
use crate::{
    plan::{PLAN_SCHEMA_VERSION, Plan, Step},
    workload::CgroupPath,
};
use numa_topology::{id::CpuId, set::CpuSet};

/// The steps of one workload.
#[derive(Debug, Clone)]
pub(super) struct WorkloadSteps {
    pub(super) cgroup: CgroupPath,
    /// Cgroups above it to widen first.
    pub(super) above: BTreeMap<CgroupPath, AncestorWidening>,
    pub(super) steps: Vec<Step>,
    /// CPUs of its old target that it must leave.
    pub(super) gives: CpuSet,
    /// CPUs that it gets exclusively.
    pub(super) takes: CpuSet,
}

/// All parts in their order, but with groups together and givers first.
pub(super) fn plan(parts: Vec<WorkloadSteps>) -> Plan {
    let mut plan = Plan { schema_version: PLAN_SCHEMA_VERSION, ..Plan::default() };
    let leaders = leaders(&parts);
    let mut groups: BTreeMap<usize, Vec<WorkloadSteps>> = BTreeMap::new();
    for (leader, part) in leaders.into_iter().zip(parts) {
        groups.entry(leader).or_default().push(part);
    }
    for mut group in groups.into_values() {
        group.sort_by_key(|part| (part.gives.is_empty(), !part.takes.is_empty()));
        let mut members: BTreeSet<CgroupPath> = group.iter().map(|part| part.cgroup.clone()).collect();
        let mut above: BTreeMap<CgroupPath, AncestorWidening> = BTreeMap::new();
        for (cgroup, widening) in group.iter_mut().flat_map(|part| std::mem::take(&mut part.above)) {
            above.entry(cgroup).or_default().add(widening);
        }
        // In the order of their names: a cgroup comes before those below it.
        for (cgroup, widening) in above {
            plan.steps.extend(widening.steps(&cgroup));
            members.insert(cgroup);
        }
        if members.len() > 1 {
            plan.groups.push(members);
        }
        plan.steps.extend(group.into_iter().flat_map(|part| part.steps));
    }
    plan
}

/// The first part of the group of each part.
fn leaders(parts: &[WorkloadSteps]) -> Vec<usize> {
    let mut hands: BTreeMap<CpuId, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (index, part) in parts.iter().enumerate() {
        for cpu in part.gives.iter() {
            hands.entry(cpu).or_default().0.push(index);
        }
        for cpu in part.takes.iter() {
            hands.entry(cpu).or_default().1.push(index);
        }
    }
    let hands = hands.into_values().filter(|(givers, takers)| !givers.is_empty() && !takers.is_empty());
    let together = hands.map(|(givers, takers)| [givers, takers].concat());
    let mut below: BTreeMap<&CgroupPath, Vec<usize>> = BTreeMap::new();
    for (index, part) in parts.iter().enumerate() {
        for cgroup in part.above.keys() {
            below.entry(cgroup).or_default().push(index);
        }
    }
    let mut leaders: Vec<usize> = (0..parts.len()).collect();
    for parts in together.chain(below.into_values()) {
        let members: BTreeSet<usize> = parts.iter().map(|part| leaders[*part]).collect();
        let Some(first) = members.first().copied() else { continue };
        for leader in &mut leaders {
            if members.contains(leader) {
                *leader = first;
            }
        }
    }
    leaders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Action;

    /// `name`, CPUs that it gives, CPUs that it gets for itself.
    fn part((name, gives, takes): (&str, &str, &str)) -> WorkloadSteps {
        let cgroup = CgroupPath::new(name);
        let action = Action::SetCpus { cgroup: cgroup.clone(), cpus: "0".parse().unwrap() };
        let steps = vec![Step { action, reason: String::new() }];
        WorkloadSteps {
            cgroup,
            above: BTreeMap::new(),
            steps,
            gives: gives.parse().unwrap(),
            takes: takes.parse().unwrap(),
        }
    }

    #[test]
    fn giver_comes_before_receiver_in_the_same_group() {
        for (parts, order, groups) in [
            (vec![("/a", "", "0-1"), ("/b", "", "2-3")], "/a /b", ""),
            (vec![("/a", "", "0-1"), ("/b", "1-3", "")], "/b /a", "/a+/b"),
            (vec![("/a", "", "0-1"), ("/b", "2-3", "")], "/a /b", ""),
            (vec![("/a", "0", "1"), ("/b", "1", "0")], "/a /b", "/a+/b"),
            (
                vec![
                    ("/x", "", "0"),
                    ("/free", "", "9"),
                    ("/s", "0-3", ""),
                    ("/y", "", "3"),
                    ("/t", "0", ""),
                ],
                "/s /t /x /y /free",
                "/s+/t+/x+/y",
            ),
            (
                vec![("/a", "", "0"), ("/b", "0", ""), ("/c", "", "1"), ("/d", "1", "")],
                "/b /a /d /c",
                "/a+/b /c+/d",
            ),
        ] {
            let plan = plan(parts.iter().copied().map(part).collect());
            let steps: Vec<_> = plan.steps.iter().map(|step| step.action.cgroup().as_str()).collect();
            assert_eq!(steps.join(" "), order, "{parts:?}");
            let found: Vec<String> = plan
                .groups
                .iter()
                .map(|group| group.iter().map(CgroupPath::as_str).collect::<Vec<_>>().join("+"))
                .collect();
            assert_eq!(found.join(" "), groups, "{parts:?}");
        }
    }
}
