//! What containers would have been set to without us, from the answer to their runtime on until the journal has it.
//!
//! The journal knows a file by the inode of its cgroup, and the cgroup of a container is made after its runtime was told
//! what to set it to. A daemon that was killed in between would leave a container of which nobody knows any longer what
//! it was to have. So a line is written here before the answer, by the cgroup's path; the next daemon has the journal
//! take it over as its own would have.
//!
//! Nothing here waits for a disk: what was written outlives the process, and a host that loses power loses the cgroups as
//! well. `{...} 0123abcd` and a newline, as in the journal; a line whose sum is wrong was torn by a full disk and its
//! container was made without us.
//!
//! Never: a file that somebody else may write is read, a symlink is followed, or a line believed for longer than its
//! cgroup lives.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use enforcer_core::{place::Cpuset, workload::CgroupPath};
use serde::{Deserialize, Serialize};

use super::{
    JournalError,
    files::{self, failed},
    lines::{sealed, unsealed},
};
use crate::owned_file::open_ours;

/// Version of a line.
const VERSION: u32 = 1;
/// Most bytes: some ten thousand containers, of which none has been recorded yet.
const LIMIT: u64 = 4 << 20;
/// As long as a line with a long path.
const A_LINE: usize = 4 << 10;
/// Bytes that are never too many.
const LONG: u64 = 64 << 10;
/// Bytes of a container that are too many, where that is more.
const LONG_EACH: u64 = 1 << 10;

/// Containers in the making.
#[derive(Debug)]
pub struct MakingRecord {
    path: PathBuf,
    file: File,
    /// Bytes that are there, or were tried.
    length: u64,
    /// Why the latest line could not be written.
    trouble: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    version: u32,
    cgroup: CgroupPath,
    #[serde(flatten)]
    original: Cpuset,
}

impl MakingRecord {
    /// Below the state directory of a journal that is open; with what a daemon before has left, the latest of each cgroup.
    pub fn open(state_dir: &Path) -> Result<(Self, BTreeMap<CgroupPath, Cpuset>), JournalError> {
        let path = state_dir.join("making");
        let file = open_ours(OpenOptions::new().append(true).create(true), &path)
            .map_err(failed("opening", &path))?;
        let length = file.metadata().map_err(failed("looking at", &path))?.len();
        Ok((Self { path, file, length, trouble: None }, Self::left(state_dir)?))
    }

    /// In a file that is there.
    #[cfg(test)]
    pub(crate) fn at(path: &Path) -> Self {
        let file = File::options().append(true).open(path).unwrap();
        Self { path: path.to_owned(), file, length: 0, trouble: None }
    }

    /// What is there, without anything being made for it.
    pub fn left(state_dir: &Path) -> Result<BTreeMap<CgroupPath, Cpuset>, JournalError> {
        Ok(files::read(&state_dir.join("making"))?.lines().filter_map(decode).collect())
    }

    /// Is it so long that it should be written anew with no more than `containers` in it?
    pub fn is_long(&self, containers: usize) -> bool {
        self.length > LONG.max(LONG_EACH.saturating_mul(containers as u64))
    }

    /// A container of this cgroup would be set to this without us.
    pub fn add(&mut self, cgroup: &CgroupPath, original: &Cpuset) -> Result<(), JournalError> {
        let mut add = || -> io::Result<()> {
            if self.length > LIMIT {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("longer than {LIMIT} bytes"),
                ));
            }
            // A line before may have been torn.
            let line = format!("\n{}", encode(cgroup, original)?);
            self.length += line.len() as u64;
            self.file.write_all(line.as_bytes())
        };
        let added = add().map_err(failed("writing", &self.path));
        self.trouble = added.as_ref().err().map(ToString::to_string);
        added
    }

    /// Can lines be written? Costs nothing while the latest one could; else it is tried. The error says why not.
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

    /// These are in the making, and nobody else: all of them are written, or the file stays as it was.
    pub fn keep<'a>(
        &mut self,
        all: impl Iterator<Item = (&'a CgroupPath, &'a Cpuset)>,
    ) -> Result<(), JournalError> {
        let lines = all.map(|(cgroup, original)| encode(cgroup, original));
        let kept = files::rewrite(&self.path, false, lines).and_then(|rewritten| {
            self.file = rewritten.file;
            self.length = self.file.metadata().map_err(failed("looking at", &self.path))?.len();
            Ok(())
        });
        self.trouble = kept.as_ref().err().map(ToString::to_string);
        kept
    }

    /// All of them are in the journal, or have ended.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        if std::mem::take(&mut self.length) > 0 {
            self.file.set_len(0).map_err(failed("emptying", &self.path))?;
        }
        Ok(())
    }
}

fn encode(cgroup: &CgroupPath, original: &Cpuset) -> io::Result<String> {
    let line = Line { version: VERSION, cgroup: cgroup.clone(), original: original.clone() };
    Ok(sealed(&serde_json::to_string(&line)?))
}

fn decode(line: &str) -> Option<(CgroupPath, Cpuset)> {
    let Line { version, cgroup, original } = serde_json::from_str(unsealed(line)?).ok()?;
    (version == VERSION).then_some((cgroup, original))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn cpuset(cpus: &str) -> Cpuset {
        Cpuset { cpus: cpus.parse().ok(), mems: None }
    }

    fn left(dir: &Path) -> Vec<(String, String)> {
        let (_, left) = MakingRecord::open(dir).unwrap();
        let cpus = |cpuset: Cpuset| cpuset.cpus.map(|cpus| cpus.to_string()).unwrap_or_default();
        left.into_iter().map(|(cgroup, cpuset)| (cgroup.as_str().to_owned(), cpus(cpuset))).collect()
    }

    #[test]
    fn what_was_told_is_there_for_the_next_daemon_until_it_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let (mut record, before) = MakingRecord::open(dir.path()).unwrap();
        assert!(before.is_empty());
        for (cgroup, cpus) in [("/a", "0-1"), ("/b b", "2"), ("/a", "3")] {
            record.add(&CgroupPath::new(cgroup), &cpuset(cpus)).unwrap();
        }
        let expected = [("/a", "3"), ("/b b", "2")].map(|(path, cpus)| (path.to_owned(), cpus.to_owned()));
        assert_eq!(left(dir.path()), expected);
        record.clear().unwrap();
        assert_eq!(left(dir.path()), []);
        record.add(&CgroupPath::new("/c"), &Cpuset::default()).unwrap();
        assert_eq!(left(dir.path()), [("/c".to_owned(), String::new())]);
    }

    #[test]
    fn it_is_bounded_and_says_before_when_it_is_long() {
        let dir = tempfile::tempdir().unwrap();
        let (mut record, _) = MakingRecord::open(dir.path()).unwrap();
        let long = CgroupPath::new(&"a".repeat(4_000));
        while !record.is_long(1) {
            record.add(&long, &cpuset("0")).unwrap();
        }
        assert!(!record.is_long(1_000), "it has to be");
        let full = (0..2_000).find_map(|_| record.add(&long, &cpuset("0")).err()).unwrap();
        assert!(full.to_string().contains("longer than"), "{full}");
        record.clear().unwrap();
        assert!(!record.is_long(1));
        record.add(&long, &cpuset("0")).unwrap();
        assert_eq!(left(dir.path()).len(), 1);
    }

    #[test]
    fn who_is_left_out_goes_at_once_with_the_others_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (mut record, _) = MakingRecord::open(dir.path()).unwrap();
        let [a, b, c] = ["/a", "/b", "/c"].map(CgroupPath::new);
        let zero = cpuset("0");
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
        let (mut record, _) = MakingRecord::open(dir.path()).unwrap();
        record.add(&CgroupPath::new("/a"), &cpuset("0")).unwrap();
        let path = dir.path().join("making");
        let text = fs::read_to_string(&path).unwrap();
        for length in 0..text.len() {
            fs::write(&path, &text[..length]).unwrap();
            record.add(&CgroupPath::new("/b"), &cpuset("1")).unwrap();
            let left = left(dir.path());
            assert!(left.contains(&("/b".to_owned(), "1".to_owned())), "{length}: {left:?}");
            assert_eq!(left.len(), if length < text.len() - 1 { 1 } else { 2 }, "{length}: {left:?}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_tried_again_until_it_can() {
        let mut record = MakingRecord::at(Path::new("/dev/full"));
        assert_eq!(record.check(), Ok(()), "nothing was tried");
        assert!(record.add(&CgroupPath::new("/a"), &cpuset("0")).is_err());
        assert!(record.check().unwrap_err().contains("/dev/full"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("making");
        fs::write(&path, "").unwrap();
        record.file = MakingRecord::at(&path).file;
        assert_eq!((record.check(), record.check()), (Ok(()), Ok(())));
        record.add(&CgroupPath::new("/b"), &cpuset("1")).unwrap();
        assert_eq!(left(dir.path()), [("/b".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "").unwrap();
        symlink(&elsewhere, dir.path().join("making")).unwrap();
        assert!(MakingRecord::open(dir.path()).unwrap_err().to_string().contains("making"));
    }
}
