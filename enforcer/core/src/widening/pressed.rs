//! Room that strict workloads still lack after neighbours have moved all they can to nodes of the same tier.
//!
//! Problem: neighbours may be bound to the full node by their cpusets, or no other node of its tier has room.
//! Idea: neighbours that are declared for demotion (`memory.demotion`) may have their idle pages on slower
//! memory, ahead of their turn. This module computes the nodes and amounts; [`crate::demotion`] finds the
//! idle pages.
//!
//! Invariants: a node is pressed only after two looks in which no page went elsewhere; strict workloads give
//! nothing; no more is requested than is missing; a short node is no target.
//!
//! Cost: one pass over the guarded workloads for each short node.

use std::collections::{BTreeMap, BTreeSet};

use super::{PressuredNodes, ProtectedWorkload, stage::PressureMarks};
use crate::workload::CgroupPath;
use numa_topology::{id::NodeId, set::NodeSet};

/// Nodes that must be relieved, with the missing bytes and the strict workload that needs them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PressedNodes {
    missing: BTreeMap<NodeId, (u64, CgroupPath)>,
    short: NodeSet,
    strict: BTreeSet<CgroupPath>,
}

/// Nodes that were short at the look before.
#[derive(Debug, Clone, Default)]
pub struct PressureTracker(NodeSet);

impl PressureTracker {
    /// Looks at the strict workloads. `off` are the nodes from which pages went elsewhere since the look
    /// before.
    pub fn update(
        &mut self,
        guarded: &[ProtectedWorkload],
        off: &NodeSet,
        crowd: &PressuredNodes<'_>,
    ) -> PressedNodes {
        let strict = || guarded.iter().filter(|one| one.strict);
        let missing = |node: NodeId| {
            let needy = strict().find(|one| one.mems.contains(node))?;
            let (_, room) = crowd.rooms.iter().find(|(id, _)| *id == node)?;
            let bytes = PressureMarks::of(crowd.settings, room.managed).missing(room.available());
            (bytes > 0).then(|| (node, (bytes, needy.cgroup.clone())))
        };
        let now: BTreeMap<_, _> =
            crowd.short.iter().filter(|node| !off.contains(*node)).filter_map(missing).collect();
        let before = std::mem::replace(&mut self.0, now.keys().copied().collect());
        PressedNodes {
            missing: now.into_iter().filter(|(node, _)| before.contains(*node)).collect(),
            short: crowd.short.clone(),
            strict: strict().map(|one| one.cgroup.clone()).collect(),
        }
    }
}

impl PressedNodes {
    /// Missing bytes of each node; empty if the workload itself is strict.
    pub fn of(&self, cgroup: &CgroupPath) -> BTreeMap<NodeId, u64> {
        if self.strict.contains(cgroup) {
            return BTreeMap::new();
        }
        self.missing.iter().map(|(node, (bytes, _))| (*node, *bytes)).collect()
    }

    /// Nodes that are short, and so no targets.
    pub fn short(&self) -> &NodeSet {
        &self.short
    }

    /// The strict workload that a node is relieved for.
    pub fn beneficiary(&self, node: NodeId) -> Option<&CgroupPath> {
        self.missing.get(&node).map(|(_, cgroup)| cgroup)
    }

    /// Records bytes that have left a node.
    pub fn note(&mut self, node: NodeId, bytes: u64) {
        if let Some((missing, _)) = self.missing.get_mut(&node) {
            *missing = missing.saturating_sub(bytes);
        }
        self.missing.retain(|_, (missing, _)| *missing > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{policy::WideningSettings, widening::NodeRoom};

    const GIB: u64 = 1 << 30;

    fn set(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    fn guarded(path: &str, mems: &str, strict: bool) -> ProtectedWorkload {
        ProtectedWorkload {
            cgroup: CgroupPath::new(path),
            cgroup_id: None,
            home: set(mems),
            mems: set(mems),
            kept: NodeSet::new(),
            cpu_nodes: set(mems),
            spares: Vec::new(),
            strict,
            above: Vec::new(),
            bound: None,
            bytes: BTreeMap::new(),
        }
    }

    /// `node: GiB for beneficiary` after looks in which pages left these nodes. Nodes 0 and 1 have 4 and 5 of
    /// 100 GiB left.
    fn looks(all: &[ProtectedWorkload], off: &[&str]) -> Vec<String> {
        let room = |gib: u64| NodeRoom { free: gib * GIB, managed: 100 * GIB, ..NodeRoom::default() };
        let rooms = [(NodeId(0), room(4)), (NodeId(1), room(5)), (NodeId(2), room(50))];
        let (short, settings) = (set("0-1"), WideningSettings::default());
        let crowd = PressuredNodes { rooms: &rooms, short: &short, settings: &settings };
        let (mut pressing, mut pressed) = (PressureTracker::default(), PressedNodes::default());
        for off in off {
            pressed = pressing.update(all, &set(off), &crowd);
        }
        let said = pressed.of(&CgroupPath::new("/other"));
        said.iter()
            .map(|(node, bytes)| {
                format!("{node}: {} for {}", bytes / GIB, pressed.beneficiary(*node).unwrap())
            })
            .collect()
    }

    #[test]
    fn a_node_is_pressed_once_nothing_goes_elsewhere_twice() {
        let all = [guarded("/a", "0-1", false), guarded("/s", "0", true), guarded("/t", "0-2", true)];
        for (off, expected) in [
            (&["", ""][..], &["0: 12 for /s", "1: 11 for /t"][..]),
            (&[""], &[]),
            (&["0", ""], &["1: 11 for /t"]),
            (&["", "0"], &["1: 11 for /t"]),
            (&["", "0-1", ""], &[]),
            (&["0", "", ""], &["0: 12 for /s", "1: 11 for /t"]),
        ] {
            assert_eq!(looks(&all, off), expected, "{off:?}");
        }
        assert_eq!(looks(&[guarded("/a", "0-1", false)], &["", ""]), [""; 0], "no workload is strict");
    }

    #[test]
    fn strict_workload_gives_nothing_and_no_more_than_is_missing_is_requested() {
        let all = [guarded("/s", "0", true)];
        let room = NodeRoom { free: 4 * GIB, managed: 100 * GIB, ..NodeRoom::default() };
        let (rooms, short, settings) = ([(NodeId(0), room)], set("0"), WideningSettings::default());
        let crowd = PressuredNodes { rooms: &rooms, short: &short, settings: &settings };
        let mut pressing = PressureTracker::default();
        pressing.update(&all, &set(""), &crowd);
        let mut pressed = pressing.update(&all, &set(""), &crowd);
        let (stays, other) = (CgroupPath::new("/s"), CgroupPath::new("/o"));
        assert_eq!((pressed.of(&stays), pressed.short()), (BTreeMap::new(), &short));
        pressed.note(NodeId(0), 5 * GIB);
        assert_eq!(pressed.of(&other), BTreeMap::from([(NodeId(0), 7 * GIB)]));
        pressed.note(NodeId(0), 8 * GIB);
        assert_eq!((pressed.of(&other), pressed.beneficiary(NodeId(0))), (BTreeMap::new(), None));
    }
}
