//! CPUs near chosen nodes.

use super::*;
use numa_topology::set::NodeSet;

fn near(layout: &CpuLayout, sets: [&str; 3], affinity: &str, count: usize, options: CpuOptions) -> String {
    let [available, reserved, reusable] = sets.map(cpus);
    let affinity: NodeSet = affinity.parse().unwrap();
    let affinity = (!affinity.is_empty()).then_some(&affinity);
    let pick = CpuPick { available: &available, reserved: &reserved, reusable: &reusable, affinity, count };
    assign_near(layout, &pick, options).map_or_else(|error| error.to_string(), |cpus| cpus.to_string())
}

const SOCKET: CpuOptions = CpuOptions { align_by_socket: true, ..PACKED };

#[test]
fn the_nodes_come_first_and_what_is_missing_comes_from_the_rest() {
    let d80 = &d80();
    let all = ["0-79", "", ""];
    for (affinity, count, options, expected) in [
        ("2", 2, PACKED, "20,60"),
        ("2", 22, PACKED, "20-30,60-70"),
        ("1,3", 40, PACKED, "10-19,30-39,50-59,70-79"),
        ("", 2, PACKED, "0,40"),
        ("9", 2, PACKED, "0,40"),
        ("3", 22, SOCKET, "20-30,60-70"),
        ("1", 4, NUMA, "10-11,50-51"),
        ("1-2", 4, NUMA, "10,20,50,60"),
        ("0-3", 4, NUMA, "0,10,20,30"),
        ("0-3", 2, NUMA, "0,10"),
        ("1-2", 3, FULL, "3 CPUs are not whole cores of 2 threads"),
        ("1-2", 4, FULL, "10-11,50-51"),
    ] {
        assert_eq!(near(d80, all, affinity, count, options), expected, "{count} near {affinity} {options:?}");
    }
}

#[test]
fn reserved_cpus_are_kept_and_reusable_ones_given() {
    let s8 = &s8();
    assert_eq!(near(s8, ["1-3,5-7", "0,4", ""], "0", 6, PACKED), "1-3,5-7");
    assert_eq!(near(s8, ["1,5", "0,4", "2,6"], "0", 4, PACKED), "1-2,5-6");
    // Even if the caller passes them as available.
    let all = "not enough cpus available to satisfy request: requested=7, available=6";
    assert_eq!(near(s8, ["0-7", "0,4", ""], "0", 7, PACKED), all);
    // The sibling of a reserved CPU is not a whole core.
    let whole = "8 CPUs in whole cores, and only 6 CPUs share no core with a reserved one";
    assert_eq!(near(s8, ["1-7", "0", ""], "", 8, FULL), whole);
    assert_eq!(near(s8, ["1-7", "0", ""], "", 6, FULL), "1-3,5-7");
    assert_eq!(near(s8, ["1-7", "0", ""], "", usize::MAX - 1, FULL).matches("whole cores").count(), 1);
}

#[test]
fn alignment_by_socket_needs_sockets_wider_than_nodes() {
    use crate::settings::TopologyPolicy::{BestEffort, SingleNumaNode};
    let (wide, narrow) = (d80(), u16(4, 2));
    assert_eq!(SOCKET.validate_for(BestEffort, &wide), Ok(()));
    assert_eq!(PACKED.validate_for(SingleNumaNode, &narrow), Ok(()));
    assert_eq!(SOCKET.validate_for(SingleNumaNode, &wide), Err(CpuOptionsError::SocketOnSingleNode));
    let more = CpuOptionsError::MoreSocketsThanNodes { sockets: 4, nodes: 2 };
    assert_eq!(SOCKET.validate_for(BestEffort, &narrow), Err(more));
}
