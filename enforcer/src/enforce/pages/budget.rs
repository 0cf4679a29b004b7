//! How much one plan may move, and until when.
//!
//! One tick of the daemon carries out one plan, so a budget per plan bounds the tick: in bytes, in
//! questions to the kernel (a sparse mapping costs questions and moves nothing) and in time. [`Stop`]
//! ends it at once when the daemon is told to end. The budget is looked at between two system calls,
//! each of which is bounded by its batch.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// A request to end, seen by whoever holds a copy.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks everybody to end.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Was it asked for?
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How much one plan may do, and in which portions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageMoveLimits {
    /// Pages in one call that asks.
    pub pages_per_question: usize,
    /// Bytes in one call that moves, but at least one page: some milliseconds of page-table lock.
    pub bytes_per_move: usize,
    /// Pages that one plan asks for.
    pub questions: u64,
    /// Bytes that one plan moves.
    pub bytes: u64,
    /// Time that one plan moves pages.
    pub time: Duration,
}

impl Default for PageMoveLimits {
    fn default() -> Self {
        Self {
            pages_per_question: 4096,
            bytes_per_move: 2 << 20,
            questions: 64 << 20,
            bytes: 4 << 30,
            time: Duration::from_secs(5),
        }
    }
}

/// Why no more pages are moved for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// The daemon is told to end.
    Stop,
    /// The time of the plan is over.
    Time,
    /// As many bytes as a plan may were moved.
    Bytes,
    /// As many pages as a plan may were asked for.
    Questions,
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "the daemon is told to end",
            Self::Time => "the time for one tick is over",
            Self::Bytes => "the limit of bytes for one tick is reached",
            Self::Questions => "the limit of pages to look for in one tick is reached",
        })
    }
}

/// What is left of the limits of one plan.
#[derive(Debug)]
pub struct PageBudget {
    limits: PageMoveLimits,
    stop: Stop,
    begun: Instant,
    questions: u64,
    bytes: u64,
}

impl PageBudget {
    /// A budget that begins now.
    pub fn new(limits: PageMoveLimits, stop: Stop) -> Self {
        Self { limits, stop, begun: Instant::now(), questions: 0, bytes: 0 }
    }

    /// Begins anew, for the next plan.
    pub fn renew(&mut self) {
        *self = Self::new(self.limits, self.stop.clone());
    }

    /// Is everything to end?
    pub fn is_stopped(&self) -> bool {
        self.stop.is_requested()
    }

    /// The limits.
    pub fn limits(&self) -> &PageMoveLimits {
        &self.limits
    }

    /// Why nothing more may be done, if so.
    pub fn spent(&self) -> Option<Spent> {
        [
            (self.is_stopped(), Spent::Stop),
            (self.begun.elapsed() >= self.limits.time, Spent::Time),
            (self.bytes >= self.limits.bytes, Spent::Bytes),
            (self.questions >= self.limits.questions, Spent::Questions),
        ]
        .into_iter()
        .find_map(|(is_spent, spent)| is_spent.then_some(spent))
    }

    /// Notes pages that were asked for.
    pub fn asked(&mut self, pages: u64) {
        self.questions = self.questions.saturating_add(pages);
    }

    /// Notes bytes that were moved, or tried.
    pub fn moved(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }
}
