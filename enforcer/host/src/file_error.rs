//! The error of a file operation: what was tried, on what, and why it failed.
//!
//! `io::Error` alone names no path. Whoever keeps files (the journal, the control socket) wraps this in an
//! error of its own. It must never be used for the kernel's files of a host, which have readers with
//! fallbacks in `host`.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// A file operation failed, or what is there is not what was looked for.
#[derive(Debug, Error)]
#[error("{operation} {path}: {cause}", path = path.display())]
pub struct FileError {
    /// What was tried, as in "opening".
    pub operation: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub cause: io::Error,
}

/// For `map_err`: this operation on this path.
pub fn failed<'a>(operation: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + use<'a> {
    move |cause| FileError { operation, path: path.to_owned(), cause }
}
