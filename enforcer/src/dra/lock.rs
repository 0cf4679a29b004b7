//! One daemon serves the claims of a node.
//!
//! Two of them would give the same CPUs away: each has its own ledger and its own view of the machine. So the
//! second one is refused. In an update that starts the new daemon first, that one waits for the end of the
//! old one before it comes here (`run --take-over`). Either way the driver is away for less than the 30 s
//! that a kubelet keeps its slices.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use enforcer_host::{
    file_error::{FileError, failed},
    owned_file::open_ours,
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use thiserror::Error;

/// Time between two tries.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest note of the holder, in bytes.
const LONGEST_NOTE: u64 = 32;

/// The lock; held until it is dropped or its process ends.
#[derive(Debug)]
pub struct ClaimLock(File);

/// Why the claims of the node cannot be served.
#[derive(Debug, Error)]
pub enum ClaimStateError {
    /// Another daemon serves them.
    #[error(
        "{path} is held by process {holder}: another numa-enforcer serves the claims of this node; stop it first",
        path = path.display()
    )]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Process id from the lock file, or `unknown`.
        holder: String,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ClaimLock {
    /// Takes the lock, and notes this process in its file for the message of the next one. An old daemon that
    /// ends may have it for a moment more: it is waited for so long.
    pub(super) fn take(path: &Path, patience: Duration) -> Result<Self, ClaimStateError> {
        let began = Instant::now();
        let options = &mut OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = open_ours(options, path).map_err(failed("opening", path))?;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if began.elapsed() < patience => sleep(AGAIN),
                Err(Errno::WOULDBLOCK) => return Err(held(path, file)),
                Err(errno) => return Err(failed("locking", path)(errno.into()).into()),
            }
        }
        // A full disk need not keep claims from being served.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self(file))
    }
}

impl Drop for ClaimLock {
    fn drop(&mut self) {
        // A process that is being started has a copy of the open file for a moment.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn held(path: &Path, file: File) -> ClaimStateError {
    let mut note = String::new();
    let is_read = file.take(LONGEST_NOTE).read_to_string(&mut note).is_ok();
    let number = note.trim().parse::<u32>().ok().filter(|_| is_read);
    let holder = number.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
    ClaimStateError::Held { path: path.to_owned(), holder }
}
