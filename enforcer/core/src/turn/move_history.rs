//! Past moves and thresholds that were crossed, so that workloads do not move to and fro.
//!
//! Three rules, each of which alone ends a kind of ping-pong. Hysteresis: an ailing workload stays ailing
//! until its figure is below the lower threshold, another becomes ailing above the upper one. Cool-down: a
//! moved workload is not moved again for a while, whatever its figures; each move in a row that was taken
//! back doubles the while. No return: no workload goes back to a node that it left within the last quarter of
//! an hour.
//!
//! Bytes that were moved within that time count against the budget. A time in the future, as after a clock
//! restart, delays nothing. Size: bounded by the present workloads ([`MoveHistory::prune`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::moves::Move;
use crate::{policy::RebalanceSettings, workload::CgroupPath};
use numa_placement::{Grant, Holder};
use numa_topology::{id::NodeId, set::NodeSet};

/// Limit of the doublings of the cool-down: 5 min become 5 h 20 min.
const MOST_DOUBLINGS: u32 = 6;

/// Past moves, and workloads and nodes over a threshold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MoveHistory {
    moves: BTreeMap<CgroupPath, Vec<PastMove>>,
    /// How often in a row a workload was moved back.
    pub(crate) reverts: BTreeMap<CgroupPath, u32>,
    /// Workloads with too many remote accesses.
    ailing: BTreeSet<CgroupPath>,
    /// Nodes that are short of memory.
    short: NodeSet,
    /// Moves in progress.
    #[serde(default)]
    pub(crate) underway: BTreeMap<CgroupPath, InFlightMove>,
}

/// A move in progress of one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct InFlightMove {
    pub(crate) holder: Holder,
    /// The new grant.
    pub(crate) grant: Grant,
    /// The old grant.
    pub(crate) had: Grant,
    /// Source nodes and target of its pages, if its memory nodes alone do not say so.
    pub(crate) gathers: Option<(NodeSet, NodeId)>,
    /// Members of the group, including this workload.
    pub(crate) group: Vec<CgroupPath>,
    /// Monotonic time in nanoseconds.
    pub(crate) began_ns: u64,
    /// Time at which the workload was in its new place.
    pub(crate) reached_ns: Option<u64>,
    /// True for a way back, which is not judged.
    pub(crate) returns: bool,
    /// The move as it was planned.
    pub(crate) plan: Move,
}

/// One move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PastMove {
    at_ns: u64,
    /// Nodes on which its CPUs or its memory were.
    left: NodeSet,
    bytes: u64,
}

impl MoveHistory {
    /// Records that a move begins.
    pub fn note(&mut self, one: &Move, now_ns: u64) {
        let left = one.cpus_from.nodes.union(&one.bytes_from.keys().copied().collect());
        let left = left.difference(&NodeSet::from_iter([one.to]));
        self.moves.entry(one.workload.clone()).or_default().push(PastMove {
            at_ns: now_ns,
            left,
            bytes: one.bytes,
        });
    }

    /// Reason why the workload may not be moved now.
    pub fn cooling(
        &self,
        workload: &CgroupPath,
        settings: &RebalanceSettings,
        now_ns: u64,
    ) -> Option<String> {
        let last = self.moves.get(workload)?.iter().map(|moved| moved.at_ns).max()?;
        let reverts = self.reverts.get(workload).copied().unwrap_or(0);
        let length = settings.cool_down.as_nanos().saturating_mul(1 << reverts.min(MOST_DOUBLINGS));
        let left = left_of(length, last, now_ns)?.div_ceil(1_000_000_000);
        let after = if reverts == 0 { "" } else { ", which had to be taken back" };
        Some(format!("it was moved already{after}; the cool-down ends in {left} s"))
    }

    /// Nodes to which the workload may not return yet.
    pub fn nodes_it_left(&self, workload: &CgroupPath, settings: &RebalanceSettings, now_ns: u64) -> NodeSet {
        let moves = self.moves.get(workload).into_iter().flatten();
        let lately = moves.filter(|moved| is_within(moved, settings, now_ns));
        lately.fold(NodeSet::new(), |left, moved| left.union(&moved.left))
    }

    /// Bytes that may be moved now.
    pub fn budget(&self, settings: &RebalanceSettings, now_ns: u64) -> u64 {
        let lately = self.moves.values().flatten().filter(|moved| is_within(moved, settings, now_ns));
        let spent = lately.fold(0u64, |sum, moved| sum.saturating_add(moved.bytes));
        settings.max_bytes.0.saturating_sub(spent)
    }

    /// Is the share of remote accesses too large, by its present value and its history?
    pub fn is_ailing(&self, workload: &CgroupPath, remote: f64, settings: &RebalanceSettings) -> bool {
        if self.ailing.contains(workload) {
            remote > settings.stop_below
        } else {
            remote >= settings.start_above
        }
    }

    /// Nodes that were short of memory at the last plan.
    pub const fn short(&self) -> &NodeSet {
        &self.short
    }

    /// Records which workloads have too many remote accesses, and which nodes are short of memory.
    pub fn see(&mut self, ailing: BTreeSet<CgroupPath>, short: NodeSet) {
        (self.ailing, self.short) = (ailing, short);
    }

    /// The grant that a workload aims at.
    pub fn aim(&self, cgroup: &CgroupPath) -> Option<&Grant> {
        self.underway.get(cgroup).map(|one| &one.grant)
    }

    /// Nodes from which the pages of a workload are gathered, and the node they go to.
    pub fn gathers(&self, cgroup: &CgroupPath) -> Option<(NodeSet, NodeId)> {
        self.underway.get(cgroup)?.gathers.clone()
    }

    /// Is the workload being moved, or watched after a move?
    pub fn is_underway(&self, cgroup: &CgroupPath) -> bool {
        self.underway.contains_key(cgroup)
    }

    /// Forgets all aims, after a change of the declarations.
    pub fn forget_aims(&mut self) {
        self.underway.clear();
    }

    /// Records that all steps of a workload were carried out: its pages are where they could be brought.
    pub(crate) fn carried(&mut self, cgroup: &CgroupPath) {
        if let Some(one) = self.underway.get_mut(cgroup) {
            one.gathers = None;
        }
    }

    /// Forgets workloads that are gone, and moves that no longer hold anything back.
    pub fn prune(
        &mut self,
        settings: &RebalanceSettings,
        now_ns: u64,
        is_there: impl Fn(&CgroupPath) -> bool,
    ) {
        self.reverts.retain(|workload, _| is_there(workload));
        self.underway.retain(|workload, _| is_there(workload));
        self.ailing.retain(&is_there);
        let reverts = std::mem::take(&mut self.reverts);
        self.moves.retain(|workload, moves| {
            let doubled = reverts.get(workload).map_or(0, |reverts| (*reverts).min(MOST_DOUBLINGS));
            let cool_down = settings.cool_down.as_nanos().saturating_mul(1 << doubled);
            let longest = cool_down.max(settings.no_return.as_nanos());
            moves.retain(|moved| left_of(longest, moved.at_ns, now_ns).is_some());
            // Bytes of workloads that are gone were moved as well.
            !moves.is_empty()
        });
        self.reverts = reverts;
    }
}

/// Does the move count for the guard and the budget?
fn is_within(moved: &PastMove, settings: &RebalanceSettings, now_ns: u64) -> bool {
    left_of(settings.no_return.as_nanos(), moved.at_ns, now_ns).is_some()
}

/// Nanoseconds left of a period of `length_ns` that began at `began_ns`.
fn left_of(length_ns: u64, began_ns: u64, now_ns: u64) -> Option<u64> {
    length_ns.checked_sub(now_ns.checked_sub(began_ns)?).filter(|left| *left > 0)
}
