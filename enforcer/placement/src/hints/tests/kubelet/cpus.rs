//! The profile `kubelet`: CPUs that a kubelet reserves, no isolated CPUs, no containers that share CPUs, and
//! the kubelet's way to read distances.

use super::*;
use crate::{DeviceUnit, Inventory, Trace, admit_traced, hints::NodeIndex};

fn machine_of(line: &str) -> Topology {
    line.parse::<Machine>().unwrap().build()
}

fn predicts(rest: &str) -> PlacementSettings {
    let settings: PlacementSettings = toml::from_str(rest).unwrap();
    let hints = HintsSettings { profile: Profile::Kubelet, ..settings.hints };
    PlacementSettings { hints, ..settings }
}

fn inventory(machine: &Topology, settings: &PlacementSettings) -> Inventory {
    Inventory::new(machine.clone(), Vec::<DeviceUnit>::new(), settings).unwrap()
}

#[test]
fn the_kubelet_reserves_an_amount_in_the_order_of_its_allocator() {
    for (line, amount, ours, kubelets) in [
        // The example of its own documentation: 8 CPUs, hyper-threads, 2 reserved.
        ("cores:4 threads:2", "2", "0,4", "0,4"),
        ("sockets:2 cores:4", "1", "0", "0"),
        ("sockets:2 cores:4", "4", "0-3", "0-3"),
        ("sockets:2 cores:4", "5", "0-4", "0-4"),
        // It ignores isolated CPUs.
        ("cores:4 isolated:0-1", "1", "2", "0"),
        ("sockets:2 cores:4 isolated:0-3", "2", "4-5", "0-1"),
    ] {
        let machine = machine_of(line);
        let text = format!("reserved.cpus = '{amount}'");
        let settings: PlacementSettings = toml::from_str(&text).unwrap();
        let of = |settings: &PlacementSettings| inventory(&machine, settings).reserved_cpus.to_string();
        assert_eq!(
            (of(&settings).as_str(), of(&predicts(&text)).as_str()),
            (ours, kubelets),
            "{line} {amount}"
        );
    }
}

#[test]
fn the_kubelet_reserves_by_its_options_of_cpus() {
    // The smaller node has CPU 0 only in the second case, and across cores no core gives two.
    let machine = machine_of("cores:4 threads:2");
    let across = "reserved.cpus = '2'\nhints.distribute_cpus_across_cores = true";
    assert_eq!(inventory(&machine, &predicts(across)).reserved_cpus.to_string(), "0-1");
    let machine = machine_of("sockets:2 cores:4");
    let across = "reserved.cpus = '6'\nhints.distribute_cpus_across_numa = true";
    assert_eq!(inventory(&machine, &predicts(across)).reserved_cpus.to_string(), "0-2,4-6");
}

#[test]
fn the_kubelet_hands_out_isolated_cpus_like_any_other() {
    let machine = || Machine::new().cores(4).threads(1).isolated("1-3").build();
    let mut host = Host::with(machine(), Vec::new(), predicts("hints.policy = 'best-effort'"));
    host.admit(&pod("s", vec![container("c", 500, GIB)])).unwrap();
    assert_eq!(host.place("s", "c").0, "0-3");
    host.admit(&pod("g", vec![container("c", 3000, GIB)])).unwrap();
    assert_eq!((host.place("g", "c").0.as_str(), host.grant("g", "c").class), ("0-2", CpuClass::Exclusive));
    let text = host.admit(&pod("h", vec![container("c", 2000, GIB)])).unwrap_err().to_string();
    assert!(!text.contains("isol"), "{text}");
}

#[test]
fn the_kubelet_knows_of_no_container_that_shares_cpus() {
    let machine = || Machine::new().sockets(3).cores(1).threads(1).build();
    for (profile, expected) in [("", "1"), ("hints.profile = 'kubelet'", "0")] {
        let settings: PlacementSettings =
            toml::from_str(&format!("hints.policy = 'best-effort'\n{profile}")).unwrap();
        let mut host = Host::with(machine(), Vec::new(), settings);
        host.admit(&pod("s", vec![container("c", 500, GIB).without_limits()])).unwrap();
        host.admit(&pod("g", vec![container("c", 1000, GIB)])).unwrap();
        assert_eq!(host.place("g", "c").0, expected, "{profile}");
    }
}

#[test]
fn the_kubelet_reads_distances_at_the_ids_of_nodes() {
    // Nodes 0, 1 and 3: node 3 is the nearest to node 0, and a kubelet reads no value for it.
    let mut machine = Machine::new().sockets(3).cores(2).threads(1).node_ids(&[0, 1, 3]).build();
    let row = |values: [u32; 3]| values.map(Some).to_vec();
    machine.distances = vec![row([10, 30, 20]), row([30, 10, 40]), row([20, 40, 10])];
    let index = NodeIndex::of(&machine, &"0-1,3".parse().unwrap());
    assert_eq!(index.clone().with_distances_by_id(&machine), index, "no id is the position of another node");
    // Nodes 1 and 2: the value that it reads for node 1 is the distance to node 2.
    let mut machine = Machine::new().sockets(2).cores(2).threads(1).node_ids(&[1, 2]).build();
    machine.distances = vec![vec![Some(10), Some(21)], vec![Some(21), Some(10)]];
    let index = NodeIndex::of(&machine, &"1-2".parse().unwrap()).with_distances_by_id(&machine);
    assert_eq!(index.distances(), [vec![21, 21], vec![10, 10]]);
    let settings = predicts("hints.policy = 'best-effort'\nhints.prefer_closest_numa_nodes = true");
    let inventory = inventory(&machine, &settings);
    let mut trace = Trace::default();
    let asks = pod("g", vec![container("c", 3000, GIB)]);
    admit_traced(&inventory, &settings, &mut Allocations::default(), &asks, &mut trace).unwrap();
    let warned = trace.into_parts().1;
    assert!(warned.iter().any(|text| text.contains("panics when it compares node 2")), "{warned:?}");
}
