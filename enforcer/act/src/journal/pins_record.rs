//! Record of pinned threads, for the next daemon: of containers for which a runtime was told other CPUs.
//!
//! Problem: Linux 6.1 and older forget pins when the runtime writes the cpuset, and a daemon that is killed
//! between its answer and the next turn loses the pins that it has read. Idea: all pins are written before
//! the answer, one line for each container; the file is replaced. A turn records the same in the journal for
//! `restore`; this record has the pins that wait to be restored.
//!
//! Invariants: a failure of this record neither stops the daemon nor prevents a write. Failures are logged,
//! and unreadable lines are set aside, as for the journal. A line of another boot is not used. The file is
//! written with at most [`LogKind::limit`] bytes; omitted containers are logged.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use enforcer_core::workload::{CgroupPath, printable};

use super::{
    entry::is_of_another_boot,
    error::{JournalError, failed, refused},
    files::forget,
    lines::encode,
    log::{self, LogKind},
    reading::{Fold, ForeignRecord},
    record::{NotedPins, Record},
    thread_room::ThreadRoom,
};

pub(super) static PINS: LogKind = LogKind { name: "pins", is_shared: true, long: 4 << 20, limit: 4 << 20 };

/// Record of an earlier daemon.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LeftPins {
    /// By cgroup.
    pub pins: BTreeMap<CgroupPath, NotedPins>,
    /// Lines that cannot be read, with their numbers, or why nothing can be.
    pub unread: Vec<String>,
    /// Some of these lines are in the file.
    is_damaged: bool,
}

/// The pins of each cgroup, with the boot of that time.
pub(super) type PinsByCgroup = BTreeMap<CgroupPath, (NotedPins, Option<String>)>;

impl Fold for PinsByCgroup {
    fn take(&mut self, record: Record) -> Result<Option<Record>, ForeignRecord> {
        let Record::Pinned { cgroup, pins, boot_id } = record else { return Err(ForeignRecord) };
        let was = self.insert(cgroup.clone(), (pins, boot_id));
        Ok(was.map(|(pins, boot_id)| Record::Pinned { cgroup, pins, boot_id }))
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        self.iter().map(|(cgroup, (pins, boot_id))| Record::Pinned {
            cgroup: cgroup.clone(),
            pins: pins.clone(),
            boot_id: boot_id.clone(),
        })
    }
}

/// Path of the record.
#[derive(Debug)]
pub struct PinsRecord {
    path: PathBuf,
    boot_id: Option<String>,
}

impl PinsRecord {
    /// Below the state directory of a journal that is open.
    pub fn new(state_dir: &Path, boot_id: Option<&str>) -> Self {
        Self { path: state_dir.join(PINS.name), boot_id: boot_id.map(str::to_owned) }
    }

    /// Opens the record of this boot for the daemon that continues it. Unreadable lines are set aside.
    pub fn open(state_dir: &Path, boot_id: Option<&str>) -> LeftPins {
        let mut left = Self::left(state_dir, boot_id);
        if left.is_damaged {
            let record = Self::new(state_dir, boot_id);
            // A file without lines is no record.
            let kept = record.write(&left.pins, true);
            let kept = kept.and_then(|()| if left.pins.is_empty() { forget(&record.path) } else { Ok(()) });
            left.unread.extend(kept.err().map(|error| error.to_string()));
        }
        left
    }

    /// Reads the record of this boot.
    pub fn left(state_dir: &Path, boot_id: Option<&str>) -> LeftPins {
        let found = match log::read::<PinsByCgroup>(state_dir, &PINS) {
            Ok(found) => found,
            Err(error) => return LeftPins { unread: vec![error.to_string()], ..LeftPins::default() },
        };
        let ours =
            |(_, of_boot): &(NotedPins, Option<String>)| !is_of_another_boot(of_boot.as_deref(), boot_id);
        let pins = found.state.into_iter().filter(|(_, pins)| ours(pins));
        LeftPins {
            pins: pins.map(|(cgroup, (pins, _))| (cgroup, pins)).collect(),
            is_damaged: !found.damaged.is_empty(),
            unread: found.damaged,
        }
    }

    /// Replaces the record by these pins, or leaves it as it was.
    pub fn keep(&self, all: &BTreeMap<CgroupPath, NotedPins>) -> Result<(), JournalError> {
        if all.is_empty() {
            return forget(&self.path);
        }
        self.write(all, false)
    }

    fn write(&self, all: &BTreeMap<CgroupPath, NotedPins>, is_damaged: bool) -> Result<(), JournalError> {
        let (mut kept, mut length, mut left_out) = (PinsByCgroup::new(), 0, Vec::new());
        for (cgroup, pins) in all {
            let of_it = (pins.as_far_as_there_is_room(), self.boot_id.clone());
            let one: PinsByCgroup = [(cgroup.clone(), of_it)].into();
            let mut with_it = length;
            for line in one.records().map(|record| encode(&record)) {
                with_it += line.map_err(failed("writing", &self.path))?.len() as u64;
            }
            if with_it > PINS.limit {
                left_out.push(printable(cgroup.as_str()));
            } else {
                length = with_it;
                kept.extend(one);
            }
        }
        log::write(&self.path, is_damaged, &kept)?;
        if left_out.is_empty() {
            return Ok(());
        }
        let cause = format!("longer than {} bytes: {} not in it", PINS.limit, left_out.join(", "));
        Err(refused("writing", &self.path, cause))
    }

    /// All of them were given back, or are the business of the journal, which is open.
    pub fn remove(state_dir: &Path) -> Result<(), JournalError> {
        forget(&state_dir.join(PINS.name))
    }
}

impl NotedPins {
    /// Without the threads that one line has no room for, which are counted in the log when the journal
    /// records the same.
    fn as_far_as_there_is_room(&self) -> Self {
        let mut room = ThreadRoom::default();
        let mut kept = self.clone();
        for one in &mut kept.before {
            one.threads.retain(|thread| room.takes(thread));
        }
        kept.before.retain(|one| !one.threads.is_empty());
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::{super::files, *};

    const NAME: &str = "pins";

    const BOOT: Option<&str> = Some("boot-1");

    fn pins(threads: u32) -> NotedPins {
        let thread =
            |tid| serde_json::json!({"pid": 9, "tid": tid, "start_ticks": 77, "command": "db", "cpus": "2"});
        let threads: Vec<_> = (9..9 + threads).map(thread).collect();
        serde_json::from_value(serde_json::json!({
            "was": "0-7", "told": "2-7",
            "before": [{"cgroup": "/a", "cpus": "0-7", "mems": "0", "threads": threads}],
        }))
        .unwrap()
    }

    #[test]
    fn pins_are_read_again_as_they_were_written_in_the_same_boot_and_go_when_none_wait() {
        let dir = tempfile::tempdir().unwrap();
        let record = PinsRecord::new(dir.path(), BOOT);
        let all: BTreeMap<_, _> = [(CgroupPath::new("/a"), pins(2)), (CgroupPath::new("/b"), pins(1))].into();
        assert_eq!(PinsRecord::left(dir.path(), BOOT), LeftPins::default(), "nothing is there");
        record.keep(&all).unwrap();
        for (boot, there) in [(BOOT, 2), (None, 2), (Some("boot-2"), 0)] {
            let left = PinsRecord::left(dir.path(), boot);
            assert_eq!((left.pins.len(), left.unread.len()), (there, 0), "{boot:?}");
        }
        assert_eq!(PinsRecord::left(dir.path(), BOOT).pins, all);
        record.keep(&BTreeMap::new()).unwrap();
        assert!(!dir.path().join(NAME).exists());
        PinsRecord::remove(dir.path()).unwrap();
    }

    #[test]
    fn damaged_line_is_named_and_takes_no_other_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let record = PinsRecord::new(dir.path(), BOOT);
        let path = dir.path().join(NAME);
        record.keep(&[(CgroupPath::new("/a"), pins(1)), (CgroupPath::new("/b"), pins(1))].into()).unwrap();
        let damaged = fs::read_to_string(&path).unwrap().replacen("0-7", "0-6", 1);
        fs::write(&path, damaged).unwrap();
        let left = PinsRecord::left(dir.path(), BOOT);
        assert_eq!(left.pins.keys().map(CgroupPath::as_str).collect::<Vec<_>>(), ["/b"]);
        assert!(left.unread[0].contains("pins line 1: "), "{left:?}");
        let kept = dir.path().join("pins.damaged");
        assert!(!kept.exists(), "reading changes nothing");
        assert_eq!(PinsRecord::open(dir.path(), BOOT).unread, left.unread);
        let again = PinsRecord::open(dir.path(), BOOT);
        assert_eq!((again.pins, again.unread), (left.pins, Vec::new()), "it is named once");
        assert_eq!(files::set_aside(dir.path()).unwrap(), std::slice::from_ref(&kept));
        assert!(fs::read_to_string(kept).unwrap().contains("0-6"));
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let left = PinsRecord::left(dir.path(), BOOT);
        assert!(
            left.pins.is_empty() && left.unread[0].contains("pins"),
            "a symlink is not followed: {left:?}"
        );
        record.keep(&[(CgroupPath::new("/c"), pins(1))].into()).unwrap();
        assert_eq!(PinsRecord::left(dir.path(), BOOT).pins.len(), 1);
        assert!(fs::read_to_string(elsewhere).unwrap().contains("/a"), "what it named is as it was");
    }

    #[test]
    fn record_is_bounded_and_names_containers_that_have_no_room() {
        let dir = tempfile::tempdir().unwrap();
        let record = PinsRecord::new(dir.path(), BOOT);
        let all: BTreeMap<_, _> =
            (0..40).map(|n| (CgroupPath::new(&format!("/c{n:02}")), pins(4_000))).collect();
        let error = record.keep(&all).unwrap_err().to_string();
        assert!(error.contains("longer than") && error.contains("/c39"), "{error}");
        let left = PinsRecord::left(dir.path(), BOOT);
        assert!(left.unread.is_empty() && left.pins.len() > 5, "{}", left.pins.len());
        assert_eq!(left.pins[&CgroupPath::new("/c00")].before[0].threads.len(), 2_048);
    }
    #[test]
    fn container_that_has_no_room_takes_no_other_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let record = PinsRecord::new(dir.path(), BOOT);
        let mut all: BTreeMap<_, _> =
            (0..40).map(|n| (CgroupPath::new(&format!("/c{n:02}")), pins(4_000))).collect();
        all.insert(CgroupPath::new("/d"), pins(1));
        let error = record.keep(&all).unwrap_err().to_string();
        assert!(error.contains("/c39") && !error.contains("/d"), "{error}");
        assert!(PinsRecord::left(dir.path(), BOOT).pins.contains_key(&CgroupPath::new("/d")));
    }
}
