//! Kernel text to values, one file format per module.
//!
//! Every parser takes text and returns a value or a [`ParseError`] that names the line; none of them
//! may panic or allocate without bound, whatever the text is.

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

/// A text that is not what the kernel writes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} expected, found `{found}`")]
pub struct ParseError {
    /// What should be there.
    pub what: &'static str,
    /// What is there, cut to 80 characters.
    pub found: String,
}

impl ParseError {
    /// `what` was expected where `found` is.
    pub fn new(what: &'static str, found: &str) -> Self {
        Self { what, found: found.chars().take(80).collect() }
    }
}
