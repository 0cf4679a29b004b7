//! One workload that is guarded: where it may allocate, how near it is, and what was done about it.
//!
//! A guard knows what its cpuset is about to be: a node counts as there from the moment it is asked for,
//! because the write takes effect long before it returns, and what has been asked for must not be asked for
//! again. A write that fails takes it back.

use std::collections::BTreeMap;

use super::{
    choice::Spare,
    stage::{Sign, Stage},
};
use crate::{id::NodeId, set::NodeSet, workload::CgroupPath};

/// A workload whose memory nodes are looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarded {
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// The kernel's id of it: a cgroup that is made again is another one.
    pub cgroup_id: Option<u64>,
    /// Nodes that it was granted.
    pub home: NodeSet,
    /// What its cpuset has of ordinary memory, or will have in a moment: what it may allocate on, and what
    /// is written beside what is added.
    pub mems: NodeSet,
    /// Nodes of GPU memory that its cpuset has: they are written beside the others, and are no room for it.
    pub kept: NodeSet,
    /// Nodes of the CPUs that it runs on.
    pub cpu_nodes: NodeSet,
    /// What may be added, in order.
    pub spares: Vec<Spare>,
    /// It is never widened.
    pub strict: bool,
    /// Cgroups above it that are the daemon's to widen, from the top down, and what they have.
    pub above: Vec<(CgroupPath, NodeSet)>,
    /// What keeps nodes from it, in words; none where nothing does.
    pub bound: Option<String>,
    /// Bytes that it had on each node when that was last looked at; nothing of nodes of which it is not
    /// known.
    pub bytes: BTreeMap<NodeId, u64>,
}

/// Why a workload that is short of memory gets no node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// It is declared to stay where it is.
    Strict,
    /// Its own limit ends its growth before its nodes do: more nodes would not help.
    MemoryLimit,
    /// No node that it may have has room.
    NoNode,
}

impl Refusal {
    /// As in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::MemoryLimit => "memory-limit",
            Self::NoNode => "no-node",
        }
    }
}

/// A guarded workload and its state between two looks.
#[derive(Debug, Clone)]
pub struct Guard {
    pub(super) of: Guarded,
    pub(super) stage: Stage,
    /// The worst since the look before.
    pub(super) sign: Option<Sign>,
    /// When a node was asked for last, in ns.
    pub(super) stepped_ns: Option<u64>,
    /// What the cpuset had before a write that has not returned.
    pub(super) pending: Option<NodeSet>,
    /// That write is because it is short itself, and not to make room for another one.
    pub(super) for_itself: bool,
    /// What the kernel told before the latest look.
    pub(super) told: Option<Sign>,
    /// What was told last, so that it is told once.
    pub(super) refused: Option<Refusal>,
    /// How often its marks were raised, because it was killed all the same.
    pub(super) raised: u8,
}

impl Guard {
    pub(super) fn new(of: Guarded) -> Self {
        Self {
            of,
            stage: Stage::Calm,
            sign: None,
            stepped_ns: None,
            pending: None,
            for_itself: false,
            told: None,
            refused: None,
            raised: 0,
        }
    }

    /// Which workload it is, and what it has.
    pub fn guarded(&self) -> &Guarded {
        &self.of
    }

    /// How near it is.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Goes on with what is known now of the same workload. What was asked for and is not written yet stays
    /// asked for.
    pub(super) fn follow(&mut self, mut now: Guarded) {
        if self.pending.is_some() {
            now.mems.extend(&self.of.mems);
        }
        self.of = now;
    }

    /// Its cpuset is asked to have these, because it is short itself or to make room for another one.
    pub(super) fn ask(&mut self, wider: &NodeSet, for_itself: bool, now_ns: u64) {
        self.for_itself = for_itself;
        self.pending = Some(std::mem::replace(&mut self.of.mems, wider.clone()));
        self.stepped_ns = Some(now_ns);
    }

    /// What it may allocate on until the write returns that it needs; none while it waits for none.
    pub(super) fn waits_on(&self) -> Option<&NodeSet> {
        self.pending.as_ref().filter(|_| self.for_itself && !self.of.strict)
    }

    /// Notes what the kernel told.
    pub(super) fn sign(&mut self, sign: Sign) {
        self.sign = self.sign.max(Some(sign));
    }
}
