//! Pages that leave a nearly full memory node, for processes that cannot use another node.
//!
//! Problem: another node does not help two sorts of processes. One has bound its memory to the full node
//! (`MPOL_BIND`): its policy allows the kernel no other node, so it is killed although its cpuset was
//! widened. The other belongs to a strict workload. Idea: make room on the full node. Pages of the bound
//! process go to the added node (`move_pages(2)` checks the cpuset and not the policy), and the process fills
//! the room that they leave. A strict workload gets the room of neighbours that may be elsewhere.
//!
//! Terminology. A node is *short* below the mark at which a workload is armed; the *wanted* room reaches up
//! to the mark at which it is released. *Tenants* are the processes with pages that may go.
//!
//! Invariants: no page goes to a short node, or leaves the target less than a tenth of its memory; no more
//! goes than is wanted; pages that a neighbour has bound to the node stay; pages of strict workloads stay.
//!
//! Cost: one pass over the mappings of the tenants and a sort of them for each short node.

use super::{NodeRoom, process_memory::ProcessMemory, stage::PressureMarks};
use crate::{
    demotion::{PageFlow, ProcessRange},
    policy::WideningSettings,
};
use numa_topology::{id::NodeId, set::NodeSet};
use strum::{IntoStaticStr, VariantNames};

/// A node keeps more than one part in so many of its memory.
const PARTS: u64 = 10;

/// Source of the pages that leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum ReclaimSource {
    /// Processes bound to the node, for their own growth.
    Bound,
    /// Unbound pages of a neighbour, for a strict workload.
    Neighbour,
    /// Idle pages of a neighbour, to slower memory, for a strict workload.
    Cold,
}

/// State of the machine's nodes while some are short.
#[derive(Debug, Clone, Copy)]
pub struct PressuredNodes<'a> {
    /// Room of each node.
    pub rooms: &'a [(NodeId, NodeRoom)],
    /// Nodes that are short.
    pub short: &'a NodeSet,
    /// Settings that say what short is.
    pub settings: &'a WideningSettings,
}

/// The nodes of `nodes` that are nearly full.
pub fn short(nodes: &NodeSet, rooms: &[(NodeId, NodeRoom)], settings: &WideningSettings) -> NodeSet {
    let is_short = |room: &NodeRoom| PressureMarks::of(settings, room.managed).is_short(room.available());
    let of = rooms.iter().filter(|(node, room)| nodes.contains(*node) && is_short(room));
    of.map(|(node, _)| *node).collect()
}

/// Flows of pages off the short nodes of `from`, of tenants that may use `mems`. Nodes of `order` take pages
/// first, in that order; other nodes of `mems` follow.
pub fn relief(
    source: ReclaimSource,
    tenants: &[ProcessMemory],
    from: &NodeSet,
    mems: &NodeSet,
    order: &[NodeId],
    crowd: &PressuredNodes<'_>,
) -> Vec<PageFlow> {
    let PressuredNodes { rooms, short, settings } = *crowd;
    let known = |node: NodeId| rooms.iter().find(|(id, _)| *id == node).map(|(_, room)| *room);
    let others = mems.iter().filter(|node| !order.contains(node));
    let targets = order.iter().copied().filter(|node| mems.contains(*node)).chain(others);
    let mut takers: Vec<(NodeId, u64)> = targets
        .filter(|node| !short.contains(*node))
        .filter_map(|node| {
            let room = known(node)?;
            Some((node, room.available().saturating_sub(room.managed / PARTS)))
        })
        .collect();
    let mut flows = Vec::new();
    for from in short.intersection(from).intersection(mems).iter() {
        let Some(room) = known(from) else { continue };
        let (pieces, mut there) = pieces(source, tenants, from, short);
        let mut wanted = PressureMarks::of(settings, room.managed).missing(room.available());
        for (to, left) in &mut takers {
            let bytes = wanted.min(there).min(*left);
            if bytes == 0 {
                continue;
            }
            (wanted, there, *left) = (wanted - bytes, there - bytes, *left - bytes);
            flows.push(PageFlow { from, to: *to, pieces: pieces.clone(), bytes });
        }
    }
    flows
}

/// Pieces that may leave a node, the largest mappings first, and their total.
fn pieces(
    source: ReclaimSource,
    tenants: &[ProcessMemory],
    from: NodeId,
    short: &NodeSet,
) -> (Vec<ProcessRange>, u64) {
    let may = |bound: Option<&NodeSet>| match source {
        // If one of its nodes has room the kernel finds that.
        ReclaimSource::Bound => bound.is_some_and(|nodes| nodes.is_subset(short)),
        ReclaimSource::Neighbour => bound.is_none(),
        // `numa_maps` does not show which pages are idle.
        ReclaimSource::Cold => false,
    };
    let mut found: Vec<(u64, ProcessRange)> = Vec::new();
    for tenant in tenants {
        for held in tenant.mappings.iter().filter(|held| may(held.bound.as_ref())) {
            let bytes = held.on(from);
            if bytes > 0 {
                found.push((bytes, ProcessRange { pid: tenant.pid, range: held.range }));
            }
        }
    }
    found.sort_by_key(|(bytes, piece)| (std::cmp::Reverse(*bytes), piece.pid, piece.range));
    let sum = found.iter().fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
    (found.into_iter().map(|(_, piece)| piece).collect(), sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn set(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    /// Nodes of 100 GiB with this much left: short below 8, wanted up to 16.
    fn rooms(gib: &[u64]) -> Vec<(NodeId, NodeRoom)> {
        let room = |gib: &u64| NodeRoom { free: gib * GIB, managed: 100 * GIB, ..NodeRoom::default() };
        (0..).map(NodeId).zip(gib.iter().map(room)).collect()
    }

    /// Mappings by policy and GiB on nodes 0 and 1.
    fn tenant(pid: u32, mappings: &[(&str, u64, u64)]) -> ProcessMemory {
        let mut tenant = ProcessMemory::new(pid);
        for (index, (policy, on_0, on_1)) in mappings.iter().enumerate() {
            let pages = |gib: u64| gib << 18;
            let (address, on_0, on_1) = (index + 1, pages(*on_0), pages(*on_1));
            tenant.add_line(&format!("{address}000 {policy} anon=1 N0={on_0} N1={on_1} kernelpagesize_kB=4"));
        }
        tenant
    }

    /// `from>to GiB: pid@mapping ..` of each flow.
    fn said(source: ReclaimSource, tenants: &[ProcessMemory], mems: &str, gib: &[u64]) -> Vec<String> {
        let (mems, rooms, settings) = (set(mems), rooms(gib), WideningSettings::default());
        let all = (0..8).map(NodeId).collect();
        let short = short(&all, &rooms, &settings);
        let crowd = PressuredNodes { rooms: &rooms, short: &short, settings: &settings };
        let flows = relief(source, tenants, &all, &mems, &[NodeId(2), NodeId(1)], &crowd);
        let piece = |piece: &ProcessRange| format!("{}@{:x}", piece.pid, piece.range.start >> 12);
        let flow = |flow: &PageFlow| {
            let pieces: Vec<_> = flow.pieces.iter().map(piece).collect();
            format!("{}>{} {}: {}", flow.from, flow.to, flow.bytes / GIB, pieces.join(" "))
        };
        flows.iter().map(flow).collect()
    }

    #[test]
    fn pages_of_a_bound_process_go_where_there_is_room() {
        let bound = [tenant(7, &[("bind:0", 20, 0), ("default", 30, 0), ("bind:0", 40, 5)])];
        for (mems, gib, expected) in [
            ("0-1", [4, 50, 50], vec!["0>1 12: 7@3 7@1"]),
            ("0-1", [9, 50, 50], vec![]),
            ("0", [4, 50, 50], vec![]),
            ("0-1", [4, 7, 50], vec![]),
            ("0-1", [4, 9, 50], vec![]),
            // The order of nodes, and what a node has to keep.
            ("0-2", [4, 50, 50], vec!["0>2 12: 7@3 7@1"]),
            ("0-2", [4, 50, 15], vec!["0>2 5: 7@3 7@1", "0>1 7: 7@3 7@1"]),
        ] {
            assert_eq!(said(ReclaimSource::Bound, &bound, mems, &gib), expected, "{mems} {gib:?}");
        }
    }

    #[test]
    fn process_bound_to_a_node_with_room_is_left_alone() {
        let two = [tenant(7, &[("bind:0-1", 20, 20), ("prefer:0", 20, 0), ("interleave:0", 9, 0)])];
        assert_eq!(said(ReclaimSource::Bound, &two, "0-2", &[4, 50, 50]), [""; 0]);
        assert_eq!(said(ReclaimSource::Bound, &two, "0-2", &[4, 4, 50]), ["0>2 12: 7@1", "1>2 12: 7@1"]);
    }

    #[test]
    fn neighbours_give_what_they_have_not_bound_and_no_more_than_that() {
        let neighbours =
            [tenant(8, &[("default", 3, 0), ("bind:0", 50, 0)]), tenant(7, &[("default", 5, 0)])];
        assert_eq!(said(ReclaimSource::Neighbour, &neighbours, "0-1", &[4, 50, 50]), ["0>1 8: 7@1 8@1"]);
    }

    proptest! {
        #[test]
        fn no_more_goes_than_is_wanted_there_is_and_there_is_room_for(
            gib in proptest::array::uniform4(0u64..100), mems in 1u32..16, from in 0u32..16,
            held in proptest::collection::vec((0u32..3, 0u64..40, 0u64..40), 0..6), neighbour: bool,
        ) {
            let of = |bits: u32| (0..4).filter(|id| bits & (1 << id) != 0).map(NodeId).collect::<NodeSet>();
            let policies = ["bind:0", "default", "bind:0-1"];
            let mappings: Vec<_> = held.iter().map(|(policy, a, b)| (policies[*policy as usize], *a, *b)).collect();
            let (tenants, rooms) = ([tenant(3, &mappings)], rooms(&gib));
            let (mems, settings) = (of(mems), WideningSettings::default());
            let short = short(&of(15), &rooms, &settings);
            let source = if neighbour { ReclaimSource::Neighbour } else { ReclaimSource::Bound };
            let crowd = PressuredNodes { rooms: &rooms, short: &short, settings: &settings };
            let flows = relief(source, &tenants, &of(from), &mems, &[NodeId(3)], &crowd);
            for node in 0..4u32 {
                let out: u64 = flows.iter().filter(|flow| flow.from == NodeId(node)).map(|flow| flow.bytes).sum();
                let into: u64 = flows.iter().filter(|flow| flow.to == NodeId(node)).map(|flow| flow.bytes).sum();
                let has = gib[node as usize];
                prop_assert!(out == 0 || (has < 8 && out <= (16 - has) * GIB && of(from).intersection(&mems).contains(NodeId(node))));
                prop_assert!(into == 0 || (has >= 10 && into <= (has - 10) * GIB && mems.contains(NodeId(node))));
                let there: u64 = tenants[0].mappings.iter().map(|held| held.on(NodeId(node))).sum();
                prop_assert!(out <= there);
            }
            for flow in &flows {
                prop_assert!(flow.bytes > 0 && !flow.pieces.is_empty() && flow.from != flow.to);
            }
        }
    }
}
