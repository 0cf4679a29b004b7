//! Record of the workloads that are slowed down, beside the journal. If the daemon and its watching process
//! are both killed, the next daemon or `restore` releases them by it.
//!
//! The journal has originals from before the first write. They must not overwrite what another program set
//! meanwhile. A brake lasts half a second: its original is read when it begins, and only a file that still
//! holds the brake's value is restored.
//!
//! Each line is added by one write: a brake before it takes hold, its release after it. The watching process
//! writes releases too, to the open file, which therefore keeps its inode: it is emptied when no workload is
//! slowed down, and never written anew meanwhile. A damaged line is reported to the reader: an unknown
//! workload may be frozen.
//!
//! Invariants: only the two processes of one daemon write lines; a damaged line is reported; only files that
//! a brake sets are restored ([`Record::fault`]).

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use super::{
    error::JournalError,
    files::check_owned,
    lines::encode,
    log::{self, Log, LogKind},
    reading::{Fold, ForeignRecord},
    record::{Record, RecordedBrake, ReleasedId},
};

pub(super) static BRAKES: LogKind =
    LogKind { name: "brakes", is_shared: true, long: u64::MAX, limit: u64::MAX };

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

impl Fold for Vec<RecordedBrake> {
    fn take(&mut self, record: Record) -> Result<Option<Record>, ForeignRecord> {
        let (id, new) = match record {
            Record::Slowed(brake) => (brake.id, Some(brake)),
            Record::Released { id: ReleasedId::Brake(id) } => (id, None),
            _ => return Err(ForeignRecord),
        };
        // The number is of one brake: a line that is there twice is one.
        let at = self.iter().position(|brake| brake.id == id);
        let was = at.map(|at| self.remove(at));
        self.extend(new);
        Ok(was.map(Record::Slowed))
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        self.iter().cloned().map(Record::Slowed)
    }
}

fn released(id: u64) -> Record {
    Record::Released { id: ReleasedId::Brake(id) }
}

/// The line that says that a brake is released.
pub fn released_line(id: u64) -> io::Result<String> {
    encode(&released(id)).map(|line| format!("\n{line}"))
}

/// The record of one state directory.
#[derive(Debug)]
pub struct BrakeRecord(Log<Vec<RecordedBrake>>);

impl BrakeRecord {
    /// Opens or makes the one below this directory, which is there. Lines that cannot be read are set aside.
    pub fn open(state_dir: &Path) -> Result<Self, JournalError> {
        check_owned(state_dir)?;
        Log::open(state_dir, &BRAKES).map(Self)
    }

    /// Reads the record; empty where there is none.
    pub fn read(state_dir: &Path) -> Result<RecordedBrakes, JournalError> {
        let path = state_dir.join(BRAKES.name);
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(RecordedBrakes::default());
        }
        check_owned(state_dir)?;
        let found = log::read(state_dir, &BRAKES)?;
        let see =
            |line| format!("{line}; a workload may stand still, or have a low memory.high: see to that");
        Ok(RecordedBrakes { slowed: found.state, damaged: found.damaged.into_iter().map(see).collect() })
    }

    /// Another handle to the file, for the process that watches.
    pub fn handle(&self) -> io::Result<File> {
        self.0.handle()
    }

    /// Records a brake that is about to begin.
    pub fn slowed(&mut self, brake: &RecordedBrake) -> Result<(), JournalError> {
        self.0.append(vec![Record::Slowed(brake.clone())])
    }

    /// Records the end of a brake.
    pub fn released(&mut self, id: u64) -> Result<(), JournalError> {
        self.0.append(vec![released(id)])
    }

    /// Records that no workload is slowed down.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        self.0.clear()
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};

    use super::{super::files, *};
    use crate::cpuset::ManagedFile;
    use enforcer_core::workload::CgroupPath;

    const NAME: &str = "brakes";

    fn slowed_line(brake: RecordedBrake) -> String {
        encode(&Record::Slowed(brake)).map(|line| format!("\n{line}")).unwrap()
    }

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
    fn brake_that_is_recorded_twice_is_released_once() {
        let (one, two) = (slowed_line(brake(1)), slowed_line(brake(2)));
        let released = released_line(1).unwrap();
        let RecordedBrakes { slowed, damaged } = found(&format!("{one}{two}{one}{released}"));
        assert_eq!((slowed, damaged), (vec![brake(2)], Vec::new()));
    }

    #[test]
    fn a_damaged_line_is_told_and_takes_no_other_with_it() {
        let [one, two] = [1, 2].map(|id| slowed_line(brake(id)));
        let RecordedBrakes { slowed, damaged } = found(&format!("{}{two}", one.replace("\"/a\"", "\"/b\"")));
        assert_eq!(slowed, [brake(2)]);
        let [line] = damaged.as_slice() else { panic!("{damaged:?}") };
        assert!(line.contains("brakes line 2: its checksum") && line.contains("may stand still"), "{line}");
    }

    #[test]
    fn what_is_damaged_is_set_aside_and_is_not_forgotten_with_the_next_brake() {
        let dir = tempfile::tempdir().unwrap();
        let [one, two] = [1, 2].map(|id| slowed_line(brake(id)));
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
            let line = slowed_line(RecordedBrake { file, ..brake(1) });
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
