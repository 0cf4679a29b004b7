//! Record of pinned threads, for the next daemon: of containers for which a runtime was told other CPUs.
//!
//! Problem: Linux 6.1 and older forget pins when the runtime writes the cpuset, and a daemon that is killed
//! between its answer and the next turn loses the pins that it has read. Idea: all pins are written before
//! the answer, one line for each container; the file is replaced ([`super::versioned`]). A turn records the
//! same in the journal for `restore`; this record has the pins that wait to be restored.
//!
//! No write waits for the disk: it outlives the process, and a host that loses power loses the threads as
//! well.
//!
//! Invariants: a failure of this record neither stops the daemon nor prevents a write. Failures are logged,
//! and unreadable lines are set aside, as for the journal. A line of another boot is not used, and no symlink
//! is followed. The file has at most [`LONGEST`] bytes; omitted containers are logged.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use enforcer_core::{
    self_placement::CgroupThreads,
    workload::{CgroupPath, printable},
};
use numa_topology::set::CpuSet;
use serde::{Deserialize, Serialize};

use super::{
    JournalError, ThreadRoom,
    files::{self, failed},
    is_of_another_boot, versioned,
};

const NAME: &str = "pins";
/// Version of a line.
const VERSION: u32 = 1;
/// Longest record, in bytes.
const LONGEST: u64 = 4 << 20;

/// Pins of the threads of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedPins {
    /// Threads that were pinned before the answer, and nothing of others.
    pub before: Vec<CgroupThreads>,
    /// Content of `cpuset.cpus` then; empty where the container inherited.
    pub was: CpuSet,
    /// CPUs that the runtime was told to write.
    pub told: CpuSet,
}

#[derive(Debug, Serialize, Deserialize)]
struct PinsRecordLine {
    cgroup: CgroupPath,
    #[serde(flatten)]
    pins: NotedPins,
    boot_id: Option<String>,
}

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

/// Path of the record.
#[derive(Debug)]
pub struct PinsRecord {
    path: PathBuf,
    boot_id: Option<String>,
}

impl PinsRecord {
    /// Below the state directory of a journal that is open.
    pub fn new(state_dir: &Path, boot_id: Option<&str>) -> Self {
        Self { path: state_dir.join(NAME), boot_id: boot_id.map(str::to_owned) }
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
        let path = state_dir.join(NAME);
        let mut left = LeftPins::default();
        let text = match files::read_within(&path, LONGEST) {
            Ok(text) => text,
            Err(error) => {
                left.unread.push(error.to_string());
                return left;
            }
        };
        for line in versioned::read::<PinsRecordLine>(&path, &text, VERSION..=VERSION) {
            match line {
                Ok(line) if is_of_another_boot(line.boot_id.as_deref(), boot_id) => {}
                Ok(PinsRecordLine { cgroup, pins, .. }) => drop(left.pins.insert(cgroup, pins)),
                Err(error) => left.unread.push(error),
            }
        }
        left.is_damaged = !left.unread.is_empty();
        left
    }

    /// Replaces the record by these pins, or leaves it as it was.
    pub fn keep(&self, all: &BTreeMap<CgroupPath, NotedPins>) -> Result<(), JournalError> {
        if all.is_empty() {
            return forget(&self.path);
        }
        self.write(all, false)
    }

    fn write(&self, all: &BTreeMap<CgroupPath, NotedPins>, is_damaged: bool) -> Result<(), JournalError> {
        let (mut lines, mut length, mut left_out) = (Vec::new(), 0, Vec::new());
        for (cgroup, pins) in all {
            let pins = pins.as_far_as_there_is_room();
            let line = PinsRecordLine { cgroup: cgroup.clone(), pins, boot_id: self.boot_id.clone() };
            let line = versioned::encode(VERSION, line).map_err(failed("writing", &self.path))?;
            if length + line.len() as u64 > LONGEST {
                left_out.push(printable(cgroup.as_str()));
                continue;
            }
            length += line.len() as u64;
            lines.push(Ok(line));
        }
        files::rewrite_at_once(&self.path, is_damaged, lines.into_iter())?;
        if left_out.is_empty() {
            return Ok(());
        }
        let cause = format!("longer than {LONGEST} bytes: {} not in it", left_out.join(", "));
        Err(failed("writing", &self.path)(io::Error::new(io::ErrorKind::FileTooLarge, cause)))
    }

    /// All of them were given back, or are the business of the journal, which is open.
    pub fn remove(state_dir: &Path) -> Result<(), JournalError> {
        forget(&state_dir.join(NAME))
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

fn forget(path: &Path) -> Result<(), JournalError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("removing", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

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
        assert!(left.unread[0].contains("pins line 2: "), "{left:?}");
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
}
