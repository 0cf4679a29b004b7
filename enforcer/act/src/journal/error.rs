//! Why a log of the state directory cannot be used.

use std::{
    io,
    path::{Path, PathBuf},
};

use enforcer_host::file_error::FileError;
use thiserror::Error;

/// Why the journal cannot be used. Nothing may be written to the host then.
#[derive(Debug, Error)]
pub enum JournalError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another daemon, or a restore, is at work.
    #[error("{path} is held by another numa-enforcer (process {holder}); stop it first", path = path.display())]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Process id from the lock file, or `unknown`.
        holder: String,
    },
}

impl JournalError {
    /// Is there no room for it, or nothing to be written there at all?
    pub fn is_no_room(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        matches!(self, Self::File(FileError { cause, .. }) if matches!(cause.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem))
    }
}

pub(super) fn failed<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> JournalError + 'a {
    move |cause| enforcer_host::file_error::failed(operation, path)(cause).into()
}

/// A failure because of what the file says.
pub(super) fn refused(operation: &'static str, path: &Path, cause: impl Into<String>) -> JournalError {
    failed(operation, path)(io::Error::new(io::ErrorKind::InvalidData, cause.into()))
}
