//! The profile `kubelet`: differences from the other profile, checked against the kubelet's behaviour.

mod cpus;
mod init_memory;

use super::*;
use crate::{
    Grant, Trace, admit_traced,
    settings::{KubeletDeviceHints, MemoryManagerPolicy, Profile},
};
use numa_topology::id::NodeId;

fn kubelet(policy_of: TopologyPolicy) -> HintsSettings {
    HintsSettings { profile: Profile::Kubelet, ..policy(policy_of) }
}

fn admitted(host: &mut Host, name: &str, cpus: u64, gib: u64) -> Grant {
    let outcome = host.admit(&pod(name, vec![container("c", cpus * 1000, gib * GIB)]));
    outcome.unwrap_or_else(|rejection| panic!("{name}: {rejection}"));
    host.grant(name, "c").clone()
}

fn nodes_of(host: &Host, grant: &Grant) -> String {
    host.inventory.machine.nodes_of(&grant.exclusive).to_string()
}

#[test]
fn the_kubelet_takes_what_is_common() {
    let machine = || Machine::new().sockets(2).nodes_per_socket(2).cores(6).memory_gib(64).build();
    let mut host = Host::new(machine(), kubelet(TopologyPolicy::BestEffort));
    let places: Vec<(String, String)> = ["a", "b", "c"]
        .map(|name| {
            let grant = admitted(&mut host, name, 14, 8);
            (nodes_of(&host, &grant), grant.mems.to_string())
        })
        .into();
    let apart = places.iter().filter(|(cpus, mems)| cpus != mems).count();
    assert!(apart > 0, "{places:?}");
    assert!(kubelet(TopologyPolicy::BestEffort).prefer_closest_numa_nodes.is_none());
    assert!(!kubelet(TopologyPolicy::BestEffort).prefer_closest());
}

#[test]
fn the_kubelet_counts_every_node() {
    // 40 GiB are on the GPU's node, which has no CPU; the common node of the CPUs is widened by it.
    let machine = Machine::new().cores(4).memory_only(NodeId(1), 96, MemoryKind::Gpu, NodeId(0)).build();
    let mut host = Host::new(machine, kubelet(TopologyPolicy::BestEffort));
    let grant = admitted(&mut host, "p", 2, 40);
    assert_eq!((nodes_of(&host, &grant), grant.mems.to_string()), ("0".into(), "0-1".into()));
    // Four nodes, two of them without CPUs, which CPU hints never name.
    let machine = Machine::new()
        .sockets(2)
        .memory_only(NodeId(2), 16, MemoryKind::Cxl, NodeId(0))
        .memory_only(NodeId(3), 16, MemoryKind::Cxl, NodeId(1))
        .build();
    let mut host = Host::new(machine, kubelet(TopologyPolicy::SingleNumaNode));
    assert!(host.admit(&pod("p", vec![container("c", 2000, 20 * GIB)])).is_err());
    assert_eq!(admitted(&mut host, "q", 2, 16).mems.to_string(), "0");
}

#[test]
fn the_kubelet_sets_memory_nodes_of_guaranteed_containers_only() {
    let mut host = Host::new(two_nodes(), kubelet(TopologyPolicy::BestEffort));
    assert!(admitted(&mut host, "g", 2, 4).pin_mems);
    host.admit(&pod("b", vec![container("c", 500, GIB).without_limits()])).unwrap();
    let burstable = host.grant("b", "c");
    assert!(!burstable.pin_mems && burstable.memory.is_empty(), "{burstable:?}");
    assert_eq!(burstable.shared.as_ref().unwrap().scope, host.inventory.allowed_cpus);
    let none = MemoryManagerPolicy::None;
    let hints = HintsSettings { memory_manager_policy: none, ..kubelet(TopologyPolicy::Restricted) };
    let mut host = Host::new(two_nodes(), hints);
    let grant = admitted(&mut host, "p", 10, 1);
    assert!(!grant.pin_mems && grant.memory.is_empty(), "{grant:?}");
    assert!(grant.hint.unwrap().preferred, "memory has no part in it");
}

#[test]
fn the_kubelet_never_mixes_groups_of_memory_nodes() {
    let admits = |hints: HintsSettings| {
        let mut host = Host::new(two_nodes(), hints);
        admitted(&mut host, "wide", 10, 20);
        host.admit(&pod("p", vec![container("c", 2000, 2 * GIB)])).map(|_| host.place("p", "c").1)
    };
    assert_eq!(admits(policy(TopologyPolicy::BestEffort)).unwrap(), "1");
    assert_eq!(admits(kubelet(TopologyPolicy::BestEffort)).unwrap(), "0-1");
}

#[test]
fn too_little_memory_is_no_preference_for_the_kubelet() {
    for (hints, reason) in [
        (policy(TopologyPolicy::Restricted), RejectionReason::TopologyAffinityError),
        (kubelet(TopologyPolicy::Restricted), RejectionReason::UnexpectedAdmissionError),
    ] {
        let mut host = Host::new(two_nodes(), hints);
        let rejection = host.admit(&pod("p", vec![container("c", 2000, 33 * GIB)])).unwrap_err();
        assert_eq!(rejection.reason, reason, "{rejection}");
    }
}

#[test]
fn device_hints_of_the_kubelet_differ_by_version() {
    // A device needs one node and the CPUs two, so no set is preferred.
    let of = |kubelet_device_hints| {
        let machine = Machine::new().sockets(4).cores(2).threads(1).build();
        let hints = HintsSettings { kubelet_device_hints, ..kubelet(TopologyPolicy::BestEffort) };
        let settings = PlacementSettings { hints, ..PlacementSettings::default() };
        let mut host = Host::with(machine, devices("v.com/gpu", &["0", "0"]), settings);
        let request = container("c", 4000, GIB).device("v.com/gpu", 1);
        host.admit(&pod("p", vec![request])).unwrap();
        let hint = host.grant("p", "c").hint.clone().unwrap();
        (hint.nodes.unwrap().to_string(), hint.preferred)
    };
    assert_eq!(of(KubeletDeviceHints::DeviceNodes), ("0".to_owned(), false));
    assert_eq!(of(KubeletDeviceHints::AllNodes), ("0-1".to_owned(), false));
}

#[test]
fn the_kubelet_counts_reserved_cpus_of_an_empty_machine() {
    // Seven of the eight CPUs of each node are free: an empty node would have had eight.
    let admits = |hints| {
        let mut host = Host::with(two_nodes(), Vec::new(), reserved("0,4", hints));
        host.admit(&pod("p", vec![container("c", 8000, GIB)])).is_ok()
    };
    assert!(!admits(kubelet(TopologyPolicy::Restricted)));
}

#[test]
fn the_kubelet_forgets_cpus_of_init_containers_for_whole_cores() {
    let outcome = |hints: HintsSettings| {
        let hints = HintsSettings { full_pcpus_only: true, ..hints };
        let mut host = Host::new(Machine::new().cores(2).build(), hints);
        let init = container("i", 4000, GIB).kind(ContainerKind::Init);
        host.admit(&pod("p", vec![init, container("c", 4000, GIB)])).map_err(|rejection| rejection.reason)
    };
    assert!(outcome(policy(TopologyPolicy::BestEffort)).is_ok());
    assert_eq!(outcome(kubelet(TopologyPolicy::BestEffort)), Err(RejectionReason::SmtAlignmentError));
}

#[test]
fn no_annotation_changes_what_a_kubelet_does() {
    let mut host = Host::new(two_nodes(), kubelet(TopologyPolicy::SingleNumaNode));
    let mut request = pod("p", vec![container("c", 10_000, GIB)]);
    request.annotations.insert("policy.numa-enforcer.io".into(), "best-effort".into());
    let mut trace = Trace::default();
    let Host { inventory, settings, allocations } = &mut host;
    let outcome = admit_traced(inventory, settings, allocations, &request, &mut trace);
    assert!(outcome.is_err());
    assert_eq!(trace.into_parts().1, ["annotation policy.numa-enforcer.io: the profile is kubelet, ignored"]);
}
