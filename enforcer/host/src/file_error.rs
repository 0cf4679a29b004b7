//! The error of a file operation: the operation, the path and the cause.
//!
//! `io::Error` alone names no path. Modules that keep files (the journal, the control socket) wrap this in an
//! error of their own. It must not be used for the kernel's files of a host: their readers have fallbacks in
//! `host`.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// A file operation failed, or the file is not what was expected.
#[derive(Debug, Error)]
#[error("{operation} {path}: {cause}", path = path.display())]
pub struct FileError {
    /// The operation, as in "opening".
    pub operation: &'static str,
    /// The path.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub cause: io::Error,
}

/// For `map_err`: this operation on this path.
pub fn failed<'a>(operation: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + use<'a> {
    move |cause| FileError { operation, path: path.to_owned(), cause }
}
