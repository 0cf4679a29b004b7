//! Which pages go to a slower tier of memory and which come back, and how many in one round.
//!
//! Problem: memory that nobody touches fills the fast nodes, and the kernel's own demotion asks neither
//! whether the cpuset allows the target (Linux 6.12 does not look) nor whether what it takes is cold.
//!
//! Idea: in each round, of each workload that is declared for it, the ranges that nobody touched for the idle
//! time ([`ranges`]) go from each fast node to the nearest slower one that its cpuset allows ([`target`]), as
//! many bytes as [`amount`] says, carried by whom [`backend`] says; what is touched on a slow node goes back
//! up, where the kernel does not see to that.
//!
//! Terminology. A *flow* is what goes from one node to another in one round: ranges, and a budget of bytes.
//! Of the ranges only the pages that are on the node it comes from are meant.
//!
//! Cost: one sort of the regions per workload and round. Whether a round was right is only known afterwards,
//! so [`Trust`] is kept between rounds by the caller. Must never plan more bytes down than are cold.

pub mod amount;
pub mod backend;
pub mod ranges;
pub mod target;

use std::{collections::BTreeMap, time::Duration};

pub use self::{
    amount::{Bound, Room, Supply, Trust},
    ranges::{Range, Region},
};
use crate::{id::NodeId, set::NodeSet, topology::Topology};

/// Looks that must have found a region touched before it is taken for hot, in percent: one of five. A look is
/// at one page of the region for a tenth of the interval, so that it finds it touched at all says that most
/// pages are, all the time; and a processor that keeps a translation does not mark a page again, so many
/// touches are not seen.
const HOT_PERCENT: u8 = 20;

/// What was seen of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// Which.
    pub pid: u32,
    /// What its regions did.
    pub regions: Vec<Region>,
}

/// What a round is decided from.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// Nodes that the workload's cpuset allows.
    pub allowed: &'a NodeSet,
    /// Nodes of its CPUs.
    pub home: &'a NodeSet,
    /// Memory of nodes; one that is not here takes nothing.
    pub rooms: &'a BTreeMap<NodeId, Room>,
    /// Its processes.
    pub watched: &'a [Watched],
    /// Bytes that another source holds for cold.
    pub estimate: Option<u64>,
    /// Pages are cold after this time.
    pub idle: Duration,
    /// Bytes that may be moved since the round before.
    pub rate: u64,
    /// The kernel promotes by itself.
    pub kernel_promotes: bool,
    /// Now, of a monotonic clock.
    pub now_ns: u64,
}

/// A range of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Process.
    pub pid: u32,
    /// Addresses in it.
    pub range: Range,
}

/// What goes from one node to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Pages on this node.
    pub from: NodeId,
    /// Go to this one.
    pub to: NodeId,
    /// As far as they are in these ranges, first those that come first.
    pub pieces: Vec<Piece>,
    /// At most so many bytes.
    pub bytes: u64,
}

/// One round of one workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Round {
    /// To slower tiers.
    pub down: Vec<Flow>,
    /// To faster ones.
    pub up: Vec<Flow>,
    /// Bytes of the ranges that are cold, whatever tier they are on.
    pub cold: u64,
    /// Bytes of the ranges that are hot, whatever tier they are on.
    pub hot: u64,
    /// What decided about the amount; `None` where nothing could go down.
    pub bound: Option<Bound>,
}

/// Decides one round.
pub fn decide(of: &Situation<'_>, trust: &Trust) -> Round {
    let cold = coldest_first(of);
    let hot: Vec<Piece> = of
        .watched
        .iter()
        .flat_map(|one| {
            let hot = ranges::hot(&one.regions, HOT_PERCENT);
            hot.into_iter().map(|range| Piece { pid: one.pid, range })
        })
        .collect();
    let mut round = Round { cold: bytes_of(&cold), hot: bytes_of(&hot), ..Round::default() };
    let (mut left, mut rate) = (round.cold, of.rate);
    let mut rooms = of.rooms.clone();
    if !of.kernel_promotes && !hot.is_empty() {
        for from in of.allowed.iter() {
            let Some(to) = target::above(of.topology, from, of.allowed, of.home) else { continue };
            let Some(room) = rooms.get_mut(&to) else { continue };
            let supply = Supply { cold: round.hot, estimate: None, room: *room, rate };
            let (bytes, _) = Trust::default().amount(&supply, of.now_ns);
            if bytes > 0 {
                (rate, room.available) = (rate - bytes, room.available - bytes);
                round.up.push(Flow { from, to, pieces: hot.clone(), bytes });
            }
        }
    }
    // What is taken up is not always found there, so it does not lessen what goes down.
    rate = of.rate;
    for from in of.allowed.iter() {
        let Some(to) = target::below(of.topology, from, of.allowed) else { continue };
        let Some(room) = rooms.get_mut(&to) else { continue };
        let estimate = of.estimate.map(|estimate| estimate.saturating_sub(round.cold - left));
        let (bytes, bound) = trust.amount(&Supply { cold: left, estimate, room: *room, rate }, of.now_ns);
        round.bound = Some(bound);
        if bytes > 0 {
            (left, rate, room.available) = (left - bytes, rate - bytes, room.available - bytes);
            round.down.push(Flow { from, to, pieces: cold.clone(), bytes });
        }
    }
    round
}

/// Decides what goes down at once from nodes on which so many bytes are missing for somebody else. What is
/// missing takes the place of the rate; nothing comes up.
pub fn relieve(of: &Situation<'_>, trust: &Trust, missing: &BTreeMap<NodeId, u64>) -> Round {
    let cold = coldest_first(of);
    let mut round = Round { cold: bytes_of(&cold), ..Round::default() };
    let (mut left, mut rooms) = (round.cold, of.rooms.clone());
    for (from, missing) in missing.iter().filter(|(from, _)| of.allowed.contains(**from)) {
        let Some(to) = target::below(of.topology, *from, of.allowed) else { continue };
        let Some(room) = rooms.get_mut(&to) else { continue };
        let estimate = of.estimate.map(|estimate| estimate.saturating_sub(round.cold - left));
        let supply = Supply { cold: left, estimate, room: *room, rate: *missing };
        let (bytes, bound) = trust.amount(&supply, of.now_ns);
        round.bound = Some(bound);
        if bytes > 0 {
            (left, room.available) = (left - bytes, room.available - bytes);
            round.down.push(Flow { from: *from, to, pieces: cold.clone(), bytes });
        }
    }
    round
}

fn coldest_first(of: &Situation<'_>) -> Vec<Piece> {
    let mut all: Vec<(Duration, Piece)> = Vec::new();
    for one in of.watched {
        let cold = ranges::cold(&one.regions, of.idle);
        all.extend(cold.into_iter().map(|cold| (cold.idle, Piece { pid: one.pid, range: cold.range })));
    }
    all.sort_by_key(|(idle, piece)| (std::cmp::Reverse(*idle), piece.pid, piece.range));
    all.into_iter().map(|(_, piece)| piece).collect()
}

fn bytes_of(pieces: &[Piece]) -> u64 {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.range.bytes()))
}

#[cfg(test)]
mod tests;
