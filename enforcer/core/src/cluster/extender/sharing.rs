//! How the parts of one computation are shared out.
//!
//! The core starts no threads. What calls it may have some, and says here how it gives them parts that know
//! nothing of each other.

/// Calls its last argument with each number below the second one, on at most as many threads as the first.
pub type RunParts = fn(usize, usize, &(dyn Fn(usize) + Sync));

/// Number of threads, and what has them do parts.
#[derive(Debug, Clone, Copy)]
pub struct WorkSharing {
    threads: usize,
    run: RunParts,
}

impl Default for WorkSharing {
    /// One thread, the caller's.
    fn default() -> Self {
        Self::new(1, |_, parts, work| (0..parts).for_each(work))
    }
}

impl WorkSharing {
    /// At most so many threads. `run` does each part once, in any order or at the same time. Parts that
    /// it leaves out are done without it.
    pub const fn new(threads: usize, run: RunParts) -> Self {
        Self { threads, run }
    }

    /// Most threads.
    pub(super) const fn threads(self) -> usize {
        self.threads
    }

    /// Does so many parts.
    pub(super) fn run(self, parts: usize, work: &(dyn Fn(usize) + Sync)) {
        (self.run)(self.threads, parts, work);
    }
}
