//! Pages that went to another node to make room, for the log and for `explain`.

use std::fmt::Write as _;

use enforcer_core::{
    widening::ReclaimSource,
    workload::{CgroupPath, Workload},
};
use numa_topology::id::NodeId;

use super::guard_event::BY;
use crate::engine::decisions::{entry, subject};
use enforcer_report::{
    decision::{DecisionRecord, DecisionState, DecisionSubject},
    units,
};

/// Pages of a workload that made room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct ReliefMove {
    /// The workload that the pages belong to.
    pub(in crate::engine) cgroup: CgroupPath,
    pub(super) source: ReclaimSource,
    /// The strict workload that got the room, if it is another one.
    pub(super) strict: Option<CgroupPath>,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) bytes: u64,
    pub(super) processes: u32,
    pub(super) left: Vec<String>,
}

impl ReliefMove {
    /// The move in one sentence.
    pub(super) fn sentence(&self) -> String {
        let Self { source, strict, from, to, bytes, processes, left, .. } = self;
        let (bytes, of) = (units::bytes(*bytes), if *processes == 1 { "process" } else { "processes" });
        let mut text = match (source, strict) {
            (ReclaimSource::Neighbour, Some(strict)) => format!(
                "{bytes} of {processes} {of} went from node {from} to node {to}, so that {strict}, which is declared to stay, has room"
            ),
            _ => format!(
                "{bytes} of {processes} {of} bound to node {from} went to node {to}: their memory policy allows them no other node, and it was nearly full"
            ),
        };
        for part in left {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "; {part}");
        }
        text
    }

    /// The move as a decision.
    pub(in crate::engine) fn record(&self, workload: &Workload) -> (DecisionSubject, DecisionRecord) {
        let reason = self.sentence();
        (subject(workload), DecisionRecord { reason, ..entry(BY, DecisionState::Corrected) })
    }
}
