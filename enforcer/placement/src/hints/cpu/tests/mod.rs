//! Assignment of CPUs on machines with well-known answers.

mod always;
mod equal_shares;
mod nearby;
mod offers;
mod resizing;

use super::*;
use crate::{CpuLayout, CpuPlace};
use numa_topology::{
    id::{CpuId, NodeId},
    set::CpuSet,
};

/// A machine from the place of each CPU: core, socket, node, cache.
fn machine(cpus: u32, place: impl Fn(u32) -> (u32, u32, u32, u32)) -> CpuLayout {
    let place = |id| {
        let (core, socket, node, llc) = place(id);
        CpuPlace { id: CpuId(id), core, socket, node: NodeId(node), llc }
    };
    CpuLayout::new((0..cpus).map(place).collect())
}

/// One socket, four cores of two threads.
fn s8() -> CpuLayout {
    machine(8, |cpu| (cpu % 4, 0, 0, 0))
}

/// Two sockets of three cores of two threads, CPUs in turn.
fn d12() -> CpuLayout {
    machine(12, |cpu| (cpu % 6, cpu % 2, cpu % 2, cpu % 2))
}

/// Three sockets of three cores; siblings follow each other, sockets do not.
fn t18() -> CpuLayout {
    machine(18, |cpu| (cpu / 2, [1, 0, 2][cpu as usize / 6], [1, 0, 2][cpu as usize / 6], cpu / 6))
}

/// Two sockets of two nodes of ten cores of two threads.
fn d80() -> CpuLayout {
    machine(80, |cpu| (cpu % 40, cpu % 40 / 20, cpu % 40 / 10, cpu % 40 / 10))
}

/// Eight nodes of 16 cores of two threads.
fn d256() -> CpuLayout {
    machine(256, |cpu| (cpu % 128, cpu % 128 / 64, cpu % 128 / 16, cpu % 128 / 16))
}

/// Four caches of four cores without threads, in so many sockets and nodes.
fn u16(sockets: u32, nodes: u32) -> CpuLayout {
    machine(16, |cpu| (cpu, cpu * sockets / 16, cpu * nodes / 16, cpu / 4))
}

/// Two caches of four cores of two threads.
fn u16_smt() -> CpuLayout {
    machine(16, |cpu| (cpu % 8, 0, 0, cpu % 8 / 4))
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

const PACKED: CpuOptions = CpuOptions {
    full_pcpus_only: false,
    distribute_across_numa: false,
    distribute_across_cores: false,
    align_by_socket: false,
    align_by_uncore_cache: false,
};
const FULL: CpuOptions = CpuOptions { full_pcpus_only: true, ..PACKED };
const NUMA: CpuOptions = CpuOptions { distribute_across_numa: true, ..PACKED };
const FULL_NUMA: CpuOptions = CpuOptions { full_pcpus_only: true, ..NUMA };
const CORES: CpuOptions = CpuOptions { distribute_across_cores: true, ..PACKED };
const UNCORE: CpuOptions = CpuOptions { align_by_uncore_cache: true, ..PACKED };

#[test]
fn takes_what_is_expected() {
    let (s8, d12, t18, d80, u16_smt) = (&s8(), &d12(), &t18(), &d80(), &u16_smt());
    let (one, sockets, nodes) = (&u16(1, 1), &u16(2, 2), &u16(1, 2));
    let grouped = "0-8,10-18,20-39,40-48,50-58,60-79";
    let crowded = "0,128,30,31,158,159,43-47,171-175,62,63,190,191,75-79,203-207,94,96,222,223,101-111,229-239,\
                   126,127,254,255";
    let table: &[(&CpuLayout, &str, usize, CpuOptions, &str)] = &[
        (s8, "0-7", 0, PACKED, ""),
        (s8, "0-7", 1, PACKED, "0"),
        (s8, "0-7", 2, PACKED, "0,4"),
        (s8, "0-7", 8, PACKED, "0-7"),
        (s8, "1,3,5,6,7", 1, PACKED, "6"),
        (s8, "0,1,2,3,6", 2, PACKED, "2,6"),
        (s8, "3-7", 3, PACKED, "3,4,7"),
        (d12, "0-11", 6, PACKED, "0,2,4,6,8,10"),
        (d12, "1-5,7-11", 1, PACKED, "2"),
        (d12, "1-5,7-11", 1, NUMA, "1"),
        (d12, "0-11", 8, PACKED, "0,6,2,8,4,10,1,7"),
        (d12, "0-11", 8, NUMA, "0,6,2,8,1,7,3,9"),
        (t18, "0-3,6-13", 1, PACKED, "12"),
        (t18, "0-3,6-13", 3, PACKED, "0,12-13"),
        (d80, "0-79", 20, PACKED, "0-9,40-49"),
        (d80, "0-79", 40, PACKED, "0-19,40-59"),
        (d80, "0-79", 60, PACKED, "0-29,40-69"),
        (d80, "10-39,50-79", 20, PACKED, "10-19,50-59"),
        (d80, "1-39,41-79", 60, PACKED, "10-39,50-79"),
        (d80, "0-79", 64, PACKED, "0-31,40-71"),
        (d80, "0-79", 64, NUMA, "0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77"),
        (d80, "0-79", 48, NUMA, "0-7,10-17,20-27,40-47,50-57,60-67"),
        (d80, "1-29,32-39,41-69,72-79", 48, NUMA, "1-8,10-17,20-27,41-48,50-57,60-67"),
        (d80, "2-29,31-39,42-69,71-79", 48, NUMA, "10-17,20-27,31-38,50-57,60-67,71-78"),
        (d80, "0-79", 26, NUMA, "0-6,10-16,40-45,50-55"),
        (d80, "0-79", 26, FULL_NUMA, "0-6,10-15,40-46,50-55"),
        (d80, "0-79", 62, NUMA, "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76"),
        (d80, "0-79", 62, FULL_NUMA, "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76"),
        (d80, grouped, 62, NUMA, "0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77"),
        (d80, grouped, 62, FULL_NUMA, "0-7,10-16,20-27,30-37,40-47,50-56,60-67,70-77"),
        (
            d80,
            "0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76",
            34,
            NUMA,
            "0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74",
        ),
        (&d256(), crowded, 28, NUMA, "43-47,75-79,96,101-105,171-174,203-206,229-232"),
        (s8, "0-7", 3, CORES, "0-2"),
        (d12, "0-11", 2, CORES, "0,2"),
        (d12, "0-11", 3, CORES, "0,2,4"),
        (d12, "0-11", 6, CORES, "0,2,4,6,8,10"),
        (d12, "0-11", 8, CORES, "0-4,6,8,10"),
        (one, "1-15", 10, UNCORE, "1,2,4-11"),
        (sockets, "0-15", 4, UNCORE, "0-3"),
        (sockets, "2-15", 6, UNCORE, "2-7"),
        (sockets, "8-15", 4, UNCORE, "8-11"),
        (nodes, "3,4-8,12", 2, UNCORE, "4,5"),
        (u16_smt, "2,3,10,11,4-7,12-15", 6, UNCORE, "4-6,12-14"),
        (u16_smt, "1-7,9-15", 10, UNCORE, "1,4-7,9,12-15"),
    ];
    for (layout, available, count, options, expected) in table {
        let taken = assign(layout, &cpus(available), *count, *options).unwrap();
        assert_eq!(taken, cpus(expected), "{count} of {available} with {options:?}");
    }
}

#[test]
fn says_why_not() {
    let four_way = machine(288, |cpu| (cpu % 72, cpu % 72 / 36, cpu % 72 / 36, cpu % 72 / 36));
    let error = |layout: &CpuLayout, available: &str, count, options| {
        assign(layout, &cpus(available), count, options).unwrap_err().to_string()
    };
    let shortage = "not enough cpus available to satisfy request: requested=5, available=4";
    assert_eq!(error(&s8(), "0,2,4,6", 5, PACKED), shortage);
    assert_eq!(error(&s8(), "0,2,4,6,8-300", 5, NUMA), shortage);
    assert_eq!(error(&s8(), "0-7", 1, FULL), "1 CPUs are not whole cores of 2 threads");
    assert_eq!(error(&four_way, "0-287", 15, FULL), "15 CPUs are not whole cores of 4 threads");
    assert_eq!(
        error(&s8(), "0-2", 4, FULL),
        "4 CPUs in whole cores, and only 3 CPUs share no core with a reserved one"
    );
    for options in [PACKED, NUMA, CORES, UNCORE] {
        assert!(assign(&s8(), &cpus("0-7"), usize::MAX, options).is_err());
    }
}
