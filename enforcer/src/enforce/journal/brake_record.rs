//! Who is slowed down just now, recorded beside the journal, so that it can be undone by the next daemon or by
//! `restore` where both the daemon and the process that watches it were killed.
//!
//! The journal has originals from before the first write, and what somebody else set meanwhile must not be
//! overwritten with them. A brake lasts half a second: its original is read at its begin, and only a file that still holds what
//! was set is put back. Nothing of it outlives the host, so no line waits for a disk.
//!
//! Lines are added by one write each: a brake before it takes hold, its release after it, the latter by the watching
//! process as well. When nobody is slowed down the file is emptied. `{...} 0123abcd` and a newline, as in the journal, and a
//! newline before it, because the line before may have been torn. What is torn is left out: a brake was not on yet whose line
//! is not whole. Any other line that is not as it was written, or of another version, is damage: a workload may stand still of
//! which nobody knows, and who reads it is told so.
//!
//! Never: a line is written by anybody else but the two processes of one daemon; a damaged one is forgotten unsaid.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use enforcer_core::workload::CgroupPath;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{
    JournalError,
    files::{self, check_owned, failed},
    lines::{has_sum, sealed, unsealed},
};
use crate::enforce::cpuset::CpusetFile;

const NAME: &str = "brakes";
/// Version of a line.
const VERSION: u32 = 1;

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

/// What is recorded.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RecordedBrakes {
    /// Who is slowed down.
    pub slowed: Vec<RecordedBrake>,
    /// Lines that cannot be read, with their numbers.
    pub damaged: Vec<String>,
}

impl RecordedBrakes {
    /// Is there nobody, as far as anybody knows?
    pub fn is_empty(&self) -> bool {
        self.slowed.is_empty() && self.damaged.is_empty()
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    version: u32,
    #[serde(flatten)]
    event: Event,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum Event {
    Slowed(RecordedBrake),
    Released { id: u64 },
}

/// All that is known of a line of another version.
#[derive(Debug, Deserialize)]
struct Versioned {
    version: u32,
}

fn encode(event: Event) -> io::Result<String> {
    let json = serde_json::to_string(&Line { version: VERSION, event })?;
    Ok(format!("\n{}", sealed(&json)))
}

/// `None` of a line that was cut. The error says what is wrong with another one.
fn decode(line: &str) -> Result<Option<Event>, String> {
    let Some(json) = unsealed(line) else {
        if has_sum(line) {
            return Err("its checksum is not its own".to_owned());
        }
        let is_cut = serde_json::from_str::<IgnoredAny>(line).is_err_and(|error| error.is_eof());
        return if is_cut { Ok(None) } else { Err("it has no checksum".to_owned()) };
    };
    match serde_json::from_str::<Versioned>(json) {
        Ok(Versioned { version }) if version != VERSION => Err(format!("version {version} is not known")),
        _ => serde_json::from_str(json).map(|line: Line| Some(line.event)).map_err(|error| error.to_string()),
    }
}

/// The line that says that a brake is released.
pub fn released_line(id: u64) -> io::Result<String> {
    encode(Event::Released { id })
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
    pub fn read(state_dir: &Path) -> Result<RecordedBrakes, JournalError> {
        let path = state_dir.join(NAME);
        let mut found = RecordedBrakes::default();
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(found);
        }
        check_owned(state_dir)?;
        let text = files::read(&path)?;
        // The daemon was killed while it wrote what is behind the last newline.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().zip(1..).filter(|(line, _)| !line.is_empty());
        for (line, number) in lines {
            match decode(line) {
                Ok(Some(Event::Slowed(brake))) => found.slowed.push(brake),
                Ok(Some(Event::Released { id })) => found.slowed.retain(|brake| brake.id != id),
                Ok(None) => tracing::warn!("{} line {number} was cut and is left out", path.display()),
                Err(error) => found.damaged.push(format!(
                    "{} line {number}: {error}; a workload may stand still, or have a low memory.high: see to that, then \
                     remove the file",
                    path.display()
                )),
            }
        }
        Ok(found)
    }

    /// Another handle to the file, for the process that watches.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Somebody is about to be slowed down.
    pub fn slowed(&mut self, brake: &RecordedBrake) -> Result<(), JournalError> {
        self.append(encode(Event::Slowed(brake.clone())))
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

    /// What is read of this text: ids of who is slowed down, and how many lines are damaged.
    fn found(text: &str) -> (Vec<u64>, usize) {
        let dir = tempfile::tempdir().unwrap();
        let mut file =
            File::options().create(true).append(true).mode(0o600).open(dir.path().join(NAME)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let RecordedBrakes { slowed, damaged } = BrakeRecord::read(dir.path()).unwrap();
        (slowed.iter().map(|brake| brake.id).collect(), damaged.len())
    }

    #[test]
    fn a_line_that_was_cut_is_left_out_and_takes_no_other_with_it() {
        let [one, two] = [1, 2].map(|id| encode(Event::Slowed(brake(id))).unwrap());
        let json_ends = one.rfind('}').unwrap() + 1;
        for length in 0..one.len() {
            let cut = &one[..length];
            assert_eq!(found(&format!("{two}{cut}")), (vec![2], 0), "{cut:?}");
            let after = found(&format!("{cut}{two}"));
            // What lacks nothing but its sum, or a part of that, may have been longer.
            let is_told = usize::from(length >= json_ends && length < one.len() - 1);
            let expected = if length == one.len() - 1 { (vec![1, 2], 0) } else { (vec![2], is_told) };
            assert_eq!(after, expected, "{cut:?}");
        }
    }

    #[test]
    fn a_line_that_is_not_as_it_was_written_is_told() {
        let [one, two] = [1, 2].map(|id| encode(Event::Slowed(brake(id))).unwrap());
        let json = one.trim().rsplit_once(' ').unwrap().0;
        let resealed = |json: String| sealed(&json);
        for (text, why) in [
            (one.replace("\"/a\"", "\"/b\""), "its checksum"),
            (one.replacen('"', "", 1), "its checksum"),
            (resealed(json.replace("\"version\":1", "\"version\":2")), "version 2 is not known"),
            (resealed("{}".to_owned()), "missing field"),
            (format!("{json}\n"), "no checksum"),
            ("nonsense\n".to_owned(), "no checksum"),
        ] {
            assert_eq!(found(&format!("{text}{two}")), (vec![2], 1), "{text}");
            assert!(decode(text.trim()).unwrap_err().contains(why), "{text}");
        }
    }

    #[test]
    fn every_byte_that_is_another_is_told() {
        let one = encode(Event::Slowed(brake(1))).unwrap();
        for at in 1..one.len() - 1 {
            let mut bytes = one.clone().into_bytes();
            bytes[at] ^= 1;
            let text = String::from_utf8(bytes).unwrap();
            assert!(matches!(found(&text), (_, 1)), "{text}");
        }
    }

    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join(NAME)).unwrap();
        assert!(BrakeRecord::open(dir.path()).is_err() && BrakeRecord::read(dir.path()).is_err());
    }
}
