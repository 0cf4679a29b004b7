//! Configuration entries that this machine can never grant, even if it were empty.
//!
//! Problem: an amount that no node has is only found when the workload arrives, which may be long after the
//! file was written. Idea: the entry is tried on the empty machine, with the engine and the policy that would
//! place its workloads, so that the answer and the message are theirs.
//!
//! Invariant: only entries that can never be granted are reported. For entries that may select pods, only
//! amounts above the whole machine are reported, because the pod decides the rest; entries that place nothing
//! are not checked.

use std::collections::BTreeMap;

use super::{declare, wishes_of};
use crate::{
    demotion::backend::slower,
    hosted::{CgroupRequest, Wished},
    policy::{Policy, WorkloadRule},
    workload::{CgroupPath, QosClass},
};
use numa_placement::{
    Allocations, ContainerRequest, Inventory, PodName, PodRequest, Rejection, admit, pools::Documents,
};
use numa_topology::set::CpuSet;

/// Root cgroups of pods, for both drivers.
const OF_PODS: [&str; 2] = ["/kubepods.slice", "/kubepods"];

/// Warning about a setting of the whole configuration that this machine can never meet.
pub fn never_had(policy: &Policy, inventory: &Inventory) -> Option<String> {
    let machine = &inventory.machine;
    let demotion = &policy.memory.demotion;
    let wanted = policy.workloads.iter().any(|rule| demotion.is_for(rule));
    let is_alike = slower(machine, &machine.ordinary_memory_nodes()).is_empty();
    (wanted && is_alike).then(|| {
        "memory.demotion: no effect on this machine, which has no memory that is slower than other memory"
            .to_owned()
    })
}

/// Warnings about the entry at this position that this machine can never grant.
pub fn never_granted(
    policy: &Policy,
    position: usize,
    rule: &WorkloadRule,
    inventory: &Inventory,
) -> Vec<String> {
    let machine = &inventory.machine;
    let (wishes, mut never) = wishes_of(rule, position, machine);
    if !rule.enforce {
        return never;
    }
    let refused = if may_be_of_pods(rule) {
        of_pod(policy, position, rule, inventory)
    } else {
        // The capacity of a node of unknown size is unknown too.
        let memory = rule.memory.filter(|_| inventory.unsized_nodes().is_empty());
        rule.cpus.and_then(|cpus| {
            let request = CgroupRequest {
                cgroup: &CgroupPath::new("/"),
                cpus: cpus.get(),
                memory_bytes: memory.map(|memory| memory.0),
                now: None,
                nodes: rule.numa_nodes.as_ref(),
                bounds: None,
                available_bytes: BTreeMap::new(),
                avoids: CpuSet::new(),
                wished: Some(Wished { wishes: &wishes, unknown: &[], pools: &policy.placement.pools }),
            };
            request.place(inventory, &mut Allocations::default()).err()
        })
    };
    never.extend(refused.map(|rejection| format!("not even an empty machine has a place: {rejection}")));
    never
}

/// Can it select containers of pods, which have other policies than cgroups?
fn may_be_of_pods(rule: &WorkloadRule) -> bool {
    let below = |path: &str| rule.may_be_about_one_below(&CgroupPath::new(path));
    rule.names_pods() || rule.cgroup.is_some() && OF_PODS.into_iter().any(below)
}

fn of_pod(policy: &Policy, position: usize, rule: &WorkloadRule, inventory: &Inventory) -> Option<Rejection> {
    if policy.placement.predicts_kubelet() {
        return None;
    }
    let mut container = ContainerRequest::default();
    if rule.cpus.is_some() || rule.memory.is_some() {
        declare(&mut container, rule, position, &inventory.machine);
    }
    let requests = container.requests;
    let pod = PodRequest {
        name: PodName::of_cgroup(&CgroupPath::new("/")),
        qos: QosClass::Burstable,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        documents: Documents::default(),
        // Annotations of the pod decide where it may be and how it shares.
        containers: vec![ContainerRequest { requests, ..ContainerRequest::default() }],
        previous: BTreeMap::new(),
        undescribed: None,
    };
    let mut allocations = Allocations::default();
    let admitted = admit(inventory, &policy.placement, &mut allocations, &pod);
    admitted.err().map(Rejection::outside_pods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numa_topology::{MemoryKind, Topology, id::NodeId, synth::Machine};

    fn told(machine: Topology, text: &str) -> Vec<String> {
        let policy: Policy = toml::from_str(text).unwrap();
        policy.validate().unwrap();
        let inventory = Inventory::new(machine, Vec::new(), &policy.placement).unwrap();
        let rules = policy.workloads.iter().enumerate();
        let own = never_had(&policy, &inventory).into_iter();
        own.chain(rules.flat_map(|(at, rule)| never_granted(&policy, at, rule, &inventory))).collect()
    }

    /// Two nodes with 8 CPUs and 16 GiB each.
    fn two() -> Topology {
        Machine::new().sockets(2).build()
    }

    #[test]
    fn amounts_that_no_node_of_the_machine_has_are_told_with_what_there_is() {
        for (keys, said) in [
            ("cgroup = '/a'\ncpus = 999", "8 of 999 cpu on node 0"),
            ("cgroup = '/a'\ncpus = 9", "8 of 9 cpu on node 0"),
            ("cgroup = '/a'\ncpus = 1\nmemory = '900TiB'", "16 GiB of 921600 GiB memory on node 0"),
            ("cgroup = '/a'\ncpus = 1\nmemory = '17GiB'", "16 GiB of 17 GiB memory on node 0"),
            ("cgroup = '/a'\ncpus = 17\npolicy = 'best-effort'", "16 of 17 cpu"),
            ("cgroup = '/a'\ncpus = 17\nengine = 'pools'", "16 of 17 cpu"),
            ("cgroup = '/a'\ncpus = 1\nnuma_nodes = '0-15'", "the machine has NUMA nodes 0-1 only"),
            ("cgroup = '/a'\ncpus = 1\nnuma_nodes = '7'", "numa_nodes of its rule is 7"),
            ("namespace = 'a'\ncpus = 17", "16 of 17 cpu"),
            ("namespace = 'a'\nmemory = '900TiB'", "memory"),
            ("cgroup = '/**'\ncpus = 17", "16 of 17 cpu"),
            ("unit = 'a.service'\ncpus = 9", "8 of 9 cpu"),
        ] {
            let found = told(two(), &format!("[[workload]]\nname = 'a'\n{keys}\n"));
            assert!(found.iter().any(|one| one.contains(said)), "{keys}: {found:?}");
            assert!(found.iter().all(|one| !one.contains("Error")), "{keys}: {found:?}");
        }
    }

    #[test]
    fn what_may_be_granted_some_day_is_not_told() {
        for keys in [
            "cgroup = '/a'\ncpus = 8\nmemory = '15GiB'",
            "cgroup = '/a'\ncpus = 16\npolicy = 'best-effort'",
            "cgroup = '/a'\ncpus = 9\nengine = 'pools'",
            "cgroup = '/a'\nenforce = false\ncpus = 999",
            "namespace = 'a'\ncpus = 16",
            "namespace = 'a'",
            "cgroup = '/kubepods.slice/**'\ncpus = 9",
            "cgroup = '/a'\ncpus = 1\nnuma_nodes = '1'",
        ] {
            assert_eq!(told(two(), &format!("[[workload]]\nname = 'a'\n{keys}\n")), [""; 0], "{keys}");
        }
        let mut unknown = two();
        for node in &mut unknown.nodes {
            node.mem_total_bytes = None;
        }
        let text = "[[workload]]\nname = 'a'\ncgroup = '/a'\ncpus = 1\nmemory = '900TiB'\n";
        assert_eq!(told(unknown, text), [""; 0], "the size is not known");
    }

    #[test]
    fn demotion_needs_memory_that_is_slower() {
        let text = "[[workload]]\nname = 'a'\ncgroup = '/a'\ncpus = 1\ndemotion = true\n";
        assert!(told(two(), text)[0].contains("memory.demotion: no effect on this machine"));
        let tiers = Machine::new().sockets(2).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(0)).build();
        assert_eq!(told(tiers, text), [""; 0]);
    }
}
