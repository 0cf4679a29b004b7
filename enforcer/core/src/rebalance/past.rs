//! What was moved before, and what was over a threshold: that nobody goes to and fro.
//!
//! Three rules, each of which alone ends a kind of ping-pong. Hysteresis: who is ailing stays so until its
//! figure is below the lower threshold, who is not becomes so above the upper one. Cool-down: who was moved
//! is not moved again for a while, whatever its figures; after a move that had to be taken back the while is
//! twice as long, and twice again. No return: even after that nobody goes back to a node that it left within
//! the last quarter of an hour.
//!
//! Bytes that were moved within that time count against the budget. A time in the future, as after a restart
//! of the clock, holds nothing back. Bounded by the workloads that are there ([`Past::prune`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{course::Underway, gather::Gathered, report::Move, state::short, view::Ailment};
use crate::{policy::RebalanceSettings, set::NodeSet, workload::CgroupPath};

/// Most times that the cool-down is doubled: 5 min become 5 h 20 min.
const MOST_DOUBLINGS: u32 = 6;

/// What was moved, and what ails.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Past {
    moves: BTreeMap<CgroupPath, Vec<Moved>>,
    /// How often in a row a workload had to be moved back.
    pub(super) reverts: BTreeMap<CgroupPath, u32>,
    /// Workloads with too many remote accesses.
    ailing: BTreeSet<CgroupPath>,
    /// Nodes that are short of memory.
    short: NodeSet,
    /// Moves that are not over yet.
    #[serde(default)]
    pub(super) underway: BTreeMap<CgroupPath, Underway>,
}

/// One move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Moved {
    at_ns: u64,
    /// Nodes on which its CPUs or its memory were.
    left: NodeSet,
    bytes: u64,
}

impl Past {
    /// Notes that a move begins.
    pub fn note(&mut self, one: &Move, now_ns: u64) {
        let left = one.cpus_from.nodes.union(&one.bytes_from.keys().copied().collect());
        let left = left.difference(&NodeSet::from_iter([one.to]));
        self.moves.entry(one.workload.clone()).or_default().push(Moved {
            at_ns: now_ns,
            left,
            bytes: one.bytes,
        });
    }

    /// Why the workload is not to be moved now, if that is so.
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

    /// Nodes to which it does not return yet.
    pub fn left(&self, workload: &CgroupPath, settings: &RebalanceSettings, now_ns: u64) -> NodeSet {
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

    /// Is the share of remote accesses too large, as it is now and as it was?
    pub fn is_ailing(&self, workload: &CgroupPath, remote: f64, settings: &RebalanceSettings) -> bool {
        if self.ailing.contains(workload) {
            remote > settings.stop_below
        } else {
            remote >= settings.start_above
        }
    }

    /// Nodes that were short of memory when a plan was made last.
    pub const fn short(&self) -> &NodeSet {
        &self.short
    }

    /// Notes how it is now: who ails, and which nodes are short.
    pub fn see(&mut self, gathered: &Gathered<'_>, settings: &RebalanceSettings) {
        let ailing = gathered.movers.iter().filter(|mover| mover.ails.contains(&Ailment::Remote));
        self.ailing = ailing.map(|mover| mover.cgroup.clone()).collect();
        self.short = short(&gathered.host, settings);
    }

    /// Forgets workloads that are gone, and moves that hold nothing back any more.
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
            // Bytes of those that are gone were moved all the same.
            !moves.is_empty()
        });
        self.reverts = reverts;
    }
}

/// Is the move one of those that count for the guard and the budget?
fn is_within(moved: &Moved, settings: &RebalanceSettings, now_ns: u64) -> bool {
    left_of(settings.no_return.as_nanos(), moved.at_ns, now_ns).is_some()
}

/// Nanoseconds that are left of a length of time that began then.
fn left_of(length_ns: u64, began_ns: u64, now_ns: u64) -> Option<u64> {
    length_ns.checked_sub(now_ns.checked_sub(began_ns)?).filter(|left| *left > 0)
}
