//! Contradictions within what was read of a node.
//!
//! Problem: the kubelet replaces each file whole, but one admission writes several times: the default set of
//! CPUs before the entry of the container, the accounts of NUMA nodes before the blocks, CPUs before memory.
//! A reader can see any moment between. Idea: what the managers themselves keep true is checked across files
//! and socket; a read that violates it is repeated, and named if it stays so.
//!
//! Sources: `validateState` of both managers in Kubernetes 1.36 (`pkg/kubelet/cm/{cpu,memory}manager`), which
//! refuse to start on the same contradictions; `pkg/kubelet/cm/devicemanager/manager.go`.

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::MemoryResource;
use numa_topology::{
    Topology,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

use super::{
    CpuAssignments, DeviceAssignments, ListedContainerResources, MemoryAssignments, NodeObservation,
    OfferedResources, SourceRead,
};
use crate::{
    cluster::state::{InexactSource, KubeletProfile},
    owner::MemoryBlock,
};

/// Name of the CPU manager's file in reasons.
pub(super) const CPU_FILE: &str = "kubelet:cpu_manager_state";
/// Name of the memory manager's file.
pub(super) const MEMORY_FILE: &str = "kubelet:memory_manager_state";
/// Name of the device manager's file.
pub(super) const DEVICE_FILE: &str = "kubelet:kubelet_internal_checkpoint";
/// Name of the socket.
pub(super) const SOCKET: &str = "kubelet:podresources";

/// Every contradiction of an observation, one for each rule of each source.
pub fn contradictions(
    machine: &Topology,
    kubelet: &KubeletProfile,
    observation: &NodeObservation,
) -> Vec<InexactSource> {
    let mut found = FoundContradictions::default();
    let offered = observation.offered.content();
    if let Some(cpus) = observation.cpus.content() {
        found.of_cpus(machine, kubelet, cpus, offered);
    }
    if let Some(memory) = observation.memory.content() {
        found.of_memory(machine, kubelet, memory);
        if let Some(offered) = offered {
            found.of_offered_memory(memory, offered);
        }
    }
    match (&observation.devices, offered) {
        (SourceRead::Read(devices), Some(offered)) => found.of_devices(devices, offered),
        (SourceRead::Absent, Some(offered)) if !offered.devices.is_empty() => {
            found.add(DEVICE_FILE, "it does not exist, and the socket offers devices".into());
        }
        _ => {}
    }
    found.of_list(observation);
    found.0
}

/// Is this the static policy of the memory manager?
pub(super) const fn is_static_memory(policy: &str) -> bool {
    policy.eq_ignore_ascii_case("Static")
}

/// Online CPUs of a machine.
pub(super) fn online(machine: &Topology) -> CpuSet {
    machine.cpus.iter().map(|cpu| cpu.id).collect()
}

/// Reserved CPUs of a static policy: those that the kubelet offers to no pod.
pub(super) fn reserved(machine: &Topology, offered: &OfferedResources) -> CpuSet {
    online(machine).difference(&offered.cpus)
}

/// Does the option keep reserved CPUs out of the default set?
pub(super) fn is_strict(kubelet: &KubeletProfile) -> bool {
    kubelet.cpu_options.get("strict-cpu-reservation").is_some_and(|value| value == "true")
}

#[derive(Default)]
struct FoundContradictions(Vec<InexactSource>);

impl FoundContradictions {
    fn add(&mut self, source: &str, reason: String) {
        self.0.push(InexactSource::new(source, reason));
    }

    fn add_cpus(&mut self, source: &str, cpus: &CpuSet, what: &str) {
        if !cpus.is_empty() {
            self.add(source, format!("CPUs {cpus} {what}"));
        }
    }

    fn of_policy(&mut self, source: &str, policy: &str, setting: &str, unknown: &[String]) {
        if !setting.is_empty() && !policy.eq_ignore_ascii_case(setting) {
            self.add(source, format!("its policy is {policy:?}, that of the settings is {setting:?}"));
        }
        if let Some(field) = unknown.first() {
            self.add(source, format!("its field {field:?} is of an unknown version"));
        }
    }

    fn of_cpus(
        &mut self,
        machine: &Topology,
        kubelet: &KubeletProfile,
        cpus: &CpuAssignments,
        offered: Option<&OfferedResources>,
    ) {
        self.of_policy(CPU_FILE, &cpus.policy, &kubelet.cpu_policy, &cpus.unknown_fields);
        if cpus.policy != "static" {
            if !cpus.containers.is_empty() || !cpus.pods.is_empty() {
                self.add(CPU_FILE, "containers have exclusive CPUs without the static policy".into());
            }
            return;
        }
        if !cpus.pods.is_empty() {
            self.add(CPU_FILE, "whole pods have CPUs, whose rules are not known here".into());
        }
        let mut by_pod = BTreeMap::<&str, CpuSet>::new();
        for (pod, of) in &cpus.containers {
            for set in of.values() {
                by_pod.entry(pod).or_default().extend(set);
            }
        }
        for (pod, set) in &cpus.pods {
            by_pod.entry(pod).or_default().extend(set);
        }
        let mut taken = CpuSet::new();
        for set in by_pod.values() {
            self.add_cpus(CPU_FILE, &set.intersection(&taken), "belong to two pods");
            taken.extend(set);
        }
        self.add_cpus(CPU_FILE, &cpus.default_cpus.intersection(&taken), "are shared and exclusive");
        let online = online(machine);
        let mut union = cpus.default_cpus.union(&taken);
        if let Some(offered) = offered {
            if offered.cpus.is_empty() {
                self.add(SOCKET, "it offers no CPU under the static policy".into());
            }
            self.add_cpus(SOCKET, &offered.cpus.difference(&online), "are offered and not online");
            let reserved = reserved(machine, offered);
            self.add_cpus(CPU_FILE, &reserved.intersection(&taken), "are reserved and exclusive");
            if is_strict(kubelet) {
                self.add_cpus(
                    CPU_FILE,
                    &reserved.intersection(&cpus.default_cpus),
                    "are reserved and shared",
                );
                union.extend(&reserved);
            } else {
                let left = reserved.difference(&cpus.default_cpus).difference(&taken);
                self.add_cpus(CPU_FILE, &left, "are reserved and not shared");
            }
        }
        self.add_cpus(CPU_FILE, &union.difference(&online), "are not online");
        if offered.is_some() || !is_strict(kubelet) {
            self.add_cpus(CPU_FILE, &online.difference(&union), "are neither shared nor exclusive");
        }
    }

    fn of_memory(&mut self, machine: &Topology, kubelet: &KubeletProfile, memory: &MemoryAssignments) {
        self.of_policy(MEMORY_FILE, &memory.policy, &kubelet.memory_policy, &memory.unknown_fields);
        if !is_static_memory(&memory.policy) {
            if !memory.containers.is_empty() || !memory.pods.is_empty() {
                self.add(MEMORY_FILE, "containers have memory without the static policy".into());
            }
            return;
        }
        if !memory.pods.is_empty() {
            self.add(MEMORY_FILE, "whole pods have memory, whose rules are not known here".into());
        }
        if let Some(node) = memory.nodes.keys().find(|id| machine.node(**id).is_none()) {
            self.add(MEMORY_FILE, format!("the machine has no NUMA node {node}"));
        }
        let has_memory =
            machine.nodes.iter().filter(|node| node.mem_total_bytes.is_some_and(|total| total > 0));
        if let Some(node) = has_memory.map(|node| node.id).find(|id| !memory.nodes.contains_key(id)) {
            self.add(MEMORY_FILE, format!("it has no account of NUMA node {node}"));
        }
        self.of_accounts(memory);
        self.of_blocks(memory);
    }

    fn of_accounts(&mut self, memory: &MemoryAssignments) {
        for (id, account) in &memory.nodes {
            let is_same_group =
                |node: NodeId| memory.nodes.get(&node).is_some_and(|other| other.cells == account.cells);
            if !account.cells.contains(*id) || !account.cells.iter().all(is_same_group) {
                self.add(MEMORY_FILE, format!("NUMA node {id} is in the group {}", account.cells));
                return;
            }
            for (resource, amounts) in &account.amounts {
                let sum = u128::from(amounts.reserved) + u128::from(amounts.free);
                let all = u128::from(amounts.allocatable) + u128::from(amounts.system_reserved);
                let is_sane = sum == u128::from(amounts.allocatable)
                    && all <= u128::from(amounts.total)
                    && i64::try_from(amounts.total).is_ok();
                if !is_sane || MemoryResource::of_name(resource).is_none() {
                    self.add(MEMORY_FILE, format!("{resource:?} of NUMA node {id} does not add up"));
                    return;
                }
            }
        }
    }

    /// The blocks of containers must be what the accounts call reserved. The split over the nodes of a group
    /// is not known, so the sums of groups are compared, and the number of blocks of each node.
    fn of_blocks(&mut self, memory: &MemoryAssignments) {
        let mut assignments = BTreeMap::<NodeId, u64>::new();
        let mut held = BTreeMap::<(&NodeSet, &str), u128>::new();
        let of_containers = memory.containers.values().flat_map(BTreeMap::values);
        for block in of_containers.chain(memory.pods.values()).flatten() {
            let MemoryBlock { kind, nodes, bytes } = block;
            let is_in_group = |node: NodeId| {
                let account = memory.nodes.get(&node);
                account.is_some_and(|of| of.cells == *nodes && of.amounts.contains_key(kind))
            };
            if nodes.is_empty() || !nodes.iter().all(is_in_group) {
                let reason = format!("{kind:?} is held on NUMA nodes {nodes}, which are no group with it");
                return self.add(MEMORY_FILE, reason);
            }
            *held.entry((nodes, kind)).or_default() += u128::from(*bytes);
            for node in nodes.iter() {
                *assignments.entry(node).or_default() += 1;
            }
        }
        for (id, account) in &memory.nodes {
            let blocks = assignments.get(id).copied().unwrap_or(0);
            if blocks != account.assignments {
                let counted = account.assignments;
                let reason = format!("NUMA node {id} counts {counted} blocks, containers have {blocks}");
                return self.add(MEMORY_FILE, reason);
            }
        }
        let mut reserved = BTreeMap::<(&NodeSet, &str), u128>::new();
        for account in memory.nodes.values() {
            for (kind, amounts) in &account.amounts {
                *reserved.entry((&account.cells, kind)).or_default() += u128::from(amounts.reserved);
            }
        }
        for ((nodes, kind), reserved) in reserved {
            let held = held.get(&(nodes, kind)).copied().unwrap_or(0);
            if held != reserved {
                let reason = format!(
                    "{reserved} bytes of {kind:?} are taken on NUMA nodes {nodes}, containers hold {held}"
                );
                return self.add(MEMORY_FILE, reason);
            }
        }
    }

    fn of_offered_memory(&mut self, memory: &MemoryAssignments, offered: &OfferedResources) {
        for block in &offered.memory {
            let allocatable: Option<u128> = block.nodes.iter().try_fold(0, |sum, node| {
                let amounts = memory.nodes.get(&node)?.amounts.get(&block.kind)?;
                Some(sum + u128::from(amounts.allocatable))
            });
            if allocatable != Some(u128::from(block.bytes)) {
                let MemoryBlock { kind, nodes, bytes } = block;
                let reason = format!("it offers {bytes} bytes of {kind:?} on NUMA nodes {nodes}");
                return self.add(SOCKET, reason);
            }
        }
    }

    fn of_devices(&mut self, devices: &DeviceAssignments, offered: &OfferedResources) {
        if let Some(field) = devices.unknown_fields.first() {
            self.add(DEVICE_FILE, format!("its field {field:?} is of an unknown version"));
        }
        let mut holders = BTreeMap::<(&str, &str), &str>::new();
        for grant in &devices.grants {
            for id in grant.devices.keys() {
                let holder = holders.entry((&grant.resource, id)).or_insert(&grant.pod);
                if **holder != grant.pod {
                    let reason = format!("device {id:?} of {:?} belongs to two pods", grant.resource);
                    return self.add(DEVICE_FILE, reason);
                }
            }
        }
        for (resource, units) in &offered.devices {
            let registered = devices.registered.get(resource);
            if !registered.is_some_and(|ids| ids.iter().eq(units.keys())) {
                let reason = format!("its devices of {resource:?} are not those that the socket offers");
                return self.add(DEVICE_FILE, reason);
            }
        }
    }

    /// What the socket says of containers must be in the files too. The reverse does not hold: the list has
    /// no plain init containers, and no pods that have ended.
    fn of_list(&mut self, observation: &NodeObservation) {
        let Some(listed) = observation.listed.content() else { return };
        let (cpus, memory) = (observation.cpus.content(), observation.memory.content());
        let devices = observation.devices.content();
        let by_cpus: BTreeMap<(&str, &CpuSet), &str> = cpus.map(by_cpus).unwrap_or_default();
        let blocks: BTreeSet<(&str, Vec<BlockKey<'_>>)> = memory.map(blocks).unwrap_or_default();
        let held: BTreeSet<(&str, &str, &str)> = devices.map(held_devices).unwrap_or_default();
        for pod in listed {
            for container in &pod.containers {
                let ListedContainerResources { name, cpus: own, memory: own_memory, devices: own_devices } =
                    container;
                let of = || format!("container {name:?} of {}/{}", pod.namespace, pod.name);
                let has_pods = cpus.is_some_and(|cpus| !cpus.pods.is_empty());
                if let Some(cpus) = cpus.filter(|_| !own.is_empty() && !has_pods) {
                    let Some(uid) = by_cpus.get(&(name.as_str(), own)) else {
                        return self.add(SOCKET, format!("CPUs {own} of {} are not in the file", of()));
                    };
                    let has_none = |memory: &MemoryAssignments| {
                        let of_pod = memory.containers.get(*uid).and_then(|of| of.get(name));
                        is_static_memory(&memory.policy) && of_pod.is_none_or(Vec::is_empty)
                    };
                    // Pods with exclusive CPUs are Guaranteed, so they ask for memory too.
                    if cpus.policy == "static" && memory.is_some_and(has_none) {
                        return self.add(MEMORY_FILE, format!("{} has CPUs and no memory yet", of()));
                    }
                }
                if memory.is_some() && !own_memory.is_empty() && !blocks.contains(&(name, keys(own_memory))) {
                    return self.add(SOCKET, format!("the memory of {} is not in the file", of()));
                }
                let mut ids =
                    own_devices.iter().flat_map(|(resource, ids)| ids.keys().map(move |id| (resource, id)));
                if devices.is_some() && !ids.all(|(resource, id)| held.contains(&(name, resource, id))) {
                    return self.add(SOCKET, format!("devices of {} are not in the file", of()));
                }
            }
        }
    }
}

/// Uid of the pod by container and its exclusive CPUs.
pub(super) fn by_cpus(cpus: &CpuAssignments) -> BTreeMap<(&str, &CpuSet), &str> {
    let all = cpus.containers.iter().flat_map(|(pod, of)| of.iter().map(move |one| (pod, one)));
    all.filter(|(_, (_, cpus))| !cpus.is_empty())
        .map(|(pod, (container, cpus))| ((container.as_str(), cpus), pod.as_str()))
        .collect()
}

type BlockKey<'a> = (&'a str, &'a NodeSet, u64);

fn keys(blocks: &[MemoryBlock]) -> Vec<BlockKey<'_>> {
    let mut keys: Vec<_> = blocks.iter().map(|one| (one.kind.as_str(), &one.nodes, one.bytes)).collect();
    keys.sort();
    keys
}

fn blocks(memory: &MemoryAssignments) -> BTreeSet<(&str, Vec<BlockKey<'_>>)> {
    let all = memory.containers.values().flatten();
    all.map(|(container, blocks)| (container.as_str(), keys(blocks))).collect()
}

fn held_devices(devices: &DeviceAssignments) -> BTreeSet<(&str, &str, &str)> {
    let grants = devices.grants.iter();
    grants
        .flat_map(|grant| {
            grant
                .devices
                .keys()
                .map(move |id| (grant.container.as_str(), grant.resource.as_str(), id.as_str()))
        })
        .collect()
}
