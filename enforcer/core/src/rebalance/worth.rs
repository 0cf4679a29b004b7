//! What a place costs, and what a move costs, in CPU seconds.
//!
//! One currency: bytes, remote ratios, distances and free memory cannot be compared with one another. Each of
//! them ends in lost CPU time, so the planner counts lost CPU time over the horizon.
//!
//! A place costs:
//!
//! - far memory: CPUs used x share of accesses that are remote x ([`MEMORY_BOUND`] of the time a CPU waits
//!   for memory) x what a remote access takes beyond a local one, by distance (20 instead of 10 is one local
//!   access more). Where a ratio was measured it counts, and the estimate from run time and residency only
//!   says how it will change;
//! - far devices: CPUs used x [`DEVICE_BOUND`] x the same of the distance to the nearest device;
//! - a node short of memory: [`REFAULT_SECONDS_PER_BYTE`] for each byte that is missing until it has enough
//!   again, once: it will be dropped or swapped out, and come back from a disk;
//! - a node short of CPU time: each CPU second that is wanted beyond those that there are.
//!
//! A move costs:
//!
//! - [`COPY_SECONDS_PER_BYTE`] for each byte: the kernel reads, writes and maps it anew, while a task waits
//!   for it;
//! - where CPUs change, their caches once from memory: at most the last-level cache, at most what the
//!   workload has;
//! - [`DISTURBANCE_SECONDS`] for each workload: the writes, the stop of its threads, the shoot-down of
//!   mappings.
//!
//! The constants are orders of magnitude on purpose, and each errs on the side of not moving. Measured ratios
//! of real machines may replace them. The factor [`MARGIN`] between gain and cost covers their error.

use std::collections::BTreeMap;

use super::view::{HostState, Mover, NodeShare};
use numa_topology::id::NodeId;

/// Share of CPU time that an ordinary workload waits for memory.
const MEMORY_BOUND: f64 = 0.3;
/// Share of CPU time that a workload with devices spends on what these write and read.
const DEVICE_BOUND: f64 = 0.05;
/// One page of 4 KiB from a disk in 100 microseconds.
const REFAULT_SECONDS_PER_BYTE: f64 = 100e-6 / 4096.0;
/// One GiB in two seconds of CPU: the kernel copies some GiB/s, and a task that touches the page waits.
const COPY_SECONDS_PER_BYTE: f64 = 2.0 / 1_073_741_824.0;
/// A last-level cache fills with some 4 GiB/s for each CPU.
const REFILL_SECONDS_PER_BYTE: f64 = 0.25 / 1_073_741_824.0;
/// Bytes of a cache of unknown size.
const USUAL_CACHE: u64 = 32 << 20;
/// CPU seconds of one move, however small.
const DISTURBANCE_SECONDS: f64 = 0.05;
/// A move must save this many times its cost.
pub(super) const MARGIN: f64 = 2.0;
/// A move must also save one hundredth of a CPU over the horizon: smaller figures are noise.
pub(super) const LEAST_SHARE: f64 = 0.01;

/// Where a workload runs and where its memory is, before or after a move.
#[derive(Debug, Clone)]
pub(super) struct Footprint {
    pub(super) run: BTreeMap<NodeId, f64>,
    pub(super) bytes: BTreeMap<NodeId, NodeShare>,
    /// True if it is there only after a move.
    pub(super) settled: bool,
}

impl Footprint {
    pub(super) fn of(mover: &Mover) -> Self {
        Self { run: mover.run.clone(), bytes: mover.bytes.clone(), settled: false }
    }

    /// The workload with its CPUs on a node and all movable memory brought there.
    pub(super) fn settled(mover: &Mover, host: &HostState<'_>, node: NodeId) -> Self {
        let mut bytes = mover.bytes.clone();
        let mut moved = 0u64;
        for (at, away) in mover.away(host, node) {
            if let Some(held) = bytes.get_mut(&at) {
                held.movable = 0;
            }
            moved = moved.saturating_add(away);
        }
        let there = bytes.entry(node).or_default();
        there.movable = there.movable.saturating_add(moved);
        Self { run: BTreeMap::from([(node, 1.0)]), bytes, settled: true }
    }

    /// Estimate from run time and residency: the share of remote accesses, and their extra cost in local
    /// accesses.
    fn estimate(&self, host: &HostState<'_>) -> (f64, f64) {
        let weight = |held: &NodeShare| to_f64(held.movable.saturating_add(held.fixed));
        let total: f64 = self.bytes.values().map(weight).sum();
        if total <= 0.0 {
            return (0.0, 0.0);
        }
        let (mut remote, mut extra) = (0.0, 0.0);
        for (cpus, run) in &self.run {
            for (memory, held) in &self.bytes {
                let share = run * weight(held) / total;
                let penalty = host.penalty(*cpus, *memory);
                remote += if penalty > 0.0 { share } else { 0.0 };
                extra += share * penalty;
            }
        }
        (remote.clamp(0.0, 1.0), extra)
    }
}

/// Share of remote accesses at this place: measured, or predicted from the measured one.
pub(super) fn remote_ratio(mover: &Mover, standing: &Footprint, host: &HostState<'_>) -> f64 {
    let (remote, _) = standing.estimate(host);
    (remote * trust(mover, standing, host)).clamp(0.0, 1.0)
}

/// CPU seconds lost per second at this place.
pub(super) fn lost_per_second(mover: &Mover, standing: &Footprint, host: &HostState<'_>) -> f64 {
    let (_, extra) = standing.estimate(host);
    let nearest = |cpus: &NodeId| {
        let penalties = mover.devices.iter().map(|device| host.penalty(*cpus, device));
        penalties.min_by(f64::total_cmp).unwrap_or(0.0)
    };
    let devices: f64 = standing.run.iter().map(|(cpus, run)| run * nearest(cpus)).sum();
    mover.used * (MEMORY_BOUND * extra * trust(mover, standing, host) + DEVICE_BOUND * devices)
}

/// Factor between the measured share of remote accesses and the estimate from run time and residency.
///
/// A factor below 1 holds only for the place where it was measured: elsewhere the workload may access exactly
/// the memory that is far. A place after a move therefore never looks better than its estimate.
fn trust(mover: &Mover, standing: &Footprint, host: &HostState<'_>) -> f64 {
    let (expected, _) = Footprint::of(mover).estimate(host);
    let factor = match mover.remote {
        Some(measured) if expected > 0.0 => measured / expected,
        _ => 1.0,
    };
    if standing.settled { factor.max(1.0) } else { factor }
}

/// CPU seconds that missing bytes of memory cost a node.
pub(super) fn of_shortage(bytes: u64) -> f64 {
    to_f64(bytes) * REFAULT_SECONDS_PER_BYTE
}

/// CPU seconds of a move of `bytes`, with other CPUs or the same ones.
pub(super) fn of_move(mover: &Mover, bytes: u64, changes_cpus: bool, cache: Option<u64>) -> f64 {
    let has = mover.bytes.values().fold(0u64, |sum, held| sum.saturating_add(held.movable));
    let refill = if changes_cpus { to_f64(cache.unwrap_or(USUAL_CACHE).min(has)) } else { 0.0 };
    to_f64(bytes) * COPY_SECONDS_PER_BYTE + refill * REFILL_SECONDS_PER_BYTE + DISTURBANCE_SECONDS
}

/// Exact enough for a ratio.
#[expect(clippy::cast_precision_loss, reason = "2^53 bytes are 8 PiB")]
pub(super) fn to_f64(amount: u64) -> f64 {
    amount as f64
}
