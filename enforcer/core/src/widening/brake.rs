//! Slows a workload down until a node that was added to its cpuset takes effect.
//!
//! Problem: a write of a cpuset usually takes 10 ms, but a second if its tasks fault all the time or the
//! kernel is moving pages of other cgroups. A workload that fills its nodes before that is killed while the
//! write is in progress. Idea: if the time left is shorter than a write takes, the workload is frozen, or its
//! memory is limited, until the write has returned.
//!
//! A frozen workload serves no requests. So the brake is the last resort and short: half a second at most,
//! once for a write, and not again within two seconds. The process that applies it has a second process that
//! releases the workload if the first does not in time.
//!
//! Invariants: only a workload with a write in progress for its own shortage is slowed down; that excludes
//! strict workloads, workloads that reach their own limit, and those that make room for others. None is
//! slowed down without the second process, or while enforcement is paused, or by `memory.high` while the
//! kernel demotes.
//!
//! Cost: a turn is one pass over the waiting workloads; it allocates only for an order.

use crate::{policy::Brake, workload::CgroupPath};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// Longest time for which a workload is slowed down, in ns.
pub const LONGEST_BRAKE_NS: u64 = 500 * MS;
/// Least time between the end of a brake and the next one, in ns.
const REST: u64 = 2_000 * MS;
/// Duration of a write before one was measured: four processes that all faulted took up to 330 ms in an
/// emulated machine.
const UNKNOWN_WRITE: u64 = 300 * MS;
/// Lower limit of the duration that a write is assumed to take.
const LEAST_WRITE: u64 = 50 * MS;
/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Method to slow a workload down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BrakeKind {
    /// Freezes its tasks.
    Freeze,
    /// Sets `memory.high` a little above its memory.
    High,
}

impl BrakeKind {
    /// Name in the configuration and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Freeze => "freeze",
            Self::High => "high",
        }
    }
}

/// Configured brake, and the conditions that hold just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrakeConditions {
    /// Brake of the configuration.
    pub wanted: Brake,
    /// A second process releases what is not released in time.
    pub watched: bool,
    /// Writes are not allowed.
    pub paused: bool,
    /// The kernel demotes reclaimed pages to slower memory.
    pub demotes: bool,
}

impl BrakeConditions {
    /// The method that may be used now, if any.
    pub fn kind(self) -> Option<BrakeKind> {
        if !self.watched || self.paused {
            return None;
        }
        match self.wanted {
            Brake::Off => None,
            Brake::High if !self.demotes => Some(BrakeKind::High),
            // Demotion was switched on after the start, which refuses the two together.
            Brake::High | Brake::Freeze => Some(BrakeKind::Freeze),
        }
    }
}

/// Reason why a workload is no longer slowed down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseReason {
    /// The write has returned, or the workload no longer waits for it.
    Written,
    /// The brake has reached its longest time.
    TimeIsUp,
    /// The method is no longer allowed.
    NotAllowed,
}

impl ReleaseReason {
    /// The reason in words that continue "for 5 ms, until".
    pub fn words(self) -> &'static str {
        match self {
            Self::Written => "its memory nodes were written",
            Self::TimeIsUp => "that had to be enough, with the write still under way",
            Self::NotAllowed => "it was not to be any longer",
        }
    }
}

/// An order to the process that applies brakes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrakeOrder {
    /// Slows a workload down.
    Slow {
        /// Cgroup of the workload.
        cgroup: CgroupPath,
        /// Method.
        kind: BrakeKind,
        /// Bytes per second by which its nodes fill up.
        rate: u64,
        /// End of the brake by the clock of the looks, in ns.
        until_ns: u64,
    },
    /// Releases a workload.
    Release {
        /// Cgroup of the workload.
        cgroup: CgroupPath,
        /// Reason of the release.
        why: ReleaseReason,
    },
}

/// A workload that waits for a write because of its own shortage.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingWorkload<'a> {
    pub(super) cgroup: &'a CgroupPath,
    pub(super) is_emergency: bool,
    /// Time until its present nodes are full; absent while they do not fill up.
    pub(super) time_left_ns: Option<u64>,
    pub(super) rate: u64,
}

/// Workloads that are slowed down, or were lately.
#[derive(Debug, Clone, Default)]
pub(super) struct Brakes {
    of: Vec<BrakedWorkload>,
    orders: Vec<BrakeOrder>,
}

#[derive(Debug, Clone)]
struct BrakedWorkload {
    cgroup: CgroupPath,
    kind: BrakeKind,
    until_ns: u64,
    released_ns: Option<u64>,
    /// True while the write of this brake is still in progress. A write brakes once: its change takes effect
    /// long before it returns.
    same_write: bool,
}

impl Brakes {
    /// Reserves memory for `count` brakes.
    pub(super) fn reserve(&mut self, count: usize) {
        self.of.reserve(count);
        self.orders.reserve(2 * count);
    }

    /// Is any workload slowed down?
    pub(super) fn is_any(&self) -> bool {
        self.of.iter().any(|one| one.released_ns.is_none())
    }

    /// Orders due now, releases first. `write_ns` is the longest duration of a write, 0 if unknown.
    pub(super) fn turn<'a>(
        &mut self,
        now_ns: u64,
        write_ns: u64,
        kind: Option<BrakeKind>,
        waiting: impl Iterator<Item = WaitingWorkload<'a>> + Clone,
    ) -> &[BrakeOrder] {
        let Self { of, orders } = self;
        orders.clear();
        for braked in of.iter_mut().filter(|one| one.released_ns.is_none()) {
            let why = if kind != Some(braked.kind) {
                ReleaseReason::NotAllowed
            } else if !waiting.clone().any(|one| *one.cgroup == braked.cgroup) {
                ReleaseReason::Written
            } else if now_ns >= braked.until_ns {
                ReleaseReason::TimeIsUp
            } else {
                continue;
            };
            braked.released_ns = Some(now_ns);
            orders.push(BrakeOrder::Release { cgroup: braked.cgroup.clone(), why });
        }
        of.retain_mut(|one| {
            one.same_write &= waiting.clone().any(|other| *other.cgroup == one.cgroup);
            one.same_write || one.released_ns.is_none_or(|at| now_ns.saturating_sub(at) < REST)
        });
        let takes = if write_ns == 0 { UNKNOWN_WRITE } else { write_ns.max(LEAST_WRITE) };
        let Some(kind) = kind else { return orders };
        for one in waiting {
            let too_late = one.is_emergency || one.time_left_ns.is_some_and(|left| left < takes);
            if !too_late || of.iter().any(|braked| braked.cgroup == *one.cgroup) {
                continue;
            }
            let (cgroup, until_ns) = (one.cgroup.clone(), now_ns.saturating_add(LONGEST_BRAKE_NS));
            of.push(BrakedWorkload {
                cgroup: cgroup.clone(),
                kind,
                until_ns,
                released_ns: None,
                same_write: true,
            });
            orders.push(BrakeOrder::Slow { cgroup, kind, rate: one.rate, until_ns });
        }
        orders
    }
}

/// The `memory.high` for a cgroup that has `current` bytes and grows by `rate` bytes per second: room for the
/// 10 ms until it is written, and at least a MiB. Whole MiB, because the kernel counts in pages.
pub fn high_mark(current: u64, rate: u64) -> u64 {
    let room = (rate / 100).max(MIB);
    current.saturating_add(room).div_ceil(MIB).saturating_mul(MIB)
}

#[cfg(test)]
mod tests;
