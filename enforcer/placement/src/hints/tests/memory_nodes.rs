//! Memory nodes follow CPUs: on machines with nodes without memory, memory-only nodes and GPUs.

use proptest::prelude::*;

use super::{
    always::{any_step, run, settings},
    *,
};
use crate::settings::MemoryManagerPolicy;
use numa_topology::id::NodeId;

/// What is wrong with the memory nodes of a container; `None` if they are right.
pub(super) fn fault(host: &Host, grant: &crate::Grant) -> Option<String> {
    let machine = &host.inventory.machine;
    let ordinary = machine.ordinary_memory_nodes();
    let taken = host.allocations.exclusive_cpus();
    let mems = grant.mems(&taken);
    if mems.is_empty() || !mems.is_subset(&ordinary) {
        return Some(format!("mems {mems}, ordinary memory is on {ordinary}"));
    }
    let near = machine.nodes_of(&grant.cpus(&taken)).intersection(&ordinary);
    let is_far = grant.pin_mems && !near.is_subset(&mems);
    is_far.then(|| format!("mems {mems}, its CPUs are beside {near}: {}", grant.reason))
}

/// The same machine with other sizes of these nodes, in GiB.
fn sized(mut machine: Topology, sizes: &[(u32, u64)]) -> Topology {
    for node in &mut machine.nodes {
        let size = sizes.iter().find(|(id, _)| node.id.0 == *id);
        if let Some((_, gib)) = size {
            node.mem_total_bytes = Some(gib * GIB);
            node.kind = if *gib == 0 { MemoryKind::None } else { MemoryKind::Dram };
        }
    }
    machine
}

fn guaranteed(host: &mut Host, name: &str, cpus: u64, gib: u64) -> Result<(String, String), String> {
    let outcome = host.admit(&pod(name, vec![container("c", cpus * 1000, gib * GIB)]));
    outcome.map_err(|rejection| rejection.to_string())?;
    Ok((
        host.inventory.machine.nodes_of(&host.grant(name, "c").exclusive).to_string(),
        host.place(name, "c").1,
    ))
}

#[test]
fn a_wide_set_that_has_everything_is_taken_before_what_is_only_common() {
    let machine = Machine::new().sockets(2).nodes_per_socket(2).cores(6).memory_gib(64).build();
    let mut host = Host::new(machine, HintsSettings::default());
    let places: Vec<_> =
        ["a", "b", "c"].map(|name| guaranteed(&mut host, name, 14, 8).unwrap()).into_iter().collect();
    for (cpus, mems) in &places {
        assert_eq!(cpus, mems, "{places:?}");
    }
    assert_eq!((places[0].0.as_str(), places[1].0.as_str()), ("0-1", "2-3"));
}

#[test]
fn memory_only_nodes_belong_to_the_nearest_cpu_node() {
    let beside =
        |kind| Machine::new().sockets(2).cores(4).memory_only(NodeId(2), 96, kind, NodeId(1)).build();
    for (kind, policy_of, gib, expected) in [
        // DRAM first: that of another node before nearer slow memory.
        (MemoryKind::Cxl, TopologyPolicy::BestEffort, 12, Some("0")),
        (MemoryKind::Cxl, TopologyPolicy::SingleNumaNode, 40, Some("1-2")),
        (MemoryKind::Cxl, TopologyPolicy::Restricted, 40, Some("1-2")),
        (MemoryKind::Pmem, TopologyPolicy::BestEffort, 120, Some("0-2")),
        (MemoryKind::Cxl, TopologyPolicy::SingleNumaNode, 120, None),
        (MemoryKind::Cxl, TopologyPolicy::BestEffort, 129, None),
        // GPU memory is never used.
        (MemoryKind::Gpu, TopologyPolicy::SingleNumaNode, 40, None),
        (MemoryKind::Gpu, TopologyPolicy::BestEffort, 40, None),
        (MemoryKind::Gpu, TopologyPolicy::None, 40, None),
        (MemoryKind::Cxl, TopologyPolicy::None, 40, Some("0-2")),
    ] {
        let mut host = Host::new(beside(kind), policy(policy_of));
        let found = guaranteed(&mut host, "p", 2, gib);
        let mems = found.as_ref().ok().map(|(_, mems)| mems.as_str());
        assert_eq!(mems, expected, "{kind:?} {policy_of:?} {gib}: {found:?}");
        if let (Err(text), MemoryKind::Gpu) = (&found, kind) {
            assert!(text.contains("node 2 left out: memory of a GPU"), "{text}");
        }
    }
}

#[test]
fn movable_memory_alone_gets_a_node_for_the_kernel() {
    let mut machine =
        Machine::new().cores(8).memory_gib(8).memory_only(NodeId(1), 64, MemoryKind::Cxl, NodeId(0)).build();
    machine.nodes[0].mem_total_bytes = Some(0);
    machine.nodes[0].kind = MemoryKind::None;
    machine.nodes.push(numa_topology::Node { id: NodeId(2), ..machine.nodes[1].clone() });
    machine.nodes[1].kind = MemoryKind::Hbm;
    machine.distances = [[10, 17, 28], [17, 10, 28], [28, 28, 10]]
        .iter()
        .map(|row| row.iter().copied().map(Some).collect())
        .collect();
    // The last case has no such node.
    for (movable, mems) in [(&[][..], "1"), (&[1], "1-2"), (&[1, 2], "1")] {
        let mut machine = machine.clone();
        for node in machine.nodes.iter_mut().filter(|node| movable.contains(&node.id.0)) {
            node.normal_memory = Some(false);
        }
        let mut host = Host::new(machine, HintsSettings::default());
        let outcome = host.admit(&pod("p", vec![container("c", 2000, 4 * GIB)]));
        assert!(outcome.is_ok(), "{movable:?}: {outcome:?}");
        assert_eq!(host.place("p", "c").1, mems, "{movable:?}");
        let claimed: Vec<_> =
            host.grant("p", "c").memory.iter().map(|claim| claim.zone.to_string()).collect();
        assert_eq!(claimed, ["1"], "{movable:?}");
    }
}

#[test]
fn a_full_node_takes_memory_from_where_there_is_some() {
    // One CPU node of 12 GiB; the rest of the memory is on memory-only nodes.
    let machine = Machine::new()
        .cores(8)
        .memory_gib(12)
        .memory_only(NodeId(1), 64, MemoryKind::Unknown, NodeId(0))
        .build();
    let mut host = Host::new(machine.clone(), HintsSettings::default());
    assert_eq!(guaranteed(&mut host, "a", 2, 12), Ok(("0".into(), "0".into())));
    assert_eq!(guaranteed(&mut host, "b", 2, 40), Ok(("0".into(), "0-1".into())));
    assert!(guaranteed(&mut host, "c", 2, 30).is_err());
    let mut host = Host::new(sized(machine, &[(0, 0)]), single());
    assert_eq!(guaranteed(&mut host, "a", 2, 40), Ok(("0".into(), "1".into())));
}

#[test]
fn a_node_without_memory_is_no_memory_node() {
    let machine = sized(Machine::new().sockets(4).cores(4).build(), &[(0, 0), (3, 0)]);
    for limits in [true, false] {
        let mut host = Host::new(machine.clone(), HintsSettings::default());
        for number in 0..8 {
            let request = container("c", 6000, GIB);
            let request = if limits { request } else { request.without_limits() };
            let name = format!("p{number}");
            if host.admit(&pod(&name, vec![request])).is_ok() {
                assert_eq!(fault(&host, host.grant(&name, "c")), None);
            }
        }
    }
}

#[test]
fn memory_is_where_the_cpus_are_when_they_are_aligned_by_socket() {
    // Packages {0,2} and {1,3}.
    let mut machine = Machine::new().sockets(2).nodes_per_socket(2).cores(2).threads(1).build();
    let (one, two) = (machine.nodes[1].cpus.clone(), machine.nodes[2].cpus.clone());
    machine.nodes[1].cpus = two.clone();
    machine.nodes[2].cpus = one.clone();
    for cpu in &mut machine.cpus {
        if one.contains(cpu.id) {
            cpu.node = Some(NodeId(2));
        } else if two.contains(cpu.id) {
            cpu.node = Some(NodeId(1));
        }
    }
    for filled in [0, 1] {
        let hints = HintsSettings { align_by_socket: true, ..policy(TopologyPolicy::Restricted) };
        let mut host = Host::new(machine.clone(), hints);
        for number in 0..filled {
            guaranteed(&mut host, &format!("f{number}"), 1, 1).unwrap();
        }
        let (cpus, mems) = guaranteed(&mut host, "p", 2, 20).unwrap();
        let (cpus, mems): (NodeSet, NodeSet) = (cpus.parse().unwrap(), mems.parse().unwrap());
        assert!(cpus.is_subset(&mems), "{cpus} {mems}");
        assert_eq!(host.grant("p", "c").hint.as_ref().unwrap().nodes, Some(mems));
    }
}

#[test]
fn memory_can_be_left_out_of_the_choice_of_nodes() {
    let machine = || Machine::new().sockets(2).cores(8).memory_gib(64).build();
    let hints = policy(TopologyPolicy::Restricted);
    assert!(guaranteed(&mut Host::new(machine(), hints.clone()), "p", 17, 1).is_err());
    let hints = HintsSettings { memory_manager_policy: MemoryManagerPolicy::None, ..hints };
    let mut host = Host::new(machine(), hints);
    assert_eq!(guaranteed(&mut host, "p", 17, 1), Ok(("0-1".into(), "0-1".into())));
}

/// Sockets, nodes per socket, GiB of each CPU node, memory-only nodes as (GiB, kind, beside).
fn any_machine() -> impl Strategy<Value = Topology> {
    let kinds = prop_oneof![
        Just(MemoryKind::Cxl),
        Just(MemoryKind::Pmem),
        Just(MemoryKind::Hbm),
        Just(MemoryKind::Gpu),
        Just(MemoryKind::Unknown),
    ];
    let others = prop::collection::vec((1..48u64, kinds, 0..6u32), 0..3);
    let sizes = prop::collection::vec(prop_oneof![1 => Just(0u64), 3 => 1..32u64], 6);
    (1..4u32, 1..3u32, 1..4u32, sizes, others).prop_map(|(sockets, nodes, cores, sizes, others)| {
        let count = sockets * nodes;
        let mut machine = Machine::new().sockets(sockets).nodes_per_socket(nodes).cores(cores * nodes);
        for (number, (gib, kind, beside)) in (0..).zip(others) {
            machine = machine.memory_only(NodeId(count + number), gib, kind, NodeId(beside % count));
        }
        let sizes: Vec<_> = (0..count).zip(sizes).collect();
        let machine = sized(machine.build(), &sizes);
        if machine.ordinary_memory_nodes().is_empty() { sized(machine, &[(0, 8)]) } else { machine }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    /// Every policy and scope, every `QoS` class, pods that are added, removed and changed.
    #[test]
    fn memory_nodes_include_those_of_the_cpus(
        machine in any_machine(),
        choice in 0..96u8,
        loose: bool,
        steps in prop::collection::vec(any_step(), 40),
    ) {
        let hints = HintsSettings {
            memory_manager_policy: if loose { MemoryManagerPolicy::None } else { MemoryManagerPolicy::Static },
            ..settings(choice)
        };
        let nodes = machine.cpu_nodes().len();
        let gpus = devices("v.com/gpu", &["0", "0", if nodes > 1 { "1" } else { "0" }, ""]);
        let settings = PlacementSettings { hints, ..PlacementSettings::default() };
        // The check after each step finds errors.
        run(&mut Host::with(machine, gpus, settings), &steps);
    }

    #[test]
    fn best_effort_admits_whatever_there_is_enough_of(
        machine in any_machine(),
        pods in prop::collection::vec((1..6u64, 1..30u64), 1..8),
    ) {
        let mut host = Host::new(machine, HintsSettings::default());
        let everywhere = host.inventory.machine.ordinary_memory_nodes();
        for (number, (cpus, gib)) in pods.into_iter().enumerate() {
            let account = ZoneAccount::new(&host.inventory, &host.allocations, |_| false);
            let taken = host.allocations.exclusive_cpus();
            let left = host.inventory.allowed_cpus.difference(&taken).len() as u64;
            let is_enough = cpus <= left && account.fits(&everywhere, MemoryResource::Memory, gib * GIB);
            let outcome = guaranteed(&mut host, &format!("p{number}"), cpus, gib);
            prop_assert_eq!(outcome.is_ok(), is_enough, "{:?}", outcome);
        }
    }
}
