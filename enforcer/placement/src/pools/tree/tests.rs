//! Trees of real machine shapes.

use proptest::prelude::*;

use super::*;
use crate::settings::{AvailableResources, CpuAmount, CpuChoice, PlacementSettings, ReservedResources};
use numa_topology::{Llc, MemoryKind, Package, Topology, synth::Machine};

fn inventory(machine: Topology, available: Option<&str>, reserved: Option<&str>) -> Inventory {
    let cpus = |list: Option<&str>| list.map(|list| CpuChoice::Only(list.parse().unwrap()));
    let settings = PlacementSettings {
        available: cpus(available).map(|cpus| AvailableResources { cpus: Some(cpus) }),
        reserved: ReservedResources {
            cpus: cpus(reserved).map(CpuAmount::Named),
            ..ReservedResources::default()
        },
        ..PlacementSettings::default()
    };
    Inventory::new(machine, Vec::new(), &settings).unwrap()
}

fn tree(machine: Topology) -> PoolTree {
    PoolTree::new(&inventory(machine, None, None))
}

/// Id, name, number of CPUs, memory by kind.
fn summary(tree: &PoolTree) -> Vec<String> {
    let line = |pool: &Pool| {
        let MemoryNodes { dram, pmem, hbm } = &pool.memory;
        let kinds = [("pmem", pmem), ("hbm", hbm)];
        let more = kinds.iter().filter(|(_, nodes)| !nodes.is_empty());
        let more: Vec<String> = more.map(|(kind, nodes)| format!(" {kind} {nodes}")).collect();
        let more = more.concat();
        format!("{} {}: {} CPUs, dram {dram}{more}", pool.id, pool.name, pool.cpus.len())
    };
    tree.pools().iter().map(line).collect()
}

/// Two sockets of two nodes each, numbered across the sockets, with PMEM beside nodes 0 and 2.
pub(crate) fn server() -> Topology {
    Machine::new()
        .sockets(2)
        .nodes_per_socket(2)
        .cores(14)
        .node_ids(&[0, 2, 1, 3])
        .memory_gib(31)
        .isolated("4-7,60-63")
        .memory_only(NodeId(4), 124, MemoryKind::Pmem, NodeId(0))
        .memory_only(NodeId(5), 124, MemoryKind::Pmem, NodeId(2))
        .build()
}

#[test]
fn one_socket_with_one_node_is_one_pool() {
    let tree = tree(Machine::new().cores(10).build());
    assert_eq!(summary(&tree), ["0 socket #0: 20 CPUs, dram 0"]);
    let root = tree.root();
    for level in [PoolLevel::System, PoolLevel::Package, PoolLevel::Die, PoolLevel::Numa] {
        assert!(root.is_of(level), "{level:?}");
    }
}

#[test]
fn two_sockets_of_two_nodes_are_seven_pools_in_post_order() {
    let tree = tree(server());
    assert_eq!(
        summary(&tree),
        [
            "0 NUMA node #0: 28 CPUs, dram 0 pmem 4",
            "1 NUMA node #2: 28 CPUs, dram 2 pmem 5",
            "2 socket #0: 56 CPUs, dram 0,2 pmem 4-5",
            "3 NUMA node #1: 28 CPUs, dram 1",
            "4 NUMA node #3: 28 CPUs, dram 3",
            "5 socket #1: 56 CPUs, dram 1,3",
            "6 root: 112 CPUs, dram 0-3 pmem 4-5",
        ]
    );
    let shape = |pool: &Pool| (pool.depth, pool.parent, pool.children.clone());
    assert_eq!(shape(tree.pool(1)), (2, Some(2), vec![]));
    assert_eq!(shape(tree.pool(5)), (1, Some(6), vec![3, 4]));
    assert_eq!(shape(tree.root()), (0, None, vec![2, 5]));
    assert_eq!(tree.subtree(5), 3..=5);
    assert_eq!(tree.ancestors(3).collect::<Vec<_>>(), [5, 6]);
}

#[test]
fn four_sockets_of_one_node_are_five_pools() {
    let tree = tree(Machine::new().sockets(4).cores(18).build());
    assert_eq!(tree.pools().len(), 5);
    assert!(tree.pools()[..4].iter().all(|pool| pool.cpus.len() == 36 && pool.is_of(PoolLevel::Numa)));
    assert_eq!(tree.pool(3).name, "socket #3");
    assert_eq!(tree.root().name, "root");
}

#[test]
fn a_tie_between_hosts_goes_to_the_one_with_fewer_and_then_to_the_lower_id() {
    let machine = Machine::new()
        .sockets(2)
        .memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(0))
        .memory_only(NodeId(3), 64, MemoryKind::Cxl, NodeId(0))
        .memory_only(NodeId(4), 64, MemoryKind::Cxl, NodeId(0))
        .memory_only(NodeId(5), 8, MemoryKind::Hbm, NodeId(0));
    let far = (0..2).flat_map(|host| (2..6).map(move |node| (host, node)));
    let machine = far.fold(machine, |machine, (host, node)| machine.distance(host, node, 40)).build();
    let tree = tree(machine);
    let lines = summary(&tree);
    assert_eq!(lines[0], "0 socket #0: 8 CPUs, dram 0 pmem 2,4 hbm 5");
    assert_eq!(lines[1], "1 socket #1: 8 CPUs, dram 1 pmem 3");
    assert_eq!(tree.local_memory(&"1".parse().unwrap()).to_string(), "1,3");
}

#[test]
fn the_distance_that_counts_is_that_from_cpu_to_memory() {
    let machine = Machine::new()
        .sockets(2)
        .memory_only(NodeId(2), 64, MemoryKind::Pmem, NodeId(0))
        .distance(0, 2, 30)
        .distance(1, 2, 20)
        .distance(2, 0, 20)
        .distance(2, 1, 30)
        .build();
    assert_eq!(summary(&tree(machine))[1], "1 socket #1: 8 CPUs, dram 1 pmem 2");
}

#[test]
fn gpu_memory_is_in_no_pool_and_unknown_memory_is_slow() {
    let machine = Machine::new()
        .memory_only(NodeId(1), 64, MemoryKind::Gpu, NodeId(0))
        .memory_only(NodeId(2), 64, MemoryKind::Unknown, NodeId(0))
        .build();
    assert_eq!(summary(&tree(machine)), ["0 socket #0: 8 CPUs, dram 0 pmem 2"]);
}

#[test]
fn a_node_without_memory_leaves_its_cpus_in_the_socket() {
    let mut machine = Machine::new().nodes_per_socket(2).build();
    machine.nodes[1].mem_total_bytes = Some(0);
    machine.nodes[1].kind = MemoryKind::None;
    let tree = tree(machine);
    assert_eq!(summary(&tree), ["0 NUMA node #0: 8 CPUs, dram 0", "1 socket #0: 16 CPUs, dram 0"]);
}

/// Sets the die of each CPU by its number.
fn with_dies(mut machine: Topology, die: impl Fn(u32) -> i32) -> Topology {
    for cpu in &mut machine.cpus {
        cpu.die = Some(die(cpu.id.0));
    }
    machine
}

#[test]
fn dies_are_pools_where_they_say_something() {
    let one_thread = |nodes| Machine::new().threads(1).nodes_per_socket(nodes);
    // CPUs 0-7; two dies in a socket of one node.
    let below_the_node = with_dies(one_thread(1).cores(8).build(), |cpu| i32::from(cpu >= 4));
    assert_eq!(
        summary(&tree(below_the_node)),
        ["0 die #0/0: 4 CPUs, dram 0", "1 die #0/1: 4 CPUs, dram 0", "2 socket #0: 8 CPUs, dram 0"]
    );
    // Each die is a node.
    let same_as_nodes = with_dies(one_thread(2).cores(4).build(), |cpu| i32::from(cpu >= 4));
    let tree_of_same = tree(same_as_nodes);
    assert_eq!(
        summary(&tree_of_same),
        ["0 NUMA node #0: 4 CPUs, dram 0", "1 NUMA node #1: 4 CPUs, dram 1", "2 socket #0: 8 CPUs, dram 0-1"]
    );
    assert!(tree_of_same.pool(0).is_of(PoolLevel::Die));
    // Two nodes in each of two dies.
    let above_nodes = with_dies(one_thread(4).cores(2).build(), |cpu| i32::from(cpu >= 4));
    let names: Vec<_> = tree(above_nodes).pools().iter().map(|pool| pool.name.clone()).collect();
    assert_eq!(
        names,
        ["NUMA node #0", "NUMA node #1", "die #0/0", "NUMA node #2", "NUMA node #3", "die #0/1", "socket #0"]
    );
    // Two dies in each of two nodes.
    let below_nodes = with_dies(one_thread(2).cores(4).build(), |cpu| i32::try_from(cpu / 2).unwrap());
    let names: Vec<_> = tree(below_nodes).pools().iter().map(|pool| pool.name.clone()).collect();
    assert_eq!(
        names,
        ["die #0/0", "die #0/1", "NUMA node #0", "die #0/2", "die #0/3", "NUMA node #1", "socket #0"]
    );
    // Neither contains the other.
    let across = with_dies(one_thread(2).cores(3).build(), |cpu| i32::try_from(cpu % 2).unwrap());
    assert_eq!(tree(across).pools().len(), 3);
}

/// Each group of `width` CPUs is a package.
fn with_packages(mut machine: Topology, width: u32, id: impl Fn(u32) -> i32) -> Topology {
    let count = u32::try_from(machine.cpus.len()).unwrap() / width;
    let of =
        |index: u32| (index * width..(index + 1) * width).map(numa_topology::id::CpuId).collect::<CpuSet>();
    let package =
        |index: u32| Package { id: id(index), cpus: of(index), nodes: machine.nodes_of(&of(index)) };
    machine.packages = (0..count).map(package).collect();
    for cpu in &mut machine.cpus {
        cpu.package = Some(id(cpu.id.0 / width));
    }
    machine
}

#[test]
fn a_node_may_hold_packages() {
    let one_thread = |sockets, cores| Machine::new().threads(1).sockets(sockets).cores(cores).build();
    let names = |tree: &PoolTree| tree.pools().iter().map(|pool| pool.name.clone()).collect::<Vec<_>>();
    // A virtual machine with CPUs as packages: two nodes of four.
    let machine = with_packages(one_thread(2, 4), 2, |index| i32::try_from(index).unwrap());
    let tree_of_nodes = tree(machine);
    assert_eq!(
        summary(&tree_of_nodes),
        [
            "0 socket #0: 2 CPUs, dram 0",
            "1 socket #1: 2 CPUs, dram 0",
            "2 NUMA node #0: 4 CPUs, dram 0",
            "3 socket #2: 2 CPUs, dram 1",
            "4 socket #3: 2 CPUs, dram 1",
            "5 NUMA node #1: 4 CPUs, dram 1",
            "6 root: 8 CPUs, dram 0-1",
        ]
    );
    assert!(
        tree_of_nodes.pool(2).is_of(PoolLevel::Package),
        "what is spread over packages has all of the node"
    );
    // One node with all packages is the root.
    let machine = with_packages(one_thread(1, 4), 2, |index| i32::try_from(index).unwrap());
    assert_eq!(names(&tree(machine)), ["socket #0", "socket #1", "NUMA node #0"]);
    // Packages that cross nodes have no pools; others have.
    let machine = with_packages(one_thread(2, 6), 4, |index| i32::try_from(index).unwrap());
    assert_eq!(names(&tree(machine)), ["socket #0", "NUMA node #0", "socket #2", "NUMA node #1", "root"]);
}

#[test]
fn packages_that_share_an_id_have_names_of_their_own() {
    let machine = Machine::new().threads(1).sockets(3).cores(2).build();
    let machine = with_dies(with_packages(machine, 2, |_| 0), |cpu| i32::try_from(cpu % 2).unwrap());
    let tree = tree(machine);
    let named = |name: &str| tree.id_of(name).map(|id| tree.pool(id).cpus.to_string());
    assert_eq!(named("socket #0 at CPU 2").as_deref(), Some("2-3"));
    assert_eq!(named("socket #0"), None);
    for pool in tree.pools() {
        assert_eq!(tree.id_of(&pool.name), Some(pool.id), "{}", pool.name);
    }
}

fn with_caches(mut machine: Topology, level: u32, width: u32) -> Topology {
    let count = u32::try_from(machine.cpus.len()).unwrap() / width;
    let of = |index: u32| (index * width..(index + 1) * width).map(numa_topology::id::CpuId).collect();
    machine.llcs = (0..count).map(|index| Llc { level, size_bytes: None, cpus: of(index) }).collect();
    machine
}

#[test]
fn caches_are_pools_where_a_node_has_several() {
    let machine = || Machine::new().sockets(2).threads(1).cores(8).build();
    let names = |tree: &PoolTree| tree.pools().iter().map(|pool| pool.name.clone()).collect::<Vec<_>>();
    let four = tree(with_caches(machine(), 3, 4));
    assert_eq!(
        names(&four),
        [
            "L3 cache #0 of socket #0",
            "L3 cache #1 of socket #0",
            "socket #0",
            "L3 cache #2 of socket #1",
            "L3 cache #3 of socket #1",
            "socket #1",
            "root"
        ]
    );
    assert_eq!(four.pool(4).memory.dram.to_string(), "1");
    // One for each node, one across both, private ones of level 2.
    for (level, width) in [(3, 8), (3, 16), (2, 4)] {
        assert_eq!(names(&tree(with_caches(machine(), level, width))), ["socket #0", "socket #1", "root"]);
    }
    assert!(tree(with_caches(machine(), 3, 8)).pool(0).is_of(PoolLevel::L3Cache));
}

#[test]
fn a_level_that_is_not_there_is_the_next_coarser_one() {
    let server = tree(server());
    for (wanted, there) in [
        (PoolLevel::System, PoolLevel::System),
        (PoolLevel::Package, PoolLevel::Package),
        (PoolLevel::Die, PoolLevel::Die),
        (PoolLevel::Numa, PoolLevel::Numa),
        (PoolLevel::L3Cache, PoolLevel::L3Cache),
    ] {
        assert_eq!(server.existing_level(wanted), there);
    }
    // The die of a package is the package.
    assert!(server.pool(2).is_of(PoolLevel::Die));
    let no_cache = tree(with_caches(Machine::new().threads(1).cores(8).build(), 2, 2));
    assert_eq!(no_cache.existing_level(PoolLevel::L3Cache), PoolLevel::Numa);
}

#[test]
fn cpus_are_isolated_reserved_or_sharable_and_the_rest_is_not_there() {
    let tree = PoolTree::new(&inventory(server(), Some("0-20,56-80"), Some("1-2")));
    let pool = tree.pool(0);
    assert_eq!(pool.isolated.to_string(), "4-7,60-63");
    assert_eq!(pool.reserved.to_string(), "1-2");
    assert_eq!(pool.sharable.to_string(), "0,3,8-13,56-59,64-69");
    // No CPU of socket 1 is available: its pools do not exist, its memory is the root's.
    let names: Vec<_> = tree.pools().iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["NUMA node #0", "NUMA node #2", "socket #0", "root"]);
    assert_eq!(tree.root().memory.dram.to_string(), "0-3");
    let alone = PoolTree::new(&inventory(server(), None, Some("5")));
    assert_eq!(alone.pool(0).reserved.to_string(), "5");
    assert!(!alone.pool(0).isolated.contains(numa_topology::id::CpuId(5)));
}

#[test]
fn ids_of_nodes_may_be_sparse_and_large() {
    let machine = Machine::new()
        .sockets(2)
        .node_ids(&[7, 700])
        .memory_only(NodeId(900), 64, MemoryKind::Cxl, NodeId(700))
        .build();
    assert_eq!(
        summary(&tree(machine)),
        [
            "0 socket #0: 8 CPUs, dram 7",
            "1 socket #1: 8 CPUs, dram 700 pmem 900",
            "2 root: 16 CPUs, dram 7,700 pmem 900"
        ]
    );
}

#[test]
fn a_machine_that_says_nothing_of_packages_still_has_nodes() {
    let mut machine = Machine::new().nodes_per_socket(2).build();
    machine.packages.clear();
    machine.cpus.iter_mut().for_each(|cpu| cpu.package = None);
    let names: Vec<_> = tree(machine).pools().iter().map(|pool| pool.name.clone()).collect();
    assert_eq!(names, ["NUMA node #0", "NUMA node #1", "root"]);
}

proptest! {
    #[test]
    fn every_tree_is_one(
        sockets in 1u32..4,
        nodes in 1u32..4,
        cores in 1u32..5,
        width in 1u32..7,
        die in 1u32..7,
        allowed in proptest::collection::btree_set(0u32..96, 1..40),
        memless in proptest::collection::vec(any::<bool>(), 12),
        packages in prop::option::of((1u32..9, 1i32..4)),
    ) {
        let machine = Machine::new().sockets(sockets).nodes_per_socket(nodes).cores(cores)
            .memory_only(NodeId(40), 8, MemoryKind::Cxl, NodeId(0)).build();
        let mut machine = with_dies(with_caches(machine, 3, width), |cpu| i32::try_from(cpu / die).unwrap());
        if let Some((width, ids)) = packages {
            machine = with_packages(machine, width, |index| i32::try_from(index).unwrap() % ids);
        }
        for (node, memless) in machine.nodes.iter_mut().zip(memless) {
            if memless { node.mem_total_bytes = Some(0); }
        }
        let online = machine.online_cpus();
        let allowed: CpuSet = allowed.into_iter().map(numa_topology::id::CpuId).filter(|cpu| online.contains(*cpu)).collect();
        prop_assume!(!allowed.is_empty());
        let with_memory = machine.memory_nodes();
        let tree = PoolTree::new(&inventory(machine, Some(&format!("{allowed},")), None));
        prop_assert_eq!(&tree.root().cpus, &allowed);
        prop_assert_eq!(tree.root().memory.all(), with_memory);
        for (index, pool) in tree.pools().iter().enumerate() {
            prop_assert_eq!(pool.id, index);
            prop_assert!(!pool.cpus.is_empty());
            prop_assert_eq!(pool.isolated.len() + pool.reserved.len() + pool.sharable.len(), pool.cpus.len());
            match pool.parent {
                None => prop_assert_eq!(index, tree.pools().len() - 1),
                Some(parent) => {
                    let above = tree.pool(parent);
                    prop_assert!(parent > index && above.children.contains(&index));
                    prop_assert_eq!(pool.depth, above.depth + 1);
                    prop_assert!(pool.cpus.is_subset(&above.cpus));
                    prop_assert!(pool.memory.all().is_subset(&above.memory.all()));
                }
            }
            for (nth, one) in pool.children.iter().enumerate() {
                for other in &pool.children[nth + 1..] {
                    prop_assert!(tree.pool(*one).cpus.is_disjoint(&tree.pool(*other).cpus));
                }
            }
            let below: Vec<usize> = tree.subtree(index).collect();
            let counted = tree.pools().iter().filter(|p| p.id == index || tree.ancestors(p.id).any(|a| a == index));
            prop_assert_eq!(below, counted.map(|p| p.id).collect::<Vec<_>>());
        }
        let mut names: Vec<&str> = tree.pools().iter().map(|pool| pool.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        prop_assert_eq!(names.len(), tree.pools().len());
    }
}
