//! Files of the journal: opened only where no other user may write them, appended to so that a full disk does
//! no harm, and replaced as a whole.

use std::{
    ffi::OsStr,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, Read, Write},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::fs::FlockOperation;

use super::{
    JournalError,
    reading::{self, JournalReading},
    versioned,
};
use enforcer_host::owned_file::{of_one_writer, of_ours, open_ours};

/// Most bytes of a small file that are read.
const READ_LIMIT: u64 = 256 << 20;

pub(super) fn failed<'a>(
    operation: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> JournalError + 'a {
    move |cause| enforcer_host::file_error::failed(operation, path)(cause).into()
}

/// Refuses a state directory that is a symlink, or that others may write.
pub fn check_owned(state_dir: &Path) -> Result<(), JournalError> {
    let checked = fs::symlink_metadata(state_dir).and_then(|metadata| {
        if !metadata.is_dir() {
            let reason = "not a directory; a symlink is not followed";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        of_one_writer(&metadata)?;
        of_ours(&metadata)
    });
    checked.map_err(failed("using the state directory", state_dir))
}

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

/// The whole text of a small file; empty when there is none.
pub(super) fn read(path: &Path) -> Result<String, JournalError> {
    read_within(path, READ_LIMIT)
}

/// Reads a file of at most `limit` bytes.
pub(super) fn read_within(path: &Path, limit: u64) -> Result<String, JournalError> {
    let Some(file) = reader(path)? else { return Ok(String::new()) };
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    match read {
        Ok(_) if bytes.len() as u64 > limit => {
            let cause = io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes"));
            Err(failed("reading", path)(cause))
        }
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(cause) => Err(failed("reading", path)(cause)),
    }
}

/// Takes away the zeros that are behind the last line of a small file, before another line comes behind them.
pub(super) fn cut_zeros(path: &Path, file: &File) -> Result<(), JournalError> {
    let text = read(path)?;
    let zeros = (text.len() - versioned::without_zeros(&text).len()) as u64;
    if zeros > 0 {
        let length = file.length().map_err(failed("looking at", path))?;
        file.set_len(length.saturating_sub(zeros)).map_err(failed("cutting", path))?;
    }
    Ok(())
}

/// Reads a journal; empty where there is none.
pub(super) fn read_journal(path: &Path) -> Result<JournalReading, JournalError> {
    match reader(path)? {
        Some(file) => reading::read(path, BufReader::new(file)).map_err(failed("reading", path)),
        None => reading::read(path, io::empty()).map_err(failed("reading", path)),
    }
}

/// A file of ours, to read it; `None` where there is none.
fn reader(path: &Path) -> Result<Option<File>, JournalError> {
    let opened = open_ours(OpenOptions::new().read(true), path).and_then(|file| {
        of_one_hand(path, &file)?;
        Ok(file)
    });
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(failed("reading", path)(cause)),
    }
}

/// Refuses a file that other users may write, unless no other user can enter its directory.
fn of_one_hand(path: &Path, file: &File) -> io::Result<()> {
    of_one_writer(&file.metadata()?).or_else(|error| {
        let dir = fs::symlink_metadata(path.parent().unwrap_or(path))?;
        if dir.mode() & 0o011 == 0 { Ok(()) } else { Err(error) }
    })
}

/// Is this open file the one that has this name?
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let named = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        named => named?,
    };
    let ours = file.metadata()?;
    Ok((ours.dev(), ours.ino()) == (named.dev(), named.ino()))
}

/// Medium of the journal's lines.
pub(super) trait JournalMedium: fmt::Debug + Send {
    /// Is it what a reader of this path would find?
    fn is_at(&self, path: &Path) -> io::Result<bool>;
    /// Bytes that are there.
    fn length(&self) -> io::Result<u64>;
    /// Adds bytes at the end; some may be there after a failure.
    fn add(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes the added lines durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates to `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl JournalMedium for File {
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        is_at(self, path)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// The end of the journal. After any sequence of failures earlier lines stay as they were, and no line
/// follows half of another one.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    medium: Box<dyn JournalMedium>,
    /// Half a line is behind this, because it could not be taken away when it failed.
    torn_at: Option<u64>,
    /// Bytes that were there when it was last added to, or opened.
    length: u64,
}

/// How the journal was lost while it was open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileLoss {
    /// The file exists, but its content is cut.
    Cut,
    /// No file has its name.
    Gone,
    /// Another file has its name.
    Replaced,
}

impl FileLoss {
    /// For people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Gone => "taken away",
            Self::Replaced => "replaced",
        }
    }
}

impl Tail {
    pub(super) fn new(path: &Path, medium: Box<dyn JournalMedium>) -> Self {
        // Where it cannot be told nothing can be added, either.
        let length = medium.length().unwrap_or(0);
        Self { path: path.to_owned(), medium, torn_at: None, length }
    }

    /// Checks whether a reader would find the added lines; `None` where it would.
    pub(super) fn loss(&self) -> Result<Option<FileLoss>, JournalError> {
        if !self.medium.is_at(&self.path).map_err(failed("looking at", &self.path))? {
            let is_gone = fs::symlink_metadata(&self.path).is_err();
            return Ok(Some(if is_gone { FileLoss::Gone } else { FileLoss::Replaced }));
        }
        Ok((self.length()? < self.length).then_some(FileLoss::Cut))
    }

    /// Bytes that are there.
    pub(super) fn length(&self) -> Result<u64, JournalError> {
        self.medium.length().map_err(failed("looking at", &self.path))
    }

    /// Adds whole lines, and waits for the disk.
    pub(super) fn append(&mut self, lines: &str) -> Result<(), JournalError> {
        self.mend()?;
        let length = self.length()?;
        let added = self.medium.add(lines.as_bytes()).and_then(|()| self.medium.sync());
        if added.is_err() {
            self.torn_at = Some(length);
            // Only a first try: it is made again before the next line.
            let _ = self.mend();
        } else {
            self.length = length + lines.len() as u64;
        }
        added.map_err(failed("appending to", &self.path))
    }

    /// Checks that there is space for `bytes`, by adding and removing them. A crash in between leaves a line
    /// without end, which is not read.
    pub(super) fn probe(&mut self, bytes: usize) -> Result<(), JournalError> {
        self.mend()?;
        let length = self.length()?;
        let added = self.medium.add(&vec![b' '; bytes]).and_then(|()| self.medium.sync());
        self.torn_at = Some(length);
        let cut = self.mend();
        added.map_err(failed("appending to", &self.path))?;
        cut
    }

    fn mend(&mut self) -> Result<(), JournalError> {
        if let Some(length) = self.torn_at {
            self.medium.cut(length).map_err(failed("cutting", &self.path))?;
            self.torn_at = None;
        }
        Ok(())
    }
}

/// A file that was put in the place of another one.
pub(super) struct Rewritten {
    /// For appending.
    pub(super) file: File,
    /// Path of the kept damaged one.
    pub(super) kept: Option<PathBuf>,
}

/// Puts these lines in the place of the file, all or none of them; a damaged one is kept beside it. A crash
/// may undo that until [`sync_dir_of`].
pub(super) fn rewrite(
    path: &Path,
    is_damaged: bool,
    lines: impl Iterator<Item = io::Result<String>>,
) -> Result<Rewritten, JournalError> {
    let kept = is_damaged.then(|| keep_damaged(path)).transpose()?;
    Ok(Rewritten { file: replace(path, lines, File::sync_all)?, kept })
}

/// The same for a file that need not outlive a boot: it does not wait for the disk.
pub(super) fn rewrite_at_once(
    path: &Path,
    is_damaged: bool,
    lines: impl Iterator<Item = io::Result<String>>,
) -> Result<File, JournalError> {
    is_damaged.then(|| keep_damaged(path)).transpose()?;
    replace(path, lines, |_| Ok(()))
}

/// Makes durable which file has this name.
pub(super) fn sync_dir_of(path: &Path) -> Result<(), JournalError> {
    let dir = path.parent().unwrap_or(path);
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("syncing", dir))
}

/// Copies of damaged journals that are kept: the first one may hold what the later ones have lost.
const MOST_DAMAGED: usize = 8;

/// Damaged journals and records that were set aside in this directory and are still there.
pub fn set_aside(state_dir: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let listed = fs::read_dir(state_dir)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
    let mut kept: Vec<PathBuf> = match listed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed.map_err(failed("listing", state_dir))?,
    };
    let is_damaged = |name: &OsStr| {
        let name = name.as_encoded_bytes();
        [&b"journal.damaged"[..], b"making.damaged", b"brakes.damaged", b"pins.damaged"]
            .iter()
            .any(|one| name.starts_with(one))
    };
    kept.retain(|path| path.file_name().is_some_and(is_damaged));
    kept.sort_unstable();
    Ok(kept)
}

/// Keeps a damaged journal, as it may hold the only copy of an original, and returns its new path. If there
/// are many already, it replaces the latest.
fn keep_damaged(path: &Path) -> Result<PathBuf, JournalError> {
    let first = std::iter::once(path.with_extension("damaged"));
    let names: Vec<_> =
        first.chain((2..=MOST_DAMAGED).map(|n| path.with_extension(format!("damaged.{n}")))).collect();
    for kept in &names {
        match fs::hard_link(path, kept) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => {
                linked.map_err(failed("keeping what is damaged as", kept))?;
                return Ok(say_kept(path, kept));
            }
        }
    }
    let last = names.last().map_or(path, |last| last);
    let linked = fs::remove_file(last).and_then(|()| fs::hard_link(path, last));
    linked.map_err(failed("keeping what is damaged as", last))?;
    Ok(say_kept(path, last))
}

fn say_kept(path: &Path, kept: &Path) -> PathBuf {
    tracing::error!(
        "{} is damaged, and kept as {}: restore does not put back what cannot be read of it",
        path.display(),
        kept.display()
    );
    kept.to_owned()
}

/// The file stays open: after the rename no failure may leave the old one in use. Other replaced files
/// (`cli/whole_file.rs`, `exposed.rs`) are closed after the write, and the file in their place may be
/// foreign.
fn replace(
    path: &Path,
    mut lines: impl Iterator<Item = io::Result<String>>,
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> Result<File, JournalError> {
    let fresh = path.with_extension("new");
    let mut file = open(&fresh)?;
    let written = file
        .set_len(0)
        .and_then(|()| lines.try_for_each(|line| file.write_all(line?.as_bytes())))
        .and_then(|()| sync(&file));
    if let Err(cause) = written {
        // Half a file is useless and takes space.
        let _ = fs::remove_file(&fresh);
        return Err(failed("writing", &fresh)(cause));
    }
    fs::rename(&fresh, path).map_err(failed("renaming to", path))?;
    Ok(file)
}

/// Opens the file for appending and repairs its end: a partial line is cut, and a whole one gets its newline.
pub(super) fn open_whole(path: &Path, torn_at: Option<u64>) -> Result<File, JournalError> {
    let mut file = open(path)?;
    if let Some(length) = torn_at {
        file.set_len(length).map_err(failed("cutting", path))?;
    }
    let mut last = [b'\n'];
    let length = file.length().map_err(failed("looking at", path))?;
    if let (Some(at), Some(reader)) = (length.checked_sub(1), reader(path)?) {
        reader.read_exact_at(&mut last, at).map_err(failed("reading", path))?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n").and_then(|()| file.sync_data()).map_err(failed("appending to", path))?;
    }
    Ok(file)
}

/// Opens the file for appending, and closes it to others.
pub(super) fn open(path: &Path) -> Result<File, JournalError> {
    let opened = open_ours(OpenOptions::new().append(true).create(true), path).and_then(|file| {
        if of_one_writer(&file.metadata()?).is_err() {
            of_one_hand(path, &file)?;
            tracing::warn!("{}: others could write it; now only its owner can", path.display());
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
        }
        Ok(file)
    });
    opened.map_err(failed("opening", path))
}
