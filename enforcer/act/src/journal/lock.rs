//! Lock file of a state directory: one daemon, or one restore, at a time.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::Path,
    thread,
    time::Duration,
};

use rustix::fs::FlockOperation;

use super::{
    error::{JournalError, failed},
    tail::is_at,
};
use enforcer_host::owned_file::open_ours;

/// Held until it is dropped: a process that is being started has a copy of the open file for a moment, and
/// the lock would live as long as that.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// Is it the file that others would find there?
    pub(super) fn is_at(&self, path: &Path) -> bool {
        is_at(&self.0, path).unwrap_or(false)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It fails only if it is no lock any more.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Attempts to take the lock: a process that checks whether it is free ([`check_free`]) holds it for a
/// moment.
const LOOKS: u32 = 10;

/// Time between two of these.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

pub(super) fn take_lock(path: &Path) -> Result<Lock, JournalError> {
    let mut lock = open_ours(OpenOptions::new().read(true).write(true).create(true).truncate(false), path)
        .map_err(failed("opening", path))?;
    let mut taken = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
    for _ in 0..LOOKS {
        if taken != Err(rustix::io::Errno::WOULDBLOCK) {
            break;
        }
        thread::sleep(BETWEEN_LOOKS);
        taken = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
    }
    if let Err(errno) = taken {
        return Err(not_taken(path, lock, errno));
    }
    // Only for the message of the next one; a full disk must not keep a restore from its work.
    let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
    Ok(Lock(lock))
}

/// Checks that no process holds the lock. Takes it for a moment to know.
pub(super) fn check_free(path: &Path) -> Result<(), JournalError> {
    let lock = match open_ours(OpenOptions::new().read(true), path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(failed("opening", path)(cause)),
    };
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            drop(Lock(lock));
            Ok(())
        }
        Err(errno) => Err(not_taken(path, lock, errno)),
    }
}

fn not_taken(path: &Path, lock: File, errno: rustix::io::Errno) -> JournalError {
    if errno != rustix::io::Errno::WOULDBLOCK {
        return failed("locking", path)(errno.into());
    }
    let mut holder = String::new();
    // Only for the message; an unreadable lock file is still a held one.
    let read = lock.take(32).read_to_string(&mut holder);
    // The holder writes its name after it has the lock.
    let holder = if read.is_ok() && !holder.trim().is_empty() { holder.trim() } else { "unknown" };
    JournalError::Held { path: path.to_owned(), holder: holder.into() }
}
