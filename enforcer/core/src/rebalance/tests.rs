use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{search::MoveSpeed, *};
use crate::{
    policy::{ByteSize, RebalanceSettings},
    workload::{CgroupPath, QosClass},
};
use numa_topology::{
    Locality, Topology,
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
    synth::Machine,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const PACE: MoveSpeed = MoveSpeed { bytes_per_second: GIB, bytes_per_turn: GIB, turn_seconds: 10.0 };

/// Sockets of one node with so many cores of one thread and 8 GiB each.
fn machine(nodes: u32, cores: u32) -> Topology {
    format!("sockets:{nodes} cores:{cores} memory:8GiB").parse::<Machine>().unwrap().build()
}

/// A host with these movers, on which all other memory is available.
fn host<'a>(machine: &'a Topology, movers: &[Mover]) -> HostState<'a> {
    let mut rooms: BTreeMap<NodeId, FreeResources> = machine
        .nodes
        .iter()
        .map(|node| {
            let room = FreeResources {
                free: node.cpus.clone(),
                total_bytes: Some(8 * GIB),
                available_bytes: Some(8 * GIB),
                unpromised_bytes: Some(8 * GIB),
                cache_bytes: Some(32 * MIB),
                ..FreeResources::default()
            };
            (node.id, room)
        })
        .collect();
    for mover in movers {
        for (node, room) in &mut rooms {
            if let CpusHeld::Alone(cpus) = &mover.cpus {
                room.free = room.free.difference(cpus);
            }
            let held = mover.bytes.get(node).copied().unwrap_or_default();
            room.available_bytes = room.available_bytes.map(|bytes| bytes.saturating_sub(held.movable));
            let promised = mover.promised.get(node).copied().unwrap_or(0);
            room.unpromised_bytes = room.unpromised_bytes.map(|bytes| bytes.saturating_sub(promised));
        }
    }
    HostState { machine, locality: Locality::new(machine), rooms, short: NodeSet::new() }
}

/// A workload with a name, exclusive CPUs, and MiB by node; it uses all its CPUs, and its remote share is the
/// estimate.
fn alone(machine: &Topology, name: &str, cpus: &str, mebibytes: &[(u32, u64)]) -> Mover {
    let cpus: CpuSet = cpus.parse().unwrap();
    let bytes: BTreeMap<NodeId, NodeShare> = mebibytes
        .iter()
        .map(|(node, mebibytes)| (NodeId(*node), NodeShare { movable: mebibytes * MIB, fixed: 0 }))
        .collect();
    let of = |node: NodeId| cpus.iter().filter(|cpu| machine.node(node).unwrap().cpus.contains(*cpu)).count();
    let share = |count: usize, all: usize| {
        f64::from(u32::try_from(count).unwrap()) / f64::from(u32::try_from(all).unwrap())
    };
    let run: BTreeMap<NodeId, f64> =
        machine.nodes_of(&cpus).iter().map(|node| (node, share(of(node), cpus.len()))).collect();
    let total: u64 = mebibytes.iter().map(|(_, bytes)| bytes).sum();
    let remote: f64 = mebibytes
        .iter()
        .map(|(node, bytes)| {
            let here = run.get(&NodeId(*node)).copied().unwrap_or(0.0);
            (1.0 - here) * worth::to_f64(*bytes) / worth::to_f64(total.max(1))
        })
        .sum();
    Mover {
        cgroup: CgroupPath::new(name),
        qos: QosClass::Guaranteed,
        used: share(cpus.len(), 1),
        cpus: CpusHeld::Alone(cpus),
        run,
        bytes,
        promised: BTreeMap::new(),
        remote: Some(remote),
        devices: NodeSet::new(),
        may_settle: machine.cpu_nodes(),
        ails: if remote >= 0.3 { BTreeSet::from([Ailment::Remote]) } else { BTreeSet::new() },
        held_back: None,
    }
}

/// A workload that shares the CPUs of a node, as many as it uses.
fn together(machine: &Topology, name: &str, node: u32, milli: u64, mebibytes: &[(u32, u64)]) -> Mover {
    let first = machine.node(NodeId(node)).unwrap().cpus.first().unwrap();
    let nodes = NodeSet::from_iter([NodeId(node)]);
    Mover {
        cpus: CpusHeld::Together { nodes, milli },
        used: worth::to_f64(milli) / 1000.0,
        ..alone(machine, name, &first.to_string(), mebibytes)
    }
}

fn plan_of(machine: &Topology, movers: &[Mover]) -> RebalanceReport {
    plan(&host(machine, movers), movers, &RebalanceSettings::default(), 4 * GIB, PACE)
}

/// `name to MiB, …; name to …` for each group.
fn said(report: &RebalanceReport) -> String {
    let mut groups = BTreeMap::<u32, Vec<String>>::new();
    for one in &report.moves {
        let cpus = one.cpus_to.as_ref().map(|cpus| format!(" on {}", cpus.exclusive)).unwrap_or_default();
        let text = format!("{} to {}{cpus} {}", one.workload, one.to, one.bytes / MIB);
        groups.entry(one.group).or_default().push(text);
    }
    groups.into_values().map(|group| group.join(", ")).collect::<Vec<_>>().join("; ")
}

fn reasons(report: &RebalanceReport) -> Vec<&str> {
    report.left.iter().map(|left| left.reason.as_str()).collect()
}

#[test]
fn memory_and_cpus_come_together_where_that_costs_least() {
    let two = machine(2, 2);
    let small = machine(2, 1);
    let a = |cpus, mebibytes: &[(u32, u64)]| alone(&two, "/a", cpus, mebibytes);
    let b = |cpus, mebibytes: &[(u32, u64)]| alone(&two, "/b", cpus, mebibytes);
    for (machine, movers, expected) in [
        // Free CPUs beside the memory: nothing is copied.
        (&two, vec![a("0", &[(1, 4096)])], "/a to 1 on 2 0"),
        // Most is here already, the rest comes.
        (&two, vec![a("0", &[(0, 128), (1, 128)])], "/a to 0 128"),
        // No CPU is free there, but its present holder can use this one as well.
        (&two, vec![a("0-1", &[(1, 64)]), b("2-3", &[(0, 64)])], "/a to 1 on 2-3 0, /b to 0 on 0-1 0"),
        // Sets of different sizes are not exchanged: the memory comes.
        (&two, vec![a("0-1", &[(1, 64)]), b("2", &[(1, 64)])], "/a to 0 64"),
        // The other workload is well placed: none is moved away from its memory.
        (
            &small,
            vec![alone(&small, "/a", "0", &[(1, 64)]), alone(&small, "/b", "1", &[(1, 4096)])],
            "/a to 0 64",
        ),
        // Nothing to mend.
        (&two, vec![a("0", &[(0, 64)]), b("2-3", &[(1, 64)])], ""),
        // Above the lower threshold only.
        (&two, vec![a("0", &[(0, 80), (1, 20)])], ""),
    ] {
        assert_eq!(said(&plan_of(machine, &movers)), expected);
    }
}

#[test]
fn four_that_sit_the_wrong_way_round_are_exchanged_and_nothing_is_copied() {
    let machine = machine(2, 2);
    let movers: Vec<Mover> = [("/a", "0", 1), ("/b", "1", 1), ("/c", "2", 0), ("/d", "3", 0)]
        .into_iter()
        .map(|(name, cpu, memory)| alone(&machine, name, cpu, &[(memory, 64)]))
        .collect();
    let report = plan_of(&machine, &movers);
    assert_eq!(said(&report), "/a to 1 on 2 0, /c to 0 on 0 0; /b to 1 on 3 0, /d to 0 on 1 0");
    assert!(report.moves.iter().all(|one| one.now.remote_ratio == Some(1.0)), "{report:?}");
    assert!(report.moves.iter().all(|one| one.then.remote_ratio == Some(0.0)), "{report:?}");
    let reason = &report.moves[0].reason;
    let expected =
        "100% of its accesses are remote: its CPUs go from node 0 to node 1 in exchange with /c; that saves ";
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn report_gives_the_reason_for_each_workload_that_stays() {
    let machine = machine(2, 1);
    let a = |used, bytes: &[(u32, u64)]| Mover { used, ..alone(&machine, "/a", "0", bytes) };
    let only_here = |mover: Mover| Mover { may_settle: NodeSet::from_iter([NodeId(0)]), ..mover };
    let b = alone(&machine, "/b", "1", &[(1, 1000)]);
    for (a, reason) in [
        (a(0.001, &[(1, 64)]), "must save 6.0 to be worth moving"),
        (
            Mover { held_back: Some("it was moved already".into()), ..a(1.0, &[(1, 64)]) },
            "but it was moved already",
        ),
        (only_here(a(1.0, &[(1, 5000)])), "are left of the budget"),
        (
            Mover { may_settle: NodeSet::new(), ..a(1.0, &[(1, 64)]) },
            "there is no node on which it may settle",
        ),
        (
            Mover { promised: BTreeMap::from([(NodeId(1), 9 * GIB)]), ..only_here(a(1.0, &[(1, 64)])) },
            "it was promised 9216 MiB",
        ),
    ] {
        let movers = [a, b.clone()];
        let host = host(&machine, &movers);
        let report = plan(&host, &movers, &RebalanceSettings::default(), 4 * GIB, PACE);
        assert_eq!(said(&report), "");
        assert_eq!(report.left.len(), 1);
        assert!(report.left[0].reason.contains(reason), "{:?} {reason}", reasons(&report));
    }
}

#[test]
fn a_node_that_is_short_gives_its_least_and_smallest_away_until_it_has_enough() {
    let machine = machine(2, 4);
    let sized = |name, qos, size| Mover { qos, ..together(&machine, name, 0, 500, &[(0, size)]) };
    let movers = [
        sized("/best", QosClass::BestEffort, 400),
        sized("/burst", QosClass::Burstable, 300),
        sized("/large", QosClass::Guaranteed, 6000),
        sized("/small", QosClass::Guaranteed, 100),
    ];
    let mut host = host(&machine, &movers);
    let room = host.rooms.get_mut(&NodeId(0)).unwrap();
    room.available_bytes = Some(100 * MIB);
    let settings = RebalanceSettings::default();
    let report = plan(&host, &movers, &settings, 4 * GIB, PACE);
    assert_eq!(said(&report), "/best to 1 on  400; /burst to 1 on  300");
    let reason = &report.moves[0].reason;
    assert!(reason.starts_with("node 0 is short of memory, of which 1% can be had: "), "{reason}");

    // Between the thresholds nothing begins, but what has begun is finished.
    host.rooms.get_mut(&NodeId(0)).unwrap().available_bytes = Some(500 * MIB);
    assert_eq!(said(&plan(&host, &movers, &settings, 4 * GIB, PACE)), "");
    host.short = NodeSet::from_iter([NodeId(0)]);
    assert_eq!(said(&plan(&host, &movers, &settings, 4 * GIB, PACE)), "/best to 1 on  400");
    // No workload is sent to a node that would be short then.
    host.rooms.get_mut(&NodeId(1)).unwrap().available_bytes = Some(900 * MIB);
    assert_eq!(said(&plan(&host, &movers, &settings, 4 * GIB, PACE)), "");
}

#[test]
fn workloads_that_share_too_few_cpus_are_spread_over_the_nodes() {
    let machine = machine(2, 2);
    let movers: Vec<Mover> =
        ["/a", "/b", "/c"].iter().map(|name| together(&machine, name, 0, 1000, &[(0, 64)])).collect();
    let report = plan_of(&machine, &movers);
    assert_eq!(said(&report), "/a to 1 on  64");
}

#[test]
fn cpus_come_to_the_devices_with_the_memory() {
    let machine = machine(2, 2);
    let devices = NodeSet::from_iter([NodeId(1)]);
    let mover = Mover {
        devices,
        ails: BTreeSet::from([Ailment::FarFromDevices]),
        ..alone(&machine, "/nic", "0", &[(0, 64)])
    };
    let report = plan_of(&machine, &[mover]);
    assert_eq!(said(&report), "/nic to 1 on 2 64");
    assert!(report.moves[0].reason.starts_with("its devices are on node 1, where it has no CPU: "));
}

/// The movers and the host as the plan says that they will be.
fn apply<'a>(host: &HostState<'a>, movers: &[Mover], moves: &[Move]) -> (HostState<'a>, Vec<Mover>) {
    let (mut host, mut movers) = (host.clone(), movers.to_vec());
    for one in moves {
        let mover = movers.iter_mut().find(|mover| mover.cgroup == one.workload).unwrap();
        if let (CpusHeld::Alone(had), Some(_)) = (&mover.cpus, &one.cpus_to) {
            for (node, room) in &mut host.rooms {
                room.free.extend(&host.machine.node(*node).unwrap().cpus.intersection(had));
            }
        }
    }
    for one in moves {
        let mover = movers.iter_mut().find(|mover| mover.cgroup == one.workload).unwrap();
        if let Some(new) = &one.cpus_to {
            mover.cpus = match &mover.cpus {
                CpusHeld::Alone(_) => CpusHeld::Alone(new.exclusive.clone()),
                CpusHeld::Together { milli, .. } => {
                    CpusHeld::Together { nodes: new.nodes.clone(), milli: *milli }
                }
            };
            host.rooms.values_mut().for_each(|room| room.free = room.free.difference(&new.exclusive));
        }
        mover.run = BTreeMap::from([(one.to, 1.0)]);
        for (from, bytes) in &one.bytes_from {
            mover.bytes.get_mut(from).unwrap().movable -= bytes;
            mover.bytes.entry(one.to).or_default().movable += bytes;
            let give = |room: &mut FreeResources, by: u64| {
                room.available_bytes = room.available_bytes.map(|has| has + by);
            };
            give(host.rooms.get_mut(from).unwrap(), *bytes);
            let room = host.rooms.get_mut(&one.to).unwrap();
            room.available_bytes = room.available_bytes.map(|has| has.checked_sub(*bytes).unwrap());
        }
        for (node, bytes) in std::mem::take(&mut mover.promised) {
            let room = host.rooms.get_mut(&node).unwrap();
            room.unpromised_bytes = room.unpromised_bytes.map(|left| left + bytes);
            *mover.promised.entry(one.to).or_default() += bytes;
        }
        mover.remote = one.then.remote_ratio;
        if mover.remote.is_some_and(|remote| remote < 0.3) {
            mover.ails.clear();
        }
    }
    (host, movers)
}

#[test]
fn a_partner_with_page_cache_is_not_moved_for_nothing() {
    let machine = machine(2, 2);
    // Nothing that it accesses is remote, with 4 GiB of page cache beside it and 1 MiB elsewhere.
    let mut partner = alone(&machine, "/b", "2-3", &[(0, 1)]);
    partner.bytes.entry(NodeId(1)).or_default().fixed = 4 * GIB;
    (partner.remote, partner.ails) = (Some(0.0), BTreeSet::new());
    let mut far = alone(&machine, "/a", "0-1", &[(0, 1)]);
    far.bytes.entry(NodeId(1)).or_default().fixed = GIB;
    far.used = 0.5;
    (far.remote, far.ails) = (Some(0.9), BTreeSet::from([Ailment::Remote]));
    let movers = [far, partner];
    assert_eq!(plan_of(&machine, &movers).moves, Vec::new());
    let host = host(&machine, &movers);
    for mover in &movers {
        for node in [0, 1] {
            let there = worth::Footprint::settled(mover, &host, NodeId(node));
            let far = there.bytes.iter().any(|(at, held)| *at != NodeId(node) && held.fixed > 0);
            let predicted = worth::remote_ratio(mover, &there, &host);
            assert!(!far || predicted > 0.0, "{} on {node}: {predicted}", mover.cgroup);
        }
    }
}

/// A host of two to four nodes on which every workload has some place.
fn any_host() -> impl Strategy<Value = (Topology, Vec<Mover>)> {
    let one = (0..6u32, 0..1000u64, 0..4u32, 1..3usize, 0..3usize, prop::bool::ANY, 0..4u32);
    // Page cache, and what was measured, which need not be what that lets one expect.
    let one = (one, 0..1000u64, prop::option::of(0..=10u32));
    (2..5u32, prop::collection::vec(one, 1..10)).prop_map(|(nodes, ones)| {
        let machine = machine(nodes, 4);
        let mut free: Vec<CpuId> = machine.online_cpus().iter().collect();
        let mut movers = Vec::new();
        for (index, (one, cache, measured)) in ones.into_iter().enumerate() {
            let (place, mebibytes, memory, count, qos, shares, second) = one;
            let name = format!("/w{index}");
            let bytes = [(memory % nodes, mebibytes), ((memory + second) % nodes, mebibytes / 2)];
            let bytes = if second % nodes == 0 { &bytes[..1] } else { &bytes[..] };
            let qos = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort][qos];
            let mover = if shares || free.len() < count + 4 {
                together(&machine, &name, place % nodes, 300 * u64::try_from(count).unwrap(), bytes)
            } else {
                let at = (place as usize * 5) % (free.len() - count + 1);
                let cpus: CpuSet = free.drain(at..at + count).collect();
                alone(&machine, &name, &cpus.to_string(), bytes)
            };
            let promised = BTreeMap::from([(NodeId(memory % nodes), mebibytes * MIB)]);
            let mut mover = Mover { qos, promised, ..mover };
            mover.bytes.entry(NodeId(second % nodes)).or_default().fixed = cache * MIB;
            if let Some(tenths) = measured {
                let remote = f64::from(tenths) / 10.0;
                mover.remote = Some(remote);
                let ails = if remote >= 0.3 { vec![Ailment::Remote] } else { Vec::new() };
                mover.ails = ails.into_iter().collect();
            }
            movers.push(mover);
        }
        (machine, movers)
    })
}

fn excess(host: &HostState<'_>, movers: &[Mover], node: NodeId) -> u64 {
    let wanted: u64 = movers
        .iter()
        .map(|mover| match &mover.cpus {
            CpusHeld::Together { nodes, milli } if nodes.contains(node) => milli / nodes.len() as u64,
            _ => 0,
        })
        .sum();
    wanted.saturating_sub(host.rooms[&node].free.len() as u64 * 1000)
}

proptest! {
    #[test]
    fn no_part_of_a_plan_exceeds_what_there_is(
        (machine, movers) in any_host(),
        budget in 0..3000u64,
        most in 1..6u32,
    ) {
        let settings = RebalanceSettings { max_moves: most, max_bytes: ByteSize(GIB), ..RebalanceSettings::default() };
        let start = host(&machine, &movers);
        let report = plan(&start, &movers, &settings, budget * MIB, PACE);
        prop_assert!(report.bytes <= budget * MIB);
        prop_assert_eq!(report.bytes, report.moves.iter().map(|one| one.bytes).sum::<u64>());
        prop_assert!(report.moves.len() <= most as usize);
        let names: BTreeSet<&CgroupPath> = report.moves.iter().map(|one| &one.workload).collect();
        prop_assert_eq!(names.len(), report.moves.len(), "no workload moves twice");
        let (mut host, mut movers) = (start, movers);
        let groups: BTreeSet<u32> = report.moves.iter().map(|one| one.group).collect();
        for group in groups {
            let group: Vec<Move> = report.moves.iter().filter(|one| one.group == group).cloned().collect();
            prop_assert!(group[0].gain >= 2.0 * group[0].cost && group[0].gain >= 6.0);
            let before: Vec<u64> = host.rooms.keys().map(|node| excess(&host, &movers, *node)).collect();
            // One after another for memory: `apply` goes below zero where there is no room.
            let (next, moved) = apply(&host, &movers, &group);
            for (node, before) in next.rooms.keys().zip(before) {
                prop_assert!(excess(&next, &moved, *node) <= before);
                prop_assert!(next.rooms[node].unpromised_bytes.is_some());
            }
            let mut taken = CpuSet::new();
            for mover in &moved {
                if let CpusHeld::Alone(cpus) = &mover.cpus {
                    prop_assert!(cpus.is_disjoint(&taken), "CPUs {} twice", cpus);
                    taken.extend(cpus);
                }
            }
            for one in &group {
                let mover = moved.iter().find(|mover| mover.cgroup == one.workload).unwrap();
                let had = movers.iter().find(|mover| mover.cgroup == one.workload).unwrap();
                prop_assert_eq!(mover.cpus.nodes(&machine), NodeSet::from_iter([one.to]));
                if let (CpusHeld::Alone(has), CpusHeld::Alone(had)) = (&mover.cpus, &had.cpus) {
                    prop_assert_eq!(has.len(), had.len(), "a set is moved as a whole");
                }
            }
            (host, movers) = (next, moved);
        }
    }

    #[test]
    fn a_plan_that_was_carried_out_leaves_nothing_to_plan((machine, movers) in any_host()) {
        let settings = RebalanceSettings { max_moves: 64, max_bytes: ByteSize(64 * GIB), ..RebalanceSettings::default() };
        let start = host(&machine, &movers);
        let report = plan(&start, &movers, &settings, 64 * GIB, PACE);
        let mut past = MoveHistory::default();
        let (after, mut moved) = apply(&start, &movers, &report.moves);
        report.moves.iter().for_each(|one| past.note(one, 0));
        for mover in &mut moved {
            mover.held_back = past.cooling(&mover.cgroup, &settings, 1);
        }
        let again = plan(&after, &moved, &settings, 64 * GIB, PACE);
        prop_assert_eq!(again.moves, Vec::new());
    }

    #[test]
    fn the_order_of_the_input_does_not_matter((machine, movers) in any_host(), by in 0..10usize) {
        let mut others = movers.clone();
        others.rotate_left(by % movers.len());
        prop_assert_eq!(plan_of(&machine, &movers), plan_of(&machine, &others));
    }
}

#[test]
fn workload_stays_within_the_cool_down_and_does_not_return_within_the_guard() {
    const SECOND: u64 = 1_000_000_000;
    let machine = machine(2, 2);
    let report = plan_of(&machine, &[alone(&machine, "/a", "0", &[(1, 64)])]);
    let settings = RebalanceSettings::default();
    let (path, other) = (CgroupPath::new("/a"), CgroupPath::new("/b"));
    let mut past = MoveHistory::default();
    past.note(&report.moves[0], 100 * SECOND);
    for (now, cools, left) in [
        (99, false, ""),
        (100, true, "0"),
        (399, true, "0"),
        (400, false, "0"),
        (999, false, "0"),
        (1000, false, ""),
    ] {
        assert_eq!(past.cooling(&path, &settings, now * SECOND).is_some(), cools, "{now}");
        assert_eq!(past.nodes_it_left(&path, &settings, now * SECOND).to_string(), left, "{now}");
        assert_eq!(past.cooling(&other, &settings, now * SECOND), None);
    }
    past.prune(&settings, 999 * SECOND, |_| true);
    assert_ne!(past, MoveHistory::default());
    past.prune(&settings, 1000 * SECOND, |_| true);
    assert_eq!(past, MoveHistory::default());
}

#[test]
fn bytes_that_were_moved_count_against_the_budget_for_as_long_as_the_guard() {
    let machine = machine(2, 2);
    let report = plan_of(&machine, &[alone(&machine, "/a", "0", &[(0, 512), (1, 512)])]);
    let settings = RebalanceSettings::default();
    let mut past = MoveHistory::default();
    past.note(&report.moves[0], 0);
    let left: Vec<u64> =
        [0, 899, 900].map(|second| past.budget(&settings, second * 1_000_000_000) / MIB).to_vec();
    assert_eq!(left, [4096 - 512, 4096 - 512, 4096]);
}
