//! One guarded workload: its nodes, its stage, and the steps already taken.
//!
//! A guard knows the future cpuset: a node counts from the moment it is requested, because the write takes
//! effect long before it returns, and the same node must not be requested twice. A failed write takes it
//! back.

use strum::{IntoStaticStr, VariantNames};

use super::stage::{PressureLevel, PressureSign};
use crate::turn::ProtectedWorkload;
use numa_topology::set::NodeSet;

/// Reason why a workload that is short of memory gets no node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum WideningRefusal {
    /// It is declared to stay on its nodes.
    Strict,
    /// Its own memory limit ends its growth before its nodes do: more nodes would not help.
    MemoryLimit,
    /// No allowed node has room.
    NoNode,
}

/// A guarded workload and its state between two looks.
#[derive(Debug, Clone)]
pub struct Guard {
    pub(super) of: ProtectedWorkload,
    pub(super) stage: PressureLevel,
    /// Worst event of the kernel since the look before.
    pub(super) sign: Option<PressureSign>,
    /// Time of the last requested node, in ns.
    pub(super) stepped_ns: Option<u64>,
    /// Nodes of the cpuset before a write that has not returned.
    pub(super) pending: Option<NodeSet>,
    /// True if that write is for its own shortage, and not to make room for another workload.
    pub(super) for_itself: bool,
    /// Event of the kernel before the latest look.
    pub(super) told: Option<PressureSign>,
    /// Last reported refusal, so that it is reported once.
    pub(super) refused: Option<WideningRefusal>,
    /// How often its marks were raised because it was killed although it was widened.
    pub(super) raised: u8,
}

impl Guard {
    pub(super) fn new(of: ProtectedWorkload) -> Self {
        Self {
            of,
            stage: PressureLevel::Calm,
            sign: None,
            stepped_ns: None,
            pending: None,
            for_itself: false,
            told: None,
            refused: None,
            raised: 0,
        }
    }

    /// The workload and its nodes.
    pub fn guarded(&self) -> &ProtectedWorkload {
        &self.of
    }

    /// The present stage.
    pub fn stage(&self) -> PressureLevel {
        self.stage
    }

    /// Takes over new facts of the same workload. Requested nodes that are not written yet stay requested.
    pub(super) fn update(&mut self, mut now: ProtectedWorkload) {
        if self.pending.is_some() {
            now.mems.extend(&self.of.mems);
        }
        self.of = now;
    }

    /// Records a request for these nodes, for its own shortage or to make room for another workload.
    pub(super) fn ask(&mut self, wider: &NodeSet, for_itself: bool, now_ns: u64) {
        self.for_itself = for_itself;
        self.pending = Some(std::mem::replace(&mut self.of.mems, wider.clone()));
        self.stepped_ns = Some(now_ns);
    }

    /// Nodes that it may use until the write that it needs returns; `None` if it waits for none.
    pub(super) fn waits_on(&self) -> Option<&NodeSet> {
        self.pending.as_ref().filter(|_| self.for_itself && !self.of.strict)
    }

    /// Records an event of the kernel.
    pub(super) fn sign(&mut self, sign: PressureSign) {
        self.sign = self.sign.max(Some(sign));
    }
}
