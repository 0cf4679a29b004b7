use numa_placement::settings::PlacementSettings;
use numa_topology::synth::Machine;
use proptest::prelude::*;

use super::*;

fn supply(line: &str, settings: &str, options: &BudgetOptions, kubelet: &str) -> ClaimSupply {
    let machine = line.parse::<Machine>().unwrap().build();
    let settings: PlacementSettings = toml::from_str(settings).unwrap();
    let inventory = Inventory::new(machine, Vec::new(), &settings).unwrap();
    ClaimSupply::new(&inventory, options, &kubelet.parse().unwrap())
}

fn cpus(supply: &ClaimSupply) -> Vec<(u64, u64)> {
    supply.nodes().iter().map(|node| (node.capacity.cpus, node.capacity.milli_cpus)).collect()
}

#[test]
fn cpus_are_parted_by_number() {
    let default = BudgetOptions::default();
    let line = "sockets:2 cores:8 threads:2";
    assert_eq!(cpus(&supply(line, "", &default, "")), [(12, 4_000), (12, 4_000)]);
    // CPU 0 and its sibling are reserved: 14 are left of node 0.
    assert_eq!(cpus(&supply(line, "reserved.cpus = '2'", &default, ""))[0], (10, 4_000));
    let per_node = BudgetOptions {
        exclusive_cpus: [(NodeId(0), 3), (NodeId(1), 99)].into(),
        full_cores: true,
        ..BudgetOptions::default()
    };
    assert_eq!(cpus(&supply(line, "", &per_node, "")), [(2, 14_000), (14, 2_000)]);
    let overlap = BudgetOptions { overlap: true, ..BudgetOptions::default() };
    assert_eq!(cpus(&supply(line, "", &overlap, ""))[0], (14, 16_000));
}

#[test]
fn cpus_of_the_kubelet_shrink_the_pool_and_then_the_budget() {
    let default = BudgetOptions::default();
    let few = supply("sockets:2 cores:8 threads:2", "", &default, "0-1");
    assert_eq!(cpus(&few)[0], (12, 2_000));
    let many = supply("sockets:2 cores:8 threads:2", "", &default, "0-3,16-18");
    assert_eq!(cpus(&many)[0], (7, 2_000));
    assert!(many.exclusive_pool().is_disjoint(&"0-3,16-18".parse().unwrap()));
    let all = supply("sockets:2 cores:8 threads:2", "", &default, "0-7,16-23");
    assert_eq!(cpus(&all)[0], (0, 0));
}

#[test]
fn dedicated_cpus_are_all_that_is_exclusive() {
    let options =
        BudgetOptions { dedicated_cpus: Some("2-3,18-19".parse().unwrap()), ..BudgetOptions::default() };
    let supply = supply("sockets:2 cores:8 threads:2", "", &options, "");
    assert_eq!(cpus(&supply), [(4, 12_000), (0, 16_000)]);
    assert_eq!(supply.exclusive_pool().to_string(), "2-3,18-19");
}

#[test]
fn memory_is_without_huge_pages_and_reserve() {
    let machine = Machine::new().memory_gib(16).hugepages(2 << 20, 512).build();
    let settings: PlacementSettings = toml::from_str("reserved.memory.0.memory = '1GiB'").unwrap();
    let inventory = Inventory::new(machine, Vec::new(), &settings).unwrap();
    let options = BudgetOptions { reserve_memory_bytes: 2 << 30, ..BudgetOptions::default() };
    let supply = ClaimSupply::new(&inventory, &options, &CpuSet::new());
    let capacity = &supply.node(NodeId(0)).unwrap().capacity;
    assert_eq!(capacity.memory_bytes, 12 << 30);
    assert_eq!(capacity.hugepages, [(2 << 20, 1 << 30)].into());
}

#[test]
fn gpu_memory_is_no_supply_and_movable_memory_needs_a_node_for_the_kernel() {
    let mut machine = Machine::new()
        .sockets(2)
        .memory_only(NodeId(2), 64, MemoryKind::Gpu, NodeId(0))
        .memory_only(NodeId(3), 64, MemoryKind::Cxl, NodeId(1))
        .build();
    machine.nodes[3].normal_memory = Some(false);
    let inventory = Inventory::new(machine, Vec::new(), &PlacementSettings::default()).unwrap();
    let supply = ClaimSupply::new(&inventory, &BudgetOptions::default(), &CpuSet::new());
    let ids: Vec<u32> = supply.nodes().iter().map(|node| node.node.0).collect();
    assert_eq!(ids, [0, 1, 3]);
    let mems = |nodes: &str| supply.strict_mems(&nodes.parse().unwrap()).to_string();
    assert_eq!((mems("0"), mems("3"), mems("0,3")), ("0".into(), "1,3".into(), "0,3".into()));
    assert_eq!(supply.node(NodeId(3)).unwrap().near_cpu_nodes.to_string(), "1");
}

proptest! {
    #[test]
    fn a_core_of_each_node_is_never_exclusive(
        sockets in 1u32..4, cores in 1u32..6, threads in 1u32..3, percent in 0u8..=255,
        overlap: bool, full_cores: bool, kubelet in prop::collection::vec(0u32..24, 0..12),
    ) {
        let machine = Machine::new().sockets(sockets).cores(cores).threads(threads).build();
        let inventory = Inventory::new(machine, Vec::new(), &PlacementSettings::default()).unwrap();
        let options =
            BudgetOptions { exclusive_percent: percent, overlap, full_cores, ..BudgetOptions::default() };
        let kubelet = kubelet.into_iter().map(numa_topology::id::CpuId).collect();
        for node in ClaimSupply::new(&inventory, &options, &kubelet).nodes() {
            let exclusive = usize::try_from(node.capacity.cpus).unwrap();
            prop_assert!(exclusive <= node.exclusive_pool.len());
            prop_assert!(exclusive + threads as usize <= node.cpus.len() || exclusive == 0);
            prop_assert!(overlap || node.capacity.milli_cpus == (node.cpus.len() - exclusive) as u64 * 1000);
        }
    }
}
