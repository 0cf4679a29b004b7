//! The write-ahead undo log: what every file held before the daemon first wrote to it.
//!
//! One JSON object per line is appended and made durable before the write that it undoes. Whatever
//! happens in between, a crash included, leaves either an entry without a write (putting back what is
//! there changes nothing) or an entry with its write; never a write without an entry. Only the first
//! value of a file is kept: it is the one that was there before us.
//!
//! A file is known by cgroup, name and inode of the cgroup's directory: a cgroup that was made again
//! is another one. Inodes start over when the host boots, so entries carry the boot they belong to.
//!
//! A last line without its newline was torn by a crash before its write was made, and is dropped. Any
//! other line that cannot be read is kept out of the entries and named in [`Journal::damaged`].

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use enforcer_core::workload::CgroupPath;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::cpuset::CpusetFile;

/// Version of the lines; a line of another version is damage.
const JOURNAL_VERSION: u32 = 1;

/// A file that was written, and in which life of its cgroup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EntryKey {
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Its name.
    pub file: CpusetFile,
    /// Inode of the cgroup's directory.
    pub inode: u64,
}

/// What a file held before us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The exact text, newline included.
    pub original: String,
    /// `/proc/sys/kernel/random/boot_id` of that time, where it could be read.
    pub boot_id: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    version: u32,
    #[serde(flatten)]
    record: Record,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum Record {
    Before {
        #[serde(flatten)]
        key: EntryKey,
        #[serde(flatten)]
        entry: Entry,
    },
    Restored {
        #[serde(flatten)]
        key: EntryKey,
    },
}

/// Why the journal cannot be used. Nothing may be written to the host then.
#[derive(Debug, Error)]
pub enum JournalError {
    /// A file operation failed.
    #[error("{operation} {path}: {cause}", path = path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
    /// Another daemon, or a restore, is at work.
    #[error("{path} is held by another numa-enforcer (process {holder}); stop it first", path = path.display())]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Process id, as far as the lock file tells.
        holder: String,
    },
}

/// What is written in a journal.
#[derive(Debug, Default)]
pub struct JournalContents {
    /// What has to be put back.
    pub entries: BTreeMap<EntryKey, Entry>,
    /// Lines that could not be read, with their numbers.
    pub damaged: Vec<String>,
}

/// The journal of one state directory, held exclusively.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    entries: BTreeMap<EntryKey, Entry>,
    damaged: Vec<String>,
    // The lock lives as long as the open file.
    _lock: File,
}

impl Journal {
    /// Opens or makes the journal in `state_dir`, and takes its lock.
    pub fn open(state_dir: &Path) -> Result<Self, JournalError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state_dir)
            .map_err(failed("creating", state_dir))?;
        let lock = take_lock(&state_dir.join("lock"))?;
        let path = state_dir.join("journal");
        let JournalContents { entries, damaged } = load(&path)?;
        let file = rewrite(&path, &entries, damaged.is_empty())?;
        File::open(state_dir).and_then(|dir| dir.sync_all()).map_err(failed("syncing", state_dir))?;
        Ok(Self { path, file, entries, damaged, _lock: lock })
    }

    /// What the journal holds, without its lock and without a change; nothing when there is none.
    pub fn peek(state_dir: &Path) -> Result<JournalContents, JournalError> {
        load(&state_dir.join("journal"))
    }

    /// What has to be put back.
    pub fn entries(&self) -> &BTreeMap<EntryKey, Entry> {
        &self.entries
    }

    /// Lines that could not be read, with their numbers.
    pub fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// Records what a file holds, before it is written for the first time; later values are ignored.
    pub fn record(&mut self, key: EntryKey, entry: Entry) -> Result<(), JournalError> {
        // An entry of an earlier boot is about a cgroup that is gone, even under the same inode.
        if self.entries.get(&key).is_some_and(|first| first.boot_id == entry.boot_id) {
            return Ok(());
        }
        self.append(Record::Before { key: key.clone(), entry: entry.clone() })?;
        self.entries.insert(key, entry);
        Ok(())
    }

    /// Forgets a file that holds its original again, or that is gone.
    pub fn close(&mut self, key: &EntryKey) -> Result<(), JournalError> {
        if self.entries.contains_key(key) {
            self.append(Record::Restored { key: key.clone() })?;
            self.entries.remove(key);
        }
        Ok(())
    }

    fn append(&mut self, record: Record) -> Result<(), JournalError> {
        let line = encode(record).map_err(failed("encoding a line of", &self.path))?;
        let length = self.file.metadata().map_err(failed("looking at", &self.path))?.len();
        let appended = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        if appended.is_err() {
            // A full disk may have taken half a line; the next one must not be glued to it.
            self.file.set_len(length).map_err(failed("cutting", &self.path))?;
        }
        appended.map_err(failed("appending to", &self.path))
    }
}

fn failed<'a>(operation: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> JournalError + 'a {
    move |cause| JournalError::Io { operation, path: path.to_owned(), cause }
}

fn encode(record: Record) -> io::Result<String> {
    let mut line = serde_json::to_string(&Line { version: JOURNAL_VERSION, record })?;
    line.push('\n');
    Ok(line)
}

fn take_lock(path: &Path) -> Result<File, JournalError> {
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(failed("opening", path))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            // Only for the message; an unreadable lock file is still a held one.
            let read = lock.take(32).read_to_string(&mut holder);
            let holder = if read.is_ok() { holder.trim() } else { "unknown" };
            return Err(JournalError::Held { path: path.to_owned(), holder: holder.into() });
        }
        Err(errno) => return Err(failed("locking", path)(errno.into())),
    }
    lock.set_len(0)
        .and_then(|()| writeln!(lock, "{}", std::process::id()))
        .map_err(failed("writing", path))?;
    Ok(lock)
}

fn load(path: &Path) -> Result<JournalContents, JournalError> {
    let text = match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(cause) => return Err(failed("reading", path)(cause)),
    };
    let mut entries = BTreeMap::new();
    let mut damaged = Vec::new();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (number, text) in (1..).zip(whole.lines()) {
        match serde_json::from_str::<Line>(text) {
            Ok(Line { version: JOURNAL_VERSION, record: Record::Before { key, entry } }) => {
                entries.insert(key, entry);
            }
            Ok(Line { version: JOURNAL_VERSION, record: Record::Restored { key } }) => {
                entries.remove(&key);
            }
            Ok(Line { version, .. }) => {
                damaged.push(format!("{} line {number}: version {version} is not known", path.display()));
            }
            Err(error) => damaged.push(format!("{} line {number}: {error}", path.display())),
        }
    }
    Ok(JournalContents { entries, damaged })
}

/// Leaves only what is open in the file, so that it does not grow for ever and a torn end is gone.
///
/// A damaged file is kept beside the new one: it may hold what nobody else knows.
fn rewrite(path: &Path, entries: &BTreeMap<EntryKey, Entry>, undamaged: bool) -> Result<File, JournalError> {
    if !undamaged {
        let kept = path.with_extension("damaged");
        fs::copy(path, &kept).map_err(failed("copying the damaged journal to", &kept))?;
    }
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(failed("creating", &fresh))?;
    for (key, entry) in entries {
        let line = encode(Record::Before { key: key.clone(), entry: entry.clone() })
            .map_err(failed("encoding a line of", &fresh))?;
        file.write_all(line.as_bytes()).map_err(failed("writing", &fresh))?;
    }
    file.sync_all().map_err(failed("syncing", &fresh))?;
    fs::rename(&fresh, path).map_err(failed("renaming to", path))?;
    OpenOptions::new().append(true).open(path).map_err(failed("opening", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key(cgroup: &str, inode: u64) -> EntryKey {
        EntryKey { cgroup: CgroupPath::new(cgroup), file: CpusetFile::Mems, inode }
    }

    fn entry(original: &str) -> Entry {
        Entry { original: original.into(), boot_id: Some("b".into()) }
    }

    #[test]
    fn the_first_value_wins_and_survives_a_reopen() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.record(key("/a", 1), entry("0\n")).unwrap();
        journal.record(key("/a", 1), entry("1\n")).unwrap();
        journal.record(key("/a", 2), entry("\n")).unwrap();
        drop(journal);
        let journal = Journal::open(dir.path()).unwrap();
        let values: Vec<_> = journal.entries().values().map(|entry| entry.original.as_str()).collect();
        assert_eq!(values, ["0\n", "\n"]);
    }

    #[test]
    fn a_closed_entry_is_gone_and_can_be_recorded_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.record(key("/a", 1), entry("0\n")).unwrap();
        journal.close(&key("/a", 1)).unwrap();
        journal.record(key("/a", 1), entry("1\n")).unwrap();
        drop(journal);
        assert_eq!(Journal::open(dir.path()).unwrap().entries()[&key("/a", 1)], entry("1\n"));
    }

    #[test]
    fn an_entry_of_an_earlier_boot_does_not_stand_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.record(key("/a", 1), entry("0\n")).unwrap();
        let now = Entry { original: "1\n".into(), boot_id: Some("c".into()) };
        journal.record(key("/a", 1), now.clone()).unwrap();
        assert_eq!(journal.entries()[&key("/a", 1)], now);
    }

    #[test]
    fn every_cut_of_the_last_line_leaves_the_lines_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.record(key("/a", 1), entry("0\n")).unwrap();
        drop(journal);
        let file = dir.path().join("journal");
        let first = fs::read(&file).unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.record(key("/b", 2), entry("1\n")).unwrap();
        drop(journal);
        let both = fs::read(&file).unwrap();
        for cut in first.len()..both.len() {
            fs::write(&file, &both[..cut]).unwrap();
            let mut journal = Journal::open(dir.path()).unwrap();
            assert!(journal.damaged().is_empty(), "cut at {cut}");
            assert_eq!(journal.entries().len(), 1, "cut at {cut}");
            // What is appended after a torn line must not be glued to it.
            journal.record(key("/c", 3), entry("2\n")).unwrap();
            drop(journal);
            let journal = Journal::open(dir.path()).unwrap();
            assert_eq!(journal.entries().keys().map(|key| key.inode).collect::<Vec<_>>(), [1, 3]);
        }
    }

    #[test]
    fn a_damaged_line_is_named_and_kept_and_does_not_hide_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.record(key("/a", 1), entry("0\n")).unwrap();
        drop(journal);
        let file = dir.path().join("journal");
        let good = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("rubbish\n{}{good}", good.replace("\"version\":1", "\"version\":9")))
            .unwrap();
        let journal = Journal::open(dir.path()).unwrap();
        assert_eq!(journal.entries().len(), 1);
        assert_eq!(journal.damaged().len(), 2);
        assert!(journal.damaged()[0].contains("line 1"), "{:?}", journal.damaged());
        assert!(fs::read_to_string(dir.path().join("journal.damaged")).unwrap().starts_with("rubbish"));
    }

    #[test]
    fn only_one_can_hold_it_and_the_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let journal = Journal::open(&state).unwrap();
        let error = Journal::open(&state).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&state), 0o700);
        assert_eq!(mode(&state.join("journal")), 0o600);
        assert_eq!(mode(&state.join("lock")), 0o600);
        drop(journal);
        Journal::open(&state).unwrap();
    }
}
