//! The journal: what every file held before the daemon first wrote to it.
//!
//! An entry is added before the write that it undoes. A crash in between leaves either an entry without a
//! write, which restores the present value, or an entry with its write, but never a write without an entry.
//! Only the first value of a file is kept: the value from before the daemon.
//!
//! The journal also has the grants of containers, for the next daemon. It uses them only as far as the
//! cgroups agree ([`GrantRecord`]), so no write waits for them, and after a crash lost ones are taken from
//! the cpusets.
//!
//! A container that its runtime sets on our behalf is recorded as soon as its cgroup is there
//! ([`Journal::record_all`]), not before the runtime writes: its creation must not wait for a disk. What is
//! known until then outlives a daemon that is killed as well ([`super::making_record`]).
//!
//! A file is identified by cgroup, name and inode of the cgroup's directory: a recreated cgroup is another
//! one. Inodes start over at each boot, so entries have a boot id. A property of a unit outlives the cgroup
//! and has no inode; its set value is kept as well, to tell it from values of other programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use enforcer_core::{hosted::GrantRecord, workload::CgroupPath};

use super::{
    entry::{Entry, EntryKey, LONGEST_NAMES},
    error::{JournalError, failed},
    files::check_owned,
    lock::{self, Lock},
    log::{self, Log, LogKind, behind_the_last_line},
    reading::{Fold, ForeignRecord, Reading},
    record::{Record, ReleasedId},
};
use crate::cpuset::ManagedFile;

/// Name of the lock file of the directory.
pub(super) const LOCK: &str = "lock";

pub(super) static JOURNAL: LogKind =
    LogKind { name: "journal", is_shared: false, long: 1 << 20, limit: u64::MAX };

/// What the journal says.
#[derive(Debug, Default)]
pub(super) struct Originals {
    pub(super) entries: BTreeMap<EntryKey, Entry>,
    grants: BTreeMap<String, GrantRecord>,
}

impl Fold for Originals {
    fn take(&mut self, record: Record) -> Result<Option<Record>, ForeignRecord> {
        Ok(match record {
            Record::Before { key, entry } => {
                let was = self.entries.insert(key.clone(), entry);
                was.map(|entry| Record::Before { key, entry })
            }
            Record::Restored { key } => {
                self.entries.remove_entry(&key).map(|(key, entry)| Record::Before { key, entry })
            }
            Record::Granted { id, grant } => {
                let was = self.grants.insert(id.clone(), *grant);
                was.map(|grant| Record::Granted { id, grant: Box::new(grant) })
            }
            Record::Released { id: ReleasedId::Container(id) } => {
                let was = self.grants.remove_entry(&id);
                was.map(|(id, grant)| Record::Granted { id, grant: Box::new(grant) })
            }
            _ => return Err(ForeignRecord),
        })
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        let before = self.entries.iter().map(|(key, entry)| before(key, entry));
        before.chain(self.grants.iter().map(|(id, grant)| granted(id, grant)))
    }
}

fn before(key: &EntryKey, entry: &Entry) -> Record {
    Record::Before { key: key.clone(), entry: entry.clone() }
}

fn granted(id: &str, grant: &GrantRecord) -> Record {
    Record::Granted { id: id.to_owned(), grant: Box::new(grant.clone()) }
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
        behind_the_last_line(self.zeros)
    }
}

/// The journal of one state directory, held exclusively.
#[derive(Debug)]
pub struct Journal {
    pub(super) log: Log<Originals>,
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
        let lock = lock::take_lock(&state_dir.join(LOCK))?;
        Ok(Self { log: Log::open(state_dir, &JOURNAL)?, lock })
    }

    /// Reads the journal without its lock and without a change; empty when there is none.
    pub fn peek(state_dir: &Path) -> Result<JournalContents, JournalError> {
        match fs::symlink_metadata(state_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(JournalContents::default()),
            _ => check_owned(state_dir)?,
        }
        let Reading { state: Originals { entries, grants }, damaged, torn, zeros, .. } =
            log::read(state_dir, &JOURNAL)?;
        Ok(JournalContents { entries, grants, damaged, torn, zeros })
    }

    /// Checks that no process holds the journal in `state_dir`. The error names the holder.
    pub fn check_free(state_dir: &Path) -> Result<(), JournalError> {
        lock::check_free(&state_dir.join(LOCK))
    }

    /// Entries to restore.
    pub fn entries(&self) -> &BTreeMap<EntryKey, Entry> {
        &self.log.state().entries
    }

    /// Has this cgroup an entry to restore?
    pub fn has_set(&self, cgroup: &CgroupPath) -> bool {
        // `Mems` is the first of the files.
        let first = EntryKey { cgroup: cgroup.clone(), file: ManagedFile::Mems, inode: 0 };
        let of_it = self.entries().range(first..).take_while(|(key, _)| key.cgroup == *cgroup);
        of_it.map(|(key, _)| key.file).any(|file| matches!(file, ManagedFile::Mems | ManagedFile::Cpus))
    }

    /// Grants of containers, by id.
    pub fn grants(&self) -> &BTreeMap<String, GrantRecord> {
        &self.log.state().grants
    }

    /// Lines that could not be read, with their numbers.
    pub fn damaged(&self) -> &[String] {
        self.log.damaged()
    }

    /// File with the unreadable lines since it was opened; `None` where they are still in the journal.
    pub fn kept(&self) -> Option<&Path> {
        self.log.kept()
    }

    /// Can lines be recorded, where a restore will find them? While the latest one could be, it is only
    /// looked whether all is there still; else it is tried. The error says why not.
    pub fn check(&mut self) -> Result<(), String> {
        self.hold().map_err(|error| error.to_string())?;
        self.log.check()
    }

    /// Records the content of a file before its first write; later calls are ignored. For a property each set
    /// value is recorded.
    pub fn record(&mut self, key: EntryKey, entry: Entry) -> Result<(), JournalError> {
        self.record_all(vec![(key, entry)])
    }

    /// Puts other originals in the place of those that are recorded: what others want of them by now.
    pub fn renew_all(&mut self, new: Vec<(EntryKey, Entry)>) -> Result<(), JournalError> {
        self.append(new.into_iter().map(|(key, entry)| Record::Before { key, entry }).collect())
    }

    /// The same as [`Self::record`] for several files, all or none of them.
    pub fn record_all(&mut self, new: Vec<(EntryKey, Entry)>) -> Result<(), JournalError> {
        let news = |(key, entry): (EntryKey, Entry)| match self.entries().get(&key) {
            // An entry of an earlier boot is about a cgroup that is gone, even under the same inode.
            Some(first) if first.boot_id == entry.boot_id => entry.after(first).map(|entry| (key, entry)),
            _ => Some((key, entry)),
        };
        self.renew_all(new.into_iter().filter_map(news).collect())
    }

    /// Forgets a file that holds its original again, or that is gone.
    pub fn close(&mut self, key: &EntryKey) -> Result<(), JournalError> {
        self.close_all(std::slice::from_ref(key))
    }

    /// The same for several files, all or none of them.
    pub fn close_all(&mut self, keys: &[EntryKey]) -> Result<(), JournalError> {
        let open: BTreeSet<&EntryKey> = keys.iter().filter(|key| self.entries().contains_key(key)).collect();
        self.append(open.into_iter().map(|key| Record::Restored { key: key.clone() }).collect())
    }

    /// Records the present grants of containers. A container that is not in `now` has none. Writes only what
    /// is different.
    pub fn note_grants(&mut self, mut now: BTreeMap<String, GrantRecord>) -> Result<(), JournalError> {
        // One that names itself at such length is adopted from its cpuset alone: its line would not be read.
        now.retain(|id, grant| id.len() + grant.cgroup.as_str().len() <= LONGEST_NAMES);
        let released = self.grants().keys().filter(|id| !now.contains_key(*id));
        let released = released.map(|id| Record::Released { id: ReleasedId::Container(id.clone()) });
        let changed = now.iter().filter(|(id, grant)| self.grants().get(*id) != Some(grant));
        self.append(released.chain(changed.map(|(id, grant)| granted(id, grant))).collect())
    }

    fn append(&mut self, records: Vec<Record>) -> Result<(), JournalError> {
        if !records.is_empty() {
            self.hold()?;
        }
        self.log.append(records)
    }

    /// Makes sure that the lock in the state directory is ours. A cleaner of `/run` may have removed it: then
    /// a second daemon would start. Fails if the directory is gone, or another process holds the lock.
    fn hold(&mut self) -> Result<(), JournalError> {
        let lock = self.log.path().with_file_name(LOCK);
        if !self.lock.is_at(&lock) {
            check_owned(lock.parent().unwrap_or(&lock))?;
            self.lock = lock::take_lock(&lock)?;
            tracing::error!("{} was taken away; it is locked anew", lock.display());
        }
        Ok(())
    }
}
