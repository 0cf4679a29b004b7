//! How much one plan may move, and until when.
//!
//! One tick of the daemon carries out one plan, so a budget per plan bounds the tick: in bytes, in questions
//! to the kernel (a sparse mapping costs questions and moves nothing) and in time. How many bytes one call
//! takes on, and how many all of them in a second, is the [`CallPacer`]'s to say, which learns from what
//! calls took and outlasts the plan. [`Stop`] ends everything at once when the daemon is told to end. The
//! budget is looked at between two system calls, each of which is bounded by its batch.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use enforcer_core::{
    call_times::CallTimes,
    pacing::{Allowance, CallPacer, CallPacerLimits},
};

/// Longest time between two checks of the stop request.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A request to stop, shared by all its copies.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks every holder of a copy to end.
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
    /// Calls that move; each takes on one page at least.
    pub pace: CallPacerLimits,
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
            pace: CallPacerLimits::default(),
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
    /// As many bytes as one step of it may were moved: it is done.
    Step,
    /// As many pages as a plan may were asked for.
    Questions,
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "the daemon is told to end",
            Self::Time => "the time for one turn is over",
            Self::Bytes => "the limit of bytes for one turn is reached",
            Self::Step => "as much as the step says is moved",
            Self::Questions => "the limit of pages to look for in one turn is reached",
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
    /// Bytes at which a step ends that moves no more than a part.
    step_ends: Option<u64>,
    pace: CallPacer,
    /// What calls took since there is this budget.
    calls: CallTimes,
    /// When the pace's clock was 0.
    since: Instant,
}

impl PageBudget {
    /// A budget that begins now.
    pub fn new(limits: PageMoveLimits, stop: Stop) -> Self {
        let now = Instant::now();
        let pace = CallPacer::new(limits.pace, 0);
        Self {
            limits,
            stop,
            begun: now,
            questions: 0,
            bytes: 0,
            step_ends: None,
            pace,
            calls: CallTimes::default(),
            since: now,
        }
    }

    /// Begins anew, for the next plan. What was learned of calls, and what was moved lately, still counts.
    pub fn renew(&mut self) {
        (self.begun, self.questions, self.bytes) = (Instant::now(), 0, 0);
    }

    /// Begins anew with so many bytes.
    pub fn renew_with(&mut self, bytes: u64) {
        self.limits.bytes = bytes;
        self.renew();
    }

    /// Begins a step that moves so many bytes at most, or as many as the plan may.
    pub fn begin_step(&mut self, most_bytes: Option<u64>) {
        self.step_ends = most_bytes.map(|most| self.bytes.saturating_add(most));
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
            (self.step_ends.is_some_and(|end| self.bytes >= end), Spent::Step),
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

    /// Waits until another call may be made; of how many pages of this size, at least one. `None` when
    /// nothing more may be done.
    pub fn next_call(&mut self, page_bytes: usize) -> Option<usize> {
        loop {
            if self.spent().is_some() {
                return None;
            }
            match self.pace.allowance(self.now_ns()) {
                Allowance::Move(bytes) => {
                    let end = self.step_ends.unwrap_or(u64::MAX).min(self.limits.bytes);
                    let bytes = bytes.min(end.saturating_sub(self.bytes));
                    return Some(
                        usize::try_from(bytes / page_bytes.max(1) as u64).unwrap_or(usize::MAX).max(1),
                    );
                }
                Allowance::Wait(wait) => thread::sleep(wait.min(STOP_CHECK_INTERVAL)),
            }
        }
    }

    /// Notes bytes that were moved, or tried, in one call that took so long.
    pub fn moved(&mut self, bytes: u64, took: Duration) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.pace.note(bytes, took);
        self.calls.note(took);
    }

    /// Notes bytes that have moved along with what was asked for.
    pub fn moved_along(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.pace.owe(bytes);
    }

    /// What the calls that moved pages took, of all plans.
    pub fn calls(&self) -> &CallTimes {
        &self.calls
    }

    /// Bytes that were moved, or tried, since it began.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
