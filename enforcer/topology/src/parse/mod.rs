//! Kernel text about the machine to values, one file format per module.
//!
//! Every parser takes text and returns a value or a [`ParseError`] that names the line; none of them
//! may panic or allocate without bound, whatever the text is.

pub mod cmdline;
pub mod mask;
pub mod meminfo;
pub mod processors;
pub mod scalar;

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
