//! Whether a workload is slowed down until a node that was asked for counts.
//!
//! Problem: a write of a cpuset takes 10 ms as a rule, and a second where its tasks fault all the time or
//! pages of others are being moved; a workload that fills its nodes before that is killed with the write
//! under way. Idea: where the time that is left is shorter than a write takes, it stands still, or gets next
//! to nothing more, until the write has returned.
//!
//! A workload that stands still serves nobody. So the brake is the last resort and short: half a second at
//! most, once for a write, and not again within two seconds. Whoever carries it out has a process beside it
//! that releases what is not released in time.
//!
//! Never: anybody is slowed down for whom no write is under way, which leaves out who is strict, who reaches
//! its own limit and who makes room for others; anything while nobody watches, or while enforcement is
//! paused; `memory.high` while the kernel demotes.
//!
//! Cost: a turn is one pass over who waits; it allocates only for an order.

use crate::{policy::Brake, workload::CgroupPath};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// Longest time for which a workload is slowed down, in ns.
pub const LONGEST_BRAKE_NS: u64 = 500 * MS;
/// Least time between the end of one and the begin of the next.
const REST: u64 = 2_000 * MS;
/// What a write takes while nobody knows: four processes that all faulted took up to 330 ms in an emulated
/// machine.
const UNKNOWN_WRITE: u64 = 300 * MS;
/// Nor is it counted on to take less than this.
const LEAST_WRITE: u64 = 50 * MS;
/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// How a workload is slowed down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BrakeKind {
    /// Its tasks stand still.
    Freeze,
    /// Its `memory.high` is a little above what it has.
    High,
}

impl BrakeKind {
    /// As in the configuration and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Freeze => "freeze",
            Self::High => "high",
        }
    }
}

/// What is wanted, and what is so just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrakeMeans {
    /// What the configuration says.
    pub wanted: Brake,
    /// Another process releases what is not released in time.
    pub watched: bool,
    /// Nothing may be written.
    pub paused: bool,
    /// The kernel takes pages that are reclaimed to slower memory.
    pub demotes: bool,
}

impl BrakeMeans {
    /// How somebody may be slowed down now, if at all.
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

/// Why somebody is no longer slowed down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The write has returned, or nobody waits for it any longer.
    Written,
    /// It took too long.
    TimeIsUp,
    /// It may not be done any longer in this way.
    NotAllowed,
}

impl Released {
    /// In words that go on from "for 5 ms, until".
    pub fn words(self) -> &'static str {
        match self {
            Self::Written => "its memory nodes were written",
            Self::TimeIsUp => "that had to be enough, with the write still under way",
            Self::NotAllowed => "it was not to be any longer",
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrakeOrder {
    /// Slows a workload down.
    Slow {
        /// Which.
        cgroup: CgroupPath,
        /// How.
        kind: BrakeKind,
        /// Bytes per second by which its nodes fill up.
        rate: u64,
        /// When it has to be over, by the clock of the looks, in ns.
        until_ns: u64,
    },
    /// Lets it go on.
    Release {
        /// Which.
        cgroup: CgroupPath,
        /// Why.
        why: Released,
    },
}

/// A workload that waits for a write because it is short itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting<'a> {
    pub(super) cgroup: &'a CgroupPath,
    pub(super) is_emergency: bool,
    /// Until the nodes that it has are full.
    pub(super) time_left_ns: Option<u64>,
    pub(super) rate: u64,
}

/// Who is slowed down, or was lately.
#[derive(Debug, Clone, Default)]
pub(super) struct Brakes {
    of: Vec<Braked>,
    orders: Vec<BrakeOrder>,
}

#[derive(Debug, Clone)]
struct Braked {
    cgroup: CgroupPath,
    kind: BrakeKind,
    until_ns: u64,
    released_ns: Option<u64>,
    /// The write is still under way for which it was slowed down. That is done once: what a write changes
    /// takes effect long before it returns.
    same_write: bool,
}

impl Brakes {
    /// Makes room for so many.
    pub(super) fn reserve(&mut self, count: usize) {
        self.of.reserve(count);
        self.orders.reserve(2 * count);
    }

    /// Is anybody slowed down?
    pub(super) fn is_any(&self) -> bool {
        self.of.iter().any(|one| one.released_ns.is_none())
    }

    /// What is to be done now, releases first. `write_ns` is how long a write takes at worst, 0 where that is
    /// not known.
    pub(super) fn turn<'a>(
        &mut self,
        now_ns: u64,
        write_ns: u64,
        kind: Option<BrakeKind>,
        waiting: impl Iterator<Item = Waiting<'a>> + Clone,
    ) -> &[BrakeOrder] {
        let Self { of, orders } = self;
        orders.clear();
        for braked in of.iter_mut().filter(|one| one.released_ns.is_none()) {
            let why = if kind != Some(braked.kind) {
                Released::NotAllowed
            } else if !waiting.clone().any(|one| *one.cgroup == braked.cgroup) {
                Released::Written
            } else if now_ns >= braked.until_ns {
                Released::TimeIsUp
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
            of.push(Braked { cgroup: cgroup.clone(), kind, until_ns, released_ns: None, same_write: true });
            orders.push(BrakeOrder::Slow { cgroup, kind, rate: one.rate, until_ns });
        }
        orders
    }
}

/// What `memory.high` is set to for who has `current` bytes and grows by `rate` bytes per second: room for 10
/// ms, which pass until it is written, and a MiB at least. Whole MiB, because the kernel counts in pages.
pub fn high_mark(current: u64, rate: u64) -> u64 {
    let room = (rate / 100).max(MIB);
    current.saturating_add(room).div_ceil(MIB).saturating_mul(MIB)
}

#[cfg(test)]
mod tests;
