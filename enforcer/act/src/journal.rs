//! The write-ahead undo log: what every file held before the daemon first wrote to it.
//!
//! One JSON object per line, with its CRC-32, is appended and made durable before the write that it undoes. A
//! crash in between leaves either an entry without a write, which restores the present value, or an entry
//! with its write, but never a write without an entry. Only the first value of a file is kept: the value from
//! before the daemon.
//!
//! The journal also has the grants of containers, for the next daemon. It uses them only as far as the
//! cgroups agree ([`GrantRecord`]), so no write waits for them, and after a crash lost ones are taken from
//! the cpusets.
//!
//! A container that its runtime sets on our behalf is recorded as soon as its cgroup is there
//! ([`Journal::record_all`]), not before the runtime writes: its creation must not wait for a disk. What is
//! known until then outlives a daemon that is killed as well ([`MakingRecord`]).
//!
//! A file is identified by cgroup, name and inode of the cgroup's directory: a recreated cgroup is another
//! one. Inodes start over at each boot, so entries have a boot id. A property of a unit outlives the cgroup
//! and has no inode; its set value is kept as well, to tell it from values of other programs.
//!
//! Root writes the journal's values to the host. So the journal is read only from a directory and files that
//! belong to root or to the daemon's user and that no other user may write, and no symlink is followed.
//!
//! A last line that a crash cut off is dropped with a warning (`reading.rs`): its write was not made. Any
//! other unreadable line is no entry and is named in [`Journal::damaged`]. Its file is kept beside the new
//! one, and each restore names it until an administrator removes it ([`set_aside`]).
//!
//! Closed lines are left out when the journal is opened, and when it has become long: it is written anew
//! beside the old one, which stays in use until the new one is durable.

mod brake_record;
mod damage;
mod drift_record;
#[cfg(any(test, feature = "testing"))]
#[expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests, of other crates too")]
pub mod fake_disk;
mod files;
mod lines;
mod making_record;
mod pause_record;
mod pins_record;
mod reading;
#[cfg(test)]
mod tests;
mod thread_room;
mod versioned;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use enforcer_core::{
    hosted::GrantRecord,
    self_placement::SelfPlacedThread,
    workload::{CgroupPath, printable},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::{
    brake_record::{BrakeRecord, RecordedBrake, RecordedBrakes, released_line},
    drift_record::DriftRecord,
    files::{check_owned, set_aside},
    making_record::{Granted, LeftMaking, MADE_WITHIN, Made, MakingRecord},
    pause_record::{PauseRecord, RecordedPause},
    pins_record::{LeftPins, NotedPins, PinsRecord},
    thread_room::{ThreadRoom, say_left_out},
};
use self::{
    files::{FileLoss, Lock, Rewritten, Tail, failed},
    lines::Record,
    reading::JournalReading,
};
use super::cpuset::ManagedFile;
use enforcer_host::file_error::FileError;

/// Most bytes of a container's id and cgroup, as the runtime gives them; escaped, six times as many.
const LONGEST_NAMES: usize = 64 << 10;

/// Name of the lock file of the directory.
const LOCK: &str = "lock";

/// Room for a few lines, without which there is no use in trying.
const A_FEW_LINES: usize = 4096;

/// A journal that is no longer than this, in bytes, is not worth writing anew.
const LONG: u64 = 1 << 20;

/// A journal is rewritten only if it is longer than this multiple of its open lines.
const MOSTLY_OVER: u64 = 4;

/// A file that was written, and in which life of its cgroup; or a property of the unit that the cgroup
/// belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EntryKey {
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Its name.
    pub file: ManagedFile,
    /// Inode of the cgroup's directory; 0 for a property.
    pub inode: u64,
}

/// Original of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The exact text, newline included.
    pub original: String,
    /// `/proc/sys/kernel/random/boot_id` of that time, where it could be read.
    pub boot_id: Option<String>,
    /// Last two values of a property, the latest last: either may be in force after a crash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// Threads in the cgroup and below it that had set memory policies or affinities themselves, as they were
    /// before the first write that changes them; and what they have pinned themselves to since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<SelfPlacedThread>,
}

impl Entry {
    /// A file.
    pub fn of_file(original: impl Into<String>, boot_id: Option<&str>) -> Self {
        Self {
            original: original.into(),
            boot_id: boot_id.map(str::to_owned),
            set: Vec::new(),
            threads: Vec::new(),
        }
    }

    /// The entry for a property that was recorded before and is to be set to something else; `None` where
    /// nothing is new.
    fn after(&self, first: &Self) -> Option<Self> {
        let latest = self.set.last().filter(|latest| Some(*latest) != first.set.last());
        let is_known = |thread: &SelfPlacedThread| {
            first.threads.iter().any(|known| known.is(thread) && !known.is_repinned(thread))
        };
        if latest.is_none() && self.threads.iter().all(is_known) {
            return None;
        }
        let threads = self.threads_after(first);
        let set = match latest {
            Some(latest) => first.set.last().into_iter().chain([latest]).cloned().collect(),
            None => first.set.clone(),
        };
        let news = Self { set, threads, ..first.clone() };
        (news != *first).then_some(news)
    }
}

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

/// Is it recorded of another boot than this one, as far as both are known? Then its cgroup is gone, even
/// under the same inode.
pub(super) fn is_of_another_boot(recorded: Option<&str>, now: Option<&str>) -> bool {
    matches!((recorded, now), (Some(then), Some(now)) if then != now)
}

/// Contents of a journal.
#[derive(Debug, Default)]
pub struct JournalContents {
    /// Entries to restore.
    pub entries: BTreeMap<EntryKey, Entry>,
    /// Grants of containers, by id.
    pub grants: BTreeMap<String, GrantRecord>,
    /// Lines that could not be read, with their numbers.
    pub damaged: Vec<String>,
    /// The beginning of a last line that was cut, of which nothing was carried out.
    pub torn: Option<String>,
    /// Zeros behind that or behind the last line, in the place of what did not become durable in a crash.
    pub zeros: usize,
}

impl JournalContents {
    /// Warning about these; `None` where there are none.
    pub fn behind_the_last_line(&self) -> Option<String> {
        (self.zeros > 0).then(|| {
            format!(
                "zeros, {} of them, are behind its last line, as when a host goes down while a daemon records something \
                 that it has not done yet; nothing is put back for them",
                self.zeros
            )
        })
    }
}

/// The journal of one state directory, held exclusively.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    tail: Tail,
    entries: BTreeMap<EntryKey, Entry>,
    grants: BTreeMap<String, GrantRecord>,
    damaged: Vec<String>,
    /// The damaged lines are in the file still, and are not kept elsewhere.
    is_damaged: bool,
    /// File with the damaged lines.
    kept: Option<PathBuf>,
    /// Length in bytes above which it is seen whether the journal should be written anew.
    look_at: u64,
    /// The file was put in the place of another one, and a crash could undo that.
    is_moved: bool,
    /// Why the latest line could not be recorded, until one could.
    trouble: Option<String>,
    lock: Lock,
}

impl Journal {
    /// Opens or makes the journal in `state_dir`, and takes its lock.
    pub fn open(state_dir: &Path) -> Result<Self, JournalError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state_dir)
            .map_err(failed("creating", state_dir))?;
        check_owned(state_dir)?;
        let lock = files::take_lock(&state_dir.join(LOCK))?;
        let path = state_dir.join("journal");
        let JournalReading { contents, is_compact, torn_at, is_beyond } = files::read_journal(&path)?;
        say(&path, &contents);
        let JournalContents { entries, grants, damaged, .. } = contents;
        let (mut is_damaged, mut kept) = (!damaged.is_empty(), None);
        let file = if is_compact {
            files::open(&path)?
        } else {
            match files::rewrite(&path, is_damaged, lines::all(&entries, &grants)) {
                // It is as good as it was, only longer: a restore must not need space on a full disk.
                Err(error) if error.is_no_room() && !is_beyond => files::open_whole(&path, torn_at)?,
                rewritten => {
                    let rewritten = rewritten?;
                    (is_damaged, kept) = (false, rewritten.kept);
                    rewritten.file
                }
            }
        };
        files::sync_dir_of(&path)?;
        let tail = Tail::new(&path, Box::new(file));
        Ok(Self {
            path,
            tail,
            entries,
            grants,
            damaged,
            is_damaged,
            kept,
            look_at: LONG,
            is_moved: false,
            trouble: None,
            lock,
        })
    }

    /// Reads the journal without its lock and without a change; empty when there is none.
    pub fn peek(state_dir: &Path) -> Result<JournalContents, JournalError> {
        match fs::symlink_metadata(state_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(JournalContents::default()),
            _ => check_owned(state_dir)?,
        }
        Ok(files::read_journal(&state_dir.join("journal"))?.contents)
    }

    /// Checks that no process holds the journal in `state_dir`. The error names the holder.
    pub fn check_free(state_dir: &Path) -> Result<(), JournalError> {
        files::check_free(&state_dir.join(LOCK))
    }

    /// Entries to restore.
    pub fn entries(&self) -> &BTreeMap<EntryKey, Entry> {
        &self.entries
    }

    /// Has this cgroup an entry to restore?
    pub fn has_set(&self, cgroup: &CgroupPath) -> bool {
        // `Mems` is the first of the files.
        let first = EntryKey { cgroup: cgroup.clone(), file: ManagedFile::Mems, inode: 0 };
        let of_it = self.entries.range(first..).take_while(|(key, _)| key.cgroup == *cgroup);
        of_it.map(|(key, _)| key.file).any(|file| matches!(file, ManagedFile::Mems | ManagedFile::Cpus))
    }

    /// Grants of containers, by id.
    pub fn grants(&self) -> &BTreeMap<String, GrantRecord> {
        &self.grants
    }

    /// Lines that could not be read, with their numbers.
    pub fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// File with the unreadable lines since it was opened; `None` where they are still in the journal.
    pub fn kept(&self) -> Option<&Path> {
        self.kept.as_deref()
    }

    /// Can lines be recorded, where a restore will find them? While the latest one could be, it is only
    /// looked whether all is there still; else it is tried. The error says why not.
    pub fn check(&mut self) -> Result<(), String> {
        let held = self.hold();
        if held.is_err() || self.trouble.is_some() {
            let tried = held.and_then(|()| self.tail.probe(A_FEW_LINES));
            self.trouble = tried.err().map(|error| error.to_string());
        }
        self.trouble.clone().map_or(Ok(()), Err)
    }

    /// Records the content of a file before its first write; later calls are ignored. For a property each set
    /// value is recorded.
    pub fn record(&mut self, key: EntryKey, entry: Entry) -> Result<(), JournalError> {
        self.record_all(vec![(key, entry)])
    }

    /// Puts other originals in the place of those that are recorded: what others want of them by now.
    pub fn renew_all(&mut self, new: Vec<(EntryKey, Entry)>) -> Result<(), JournalError> {
        self.append(
            new.iter().map(|(key, entry)| Record::Before { key: key.clone(), entry: entry.clone() }),
        )?;
        self.entries.extend(new);
        Ok(())
    }

    /// The same for several files, with one wait for the disk.
    pub fn record_all(&mut self, new: Vec<(EntryKey, Entry)>) -> Result<(), JournalError> {
        let news = |(key, entry): (EntryKey, Entry)| match self.entries.get(&key) {
            // An entry of an earlier boot is about a cgroup that is gone, even under the same inode.
            Some(first) if first.boot_id == entry.boot_id => entry.after(first).map(|entry| (key, entry)),
            _ => Some((key, entry)),
        };
        let new: Vec<_> = new.into_iter().filter_map(news).collect();
        self.append(
            new.iter().map(|(key, entry)| Record::Before { key: key.clone(), entry: entry.clone() }),
        )?;
        self.entries.extend(new);
        Ok(())
    }

    /// Forgets a file that holds its original again, or that is gone.
    pub fn close(&mut self, key: &EntryKey) -> Result<(), JournalError> {
        self.close_all(std::slice::from_ref(key))
    }

    /// The same for several files, with one wait for the disk.
    pub fn close_all(&mut self, keys: &[EntryKey]) -> Result<(), JournalError> {
        let open: BTreeSet<&EntryKey> = keys.iter().filter(|key| self.entries.contains_key(key)).collect();
        self.append(open.iter().map(|key| Record::Restored { key: (*key).clone() }))?;
        for key in open {
            self.entries.remove(key);
        }
        Ok(())
    }

    /// Records the present grants of containers. A container that is not in `now` has none. Writes only what
    /// is different.
    pub fn note_grants(&mut self, mut now: BTreeMap<String, GrantRecord>) -> Result<(), JournalError> {
        // One that names itself at such length is adopted from its cpuset alone: its line would not be read.
        now.retain(|id, grant| id.len() + grant.cgroup.as_str().len() <= LONGEST_NAMES);
        let released = self.grants.keys().filter(|id| !now.contains_key(*id));
        let released = released.map(|id| Record::Released { id: id.clone() });
        let changed = now.iter().filter(|(id, grant)| self.grants.get(*id) != Some(grant));
        let changed =
            changed.map(|(id, grant)| Record::Granted { id: id.clone(), grant: Box::new(grant.clone()) });
        let records: Vec<Record> = released.chain(changed).collect();
        self.append(records.into_iter())?;
        self.grants = now;
        Ok(())
    }

    fn append(&mut self, records: impl Iterator<Item = Record>) -> Result<(), JournalError> {
        let lines: String = records
            .map(|record| lines::encode(&record))
            .collect::<Result<_, _>>()
            .map_err(failed("encoding a line of", &self.path))?;
        if lines.is_empty() {
            return Ok(());
        }
        let appended = self.hold().and_then(|()| self.shorten()).and_then(|()| self.tail.append(&lines));
        self.trouble = appended.as_ref().err().map(ToString::to_string);
        appended
    }

    /// Makes sure that the lock and the journal in the state directory are ours. A cleaner of `/run` may have
    /// removed them: then a restore would find nothing, and a second daemon would start. All entries are in
    /// memory and are written anew; a foreign file in their place is kept beside the new one. Fails if the
    /// directory is gone, or another process holds the lock.
    fn hold(&mut self) -> Result<(), JournalError> {
        let lock = self.path.with_file_name(LOCK);
        if !self.lock.is_at(&lock) {
            check_owned(lock.parent().unwrap_or(&lock))?;
            self.lock = files::take_lock(&lock)?;
            tracing::error!("{} was taken away; it is locked anew", lock.display());
        }
        let Some(loss) = self.tail.loss()? else { return Ok(()) };
        let lines = lines::all(&self.entries, &self.grants);
        let rewritten = files::rewrite(&self.path, loss == FileLoss::Replaced, lines)?;
        self.go_on_in(rewritten);
        tracing::error!("{} was {}; it is written anew", self.path.display(), loss.words());
        Ok(())
    }

    /// Continues in a rewritten file that has replaced the former one.
    fn go_on_in(&mut self, Rewritten { file, kept }: Rewritten) {
        self.tail = Tail::new(&self.path, Box::new(file));
        self.kept = kept.or(self.kept.take());
        (self.is_damaged, self.is_moved) = (false, true);
    }

    /// Rewrites the journal without closed lines, once these are most of it. On failure the old file stays in
    /// use. An error means that the old file may come back after a crash: no line may be added before the
    /// rewrite succeeds.
    fn shorten(&mut self) -> Result<(), JournalError> {
        let length = self.tail.length()?;
        if length > self.look_at {
            match self.rewrite(length) {
                Ok(Some(rewritten)) => self.go_on_in(rewritten),
                Ok(None) => {}
                Err(error) => {
                    self.look_at = length + LONG;
                    tracing::warn!("the journal stays as long as it is: {error}");
                }
            }
        }
        if self.is_moved {
            files::sync_dir_of(&self.path)?;
            self.is_moved = false;
        }
        Ok(())
    }

    /// The new file; `None` where it would not be much shorter than the old one.
    fn rewrite(&mut self, length: u64) -> Result<Option<Rewritten>, JournalError> {
        let lines: Vec<String> = lines::all(&self.entries, &self.grants)
            .collect::<Result<_, _>>()
            .map_err(failed("encoding a line of", &self.path))?;
        let compact: usize = lines.iter().map(String::len).sum();
        self.look_at = LONG.max(MOSTLY_OVER * compact as u64);
        if length <= self.look_at {
            return Ok(None);
        }
        files::rewrite(&self.path, self.is_damaged, lines.into_iter().map(Ok)).map(Some)
    }
}

/// Most lines of which each is logged.
const LOGGED: usize = 10;

/// Logs the unused lines of a journal.
fn say(path: &Path, contents: &JournalContents) {
    for line in contents.damaged.iter().take(LOGGED) {
        tracing::error!("journal line that cannot be read: {}", printable(line));
    }
    if let Some(cut) = &contents.torn {
        let (path, cut) = (path.display(), printable(cut));
        tracing::warn!(
            "{path}: its last line is not whole, as when a daemon ends while it records something that it has not done \
             yet; nothing is put back for it: {cut}"
        );
    }
    if let Some(zeros) = contents.behind_the_last_line() {
        tracing::warn!("{}: {zeros}", path.display());
    }
}
