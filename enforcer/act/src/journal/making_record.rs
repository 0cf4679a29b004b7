//! Record of pending containers: their originals and grants, from the answer to their runtime until the
//! journal has them.
//!
//! The journal knows a file by the inode of its cgroup, but the cgroup of a container is created after the
//! runtime was told its cpuset. If the daemon were killed in between, the next one would not know what the
//! container has, and would give its CPUs to another container. So a line with the cgroup's path is written
//! here before the answer; the next daemon takes it over into its journal.
//!
//! No write waits for the disk: it outlives the process, and a host that loses power loses the cgroups as
//! well. The runtime was not told of a cut line ([`super::versioned`]); damaged lines are set aside and
//! named, as for the journal.
//!
//! Invariants: no file that another user may write is read, no symlink is followed, and no line of another
//! boot is used.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use enforcer_core::{
    hosted::{Cpuset, GrantRecord},
    workload::CgroupPath,
};
use serde::{Deserialize, Serialize};

use super::{
    JournalError, LONGEST_NAMES, PinsRecord,
    damage::DamageList,
    files::{self, failed},
    is_of_another_boot, versioned,
};
use enforcer_host::owned_file::open_ours;

/// Longest time from the answer to the creation of a container. Until then some runtimes do not list it
/// (containerd with NRI before 0.12), and a reconnect must not release its CPUs.
pub const MADE_WITHIN: Duration = Duration::from_mins(2);

/// Version of a line that is written.
///
/// | version | of a container it has |
/// |---|---|
/// | 1 | no time, so it is not read |
/// | 2 | some fields of its grant, as journals of version 3 |
/// | 3 | all of its grant |
const VERSION: u32 = 3;
/// Versions that are read.
const READABLE: std::ops::RangeInclusive<u32> = 2..=VERSION;
/// Most bytes: some thousand containers, of which none has been recorded yet.
const LIMIT: u64 = 4 << 20;
/// As long as a line with a long path.
const A_LINE: usize = 4 << 10;
/// Bytes that are never too many.
const LONG: u64 = 64 << 10;
/// Bytes of a container that are too many, where that is more.
const LONG_EACH: u64 = 4 << 10;

/// Containers in the making.
#[derive(Debug)]
pub struct MakingRecord {
    path: PathBuf,
    file: File,
    boot_id: Option<String>,
    /// Bytes that are there, or were tried.
    length: u64,
    /// There are lines that cannot be read, and that are kept nowhere else.
    is_damaged: bool,
    /// Why the latest line could not be written.
    trouble: Option<String>,
}

/// A pending container: the runtime was told its cpuset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Cpuset that it would have without us.
    #[serde(flatten)]
    pub original: Cpuset,
    /// The journal has an entry, and this original replaces the one there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renews: bool,
    /// Its grant, for a new container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Granted>,
    /// The boot of that time, where it was known.
    pub boot_id: Option<String>,
    /// Nanoseconds between that boot and the answer.
    pub told_ns: u64,
}

/// Grant of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The container.
    pub id: String,
    /// The grant.
    pub grant: GrantRecord,
}

impl Made {
    /// May its cgroup still be made, `now_ns` after the boot?
    pub fn may_come(&self, now_ns: u64) -> bool {
        Duration::from_nanos(now_ns.saturating_sub(self.told_ns)) < MADE_WITHIN
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct PendingRecordLine {
    cgroup: CgroupPath,
    #[serde(flatten)]
    event: PendingRecordEvent,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum PendingRecordEvent {
    Made(Box<Made>),
    /// The container is in the journal, or has ended.
    Over,
}

/// Record of an earlier daemon.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LeftMaking {
    /// Latest line of each cgroup.
    pub made: BTreeMap<CgroupPath, Made>,
    /// Lines that cannot be read, with their numbers.
    pub damaged: Vec<String>,
}

impl LeftMaking {
    /// Is no container pending, and no line damaged?
    pub fn is_empty(&self) -> bool {
        self.made.is_empty() && self.damaged.is_empty()
    }
}

impl MakingRecord {
    /// Below the state directory of a journal that is open; with what a daemon before has left. Lines that
    /// cannot be read are set aside, if there is room for that.
    pub fn open(state_dir: &Path, boot_id: Option<&str>) -> Result<(Self, LeftMaking), JournalError> {
        let path = state_dir.join("making");
        let file = open_ours(OpenOptions::new().append(true).create(true), &path)
            .map_err(failed("opening", &path))?;
        let left = Self::left(state_dir, boot_id)?;
        let is_damaged = !left.damaged.is_empty();
        let boot_id = boot_id.map(str::to_owned);
        let mut record = Self { path, file, boot_id, length: 0, is_damaged, trouble: None };
        if is_damaged {
            match record.replace(left.made.iter()) {
                Err(error) if !error.is_no_room() => return Err(error),
                replaced => replaced.unwrap_or_else(|error| tracing::warn!("{error}")),
            }
        } else {
            files::cut_zeros(&record.path, &record.file)?;
        }
        record.length = record.file.metadata().map_err(failed("looking at", &record.path))?.len();
        Ok((record, left))
    }

    /// In a file that is there.
    #[cfg(any(test, feature = "testing"))]
    #[expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests, of other crates too")]
    pub fn at(path: &Path) -> Self {
        let file = File::options().append(true).open(path).unwrap();
        Self { path: path.to_owned(), file, boot_id: None, length: 0, is_damaged: false, trouble: None }
    }

    /// Reads the record of this boot without creating one.
    pub fn left(state_dir: &Path, boot_id: Option<&str>) -> Result<LeftMaking, JournalError> {
        let path = state_dir.join("making");
        let text = files::read(&path)?;
        let (mut made, mut damage) = (BTreeMap::new(), DamageList::default());
        for line in versioned::read::<PendingRecordLine>(&path, &text, READABLE) {
            match line {
                Ok(PendingRecordLine { event: PendingRecordEvent::Made(one), .. })
                    if is_of_another_boot(one.boot_id.as_deref(), boot_id) => {}
                Ok(PendingRecordLine { cgroup, event: PendingRecordEvent::Made(one) }) => {
                    drop(made.insert(cgroup, *one));
                }
                Ok(PendingRecordLine { cgroup, event: PendingRecordEvent::Over }) => {
                    drop(made.remove(&cgroup));
                }
                Err(error) => damage.note(|| error),
            }
        }
        Ok(LeftMaking { made, damaged: damage.into_lines(&path) })
    }

    /// The boot in which it is written, where that is known.
    pub fn boot_id(&self) -> Option<&str> {
        self.boot_id.as_deref()
    }

    /// The record of pins beside it.
    pub fn of_pins(&self) -> PinsRecord {
        PinsRecord::new(self.path.parent().unwrap_or(&self.path), self.boot_id())
    }

    /// Should it be written anew with `containers` in it, because it is long?
    pub fn is_long(&self, containers: usize) -> bool {
        self.length > LONG.max(LONG_EACH.saturating_mul(containers as u64))
    }

    /// A container of this cgroup was made.
    pub fn add(&mut self, cgroup: &CgroupPath, made: &Made) -> Result<(), JournalError> {
        let added = encode(cgroup, made).and_then(|line| self.append(&line));
        let added = added.map_err(failed("writing", &self.path));
        self.trouble = added.as_ref().err().map(ToString::to_string);
        added
    }

    /// These are in the journal, or have ended, and others are not.
    pub fn over(&mut self, cgroups: &[CgroupPath]) -> Result<(), JournalError> {
        let line = |cgroup: &CgroupPath| {
            versioned::encode(
                VERSION,
                PendingRecordLine { cgroup: cgroup.clone(), event: PendingRecordEvent::Over },
            )
        };
        let lines = cgroups.iter().map(line).collect::<io::Result<String>>();
        lines.and_then(|lines| self.append(&lines)).map_err(failed("writing", &self.path))
    }

    fn append(&mut self, lines: &str) -> io::Result<()> {
        if self.length > LIMIT {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {LIMIT} bytes")));
        }
        self.length += lines.len() as u64;
        self.file.write_all(lines.as_bytes())
    }

    /// Can lines be written? Costs nothing while the latest one could; else it is tried. The error says why
    /// not.
    pub fn check(&mut self) -> Result<(), String> {
        if self.trouble.is_none() {
            return Ok(());
        }
        let tried = self.file.write_all(&[b'\n'; A_LINE]).and_then(|()| {
            self.length += A_LINE as u64;
            self.file.sync_data()
        });
        self.trouble = tried.map_err(failed("writing", &self.path)).err().map(|error| error.to_string());
        self.trouble.clone().map_or(Ok(()), Err)
    }

    /// Replaces the record by these pending containers: all of them are written, or the file stays as it was.
    pub fn keep<'a>(
        &mut self,
        all: impl Iterator<Item = (&'a CgroupPath, &'a Made)>,
    ) -> Result<(), JournalError> {
        let kept = self.replace(all);
        self.trouble = kept.as_ref().err().map(ToString::to_string);
        kept
    }

    fn replace<'a>(
        &mut self,
        all: impl Iterator<Item = (&'a CgroupPath, &'a Made)>,
    ) -> Result<(), JournalError> {
        let lines = all.map(|(cgroup, made)| encode(cgroup, made));
        self.file = files::rewrite_at_once(&self.path, self.is_damaged, lines)?;
        self.is_damaged = false;
        self.length = self.file.metadata().map_err(failed("looking at", &self.path))?.len();
        Ok(())
    }

    /// All of them are in the journal, or have ended.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        if self.is_damaged {
            return self.replace(std::iter::empty());
        }
        if self.length > 0 {
            self.file.set_len(0).map_err(failed("emptying", &self.path))?;
            self.length = 0;
        }
        Ok(())
    }
}

fn encode(cgroup: &CgroupPath, made: &Made) -> io::Result<String> {
    let mut made = made.clone();
    // One that names itself at such length is adopted from its cpuset alone.
    made.granted = made.granted.filter(|had| had.id.len() + cgroup.as_str().len() <= LONGEST_NAMES);
    versioned::encode(
        VERSION,
        PendingRecordLine { cgroup: cgroup.clone(), event: PendingRecordEvent::Made(Box::new(made)) },
    )
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use numa_placement::Grant;

    use super::*;

    const BOOT: Option<&str> = Some("boot-1");

    fn made(cpus: &str) -> Made {
        let original = Cpuset { cpus: cpus.parse().ok(), mems: None };
        Made { original, renews: false, granted: None, boot_id: BOOT.map(str::to_owned), told_ns: 7 }
    }

    fn open(dir: &Path) -> MakingRecord {
        MakingRecord::open(dir, BOOT).unwrap().0
    }

    fn left(dir: &Path) -> Vec<(String, String)> {
        let LeftMaking { made, damaged } = MakingRecord::left(dir, BOOT).unwrap();
        assert_eq!(damaged, [""; 0]);
        let cpus = |made: Made| made.original.cpus.map(|cpus| cpus.to_string()).unwrap_or_default();
        made.into_iter().map(|(cgroup, made)| (cgroup.as_str().to_owned(), cpus(made))).collect()
    }

    #[test]
    fn what_was_told_is_there_for_the_next_daemon_until_it_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let (mut record, before) = MakingRecord::open(dir.path(), BOOT).unwrap();
        assert!(before.is_empty());
        for (cgroup, cpus) in [("/a", "0-1"), ("/b b", "2"), ("/a", "3")] {
            record.add(&CgroupPath::new(cgroup), &made(cpus)).unwrap();
        }
        let expected = [("/a", "3"), ("/b b", "2")].map(|(path, cpus)| (path.to_owned(), cpus.to_owned()));
        assert_eq!(left(dir.path()), expected);
        record.clear().unwrap();
        assert_eq!(left(dir.path()), []);
        record.add(&CgroupPath::new("/c"), &made("")).unwrap();
        assert_eq!(left(dir.path()), [("/c".to_owned(), String::new())]);
    }

    #[test]
    fn finished_container_is_not_pending_for_the_next_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = open(dir.path());
        let [a, b] = ["/a", "/b"].map(CgroupPath::new);
        for cgroup in [&a, &b] {
            record.add(cgroup, &made("0")).unwrap();
        }
        record.over(std::slice::from_ref(&a)).unwrap();
        assert_eq!(left(dir.path()), [("/b".to_owned(), "0".to_owned())]);
        record.add(&a, &made("1")).unwrap();
        assert_eq!(left(dir.path())[0], ("/a".to_owned(), "1".to_owned()), "it is made once more");
    }

    #[test]
    fn it_is_bounded_and_says_before_when_it_is_long() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = open(dir.path());
        let long = CgroupPath::new(&"a".repeat(4_000));
        while !record.is_long(1) {
            record.add(&long, &made("0")).unwrap();
        }
        assert!(!record.is_long(1_000), "it has to be");
        let full = (0..2_000).find_map(|_| record.add(&long, &made("0")).err()).unwrap();
        assert!(full.to_string().contains("longer than"), "{full}");
        record.clear().unwrap();
        assert!(!record.is_long(1));
        record.add(&long, &made("0")).unwrap();
        assert_eq!(left(dir.path()).len(), 1);
    }

    #[test]
    fn omitted_containers_are_dropped_all_at_once_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = open(dir.path());
        let [a, b, c] = ["/a", "/b", "/c"].map(CgroupPath::new);
        let zero = made("0");
        for cgroup in [&a, &b] {
            record.add(cgroup, &zero).unwrap();
        }
        // What it is written into first cannot be made.
        let next = dir.path().join("making.new");
        fs::create_dir(&next).unwrap();
        let error = record.keep([(&b, &zero)].into_iter()).unwrap_err().to_string();
        assert!(error.contains("making.new") && record.check().is_ok(), "{error}");
        assert_eq!(left(dir.path()).len(), 2, "both are there still");
        fs::remove_dir(&next).unwrap();
        record.keep([(&b, &zero)].into_iter()).unwrap();
        record.add(&c, &zero).unwrap();
        assert_eq!(left(dir.path()), [("/b", "0"), ("/c", "0")].map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn a_torn_line_takes_no_other_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = open(dir.path());
        record.add(&CgroupPath::new("/a"), &made("0")).unwrap();
        let path = dir.path().join("making");
        let text = fs::read_to_string(&path).unwrap();
        let json_ends = text.rfind('}').unwrap() + 1;
        for length in 0..text.len() {
            fs::write(&path, &text[..length]).unwrap();
            record.add(&CgroupPath::new("/b"), &made("1")).unwrap();
            let LeftMaking { made, damaged } = MakingRecord::left(dir.path(), BOOT).unwrap();
            assert!(made.contains_key(&CgroupPath::new("/b")), "{length}");
            let is_whole = length == text.len() - 1;
            // What lacks only its sum, or a part of that, may have been longer.
            let is_told = length >= json_ends && !is_whole;
            assert_eq!(
                (made.len(), damaged.len()),
                (1 + usize::from(is_whole), usize::from(is_told)),
                "{length}"
            );
        }
    }

    #[test]
    fn what_cannot_be_written_is_tried_again_until_it_can() {
        let mut record = MakingRecord::at(Path::new("/dev/full"));
        assert_eq!(record.check(), Ok(()), "nothing was tried");
        assert!(record.add(&CgroupPath::new("/a"), &made("0")).is_err());
        assert!(record.check().unwrap_err().contains("/dev/full"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("making");
        fs::write(&path, "").unwrap();
        record.file = MakingRecord::at(&path).file;
        assert_eq!((record.check(), record.check()), (Ok(()), Ok(())));
        record.add(&CgroupPath::new("/b"), &made("1")).unwrap();
        assert_eq!(left(dir.path()), [("/b".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "").unwrap();
        symlink(&elsewhere, dir.path().join("making")).unwrap();
        assert!(MakingRecord::open(dir.path(), BOOT).unwrap_err().to_string().contains("making"));
    }

    #[test]
    fn a_damaged_line_is_named_kept_and_takes_no_other_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = open(dir.path());
        for cgroup in ["/a", "/b"] {
            record.add(&CgroupPath::new(cgroup), &made("0")).unwrap();
        }
        let path = dir.path().join("making");
        let damaged = fs::read_to_string(&path).unwrap().replace("/a", "/c");
        fs::write(&path, &damaged).unwrap();
        let (mut record, left) = MakingRecord::open(dir.path(), BOOT).unwrap();
        assert_eq!(left.made.keys().map(CgroupPath::as_str).collect::<Vec<_>>(), ["/b"]);
        let [line] = left.damaged.as_slice() else { panic!("{left:?}") };
        assert!(line.starts_with(path.to_str().unwrap()) && line.contains(" line 2: "), "{line}");
        record.clear().unwrap();
        let kept = files::set_aside(dir.path()).unwrap();
        assert_eq!(kept, [dir.path().join("making.damaged")]);
        assert_eq!(fs::read_to_string(&kept[0]).unwrap(), damaged);
        assert!(MakingRecord::left(dir.path(), BOOT).unwrap().is_empty());
    }

    #[test]
    fn zeros_at_the_end_are_taken_away_and_others_are_damage() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = open(dir.path());
        for cgroup in ["/a", "/b"] {
            record.add(&CgroupPath::new(cgroup), &made("0")).unwrap();
        }
        let path = dir.path().join("making");
        let good = fs::read(&path).unwrap();
        fs::write(&path, [&good[..], &[0; 90]].concat()).unwrap();
        open(dir.path()).add(&CgroupPath::new("/c"), &made("0")).unwrap();
        assert_eq!(left(dir.path()).len(), 3, "nothing is behind zeros");
        let all = vec![0; good.len()];
        let first = good.len() / 2;
        for (bytes, there) in [(all.clone(), 0), ([&all[..first], &good[first..]].concat(), 1)] {
            fs::write(&path, &bytes).unwrap();
            let (mut record, left) = MakingRecord::open(dir.path(), BOOT).unwrap();
            assert_eq!(left.made.len(), there);
            let [line] = left.damaged.as_slice() else { panic!("{left:?}") };
            assert!(line.contains("making") && line.contains("zeros"), "{line}");
            record.clear().unwrap();
            let kept = dir.path().join("making.damaged");
            assert_eq!(fs::read(&kept).unwrap(), bytes);
            fs::remove_file(kept).unwrap();
        }
    }

    #[test]
    fn a_damaged_line_that_cannot_be_set_aside_stays() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("making"), "nonsense\n").unwrap();
        let mut record = MakingRecord::at(&dir.path().join("making"));
        (record.is_damaged, record.length) = (true, 9);
        fs::create_dir(dir.path().join("making.new")).unwrap();
        assert!(record.clear().is_err());
        assert_eq!(MakingRecord::left(dir.path(), BOOT).unwrap().damaged.len(), 1);
    }

    #[test]
    fn container_of_another_boot_is_not_pending() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).add(&CgroupPath::new("/a"), &made("0")).unwrap();
        for (boot, there) in [(BOOT, 1), (None, 1), (Some("boot-2"), 0)] {
            assert_eq!(MakingRecord::left(dir.path(), boot).unwrap().made.len(), there, "{boot:?}");
        }
    }

    #[test]
    fn what_was_granted_comes_back() {
        let (dir, cgroup) = (tempfile::tempdir().unwrap(), CgroupPath::new("/a"));
        let grant =
            Grant { engine: "hints", exclusive: "2-3".parse().unwrap(), pin_cpus: true, ..Grant::default() };
        let grant = GrantRecord::of(&cgroup, 1, &grant, None).unwrap();
        let granted = |id: &str| Made {
            granted: Some(Granted { id: id.to_owned(), grant: grant.clone() }),
            ..made("0-7")
        };
        let mut record = open(dir.path());
        record.add(&cgroup, &granted("one")).unwrap();
        let left = || MakingRecord::left(dir.path(), BOOT).unwrap().made.remove(&cgroup).unwrap();
        assert_eq!(left(), granted("one"));
        record.add(&cgroup, &granted(&"x".repeat(LONGEST_NAMES))).unwrap();
        assert_eq!(left(), made("0-7"), "its line would be too long");
    }

    #[test]
    fn container_answered_long_ago_is_dropped() {
        let within = MADE_WITHIN.as_secs() * 1_000_000_000;
        assert!(made("").may_come(within + 6) && !made("").may_come(within + 7));
    }
}
