//! The write-ahead undo log: what every file held before the daemon first wrote to it.
//!
//! One JSON object per line, with its CRC-32, is appended and made durable before the write that it undoes. Whatever
//! happens in between, a crash included, leaves either an entry without a write (putting back what is
//! there changes nothing) or an entry with its write; never a write without an entry. Only the first
//! value of a file is kept: it is the one that was there before us.
//!
//! A container that its runtime sets on our behalf is recorded as soon as its cgroup is there
//! ([`Journal::record_all`]), not before the runtime writes: its creation must not wait for a disk. A crash in between
//! leaves it as it is for a restore too; the next daemon adopts it from what the runtime has stored.
//!
//! A file is known by cgroup, name and inode of the cgroup's directory: a cgroup that was made again
//! is another one. Inodes start over when the host boots, so entries carry the boot they belong to.
//! A property of a unit outlives the cgroup, and has no inode; what it was set to is kept as well, by which it is told
//! from what others set.
//!
//! What the journal says is written to the host by root. So it is read only from a directory, and
//! from files, that belong to root or to the daemon's user and that nobody else may write, and no
//! symlink is followed.
//!
//! A last line without its newline was torn by a crash before its write was made, and is dropped. Any
//! other line that cannot be read is kept out of the entries and named in [`Journal::damaged`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use enforcer_core::workload::CgroupPath;
use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::cpuset::CpusetFile;
use crate::file_error::{FileError, failed};

/// Version of the lines; a line of another version is damage.
const JOURNAL_VERSION: u32 = 2;

/// Version of lines without a checksum, which are still read.
const WITHOUT_SUM: u32 = 1;

/// Most bytes of a journal that are read: a million files that were written.
const READ_LIMIT: u64 = 256 << 20;

/// A file that was written, and in which life of its cgroup; or a property of the unit that the cgroup belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EntryKey {
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Its name.
    pub file: CpusetFile,
    /// Inode of the cgroup's directory; 0 for a property.
    pub inode: u64,
}

/// What a file held before us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The exact text, newline included.
    pub original: String,
    /// `/proc/sys/kernel/random/boot_id` of that time, where it could be read.
    pub boot_id: Option<String>,
    /// What a property was set to, the latest last, and the one before it: either may be in force after a crash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
}

impl Entry {
    /// A file.
    pub fn of_file(original: impl Into<String>, boot_id: Option<&str>) -> Self {
        Self { original: original.into(), boot_id: boot_id.map(str::to_owned), set: Vec::new() }
    }

    /// The entry for a property that was recorded before and is to be set to something else; `None` where nothing is
    /// new.
    fn after(&self, first: &Self) -> Option<Self> {
        let latest = self.set.last().filter(|latest| Some(*latest) != first.set.last())?;
        let set = first.set.last().into_iter().chain([latest]).cloned().collect();
        Some(Self { set, ..first.clone() })
    }
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
    #[error(transparent)]
    File(#[from] FileError),
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
    _lock: Lock,
}

/// Held until it is dropped: a process that is being started has a copy of the open file for a moment, and the lock
/// would live as long as that.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // It fails only if it is no lock any more.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
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
        let lock = take_lock(&state_dir.join("lock"))?;
        let path = state_dir.join("journal");
        let text = read(&path)?;
        let JournalContents { entries, damaged } = parse(&path, &text);
        let file = rewrite(&path, &text, &entries, damaged.is_empty())?;
        File::open(state_dir).and_then(|dir| dir.sync_all()).map_err(failed("syncing", state_dir))?;
        Ok(Self { path, file, entries, damaged, _lock: lock })
    }

    /// What the journal holds, without its lock and without a change; nothing when there is none.
    pub fn peek(state_dir: &Path) -> Result<JournalContents, JournalError> {
        match fs::symlink_metadata(state_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(JournalContents::default()),
            _ => check_owned(state_dir)?,
        }
        let path = state_dir.join("journal");
        Ok(parse(&path, &read(&path)?))
    }

    /// What has to be put back.
    pub fn entries(&self) -> &BTreeMap<EntryKey, Entry> {
        &self.entries
    }

    /// Lines that could not be read, with their numbers.
    pub fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// Records what a file holds, before it is written for the first time; later values are ignored. Of a property it is
    /// recorded each time what it is set to.
    pub fn record(&mut self, key: EntryKey, entry: Entry) -> Result<(), JournalError> {
        self.record_all(vec![(key, entry)])
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
        let open: Vec<&EntryKey> = keys.iter().filter(|key| self.entries.contains_key(key)).collect();
        self.append(open.iter().map(|key| Record::Restored { key: (*key).clone() }))?;
        self.entries.retain(|key, _| !keys.contains(key));
        Ok(())
    }

    fn append(&mut self, records: impl Iterator<Item = Record>) -> Result<(), JournalError> {
        let line: String = records
            .map(encode)
            .collect::<Result<_, _>>()
            .map_err(failed("encoding a line of", &self.path))?;
        if line.is_empty() {
            return Ok(());
        }
        let length = self.file.metadata().map_err(failed("looking at", &self.path))?.len();
        let appended = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        if appended.is_err() {
            // A full disk may have taken half a line; the next one must not be glued to it.
            self.file.set_len(length).map_err(failed("cutting", &self.path))?;
        }
        Ok(appended.map_err(failed("appending to", &self.path))?)
    }
}

/// `{...} 0123abcd` and a newline.
fn encode(record: Record) -> io::Result<String> {
    let json = serde_json::to_string(&Line { version: JOURNAL_VERSION, record })?;
    let sum = crc32fast::hash(json.as_bytes());
    Ok(format!("{json} {sum:08x}\n"))
}

/// The error says what is wrong with the line.
fn decode(line: &str) -> Result<Record, String> {
    let (json, version) = match line.rsplit_once("} ") {
        // The name of a cgroup may have a bracket too.
        Some((start, sum)) if sum.len() == 8 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            let json = &line[..=start.len()];
            let found = crc32fast::hash(json.as_bytes());
            if u32::from_str_radix(sum, 16) != Ok(found) {
                return Err(format!("its checksum is {found:08x}, and {sum:?} is written"));
            }
            (json, JOURNAL_VERSION)
        }
        _ => (line, WITHOUT_SUM),
    };
    let Line { version: found, record } = serde_json::from_str(json).map_err(|error| error.to_string())?;
    if found == version {
        Ok(record)
    } else {
        Err(format!("version {found} is not known, or has no checksum"))
    }
}

/// Refuses a state directory that is a symlink, or that others may write.
pub fn check_owned(state_dir: &Path) -> Result<(), JournalError> {
    let checked = fs::symlink_metadata(state_dir).and_then(|metadata| {
        let refused = |reason: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        match metadata.mode() & 0o7777 {
            _ if !metadata.is_dir() => refused("not a directory; a symlink is not followed".into()),
            mode if mode & 0o022 != 0 => refused(format!("others may write it (mode {mode:04o})")),
            _ => of_ours(&metadata),
        }
    });
    Ok(checked.map_err(failed("using the state directory", state_dir))?)
}

/// Does it belong to root or to this process's user?
fn of_ours(metadata: &fs::Metadata) -> io::Result<()> {
    match metadata.uid() {
        0 => Ok(()),
        uid if uid == rustix::process::geteuid().as_raw() => Ok(()),
        uid => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to another user ({uid})"),
        )),
    }
}

/// Opens a regular file of ours; never follows a symlink and never blocks.
fn open_ours(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // The flags are small positive bits on every Linux, the cast keeps them.
    let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();
    let file = options.mode(0o600).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    of_ours(&metadata)?;
    Ok(file)
}

fn take_lock(path: &Path) -> Result<Lock, JournalError> {
    let mut lock = open_ours(OpenOptions::new().read(true).write(true).create(true).truncate(false), path)
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
        Err(errno) => return Err(failed("locking", path)(errno.into()).into()),
    }
    // Only for the message of the next one; a full disk must not keep a restore from its work.
    let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
    Ok(Lock(lock))
}

/// The text of the journal; empty when there is none.
fn read(path: &Path) -> Result<String, JournalError> {
    let mut bytes = Vec::new();
    let read = open_ours(OpenOptions::new().read(true), path)
        .and_then(|file| file.take(READ_LIMIT + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > READ_LIMIT => {
            let cause =
                io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {READ_LIMIT} bytes"));
            Err(failed("reading", path)(cause).into())
        }
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(cause) => Err(failed("reading", path)(cause).into()),
    }
}

fn parse(path: &Path, text: &str) -> JournalContents {
    let mut entries = BTreeMap::new();
    let mut damaged = Vec::new();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (number, text) in (1..).zip(whole.lines()) {
        match decode(text) {
            Ok(Record::Before { key, entry }) => {
                entries.insert(key, entry);
            }
            Ok(Record::Restored { key }) => {
                entries.remove(&key);
            }
            Err(error) => damaged.push(format!("{} line {number}: {error}", path.display())),
        }
    }
    JournalContents { entries, damaged }
}

/// Leaves only what is open in the file, so that it does not grow for ever and a torn end is gone. A
/// file that is so already stays: a restore must not need space on a full disk.
///
/// A damaged file is kept beside the new one: it may hold what nobody else knows.
fn rewrite(
    path: &Path,
    text: &str,
    entries: &BTreeMap<EntryKey, Entry>,
    undamaged: bool,
) -> Result<File, JournalError> {
    if !undamaged {
        let kept = path.with_extension("damaged");
        let linked = match fs::remove_file(&kept) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::hard_link(path, &kept),
        };
        linked.map_err(failed("keeping the damaged journal as", &kept))?;
    }
    let lines = entries.iter().map(|(key, entry)| {
        encode(Record::Before { key: key.clone(), entry: entry.clone() })
            .map_err(failed("encoding a line of", path))
    });
    let wanted = lines.collect::<Result<BTreeSet<String>, FileError>>()?;
    let compact = text.split_inclusive('\n').count() == wanted.len()
        && text.split_inclusive('\n').all(|line| wanted.contains(line));
    if !compact {
        let fresh = path.with_extension("new");
        let mut file = open_ours(OpenOptions::new().write(true).create(true).truncate(true), &fresh)
            .map_err(failed("creating", &fresh))?;
        wanted
            .iter()
            .try_for_each(|line| file.write_all(line.as_bytes()))
            .and_then(|()| file.sync_all())
            .map_err(failed("writing", &fresh))?;
        fs::rename(&fresh, path).map_err(failed("renaming to", path))?;
    }
    Ok(open_ours(OpenOptions::new().append(true).create(true), path).map_err(failed("opening", path))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key(cgroup: &str, inode: u64) -> EntryKey {
        EntryKey { cgroup: CgroupPath::new(cgroup), file: CpusetFile::Mems, inode }
    }

    fn entry(original: &str) -> Entry {
        Entry::of_file(original, Some("b"))
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
        let now = Entry::of_file("1\n", Some("c"));
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
        // The sum of one is wrong, and the other one's version without a sum is not known.
        let other = good.replace("0\\n", "1\\n");
        let without = good.rsplit_once(' ').unwrap().0;
        fs::write(&file, format!("rubbish\n{other}{without}\n{good}")).unwrap();
        assert_ne!(other, good);
        let journal = Journal::open(dir.path()).unwrap();
        assert_eq!(journal.entries().values().collect::<Vec<_>>(), [&entry("0\n")]);
        assert_eq!(journal.damaged().len(), 3, "{:?}", journal.damaged());
        assert!(journal.damaged()[1].contains("checksum"), "{:?}", journal.damaged());
        assert!(journal.damaged()[0].contains("line 1"), "{:?}", journal.damaged());
        assert!(fs::read_to_string(dir.path().join("journal.damaged")).unwrap().starts_with("rubbish"));
    }

    #[test]
    fn lines_of_a_daemon_that_wrote_no_checksums_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let line = r#"{"version":1,"record":"before","cgroup":"/a } b","file":"cpuset.mems","inode":1,"original":"0\n","boot_id":"b"}"#;
        fs::write(dir.path().join("journal"), format!("{line}\n")).unwrap();
        let journal = Journal::open(dir.path()).unwrap();
        assert_eq!(journal.entries()[&key("/a } b", 1)], entry("0\n"), "{:?}", journal.damaged());
    }

    #[test]
    fn of_any_change_of_a_byte_nothing_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.record(key("/a", 1), entry("0-3\n")).unwrap();
        drop(journal);
        let file = dir.path().join("journal");
        let good = fs::read(&file).unwrap();
        for at in 0..good.len() - 1 {
            let mut bad = good.clone();
            bad[at] ^= 1;
            let contents = parse(&file, &String::from_utf8_lossy(&bad));
            assert!(contents.entries.is_empty(), "byte {at}");
        }
    }

    #[test]
    fn a_state_directory_that_others_may_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        fs::create_dir(&state).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&state, &link).unwrap();
        for (path, mode, said) in [
            (&state, 0o777, "others may write it (mode 0777)"),
            (&state, 0o1777, "others may write it (mode 1777)"),
            (&state, 0o770, "others may write it (mode 0770)"),
            (&link, 0o700, "not a directory"),
        ] {
            fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
            for error in [Journal::open(path).unwrap_err(), Journal::peek(path).unwrap_err()] {
                let error = error.to_string();
                assert!(error.contains(path.to_str().unwrap()) && error.contains(said), "{error}");
            }
            assert!(fs::read_dir(&state).unwrap().next().is_none(), "nothing is made in it");
        }
    }

    #[test]
    fn files_in_the_place_of_ours_are_not_followed_and_do_not_block() {
        use rustix::fs::{CWD, FileType, mknodat};

        for name in ["lock", "journal", "journal.new"] {
            let dir = tempfile::tempdir().unwrap();
            let victim = dir.path().join("victim");
            fs::write(&victim, "precious").unwrap();
            let state = dir.path().join("state");
            fs::create_dir(&state).unwrap();
            fs::write(state.join("journal"), "torn").unwrap();
            let _absent = fs::remove_file(state.join(name));
            std::os::unix::fs::symlink(&victim, state.join(name)).unwrap();
            let error = Journal::open(&state).unwrap_err().to_string();
            assert!(error.contains(state.join(name).to_str().unwrap()), "{error}");
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious", "{name}");
            fs::remove_file(state.join(name)).unwrap();
            mknodat(CWD, state.join(name), FileType::Fifo, 0o600.into(), 0).unwrap();
            assert!(Journal::open(&state).is_err(), "{name}");
        }
    }

    #[test]
    fn a_journal_of_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("journal");
        fs::write(&file, "").unwrap();
        if std::os::unix::fs::chown(&file, Some(65534), None).is_err() {
            println!("skipped: only root can give a file away");
            return;
        }
        let error = Journal::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("it belongs to another user (65534)"), "{error}");
    }

    #[test]
    fn a_journal_with_nothing_to_tidy_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        journal.record(key("/b", 1), entry("0\n")).unwrap();
        journal.record(key("/a", 1), entry("0\n")).unwrap();
        drop(journal);
        // As a full disk would, this makes every new file fail.
        fs::create_dir(dir.path().join("journal.new")).unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        assert_eq!(journal.entries().len(), 2);
        journal.close(&key("/a", 1)).unwrap();
        drop(journal);
        Journal::open(dir.path()).unwrap_err();
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
