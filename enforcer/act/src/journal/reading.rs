//! Reads a log line by line, within bounds, and folds its records: whatever its length, what can be read of
//! it is, and the rest is damage.
//!
//! How it ends. Each line is added by one write, and its action begins only when the line is written
//! ([`super::tail`]). So a crash leaves one of three ends: reserved space, a line that lacks only its
//! newline, or the beginning of a line. A line without newline is read like any other. The beginning of a
//! line is no damage: its action had not begun, so nothing has to be restored. A file that was cut by hand
//! looks the same, so what is dropped is reported ([`Reading::torn`]). Any other end is damage.
//!
//! A log that others add to has half a line wherever a write of theirs failed. It is left out, and logged.
//! Its lines begin with a newline, so empty ones are nothing.
//!
//! Zeros. A file system may extend a file before the added data is on the disk. A crash in between leaves
//! zeros at the end of the file, after the last newline or after part of a line (ext4 without `data=ordered`,
//! a disk that lost its cache). Their actions had not begun, so zeros are no damage. Their number tells
//! nothing: they may be reserved space, or one write with many lines. Whole lines that became zeros later
//! look the same, so zeros are always reported ([`Reading::zeros`]). Zeros followed by anything but
//! reserved space are damage, and so is a file of nothing else. That warns once too often where a crash lost
//! the very first line, but never misses a lost journal.
//!
//! Invariants: no line keeps others from being read, each line that is not used is damage or reported, and
//! the memory for a line is bounded.

use std::{
    io::{self, BufRead, Read},
    path::Path,
};

use thiserror::Error;

use super::{
    lines::{LONGEST, LineFault, decode, encode, has_sum, is_begun, is_cut},
    record::Record,
};

/// A whole line of a kind that the log does not have.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("it is of another log")]
pub(super) struct ForeignRecord;

/// What records say together.
pub(super) trait Fold: Default {
    /// Takes a record. Returns the one that it replaces or closes.
    fn take(&mut self, record: Record) -> Result<Option<Record>, ForeignRecord>;

    /// The records that say this and nothing else.
    fn records(&self) -> impl Iterator<Item = Record>;
}

/// Limits of a log.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogBounds {
    /// Bytes of a line.
    pub(super) line: u64,
    /// Bytes of all lines that count: a million files that were written.
    pub(super) kept: usize,
    /// Bytes that are read.
    pub(super) read: u64,
}

impl Default for LogBounds {
    fn default() -> Self {
        Self { line: LONGEST, kept: 256 << 20, read: 4 << 30 }
    }
}

/// Characters that are shown of a line that was cut.
const SHOWN: usize = 1_000;

/// Damaged lines that are named.
const NAMED: usize = 100;

/// A log as it was read.
#[derive(Debug, Default)]
pub(super) struct Reading<F> {
    pub(super) state: F,
    /// Lines that could not be read, with their numbers.
    pub(super) damaged: Vec<String>,
    /// Each of these is whole and of a newer version.
    pub(super) is_newer: bool,
    /// The beginning of a last line that was cut, of which nothing was carried out.
    pub(super) torn: Option<String>,
    /// Zeros behind that or behind the last line.
    pub(super) zeros: usize,
    /// The file has only the lines of the state. It is not rewritten then: a restore must work on a full
    /// disk.
    pub(super) is_compact: bool,
    /// Length in bytes without the partial line at the end, which is cut.
    pub(super) torn_at: Option<u64>,
    /// The file is longer than the read limit.
    pub(super) is_beyond: bool,
}

struct LogReader<'a, F> {
    path: &'a Path,
    bounds: LogBounds,
    /// Others add to it.
    is_shared: bool,
    /// Sum of the lengths of the lines that count.
    kept: usize,
    /// Damaged lines without a name.
    more: usize,
    /// No line is before this one.
    is_first: bool,
    found: Reading<F>,
}

/// Reads the text of a log; the path is for messages.
pub(super) fn read<F: Fold>(
    path: &Path,
    text: impl BufRead,
    is_shared: bool,
    bounds: LogBounds,
) -> io::Result<Reading<F>> {
    let found = Reading { is_compact: true, is_newer: true, ..Reading::default() };
    let mut reading = LogReader { path, bounds, is_shared, kept: 0, more: 0, is_first: true, found };
    let mut text = text.take(bounds.read);
    let (mut line, mut at) = (Vec::new(), 0);
    for number in 1.. {
        line.clear();
        let length = text.by_ref().take(bounds.line).read_until(b'\n', &mut line)? as u64;
        if length == 0 {
            break;
        }
        if line.pop_if(|last| *last == b'\n').is_some() {
            reading.line(number, &String::from_utf8_lossy(&line));
        } else {
            let ends_in_room = line.last().is_some_and(|last| is_room(*last));
            let more = if ends_in_room { skip_room(&mut text)? } else { ReservedSpace::default() };
            let is_whole = length < bounds.line || ends_in_room;
            if text.limit() == 0 {
                break;
            } else if is_whole && text.fill_buf()?.is_empty() {
                let stays = reading.end(number, &line, more.zeros);
                reading.found.torn_at = (stays < line.len()).then_some(at + stays as u64);
            } else {
                at += text.skip_until(b'\n')? as u64;
                let problem = match zeros_of(&line) + more.zeros {
                    0 => format!("longer than {} bytes", bounds.line),
                    zeros => of_zeros(zeros),
                };
                reading.damage(number, &problem);
            }
            at += more.bytes;
        }
        at += length;
    }
    reading.found.is_beyond = text.limit() == 0;
    Ok(reading.ended())
}

/// Reserved space at the end of a file.
#[derive(Debug, Default)]
struct ReservedSpace {
    bytes: u64,
    zeros: usize,
}

/// Room that was tried, and what some file systems have in the place of what did not become durable.
const fn is_room(byte: u8) -> bool {
    matches!(byte, b' ' | 0)
}

fn zeros_of(bytes: &[u8]) -> usize {
    bytes.len() - bytes.iter().filter(|byte| **byte != 0).count()
}

/// There may be more of it than a line may have.
fn skip_room(text: &mut impl BufRead) -> io::Result<ReservedSpace> {
    let mut room = ReservedSpace::default();
    loop {
        let here = text.fill_buf()?;
        let length = here.iter().take_while(|byte| is_room(**byte)).count();
        if length == 0 {
            return Ok(room);
        }
        room.zeros += zeros_of(&here[..length]);
        room.bytes += length as u64;
        text.consume(length);
    }
}

/// Fault of a line with zeros.
fn of_zeros(zeros: usize) -> String {
    format!("zeros, {zeros} of them, are in the place of what was written")
}

impl<F: Fold> LogReader<'_, F> {
    fn line(&mut self, number: u64, text: &str) {
        match decode(text) {
            Ok(record) => self.take(number, text, record),
            Err(_) if self.is_shared && text.is_empty() => return,
            Err(_) if self.is_shared && is_cut(text) => self.warn_of_cut(number),
            Err(_) if text.contains('\0') => self.damage(number, &of_zeros(zeros_of(text.as_bytes()))),
            Err(fault) => self.damage_of(number, text, &fault),
        }
        self.is_first = false;
    }

    /// Reads the bytes after the last newline, which `zeros_behind` zeros follow. Returns how many of the
    /// bytes stay: those of a line, or of damage.
    fn end(&mut self, number: u64, bytes: &[u8], zeros_behind: usize) -> usize {
        self.found.is_compact = false;
        let room = bytes.iter().rev().take_while(|byte| is_room(**byte)).count();
        let (begun, room) = bytes.split_at(bytes.len() - room);
        let zeros = zeros_of(room) + zeros_behind;
        if zeros > 0 && begun.is_empty() && self.is_first {
            self.damage(number, &of_zeros(zeros));
            return bytes.len();
        }
        self.found.zeros = zeros;
        let text = &*String::from_utf8_lossy(begun);
        match decode(text) {
            _ if text.is_empty() => return 0,
            Ok(record) => self.take(number, text, record),
            Err(_) if if self.is_shared { is_cut(text) } else { is_begun(text) } => {
                self.found.torn = Some(text.chars().take(SHOWN).collect());
                if self.is_shared {
                    self.warn_of_cut(number);
                }
                return 0;
            }
            Err(fault) => {
                self.damage_of(number, text, &fault);
                return bytes.len();
            }
        }
        begun.len()
    }

    fn take(&mut self, number: u64, text: &str, record: Record) {
        let (opens, line) = (record.opens(), encode(&record).unwrap_or_default());
        if opens && self.kept + line.len() > self.bounds.kept {
            self.damage(number, &format!("one too many: all that count have {} bytes", self.bounds.kept));
            return;
        }
        let before = match self.found.state.take(record) {
            Ok(before) => before,
            Err(foreign) => return self.damage(number, &foreign.to_string()),
        };
        self.found.is_compact &= opens && before.is_none() && line.strip_suffix('\n') == Some(text);
        self.kept += if opens { line.len() } else { 0 };
        let before = before.and_then(|before| encode(&before).ok());
        self.kept -= before.map_or(0, |line| line.len()).min(self.kept);
    }

    fn warn_of_cut(&mut self, number: u64) {
        self.found.is_compact = false;
        tracing::warn!("{} line {number} was cut and is left out", self.path.display());
    }

    fn damage_of(&mut self, number: u64, text: &str, fault: &LineFault) {
        let why = if has_sum(text) { "" } else { "it has no checksum: " };
        match fault {
            LineFault::Newer(_) => self.leave_out(number, &fault.to_string()),
            LineFault::Damaged(_) => self.damage(number, &format!("{why}{fault}")),
        }
    }

    fn damage(&mut self, number: u64, error: &str) {
        self.found.is_newer = false;
        self.leave_out(number, error);
    }

    /// The first lines that are not used are named, however many there are.
    fn leave_out(&mut self, number: u64, error: &str) {
        self.found.is_compact = false;
        if self.found.damaged.len() < NAMED {
            self.found.damaged.push(format!("{} line {number}: {error}", self.path.display()));
        } else {
            self.more += 1;
        }
    }

    fn ended(self) -> Reading<F> {
        let (mut found, path) = (self.found, self.path.display());
        if self.more > 0 {
            found.damaged.push(format!("{path}: {} more lines", self.more));
        }
        if found.is_beyond {
            found.is_newer = false;
            found.damaged.push(format!("{path}: what is behind {} bytes is not read", self.bounds.read));
        }
        if self.is_shared && found.zeros > 0 {
            tracing::warn!(
                "{path}: zeros, {} of them, are behind its last line and are left out",
                found.zeros
            );
        }
        found.is_compact &= !found.is_beyond;
        found
    }
}

#[cfg(test)]
mod tests;
