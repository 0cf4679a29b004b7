//! What is still missing on the nodes of workloads that are declared to stay, when neighbours have nothing
//! left that could go to another node as good.
//!
//! Problem: neighbours may be bound to the full node by their cpusets, or no other node of its tier has room.
//! Idea: what they do not touch may be on slower memory, where they are declared for that
//! (`memory.demotion`), and it need not wait for its turn there. This says on which nodes and how much; which
//! pages are cold is for [`crate::demotion`] to say.
//!
//! Never: a node from which pages still go elsewhere, or on which that was not tried twice; anything of a
//! workload that is declared to stay; more than is missing; a target that is short itself.
//!
//! Cost: one pass over the guarded for each short node.

use std::collections::{BTreeMap, BTreeSet};

use super::{Crowd, Guarded, stage::Marks};
use crate::{id::NodeId, set::NodeSet, workload::CgroupPath};

/// Who is pressed, and by how much.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pressed {
    missing: BTreeMap<NodeId, (u64, CgroupPath)>,
    short: NodeSet,
    strict: BTreeSet<CgroupPath>,
}

/// What lasts between two looks.
#[derive(Debug, Clone, Default)]
pub struct Pressing(NodeSet);

impl Pressing {
    /// Looks at those who are declared to stay. `off` are the nodes from which pages went elsewhere since the
    /// look before.
    pub fn look(&mut self, guarded: &[Guarded], off: &NodeSet, crowd: &Crowd<'_>) -> Pressed {
        let strict = || guarded.iter().filter(|one| one.strict);
        let missing = |node: NodeId| {
            let whom = strict().find(|one| one.mems.contains(node))?;
            let (_, room) = crowd.rooms.iter().find(|(id, _)| *id == node)?;
            let bytes = Marks::of(crowd.settings, room.managed).missing(room.available());
            (bytes > 0).then(|| (node, (bytes, whom.cgroup.clone())))
        };
        let now: BTreeMap<_, _> =
            crowd.short.iter().filter(|node| !off.contains(*node)).filter_map(missing).collect();
        let before = std::mem::replace(&mut self.0, now.keys().copied().collect());
        Pressed {
            missing: now.into_iter().filter(|(node, _)| before.contains(*node)).collect(),
            short: crowd.short.clone(),
            strict: strict().map(|one| one.cgroup.clone()).collect(),
        }
    }
}

impl Pressed {
    /// Bytes that are missing on each node; nothing where this workload is to be left alone.
    pub fn of(&self, cgroup: &CgroupPath) -> BTreeMap<NodeId, u64> {
        if self.strict.contains(cgroup) {
            return BTreeMap::new();
        }
        self.missing.iter().map(|(node, (bytes, _))| (*node, *bytes)).collect()
    }

    /// Nodes that take nothing.
    pub fn short(&self) -> &NodeSet {
        &self.short
    }

    /// For whom a node is relieved.
    pub fn whom(&self, node: NodeId) -> Option<&CgroupPath> {
        self.missing.get(&node).map(|(_, whom)| whom)
    }

    /// So much has gone from a node.
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

    fn guarded(path: &str, mems: &str, strict: bool) -> Guarded {
        Guarded {
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

    /// `node: GiB for whom` after looks in which pages went off these nodes. Nodes 0 and 1 have 4 and 5 of
    /// 100 GiB left.
    fn looks(all: &[Guarded], off: &[&str]) -> Vec<String> {
        let room = |gib: u64| NodeRoom { free: gib * GIB, managed: 100 * GIB, ..NodeRoom::default() };
        let rooms = [(NodeId(0), room(4)), (NodeId(1), room(5)), (NodeId(2), room(50))];
        let (short, settings) = (set("0-1"), WideningSettings::default());
        let crowd = Crowd { rooms: &rooms, short: &short, settings: &settings };
        let (mut pressing, mut pressed) = (Pressing::default(), Pressed::default());
        for off in off {
            pressed = pressing.look(all, &set(off), &crowd);
        }
        let said = pressed.of(&CgroupPath::new("/other"));
        said.iter()
            .map(|(node, bytes)| format!("{node}: {} for {}", bytes / GIB, pressed.whom(*node).unwrap()))
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
        assert_eq!(looks(&[guarded("/a", "0-1", false)], &["", ""]), [""; 0], "nobody is declared to stay");
    }

    #[test]
    fn who_is_declared_to_stay_gives_nothing_and_no_more_than_is_missing_is_asked_for() {
        let all = [guarded("/s", "0", true)];
        let room = NodeRoom { free: 4 * GIB, managed: 100 * GIB, ..NodeRoom::default() };
        let (rooms, short, settings) = ([(NodeId(0), room)], set("0"), WideningSettings::default());
        let crowd = Crowd { rooms: &rooms, short: &short, settings: &settings };
        let mut pressing = Pressing::default();
        pressing.look(&all, &set(""), &crowd);
        let mut pressed = pressing.look(&all, &set(""), &crowd);
        let (stays, other) = (CgroupPath::new("/s"), CgroupPath::new("/o"));
        assert_eq!((pressed.of(&stays), pressed.short()), (BTreeMap::new(), &short));
        pressed.note(NodeId(0), 5 * GIB);
        assert_eq!(pressed.of(&other), BTreeMap::from([(NodeId(0), 7 * GIB)]));
        pressed.note(NodeId(0), 8 * GIB);
        assert_eq!((pressed.of(&other), pressed.whom(NodeId(0))), (BTreeMap::new(), None));
    }
}
