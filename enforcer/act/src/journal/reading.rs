//! Reads a journal line by line, within bounds: whatever its length, what can be read of it is, and the rest
//! is damage.
//!
//! How it ends. Each line is added by one write, and its action begins only when the line is durable
//! ([`super::files::Tail`]). So a crash leaves one of three ends: reserved space, a line that lacks only its
//! newline, or the beginning of a line. A line without newline is read like any other. The beginning of a
//! line is no damage: its action had not begun, so nothing has to be restored. A file that was cut by hand
//! looks the same, so what is dropped is reported ([`JournalContents::torn`]). Any other end is damage.
//!
//! Zeros. A file system may extend a file before the added data is on the disk. A crash in between leaves
//! zeros at the end of the file, after the last newline or after part of a line (ext4 without `data=ordered`,
//! a disk that lost its cache). Their actions had not begun, so zeros are no damage. Their number tells
//! nothing: they may be reserved space, or one write with many lines. Whole lines that became zeros later
//! look the same, so zeros are always reported ([`JournalContents::zeros`]). Zeros followed by anything but
//! reserved space are damage, and so is a file of nothing else. That warns once too often where a crash lost
//! the very first line, but never misses a lost journal.
//!
//! Invariants: no line keeps others from being read, and the memory for a line is bounded.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Read},
    path::Path,
};

use enforcer_core::hosted::GrantRecord;

use super::{
    Entry, EntryKey, JournalContents,
    damage::DamageList,
    lines::{LONGEST, Record, decode, encode, is_begun, of_zeros},
};

/// Limits of a journal.
#[derive(Debug, Clone, Copy)]
pub(super) struct JournalBounds {
    /// Bytes of a line.
    pub(super) line: u64,
    /// Bytes of all lines that count: a million files that were written.
    pub(super) kept: usize,
    /// Bytes that are read.
    pub(super) read: u64,
}

impl Default for JournalBounds {
    fn default() -> Self {
        Self { line: LONGEST, kept: 256 << 20, read: 4 << 30 }
    }
}

/// Characters that are shown of a line that was cut.
const SHOWN: usize = 1_000;

/// A journal as it was read.
#[derive(Debug, Default)]
pub(super) struct JournalReading {
    pub(super) contents: JournalContents,
    /// The file has only these lines. It is not rewritten then: a restore must work on a full disk.
    pub(super) is_compact: bool,
    /// Length in bytes without the partial line at the end, which is cut.
    pub(super) torn_at: Option<u64>,
    /// The file is longer than the read limit.
    pub(super) is_beyond: bool,
}

struct JournalReader<'a> {
    path: &'a Path,
    bounds: JournalBounds,
    /// With the lengths of their lines.
    entries: BTreeMap<EntryKey, (Entry, usize)>,
    grants: BTreeMap<String, (GrantRecord, usize)>,
    /// Sum of these.
    kept: usize,
    damage: DamageList,
    torn: Option<String>,
    zeros: usize,
    is_compact: bool,
}

/// Reads a journal's text; the path is for messages.
pub(super) fn read(path: &Path, text: impl BufRead) -> io::Result<JournalReading> {
    read_within(path, text, JournalBounds::default())
}

pub(super) fn read_within(
    path: &Path,
    text: impl BufRead,
    bounds: JournalBounds,
) -> io::Result<JournalReading> {
    let mut reading = JournalReader {
        path,
        bounds,
        entries: BTreeMap::new(),
        grants: BTreeMap::new(),
        kept: 0,
        damage: DamageList::default(),
        torn: None,
        zeros: 0,
        is_compact: true,
    };
    let mut text = text.take(bounds.read);
    let (mut line, mut at, mut torn_at) = (Vec::new(), 0, None);
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
                torn_at = (stays < line.len()).then_some(at + stays as u64);
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
    let is_beyond = text.limit() == 0;
    Ok(reading.found(torn_at, is_beyond))
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

impl JournalReader<'_> {
    fn line(&mut self, number: u64, text: &str) {
        match decode(text) {
            Ok(record) => {
                self.is_compact = self.is_compact
                    && encode(&record).is_ok_and(|line| line.strip_suffix('\n') == Some(text));
                self.take(number, text.len(), record);
            }
            Err(_) if text.contains('\0') => {
                self.damage(number, &of_zeros(zeros_of(text.as_bytes())));
            }
            Err(error) => self.damage(number, &error),
        }
    }

    /// Reads the bytes after the last newline, which `zeros_behind` zeros follow. Returns how many of the
    /// bytes stay: those of a line, or of damage.
    fn end(&mut self, number: u64, bytes: &[u8], zeros_behind: usize) -> usize {
        self.is_compact = false;
        let room = bytes.iter().rev().take_while(|byte| is_room(**byte)).count();
        let (begun, room) = bytes.split_at(bytes.len() - room);
        let zeros = zeros_of(room) + zeros_behind;
        if zeros > 0 && begun.is_empty() && number == 1 {
            self.damage(number, &of_zeros(zeros));
            return bytes.len();
        }
        self.zeros = zeros;
        let text = &*String::from_utf8_lossy(begun);
        match decode(text) {
            _ if text.is_empty() => return 0,
            Ok(record) => self.take(number, text.len(), record),
            Err(_) if is_begun(text) => {
                self.torn = Some(text.chars().take(SHOWN).collect());
                return 0;
            }
            Err(error) => {
                self.damage(number, &error);
                return bytes.len();
            }
        }
        begun.len()
    }

    fn take(&mut self, number: u64, length: usize, record: Record) {
        let is_more = matches!(record, Record::Before { .. } | Record::Granted { .. });
        if is_more && self.kept + length > self.bounds.kept {
            self.damage(number, &format!("one too many: all that count have {} bytes", self.bounds.kept));
            return;
        }
        self.kept += if is_more { length } else { 0 };
        let before = match record {
            Record::Before { key, entry } => self.entries.insert(key, (entry, length)).map(|(_, was)| was),
            Record::Restored { key } => self.entries.remove(&key).map(|(_, was)| was),
            Record::Granted { id, grant } => self.grants.insert(id, (*grant, length)).map(|(_, was)| was),
            Record::Released { id } => self.grants.remove(&id).map(|(_, was)| was),
        };
        self.is_compact &= is_more && before.is_none();
        self.kept -= before.unwrap_or(0);
    }

    fn damage(&mut self, number: u64, error: &str) {
        self.is_compact = false;
        self.damage.note(|| format!("{} line {number}: {error}", self.path.display()));
    }

    fn found(self, torn_at: Option<u64>, is_beyond: bool) -> JournalReading {
        let mut damaged = self.damage.into_lines(self.path);
        if is_beyond {
            let (path, bytes) = (self.path.display(), self.bounds.read);
            damaged.push(format!("{path}: what is behind {bytes} bytes is not read"));
        }
        let contents = JournalContents {
            entries: self.entries.into_iter().map(|(key, (entry, _))| (key, entry)).collect(),
            grants: self.grants.into_iter().map(|(id, (grant, _))| (id, grant)).collect(),
            damaged,
            torn: self.torn,
            zeros: self.zeros,
        };
        JournalReading { contents, is_compact: self.is_compact && !is_beyond, torn_at, is_beyond }
    }
}
