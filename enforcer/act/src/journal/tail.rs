//! The end of a log: whole lines are added, or nothing is.
//!
//! Invariant: after any sequence of failures earlier lines stay as they were, and no line follows half of
//! another one. In a log that others add to as well, half a line stays, because its place is not known; each
//! line begins with a newline there.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::error::{JournalError, failed};

/// Is this open file the one that has this name?
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let named = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        named => named?,
    };
    let ours = file.metadata()?;
    Ok((ours.dev(), ours.ino()) == (named.dev(), named.ino()))
}

/// Medium of the journal's lines.
pub(super) trait JournalMedium: fmt::Debug + Send {
    /// Is it what a reader of this path would find?
    fn is_at(&self, path: &Path) -> io::Result<bool>;
    /// Bytes that are there.
    fn length(&self) -> io::Result<u64>;
    /// Adds bytes at the end; some may be there after a failure.
    fn add(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Truncates to `length` bytes.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    /// Another handle to it, for another process.
    fn handle(&self) -> io::Result<File>;
}

impl JournalMedium for File {
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        is_at(self, path)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn handle(&self) -> io::Result<File> {
        self.try_clone()
    }
}

/// The end of the journal. After any sequence of failures earlier lines stay as they were, and no line
/// follows half of another one.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    medium: Box<dyn JournalMedium>,
    /// Others add to it.
    is_shared: bool,
    /// Half a line is behind this, because it could not be taken away when it failed.
    torn_at: Option<u64>,
    /// Bytes that were there when it was last added to, or opened.
    length: u64,
}

/// How the journal was lost while it was open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileLoss {
    /// The file exists, but its content is cut.
    Cut,
    /// No file has its name.
    Gone,
    /// Another file has its name.
    Replaced,
}

impl FileLoss {
    /// For people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Gone => "taken away",
            Self::Replaced => "replaced",
        }
    }
}

impl Tail {
    pub(super) fn new(path: &Path, medium: Box<dyn JournalMedium>, is_shared: bool) -> Self {
        // Where it cannot be told nothing can be added, either.
        let length = medium.length().unwrap_or(0);
        Self { path: path.to_owned(), medium, is_shared, torn_at: None, length }
    }

    /// Checks whether a reader would find the added lines; `None` where it would.
    pub(super) fn loss(&self) -> Result<Option<FileLoss>, JournalError> {
        if !self.medium.is_at(&self.path).map_err(failed("looking at", &self.path))? {
            let is_gone = fs::symlink_metadata(&self.path).is_err();
            return Ok(Some(if is_gone { FileLoss::Gone } else { FileLoss::Replaced }));
        }
        Ok((self.length()? < self.length).then_some(FileLoss::Cut))
    }

    /// Bytes that are there.
    pub(super) fn length(&self) -> Result<u64, JournalError> {
        self.medium.length().map_err(failed("looking at", &self.path))
    }

    /// Adds whole lines.
    pub(super) fn append(&mut self, lines: &str) -> Result<(), JournalError> {
        if self.is_shared {
            // Room that was tried does no harm in front of a newline; a later cut would take lines away.
            if self.mend().is_err() {
                self.torn_at = None;
            }
            let added = self.medium.add(format!("\n{lines}").as_bytes());
            return added.map_err(failed("writing", &self.path));
        }
        self.mend()?;
        let length = self.length()?;
        let added = self.medium.add(lines.as_bytes());
        if added.is_err() {
            self.torn_at = Some(length);
            // Only a first try: it is made again before the next line.
            let _ = self.mend();
        } else {
            self.length = length + lines.len() as u64;
        }
        added.map_err(failed("appending to", &self.path))
    }

    /// Checks that there is space for `bytes`, by adding and removing them. A crash in between leaves a line
    /// without end, which is not read.
    pub(super) fn probe(&mut self, bytes: usize) -> Result<(), JournalError> {
        self.mend()?;
        let length = self.length()?;
        let added = self.medium.add(&vec![b' '; bytes]);
        self.torn_at = Some(length);
        let cut = self.mend();
        added.map_err(failed("appending to", &self.path))?;
        cut
    }

    /// Takes everything away.
    pub(super) fn empty(&mut self) -> Result<(), JournalError> {
        if self.length()? > 0 {
            self.medium.cut(0).map_err(failed("emptying", &self.path))?;
        }
        (self.torn_at, self.length) = (None, 0);
        Ok(())
    }

    /// Another handle to it, for another process.
    pub(super) fn handle(&self) -> io::Result<File> {
        self.medium.handle()
    }

    fn mend(&mut self) -> Result<(), JournalError> {
        if let Some(length) = self.torn_at {
            self.medium.cut(length).map_err(failed("cutting", &self.path))?;
            self.torn_at = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::{super::fake_disk::FakeDisk, *};

    #[test]
    fn a_line_behind_tried_room_stays_when_room_is_tried_again() {
        let disk = FakeDisk::default();
        let mut tail = Tail::new(Path::new("/log"), Box::new(disk.clone()), true);
        tail.append("one\n").unwrap();
        disk.fail_cuts(Some(Errno::IO));
        assert!(tail.probe(10).is_err());
        tail.append("two\n").unwrap();
        disk.fail_cuts(None);
        tail.probe(10).unwrap();
        assert_eq!(disk.text(), format!("\none\n{}\ntwo\n", " ".repeat(10)));
    }

    #[test]
    fn tried_room_is_cut_before_the_next_line_where_it_can_be() {
        let disk = FakeDisk::default();
        let mut tail = Tail::new(Path::new("/log"), Box::new(disk.clone()), true);
        disk.fail_cuts(Some(Errno::IO));
        assert!(tail.probe(10).is_err());
        disk.fail_cuts(None);
        tail.append("one\n").unwrap();
        assert_eq!(disk.text(), "\none\n");
    }
}
