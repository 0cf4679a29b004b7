//! Record of the workloads that are slowed down, beside the journal. If the daemon and its watching process
//! are both killed, the next daemon or `restore` releases them by it.
//!
//! The journal has originals from before the first write. They must not overwrite what another program set
//! meanwhile. A brake lasts half a second: its original is read when it begins, and only a file that still
//! holds the brake's value is restored. Nothing of it outlives a boot, so no line waits for a disk.
//!
//! Each line is added by one write: a brake before it takes hold, its release after it. The watching process
//! writes releases too. The file is emptied when no workload is slowed down. A brake with a cut line was not
//! yet on ([`super::versioned`]). A damaged line is reported to the reader: an unknown workload may be
//! frozen.
//!
//! Invariants: only the two processes of one daemon write lines; a damaged line is reported; only files that
//! a brake sets are restored.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use enforcer_core::workload::CgroupPath;
use serde::{Deserialize, Serialize};

use super::{
    JournalError,
    damage::DamageList,
    files::{self, check_owned, failed},
    versioned,
};
use crate::cpuset::ManagedFile;

const NAME: &str = "brakes";
/// Version of a line.
const VERSION: u32 = 1;

/// Record of one workload that is slowed down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedBrake {
    /// A number that no other brake of this boot has.
    pub id: u64,
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Inode of the cgroup's directory.
    pub inode: u64,
    /// The file that was written.
    pub file: ManagedFile,
    /// Set value.
    pub set: String,
    /// Original.
    pub original: String,
    /// The boot that it belongs to.
    pub boot_id: Option<String>,
}

/// Contents of the record.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RecordedBrakes {
    /// Workloads that are slowed down.
    pub slowed: Vec<RecordedBrake>,
    /// Lines that cannot be read, with their numbers.
    pub damaged: Vec<String>,
}

impl RecordedBrakes {
    /// Is no workload slowed down, and no line damaged?
    pub fn is_empty(&self) -> bool {
        self.slowed.is_empty() && self.damaged.is_empty()
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum BrakeRecordEvent {
    Slowed(RecordedBrake),
    Released { id: u64 },
}

/// Files that a brake writes. A line about another file is damage: a restore must not write that file.
fn is_of_a_brake(file: ManagedFile) -> bool {
    matches!(file, ManagedFile::Freeze | ManagedFile::High)
}

/// The line that says that a brake is released.
pub fn released_line(id: u64) -> io::Result<String> {
    versioned::encode(VERSION, BrakeRecordEvent::Released { id })
}

/// The record of one state directory.
#[derive(Debug)]
pub struct BrakeRecord {
    path: PathBuf,
    file: File,
}

impl BrakeRecord {
    /// Opens or makes the one below this directory, which is there. Lines that cannot be read are set aside.
    pub fn open(state_dir: &Path) -> Result<Self, JournalError> {
        check_owned(state_dir)?;
        let path = state_dir.join(NAME);
        let RecordedBrakes { slowed, damaged } = Self::read(state_dir)?;
        if damaged.is_empty() {
            let file = files::open(&path)?;
            files::cut_zeros(&path, &file)?;
            return Ok(Self { path, file });
        }
        let lines =
            slowed.into_iter().map(|brake| versioned::encode(VERSION, BrakeRecordEvent::Slowed(brake)));
        Ok(Self { file: files::rewrite_at_once(&path, true, lines)?, path })
    }

    /// Reads the record; empty where there is none.
    pub fn read(state_dir: &Path) -> Result<RecordedBrakes, JournalError> {
        let path = state_dir.join(NAME);
        let mut found = RecordedBrakes::default();
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(found);
        }
        check_owned(state_dir)?;
        let text = files::read(&path)?;
        let mut damage = DamageList::default();
        for event in versioned::read(&path, &text, VERSION..=VERSION) {
            match event {
                Ok(BrakeRecordEvent::Slowed(brake)) if is_of_a_brake(brake.file) => found.slowed.push(brake),
                Ok(BrakeRecordEvent::Slowed(RecordedBrake { file, .. })) => {
                    damage.note(|| format!("{}: no brake sets {}", path.display(), file.name()));
                }
                Ok(BrakeRecordEvent::Released { id }) => found.slowed.retain(|brake| brake.id != id),
                Err(error) => damage.note(|| {
                    format!("{error}; a workload may stand still, or have a low memory.high: see to that")
                }),
            }
        }
        found.damaged = damage.into_lines(&path);
        Ok(found)
    }

    /// Another handle to the file, for the process that watches.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Records a brake that is about to begin.
    pub fn slowed(&mut self, brake: &RecordedBrake) -> Result<(), JournalError> {
        self.append(versioned::encode(VERSION, BrakeRecordEvent::Slowed(brake.clone())))
    }

    /// Records the end of a brake.
    pub fn released(&mut self, id: u64) -> Result<(), JournalError> {
        self.append(released_line(id))
    }

    /// Records that no workload is slowed down.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        self.file.set_len(0).map_err(failed("emptying", &self.path))
    }

    fn append(&mut self, line: io::Result<String>) -> Result<(), JournalError> {
        let written = line.and_then(|line| self.file.write_all(line.as_bytes()));
        written.map_err(failed("appending to", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    fn brake(id: u64) -> RecordedBrake {
        RecordedBrake {
            id,
            cgroup: CgroupPath::new("/a"),
            inode: 7,
            file: ManagedFile::Freeze,
            set: "1".into(),
            original: "0\n".into(),
            boot_id: Some("boot-1".into()),
        }
    }

    #[test]
    fn what_is_not_released_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let read = || {
            let found = BrakeRecord::read(dir.path()).unwrap();
            assert_eq!(found.damaged, [""; 0]);
            found.slowed
        };
        assert_eq!(read(), []);
        let mut record = BrakeRecord::open(dir.path()).unwrap();
        record.slowed(&brake(1)).unwrap();
        record.slowed(&brake(2)).unwrap();
        // The process that watches.
        record.handle().unwrap().write_all(released_line(1).unwrap().as_bytes()).unwrap();
        assert_eq!(read(), [brake(2)]);
        record.released(2).unwrap();
        assert_eq!(read(), []);
        record.slowed(&brake(3)).unwrap();
        record.clear().unwrap();
        assert_eq!(read(), []);
        record.slowed(&brake(4)).unwrap();
        assert_eq!(read(), [brake(4)], "after it was emptied lines begin at its begin");
    }

    /// Parses the text of a record.
    fn found(text: &str) -> RecordedBrakes {
        let dir = tempfile::tempdir().unwrap();
        let mut file =
            File::options().create(true).append(true).mode(0o600).open(dir.path().join(NAME)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        BrakeRecord::read(dir.path()).unwrap()
    }

    #[test]
    fn a_damaged_line_is_told_and_takes_no_other_with_it() {
        let [one, two] =
            [1, 2].map(|id| versioned::encode(VERSION, BrakeRecordEvent::Slowed(brake(id))).unwrap());
        let RecordedBrakes { slowed, damaged } = found(&format!("{}{two}", one.replace("\"/a\"", "\"/b\"")));
        assert_eq!(slowed, [brake(2)]);
        let [line] = damaged.as_slice() else { panic!("{damaged:?}") };
        assert!(line.contains("brakes line 2: its checksum") && line.contains("may stand still"), "{line}");
    }

    #[test]
    fn what_is_damaged_is_set_aside_and_is_not_forgotten_with_the_next_brake() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] =
            [1, 2].map(|id| versioned::encode(VERSION, BrakeRecordEvent::Slowed(brake(id))).unwrap());
        let damaged = one.replace("\"/a\"", "\"/b\"") + &two;
        fs::write(dir.path().join(NAME), &damaged).unwrap();
        let mut record = BrakeRecord::open(dir.path()).unwrap();
        let found = || BrakeRecord::read(dir.path()).unwrap();
        assert_eq!(found(), RecordedBrakes { slowed: vec![brake(2)], damaged: Vec::new() });
        record.released(2).unwrap();
        record.clear().unwrap();
        assert!(found().is_empty());
        let kept = files::set_aside(dir.path()).unwrap();
        assert_eq!(kept, [dir.path().join("brakes.damaged")]);
        assert_eq!(fs::read_to_string(&kept[0]).unwrap(), damaged);
    }

    #[test]
    fn zeros_behind_the_last_line_go_before_the_next_and_a_record_of_zeros_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        BrakeRecord::open(dir.path()).unwrap().slowed(&brake(1)).unwrap();
        let good = fs::read(&path).unwrap();
        fs::write(&path, [&good[..], &[0; 90]].concat()).unwrap();
        BrakeRecord::open(dir.path()).unwrap().slowed(&brake(2)).unwrap();
        let found = BrakeRecord::read(dir.path()).unwrap();
        assert_eq!(found, RecordedBrakes { slowed: vec![brake(1), brake(2)], damaged: Vec::new() });
        fs::write(&path, vec![0; good.len()]).unwrap();
        let RecordedBrakes { damaged, .. } = BrakeRecord::read(dir.path()).unwrap();
        let [line] = damaged.as_slice() else { panic!("{damaged:?}") };
        assert!(line.contains("zeros") && line.contains("may stand still"), "{line}");
    }

    #[test]
    fn a_line_about_a_file_that_no_brake_sets_is_not_believed() {
        for (file, is_believed) in
            [(ManagedFile::Freeze, true), (ManagedFile::High, true), (ManagedFile::Cpus, false)]
        {
            let line =
                versioned::encode(VERSION, BrakeRecordEvent::Slowed(RecordedBrake { file, ..brake(1) }))
                    .unwrap();
            let RecordedBrakes { slowed, damaged } = found(&line);
            assert_eq!((slowed.len(), damaged.len()), if is_believed { (1, 0) } else { (0, 1) }, "{file:?}");
        }
    }

    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(NAME)).unwrap();
        assert!(BrakeRecord::open(dir.path()).is_err() && BrakeRecord::read(dir.path()).is_err());
    }
}
