//! One append-only log of the state directory: lines of one enum ([`Record`]), folded while they are read.
//!
//! A log keeps what its records say together ([`Fold`]) in memory, so it can be written anew at any time:
//! without closed lines when it is opened or has become long, and whole when its file was removed or
//! replaced, or cut where it has one writer. That is written beside the old file, which stays in use until
//! the new one has its name.
//!
//! No write waits for the disk. Records outlive a process that is killed; a host that loses power loses the
//! cgroups as well, and each record has the boot that it belongs to.
//!
//! Each file has one writer, which is why there is more than one of them: a stuck disk must not make an
//! answer to a runtime wait for a turn, and the process that watches over brakes writes to an open file.

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use enforcer_core::workload::printable;

use super::{
    error::{JournalError, failed, refused},
    files::{self, Rewritten},
    lines::encode,
    reading::{self, Fold, LogBounds, Reading},
    record::Record,
    tail::{FileLoss, Tail},
};

/// Room for a few lines, without which there is no use in trying.
const A_FEW_LINES: usize = 4096;

/// A log is rewritten only if it is longer than this multiple of its open lines.
const MOSTLY_OVER: u64 = 4;

/// A file of the state directory.
#[derive(Debug)]
pub(super) struct LogKind {
    pub(super) name: &'static str,
    /// Others add to it, or a write of it may fail in part: each line begins with a newline.
    pub(super) is_shared: bool,
    /// A log that is no longer than this, in bytes, is not worth writing anew.
    pub(super) long: u64,
    /// Most bytes.
    pub(super) limit: u64,
}

/// A log that is open for appending.
#[derive(Debug)]
pub(super) struct Log<F> {
    path: PathBuf,
    kind: &'static LogKind,
    pub(super) tail: Tail,
    state: F,
    damaged: Vec<String>,
    /// The damaged lines are in the file still, and are not kept elsewhere.
    pub(super) is_damaged: bool,
    /// File with the damaged lines.
    kept: Option<PathBuf>,
    /// Length in bytes above which it is seen whether the log should be written anew.
    look_at: u64,
    /// Why the latest line could not be recorded, until one could.
    trouble: Option<String>,
}

/// Reads the log of this kind; empty where there is none.
pub(super) fn read<F: Fold>(state_dir: &Path, kind: &LogKind) -> Result<Reading<F>, JournalError> {
    let path = state_dir.join(kind.name);
    let text: Box<dyn io::BufRead> = match files::reader(&path)? {
        Some(file) => Box::new(BufReader::new(file)),
        None => Box::new(io::empty()),
    };
    reading::read(&path, text, kind.is_shared, LogBounds::default()).map_err(failed("reading", &path))
}

/// Puts a log that says this in the place of the one there; a damaged one is kept beside it.
pub(super) fn write<F: Fold>(path: &Path, is_damaged: bool, state: &F) -> Result<Rewritten, JournalError> {
    files::rewrite(path, is_damaged, state.records().map(|record| encode(&record)))
}

impl<F: Fold> Log<F> {
    /// Opens or makes the one below this directory, which is there. Lines that cannot be read are set aside,
    /// if there is room for that.
    pub(super) fn open(state_dir: &Path, kind: &'static LogKind) -> Result<Self, JournalError> {
        let path = state_dir.join(kind.name);
        let reading: Reading<F> = read(state_dir, kind)?;
        if !kind.is_shared {
            say(&path, &reading);
        }
        let Reading { state, damaged, torn_at, is_compact, is_beyond, .. } = reading;
        let (mut is_damaged, mut kept) = (!damaged.is_empty(), None);
        let file = if is_compact || (kind.is_shared && !is_damaged) {
            files::open_whole(&path, torn_at)?
        } else {
            match write(&path, is_damaged, &state) {
                // It is as good as it was, only longer: a restore must not need space on a full disk.
                Err(error) if error.is_no_room() && !is_beyond => files::open_whole(&path, torn_at)?,
                rewritten => {
                    let rewritten = rewritten?;
                    (is_damaged, kept) = (false, rewritten.kept);
                    rewritten.file
                }
            }
        };
        let tail = Tail::new(&path, Box::new(file), kind.is_shared);
        Ok(Self { path, kind, tail, state, damaged, is_damaged, kept, look_at: kind.long, trouble: None })
    }

    /// In a file that is there.
    #[cfg(any(test, feature = "testing"))]
    #[expect(clippy::unwrap_used, reason = "for tests, of other crates too")]
    pub(super) fn at(path: &Path, kind: &'static LogKind) -> Self {
        let file = File::options().append(true).open(path).unwrap();
        let tail = Tail::new(path, Box::new(file), kind.is_shared);
        let (path, state) = (path.to_owned(), F::default());
        let (damaged, look_at) = (Vec::new(), kind.long);
        Self { path, kind, tail, state, damaged, is_damaged: false, kept: None, look_at, trouble: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What the records say together.
    pub(super) fn state(&self) -> &F {
        &self.state
    }

    pub(super) fn state_mut(&mut self) -> &mut F {
        &mut self.state
    }

    /// Lines that could not be read, with their numbers.
    pub(super) fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// File with the unreadable lines since it was opened; `None` where they are still in the log.
    pub(super) fn kept(&self) -> Option<&Path> {
        self.kept.as_deref()
    }

    /// Another handle to the file, for a process that adds lines too.
    pub(super) fn handle(&self) -> io::Result<File> {
        self.tail.handle()
    }

    /// Records this, all of it or nothing.
    pub(super) fn append(&mut self, records: Vec<Record>) -> Result<(), JournalError> {
        let lines: io::Result<String> = records.iter().map(encode).collect();
        let lines = lines.map_err(failed("encoding a line of", &self.path))?;
        if lines.is_empty() {
            return Ok(());
        }
        let appended = self.hold().and_then(|()| self.shorten()).and_then(|()| self.tail.append(&lines));
        self.trouble = appended.as_ref().err().map(ToString::to_string);
        appended?;
        for record in records {
            let taken = self.state.take(record);
            debug_assert!(taken.is_ok(), "{} has records of its own kinds", self.path.display());
        }
        Ok(())
    }

    /// Can lines be recorded, where a restore will find them? While the latest one could be, it is only
    /// looked whether all is there still; else it is tried. The error says why not.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let held = self.hold();
        if held.is_err() || self.trouble.is_some() {
            let tried = held.and_then(|()| self.tail.probe(A_FEW_LINES));
            self.trouble = tried.err().map(|error| error.to_string());
        }
        self.trouble.clone().map_or(Ok(()), Err)
    }

    /// Puts this in the place of everything, or leaves the log as it was.
    pub(super) fn replace(&mut self, state: F) -> Result<(), JournalError> {
        let rewritten = write(&self.path, self.is_damaged, &state);
        self.trouble = rewritten.as_ref().err().map(ToString::to_string);
        self.go_on_in(rewritten?);
        self.state = state;
        Ok(())
    }

    /// Nothing is open any more.
    pub(super) fn clear(&mut self) -> Result<(), JournalError> {
        if self.is_damaged {
            return self.replace(F::default());
        }
        self.tail.empty()?;
        self.state = F::default();
        Ok(())
    }

    /// Makes sure that a reader would find the records. A cleaner of `/run` may have removed them: then a
    /// restore would find nothing. All are in memory and are written anew; a foreign file in their place is
    /// kept beside the new one.
    ///
    /// The length of a shared log is not known. The process that watches over brakes goes on in a removed
    /// file: the releases that it adds are lost then, and a brake is released once more.
    fn hold(&mut self) -> Result<(), JournalError> {
        let loss = self.tail.loss()?.filter(|loss| !self.kind.is_shared || *loss != FileLoss::Cut);
        let Some(loss) = loss else { return Ok(()) };
        let rewritten = write(&self.path, loss == FileLoss::Replaced, &self.state)?;
        self.go_on_in(rewritten);
        tracing::error!("{} was {}; it is written anew", self.path.display(), loss.words());
        Ok(())
    }

    /// Continues in a rewritten file that has replaced the former one.
    fn go_on_in(&mut self, Rewritten { file, kept }: Rewritten) {
        self.tail = Tail::new(&self.path, Box::new(file), self.kind.is_shared);
        self.kept = kept.or(self.kept.take());
        self.is_damaged = false;
    }

    /// Rewrites the log without closed lines, once these are most of it. On failure the old file stays in
    /// use.
    fn shorten(&mut self) -> Result<(), JournalError> {
        let length = self.tail.length()?;
        if length > self.look_at {
            match self.rewrite(length) {
                Ok(Some(rewritten)) => self.go_on_in(rewritten),
                Ok(None) => {}
                Err(error) => {
                    self.look_at = length + self.kind.long;
                    tracing::warn!("{} stays as long as it is: {error}", self.path.display());
                }
            }
        }
        if self.tail.length()? > self.kind.limit {
            let cause = format!("longer than {} bytes", self.kind.limit);
            return Err(refused("writing", &self.path, cause));
        }
        Ok(())
    }

    /// The new file; `None` where it would not be much shorter than the old one.
    fn rewrite(&mut self, length: u64) -> Result<Option<Rewritten>, JournalError> {
        let lines = self.state.records().map(|record| encode(&record)).collect::<io::Result<Vec<_>>>();
        let lines = lines.map_err(failed("encoding a line of", &self.path))?;
        let compact: usize = lines.iter().map(String::len).sum();
        self.look_at = self.kind.long.max(MOSTLY_OVER * compact as u64);
        if length <= self.look_at {
            return Ok(None);
        }
        files::rewrite(&self.path, self.is_damaged, lines.into_iter().map(Ok)).map(Some)
    }
}

/// Most lines of which each is logged.
const LOGGED: usize = 10;

/// Logs the unused lines of a log.
fn say<F>(path: &Path, reading: &Reading<F>) {
    for line in reading.damaged.iter().take(LOGGED) {
        tracing::error!("journal line that cannot be read: {}", printable(line));
    }
    if let Some(cut) = &reading.torn {
        let (path, cut) = (path.display(), printable(cut));
        tracing::warn!(
            "{path}: its last line is not whole, as when a daemon ends while it records something that it has not done \
             yet; nothing is put back for it: {cut}"
        );
    }
    if let Some(zeros) = behind_the_last_line(reading.zeros) {
        tracing::warn!("{}: {zeros}", path.display());
    }
}

/// Warning about zeros; `None` where there are none.
pub(super) fn behind_the_last_line(zeros: usize) -> Option<String> {
    (zeros > 0).then(|| {
        format!(
            "zeros, {zeros} of them, are behind its last line, as when a host goes down while a daemon records something \
             that it has not done yet; nothing is put back for them"
        )
    })
}
