//! Who is slowed down just now, recorded beside the journal, so that it can be undone by the next daemon or by
//! `restore` where both the daemon and the process that watches it were killed.
//!
//! The journal has originals from before the first write, and what somebody else set meanwhile must not be
//! overwritten with them. A brake lasts half a second: its original is read at its begin, and only a file that still holds what
//! was set is put back. Nothing of it outlives the host, so no line waits for a disk.
//!
//! Lines are added by one write each: a brake before it takes hold, its release after it, the latter by the watching
//! process as well. When nobody is slowed down the file is emptied. What is torn or cannot be understood is left out: a
//! brake was not on yet whose line is not whole.
//!
//! Never: a line is written by anybody else but the two processes of one daemon.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use enforcer_core::workload::CgroupPath;
use serde::{Deserialize, Serialize};

use super::{
    JournalError,
    files::{self, check_owned, failed},
};
use crate::enforce::cpuset::CpusetFile;

const NAME: &str = "brakes";

/// Somebody who is slowed down.
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
    pub file: CpusetFile,
    /// What it was set to.
    pub set: String,
    /// What it held before.
    pub original: String,
    /// The boot that it belongs to.
    pub boot_id: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum Line {
    Slowed(RecordedBrake),
    Released { id: u64 },
}

fn encode(line: &Line) -> io::Result<String> {
    Ok(serde_json::to_string(line)? + "\n")
}

/// The line that says that a brake is released.
pub fn released_line(id: u64) -> io::Result<String> {
    encode(&Line::Released { id })
}

/// The record of one state directory.
#[derive(Debug)]
pub struct BrakeRecord {
    path: PathBuf,
    file: File,
}

impl BrakeRecord {
    /// Opens or makes the one below this directory, which is there.
    pub fn open(state_dir: &Path) -> Result<Self, JournalError> {
        check_owned(state_dir)?;
        let path = state_dir.join(NAME);
        Ok(Self { file: files::open(&path)?, path })
    }

    /// Who is slowed down by what is recorded; nobody where nothing is.
    pub fn read(state_dir: &Path) -> Result<Vec<RecordedBrake>, JournalError> {
        let path = state_dir.join(NAME);
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(Vec::new());
        }
        check_owned(state_dir)?;
        let text = files::read(&path)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut slowed: Vec<RecordedBrake> = Vec::new();
        for line in whole.lines() {
            match serde_json::from_str(line) {
                Ok(Line::Slowed(brake)) => slowed.push(brake),
                Ok(Line::Released { id }) => slowed.retain(|brake| brake.id != id),
                Err(error) => tracing::warn!("{}: a line is left out: {error}", path.display()),
            }
        }
        Ok(slowed)
    }

    /// Another handle to the file, for the process that watches.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Somebody is about to be slowed down.
    pub fn slowed(&mut self, brake: &RecordedBrake) -> Result<(), JournalError> {
        self.append(encode(&Line::Slowed(brake.clone())))
    }

    /// It is over.
    pub fn released(&mut self, id: u64) -> Result<(), JournalError> {
        self.append(released_line(id))
    }

    /// Nobody is slowed down.
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
            file: CpusetFile::Freeze,
            set: "1".into(),
            original: "0\n".into(),
            boot_id: Some("boot-1".into()),
        }
    }

    #[test]
    fn what_is_not_released_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let read = || BrakeRecord::read(dir.path()).unwrap();
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

    #[test]
    fn a_torn_line_and_nonsense_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let whole = encode(&Line::Slowed(brake(1))).unwrap();
        let path = dir.path().join(NAME);
        let mut file = File::options().create(true).append(true).mode(0o600).open(&path).unwrap();
        write!(file, "nonsense\n{whole}{}", &whole[..20]).unwrap();
        assert_eq!(BrakeRecord::read(dir.path()).unwrap(), [brake(1)]);
    }

    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(NAME)).unwrap();
        assert!(BrakeRecord::open(dir.path()).is_err() && BrakeRecord::read(dir.path()).is_err());
    }
}
