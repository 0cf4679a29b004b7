//! Kernel text to values, one file format per module.
//!
//! Every parser takes text and returns a value or a [`ParseError`] that names the line. No parser may panic
//! or allocate without bound, whatever the text is.

pub mod cmdline;
pub mod keyed;
pub mod lru_gen;
pub mod mask;
pub mod meminfo;
pub mod mountinfo;
pub mod numa_maps;
pub mod numa_stat;
pub mod pressure;
pub mod processors;
pub mod quantity;
pub mod scalar;
pub mod smaps;
pub mod task_sched;
pub mod task_stat;
pub mod task_status;
pub mod zoneinfo;

use thiserror::Error;

/// A text that the kernel would not write.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} expected, found `{found}`")]
pub struct ParseError {
    /// The expected syntax.
    pub what: &'static str,
    /// The actual text, cut to 80 characters.
    pub found: String,
}

impl ParseError {
    /// Error: `what` was expected, `found` is there.
    pub fn new(what: &'static str, found: &str) -> Self {
        Self { what, found: found.chars().take(80).collect() }
    }
}
