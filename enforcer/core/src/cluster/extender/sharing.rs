//! How the parts of one computation are shared out.
//!
//! The core starts no threads. What calls it may have some, and says here how it gives them parts that know
//! nothing of each other.

/// Calls its second argument with each number below the first one.
pub type RunParts = fn(usize, &(dyn Fn(usize) + Sync));

/// Number of parts, and what does them.
#[derive(Debug, Clone, Copy)]
pub struct WorkSharing {
    parts: usize,
    run: RunParts,
}

impl Default for WorkSharing {
    /// One part, done by the caller.
    fn default() -> Self {
        Self::new(1, |parts, work| (0..parts).for_each(work))
    }
}

impl WorkSharing {
    /// At most so many parts. `run` does each once, in any order or at the same time. Parts that
    /// it leaves out are done without it.
    pub const fn new(parts: usize, run: RunParts) -> Self {
        Self { parts, run }
    }

    /// Most parts.
    pub(super) const fn parts(self) -> usize {
        self.parts
    }

    /// Does so many parts.
    pub(super) fn run(self, parts: usize, work: &(dyn Fn(usize) + Sync)) {
        (self.run)(parts, work);
    }
}
