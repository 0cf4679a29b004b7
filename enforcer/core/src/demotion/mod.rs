//! Pages that go to a slower memory tier or come back, and their amount in one round.
//!
//! Problem: idle memory fills the fast nodes, and the kernel's own demotion checks neither whether the cpuset
//! allows the target (Linux 6.12 does not look) nor whether the pages are cold.
//!
//! Idea: in each round, for each workload that is declared for it, ranges that were not touched for the idle
//! time ([`ranges`]) go from each fast node to the nearest slower node that its cpuset allows ([`target`]).
//! [`amount`] limits the bytes, and [`backend`] chooses the method. Hot pages on a slow node go back up,
//! unless the kernel promotes them.
//!
//! Terminology. A *flow* goes from one node to another in one round: ranges, and a budget of bytes. It covers
//! only the pages of the ranges that are on its source node.
//!
//! Cost: one sort of the regions per workload and round. Only later rounds show whether a round was right, so
//! the caller keeps [`DemotionBackoff`] between rounds. Invariant: no more bytes are planned down than are
//! cold.

pub mod amount;
pub mod backend;
pub mod ranges;
pub mod target;

use std::{collections::BTreeMap, time::Duration};

pub use self::{
    amount::{AmountBound, DemotionBackoff, NodeMemory, RoundLimits},
    ranges::{AddressRange, AddressRegion},
};
use crate::page_size::PageSize;
use numa_topology::{Topology, id::NodeId, set::NodeSet};

/// Percent of the observations that must have found a hot region touched: one of five. An observation looks
/// at one page of the region for a tenth of the interval, so a single touch means that most pages are touched
/// all the time. A processor that keeps a translation does not mark a page again, so many touches stay
/// unseen.
const HOT_PERCENT: u8 = 20;

/// Observations of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRegions {
    /// Process id.
    pub pid: u32,
    /// Its regions.
    pub regions: Vec<AddressRegion>,
}

/// Input of a round.
#[derive(Debug, Clone, Copy)]
pub struct DemotionInput<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// Nodes that the workload's cpuset allows.
    pub allowed: &'a NodeSet,
    /// Nodes of its CPUs.
    pub home: &'a NodeSet,
    /// Memory of nodes; a missing node takes no pages.
    pub rooms: &'a BTreeMap<NodeId, NodeMemory>,
    /// Processes of the workload.
    pub watched: &'a [ProcessRegions],
    /// Cold bytes by a second source; absent without one.
    pub estimate: Option<u64>,
    /// Idle time after which pages are cold.
    pub idle: Duration,
    /// Size of the kernel's pages.
    pub page: PageSize,
    /// Bytes that may be moved since the last round.
    pub rate: u64,
    /// True if the kernel promotes hot pages.
    pub kernel_promotes: bool,
    /// Monotonic time in ns.
    pub now_ns: u64,
}

/// A range of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessRange {
    /// Process id.
    pub pid: u32,
    /// Range of its addresses.
    pub range: AddressRange,
}

/// Pages that go from one node to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageFlow {
    /// Source node.
    pub from: NodeId,
    /// Target node.
    pub to: NodeId,
    /// Ranges with the pages, in order of preference.
    pub pieces: Vec<ProcessRange>,
    /// Most bytes to move.
    pub bytes: u64,
}

/// One round of one workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DemotionRound {
    /// Flows to slower tiers.
    pub down: Vec<PageFlow>,
    /// Flows to faster tiers.
    pub up: Vec<PageFlow>,
    /// Bytes of all cold ranges, on any tier.
    pub cold: u64,
    /// Bytes of all hot ranges, on any tier.
    pub hot: u64,
    /// The bound that decided the amount; `None` if nothing could go down.
    pub bound: Option<AmountBound>,
}

/// Decides one round.
pub fn decide(of: &DemotionInput<'_>, trust: &DemotionBackoff) -> DemotionRound {
    let cold = coldest_first(of);
    let hot: Vec<ProcessRange> = of
        .watched
        .iter()
        .flat_map(|one| {
            let hot = ranges::hot(&one.regions, HOT_PERCENT);
            hot.into_iter().map(|range| ProcessRange { pid: one.pid, range })
        })
        .collect();
    let mut round = DemotionRound { cold: bytes_of(&cold), hot: bytes_of(&hot), ..DemotionRound::default() };
    let (mut left, mut rate) = (round.cold, of.rate);
    let mut rooms = of.rooms.clone();
    if !of.kernel_promotes && !hot.is_empty() {
        for from in of.allowed.iter() {
            let Some(to) = target::above(of.topology, from, of.allowed, of.home) else { continue };
            let Some(room) = rooms.get_mut(&to) else { continue };
            let supply = RoundLimits { cold: round.hot, estimate: None, room: *room, rate };
            let (bytes, _) = DemotionBackoff::default().amount(&supply, of.now_ns);
            if bytes > 0 {
                (rate, room.available) = (rate - bytes, room.available - bytes);
                round.up.push(PageFlow { from, to, pieces: hot.clone(), bytes });
            }
        }
    }
    // Pages of the way up are not always on the slow node, so they do not use up the rate of the way down.
    rate = of.rate;
    for from in of.allowed.iter() {
        let Some(to) = target::below(of.topology, from, of.allowed) else { continue };
        let Some(room) = rooms.get_mut(&to) else { continue };
        let estimate = of.estimate.map(|estimate| estimate.saturating_sub(round.cold - left));
        let (bytes, bound) =
            trust.amount(&RoundLimits { cold: left, estimate, room: *room, rate }, of.now_ns);
        round.bound = Some(bound);
        if bytes > 0 {
            (left, rate, room.available) = (left - bytes, rate - bytes, room.available - bytes);
            round.down.push(PageFlow { from, to, pieces: cold.clone(), bytes });
        }
    }
    round
}

/// Decides what goes down at once from nodes on which another workload lacks bytes. The missing bytes replace
/// the rate; nothing comes up.
pub fn relieve(
    of: &DemotionInput<'_>,
    trust: &DemotionBackoff,
    missing: &BTreeMap<NodeId, u64>,
) -> DemotionRound {
    let cold = coldest_first(of);
    let mut round = DemotionRound { cold: bytes_of(&cold), ..DemotionRound::default() };
    let (mut left, mut rooms) = (round.cold, of.rooms.clone());
    for (from, missing) in missing.iter().filter(|(from, _)| of.allowed.contains(**from)) {
        let Some(to) = target::below(of.topology, *from, of.allowed) else { continue };
        let Some(room) = rooms.get_mut(&to) else { continue };
        let estimate = of.estimate.map(|estimate| estimate.saturating_sub(round.cold - left));
        let supply = RoundLimits { cold: left, estimate, room: *room, rate: *missing };
        let (bytes, bound) = trust.amount(&supply, of.now_ns);
        round.bound = Some(bound);
        if bytes > 0 {
            (left, room.available) = (left - bytes, room.available - bytes);
            round.down.push(PageFlow { from: *from, to, pieces: cold.clone(), bytes });
        }
    }
    round
}

fn coldest_first(of: &DemotionInput<'_>) -> Vec<ProcessRange> {
    let mut all: Vec<(Duration, ProcessRange)> = Vec::new();
    for one in of.watched {
        let cold = ranges::cold(&one.regions, of.idle, of.page);
        all.extend(
            cold.into_iter().map(|cold| (cold.idle, ProcessRange { pid: one.pid, range: cold.range })),
        );
    }
    all.sort_by_key(|(idle, piece)| (std::cmp::Reverse(*idle), piece.pid, piece.range));
    all.into_iter().map(|(_, piece)| piece).collect()
}

fn bytes_of(pieces: &[ProcessRange]) -> u64 {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.range.bytes()))
}

#[cfg(test)]
mod tests;
