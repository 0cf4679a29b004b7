//! A workload may use only nodes that are nearly full, and other nodes have room.
//!
//! Problem: memory outside of a workload's memory nodes does not help it. When these are full, the kernel
//! reclaims there: page cache first, then by swapping, and in the end it kills. Idea: compare what is
//! [available](crate::node_room) on these nodes with the rest, before there is nothing left to reclaim.
//!
//! Invariants: a workload that may also use a node with room is no finding, because the kernel takes memory
//! there. A node counts as short below `memory.widening.widen_percent`, where the daemon would add a node,
//! and has room above `rebalance.enough_above`, as for moves.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use super::{
    Evidence, Finding, Rule, Severity,
    remedy::quote,
    subject::{FindingWords, Subject},
};
use crate::{
    model::{accessed_bytes, nearest_effective},
    node_room::NodeRoom,
    sample::{OomConstraint, PressureKind},
    words::{self, size},
    workload::{CgroupPath, Origin, Workload},
};
use numa_topology::{id::NodeId, set::NodeSet};

/// Most nodes in the evidence, and most neighbours.
const NAMED: usize = 3;

/// Counters of reclaim and of allocations that went elsewhere, in `vmstat` and `numastat` of a node.
const COUNTERS: [&str; 5] =
    ["pgscan_kswapd", "pgsteal_kswapd", "pgscan_direct", "pgsteal_direct", "numa_foreign"];

/// Memory of a workload on short nodes.
struct NeighbourMemory {
    /// See [`Workload::object`](crate::workload::Workload::object).
    object: String,
    name: String,
    cgroup: CgroupPath,
    bytes: u64,
    /// May it use a node with room?
    is_movable: bool,
}

/// Workloads with memory on short nodes, the largest first, by these nodes: workloads that may use the same
/// nodes share them.
#[derive(Default)]
pub(super) struct NodeSharers(RefCell<BTreeMap<NodeSet, Rc<[NeighbourMemory]>>>);

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    if matches!(subject.workload.origin, Origin::Process { .. }) || !subject.has_memory() {
        return None;
    }
    let ordinary = subject.inventory.machine.ordinary_memory_nodes();
    let own = subject.figures.mems.as_ref()?.intersection(&ordinary);
    let room = |node: NodeId| subject.sample.nodes.get(&node)?.room().filter(|room| room.managed > 0);
    let rooms: Vec<(NodeId, NodeRoom)> =
        own.iter().map(|node| Some((node, room(node)?))).collect::<Option<_>>()?;
    let widen_percent = u32::from(subject.policy.memory.widening.widen_percent);
    let is_short = |room: &NodeRoom| percent_of(room) < widen_percent;
    if rooms.is_empty() || !rooms.iter().all(|(_, room)| is_short(room)) {
        return None;
    }
    let enough = subject.policy.rebalance.enough_above;
    let has_enough =
        |node: &NodeId| room(*node).is_some_and(|room| f64::from(percent_of(&room)) >= enough * 100.0);
    let others: NodeSet = ordinary.difference(&own).iter().filter(has_enough).collect();
    let spare = others.iter().filter_map(room).map(|room| room.available()).fold(0u64, u64::saturating_add);
    if others.is_empty() {
        return None;
    }
    let available = rooms.iter().map(|(_, room)| room.available()).fold(0u64, u64::saturating_add);
    let managed = rooms.iter().map(|(_, room)| room.managed).fold(0u64, u64::saturating_add);
    let is_reclaiming = has_reclaimed(subject, &own);
    let sharers = sharers(subject, &own, &others);
    let object = subject.workload.object();
    let neighbours: Vec<&NeighbourMemory> = sharers.iter().filter(|one| one.object != object).collect();
    let words = FindingWords {
        summary: format!(
            "it may only use {}, with {} of {} available, and {} available on {}",
            words::nodes(&own),
            size(available),
            size(managed),
            size(spare),
            words::nodes(&others)
        ),
        impact: if is_reclaiming {
            "tasks reclaim memory there before they get some; what cannot be reclaimed is swapped out, and then the \
             OOM killer acts, although other nodes have room"
                .to_owned()
        } else {
            "more memory has to be reclaimed there, then swapped out, and then the OOM killer acts, although other \
             nodes have room"
                .to_owned()
        },
        remedy: Err(what_helps(subject, &own, &others, &neighbours)),
    };
    let severity = if is_reclaiming { Severity::Critical } else { Severity::Warning };
    let evidence = evidence(subject, &rooms, &neighbours);
    Some(subject.finding(Rule::ShortNodes, severity, words, evidence))
}

/// Available memory of a node in percent.
fn percent_of(room: &NodeRoom) -> u32 {
    let percent = u128::from(room.available()) * 100 / u128::from(room.managed.max(1));
    u32::try_from(percent).unwrap_or(u32::MAX)
}

/// Did a task reclaim, or was one killed, for want of memory on these nodes since the last look? Direct
/// reclaim and a kill name the node of the CPU, so they count for the workload that they are of.
fn has_reclaimed(subject: &Subject<'_>, own: &NodeSet) -> bool {
    let mut events = subject.sample.pressure_events.iter().flat_map(|events| &events.latest);
    events.any(|event| {
        let is_its = event.workload.as_ref().map(|cgroup| *cgroup == subject.workload.cgroup);
        match event.kind {
            PressureKind::KswapdWoken => false,
            PressureKind::DirectReclaim => is_its == Some(true),
            // The limit of a memory cgroup says nothing of a node.
            PressureKind::OomVictim => is_its == Some(true) && event.constraint != Some(OomConstraint::Memcg),
            PressureKind::ReclaimRetry => own.contains(event.numa_node) && is_its != Some(false),
        }
    })
}

/// Workloads with memory on these nodes; `others` follows from these nodes.
fn sharers(subject: &Subject<'_>, own: &NodeSet, others: &NodeSet) -> Rc<[NeighbourMemory]> {
    if let Some(known) = subject.sharers.0.borrow().get(own) {
        return Rc::clone(known);
    }
    let of = |workload: &Workload| {
        let figures = subject.inputs.model.of(workload)?;
        let by_node = figures.bytes_by_node.as_ref()?;
        let there = by_node.iter().filter(|(node, _)| own.contains(**node));
        let bytes = there.map(|(_, bytes)| accessed_bytes(bytes)).fold(0u64, u64::saturating_add);
        let is_movable = figures.mems.as_ref().is_some_and(|mems| !mems.is_disjoint(others));
        (bytes > 0).then(|| NeighbourMemory {
            object: workload.object(),
            name: workload.name.clone(),
            cgroup: workload.cgroup.clone(),
            bytes,
            is_movable,
        })
    };
    let mut found: Vec<_> = subject.inputs.workloads.iter().filter_map(of).collect();
    found.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.cgroup.cmp(&b.cgroup)));
    let found: Rc<[_]> = found.into();
    subject.sharers.0.borrow_mut().insert(own.clone(), Rc::clone(&found));
    found
}

/// How the workload gets more memory.
fn what_helps(
    subject: &Subject<'_>,
    own: &NodeSet,
    others: &NodeSet,
    neighbours: &[&NeighbourMemory],
) -> String {
    let movable = neighbours.iter().find(|one| one.is_movable).map(|one| {
        let name = &one.name;
        format!(
            "{name} holds {} of them and may use {}: move it there",
            size(one.bytes),
            words::nodes(others)
        )
    });
    let cgroup = &subject.workload.cgroup;
    let above = cgroup
        .parent()
        .and_then(|parent| nearest_effective(subject.sample, &parent, |seen| seen.mems_effective.as_ref()));
    let declared = subject.inputs.declarations.rule(subject.policy, cgroup).map(|(_, rule)| rule);
    let reachable = above.as_ref().map_or_else(|| others.clone(), |(_, mems)| others.intersection(mems));
    let wider = own.union(&reachable);
    let own_way = match (subject.owner.filter(|owner| owner.owner.is_foreign()), above, declared) {
        (Some(foreign), ..) => Err(foreign.refusal()),
        (_, Some((path, mems)), _) if mems.is_disjoint(others) => {
            Err(format!("the cgroup {path} above it allows {} alone", words::nodes(mems)))
        }
        (.., Some(rule)) if rule.strict_memory => Err("it is declared to stay (strict_memory)".to_owned()),
        _ => {
            let file = quote(&subject.files().cpuset(cgroup, "cpuset.mems"));
            Ok(format!("let it use more nodes: echo {wider} > {file}"))
        }
    };
    match (movable, own_way) {
        (Some(move_it), Ok(widen)) => format!("{move_it}; or {widen}"),
        (Some(move_it), Err(why)) => format!("{why}; {move_it}"),
        (None, Ok(widen)) => widen,
        (None, Err(why)) => why,
    }
}

/// Room and reclaim of the nodes, its own memory and cpuset, and the largest neighbours.
fn evidence(
    subject: &Subject<'_>,
    rooms: &[(NodeId, NodeRoom)],
    neighbours: &[&NeighbourMemory],
) -> Vec<Evidence> {
    let folder = |node: NodeId| format!("/sys/devices/system/node/node{node}");
    let of_node = |(node, room): &(NodeId, NodeRoom)| {
        let value = format!(
            "{} available, {} free, low watermark {}, of {}",
            size(room.available()),
            size(room.free),
            size(room.low),
            size(room.managed)
        );
        let counters = &subject.sample.nodes.get(node)?.counters;
        let counted = COUNTERS.iter().filter_map(|name| {
            counters.get(*name).filter(|count| **count > 0).map(|count| format!("{name} {count}"))
        });
        let counted = counted.collect::<Vec<_>>().join(", ");
        let counted = (!counted.is_empty())
            .then(|| Evidence { source: format!("{}/vmstat", folder(*node)), value: counted });
        Some([Some(Evidence { source: format!("{}/meminfo", folder(*node)), value }), counted])
    };
    let of_nodes = rooms.iter().take(NAMED).filter_map(of_node).flatten().flatten();
    let of_neighbour = |one: &&NeighbourMemory| Evidence {
        source: subject.files().memory(&one.cgroup, "memory.numa_stat"),
        value: format!("{} on these nodes", size(one.bytes)),
    };
    of_nodes
        .chain(subject.residency_evidence())
        .chain(subject.cpuset_evidence())
        .chain(neighbours.iter().take(NAMED).map(of_neighbour))
        .collect()
}
