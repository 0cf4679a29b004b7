//! The format of a recording: a header, then frames.
//!
//! ```text
//! file    "numarec\n"  version u32
//! frame   stored u32   plain u32   crc32 of the payload u32   crc32 of these twelve bytes u32   payload
//! ```
//!
//! Numbers are little-endian. The payload is a raw deflate stream (RFC 1951) of `stored` bytes that becomes
//! `plain` bytes. The header has a checksum of its own, so that a length that was changed is not taken for a
//! file that ends early: a *torn* end, as a crash leaves it, is no damage. One that lost power leaves zeros,
//! from anywhere in a frame or in the file's own header up to the end of the file, because it had the length
//! before the bytes: that is torn too. With anything but zeros behind it is damage, and so is a zero or two
//! at the end of a file, as any change may leave them.
//!
//! Must never allocate by a number in the file: what is read grows with what is there, and what is inflated
//! stops at [`PLAIN_LIMIT`].

use std::io::{self, Read};

use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec_with_limit};
use thiserror::Error;

const MAGIC: [u8; 8] = *b"numarec\n";

/// Version of the format, and of the parts in it.
pub const VERSION: u32 = 1;

/// Bytes of a frame before compression; a turn with more is not recorded.
pub const PLAIN_LIMIT: usize = 32 << 20;

/// Bytes of a frame's header.
const HEADER: usize = 16;

/// Bytes before the first frame.
pub const START: usize = 12;

/// Zeros at the end that no frame has by chance, and that no change of it leaves.
const LOST: u64 = 16;
/// What a disk writes as a whole; zeros from the beginning of one are lost, however few.
const SECTOR: u64 = 512;
/// More than this nothing that is written as one file loses: it never ends, as a device does.
const MOST_LOST: u64 = 1 << 30;

/// Deflate's level: three quarters of what the best one saves, in a fifth of the time.
const LEVEL: u8 = 3;

/// Why a recording cannot be read, and from which byte on.
#[derive(Debug, Error)]
#[error("at byte {offset}: {problem}")]
pub struct RecordingError {
    /// Where the frame begins.
    pub offset: u64,
    /// What is wrong.
    #[source]
    pub problem: RecordingProblem,
}

/// What is wrong with a recording.
#[derive(Debug, Error)]
pub enum RecordingProblem {
    /// It could not be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It begins with something else.
    #[error("not a recording of numa-enforcer")]
    Foreign,
    /// Another program must read it.
    #[error("it has version {0} of recordings, and this program reads version {VERSION}")]
    Version(u32),
    /// A checksum does not fit.
    #[error("the checksum of the {0} does not fit: it was changed or lost")]
    Checksum(&'static str),
    /// A frame would be larger than any that is written.
    #[error("a frame of {0} bytes; there are {PLAIN_LIMIT} at most")]
    TooLarge(u64),
    /// It does not inflate to what it says.
    #[error("it cannot be inflated to {0} bytes")]
    Inflate(u32),
    /// The JSON in a frame.
    #[error("line {line} of the frame: {said}")]
    Line {
        /// From 1.
        line: usize,
        /// What serde says.
        said: String,
    },
    /// It repeats itself.
    #[error("the frame has more parts than a turn has")]
    Parts,
    /// A frame that cannot be without it.
    #[error("the frame has no part `{0}`, and none before it had")]
    Missing(&'static str),
    /// The parts contradict what any machine or configuration can be.
    #[error("{0}")]
    Impossible(#[from] enforcer_core::replay::Impossible),
}

/// What a file begins with.
pub fn start() -> [u8; START] {
    let mut bytes = [0; START];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// The frame with this payload; `None` where it is too large.
pub fn encode(plain: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(plain.len()).ok().filter(|_| plain.len() <= PLAIN_LIMIT)?;
    let stored = compress_to_vec(plain, LEVEL);
    let mut frame = Vec::with_capacity(HEADER + stored.len());
    frame.extend(u32::try_from(stored.len()).ok()?.to_le_bytes());
    frame.extend(length.to_le_bytes());
    frame.extend(crc32fast::hash(&stored).to_le_bytes());
    frame.extend(crc32fast::hash(&frame).to_le_bytes());
    frame.extend(stored);
    Some(frame)
}

/// One step through a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A frame whose checksum fits.
    Frame,
    /// Nothing further.
    End,
    /// A frame, or the file's own header, that was begun and not finished.
    Torn,
}

/// The frames of a recording, one after another.
#[derive(Debug)]
pub struct Frames<R> {
    source: R,
    /// Where the frame begins that was found last.
    offset: u64,
    /// Where the next one begins.
    next: u64,
    stored: Vec<u8>,
    plain: u32,
    /// Not even the file's header is whole.
    unbegun: bool,
}

impl<R: Read> Frames<R> {
    /// Reads the beginning of the file.
    pub fn new(mut source: R) -> Result<Self, RecordingError> {
        let failed = |problem| RecordingError { offset: 0, problem };
        let mut bytes = Vec::with_capacity(START);
        let read = source.by_ref().take(START as u64).read_to_end(&mut bytes);
        read.map_err(|error| failed(error.into()))?;
        let frames = |source, at, unbegun| Self {
            source,
            offset: at,
            next: at,
            stored: Vec::new(),
            plain: 0,
            unbegun,
        };
        if bytes == start() {
            return Ok(frames(source, START as u64, false));
        }
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let is_begun = start().starts_with(&bytes[..written]);
        if is_begun && zeros(&mut source).map_err(|error| failed(error.into()))?.is_some() {
            return Ok(frames(source, 0, true));
        }
        let version = bytes.strip_prefix(&MAGIC).and_then(|version| version.try_into().ok());
        Err(failed(version.map_or(RecordingProblem::Foreign, |version| {
            RecordingProblem::Version(u32::from_le_bytes(version))
        })))
    }

    /// Where the frame, or the end, that was found last begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The same, of an error.
    pub(super) fn failed(&self, problem: impl Into<RecordingProblem>) -> RecordingError {
        RecordingError { offset: self.offset, problem: problem.into() }
    }

    /// Goes on to the next frame. After anything but a frame there is no further one.
    pub fn find(&mut self) -> Result<Found, RecordingError> {
        if self.unbegun {
            return Ok(Found::Torn);
        }
        self.offset = self.next;
        self.fill(HEADER)?;
        if self.stored.is_empty() {
            return Ok(Found::End);
        }
        let Some(header) = self.stored.first_chunk::<HEADER>() else {
            return Ok(Found::Torn);
        };
        let number =
            |at: usize| header[at..].first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if crc32fast::hash(&header[..12]) != number(12) {
            return self.torn_or("frame's header", HEADER);
        }
        let (stored, plain, checksum) = (number(0), number(4), number(8));
        let largest = u64::from(stored.max(plain));
        // What does not get smaller gets a little larger.
        if largest > PLAIN_LIMIT as u64 + (PLAIN_LIMIT as u64 >> 4) {
            return Err(self.failed(RecordingProblem::TooLarge(largest)));
        }
        self.plain = plain;
        self.fill(stored as usize)?;
        if self.stored.len() < stored as usize {
            return Ok(Found::Torn);
        }
        if crc32fast::hash(&self.stored) != checksum {
            return self.torn_or("frame", HEADER + stored as usize);
        }
        self.next = self.offset + (HEADER + self.stored.len()) as u64;
        Ok(Found::Frame)
    }

    /// What is in the frame that was found.
    pub fn inflate(&self) -> Result<Vec<u8>, RecordingError> {
        let limit = (self.plain as usize).min(PLAIN_LIMIT);
        let plain = decompress_to_vec_with_limit(&self.stored, limit).ok();
        let whole = plain.filter(|plain| plain.len() == self.plain as usize);
        whole.ok_or_else(|| self.failed(RecordingProblem::Inflate(self.plain)))
    }

    /// What was read last, up to this byte of the frame, does not fit its checksum: torn if zeros were left
    /// there up to the end of the file.
    fn torn_or(&mut self, what: &'static str, read: usize) -> Result<Found, RecordingError> {
        let within = self.stored.iter().rev().take_while(|byte| **byte == 0).count() as u64;
        let behind = zeros(&mut self.source).map_err(|error| self.failed(error))?;
        let end = self.offset + read as u64 + behind.unwrap_or_default();
        let lost = behind.map_or(0, |behind| within + behind);
        let last_sector = end.saturating_sub(1) / SECTOR * SECTOR;
        if within > 0 && (lost >= LOST || last_sector >= end - lost) {
            return Ok(Found::Torn);
        }
        Err(self.failed(RecordingProblem::Checksum(what)))
    }

    /// Reads so many bytes, or as many as there are.
    fn fill(&mut self, bytes: usize) -> Result<(), RecordingError> {
        self.stored.clear();
        let read = self.source.by_ref().take(bytes as u64).read_to_end(&mut self.stored);
        read.map(drop).map_err(|error| self.failed(error))
    }
}

/// How many zeros are left to read; `None` where there is something else, or more than [`MOST_LOST`].
fn zeros(source: &mut impl Read) -> io::Result<Option<u64>> {
    let (mut bytes, mut all) = (Vec::new(), 0);
    loop {
        bytes.clear();
        match source.by_ref().take(1 << 16).read_to_end(&mut bytes)? {
            0 => return Ok(Some(all)),
            _ if all > MOST_LOST => return Ok(None),
            _ if bytes.iter().any(|byte| *byte != 0) => return Ok(None),
            more => all += more as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(frames: &[&[u8]]) -> Vec<u8> {
        let mut file = start().to_vec();
        for plain in frames {
            file.extend(encode(plain).unwrap());
        }
        file
    }

    /// All frames, and what the recording ends with.
    fn read(file: &[u8]) -> (Vec<Vec<u8>>, Result<Found, RecordingError>) {
        let mut all = Vec::new();
        let mut frames = match Frames::new(file) {
            Ok(frames) => frames,
            Err(error) => return (all, Err(error)),
        };
        loop {
            match frames.find() {
                Ok(Found::Frame) => match frames.inflate() {
                    Ok(plain) => all.push(plain),
                    Err(error) => return (all, Err(error)),
                },
                end => return (all, end),
            }
        }
    }

    #[test]
    fn frames_come_back_as_they_were() {
        let long = vec![b'x'; 100_000];
        let (all, end) = read(&file(&[b"one", b"", &long]));
        assert_eq!(all, [b"one".to_vec(), Vec::new(), long]);
        assert_eq!(end.unwrap(), Found::End);
        assert_eq!(read(&file(&[])).1.unwrap(), Found::End);
    }

    #[test]
    fn a_file_that_ends_early_gives_what_is_whole() {
        let whole = file(&[b"one", b"two"]);
        let first = file(&[b"one"]).len();
        for length in START..whole.len() {
            let (all, end) = read(&whole[..length]);
            let at_an_end = length == START || length == first;
            assert_eq!(all.len(), usize::from(length >= first), "{length}");
            assert_eq!(end.unwrap(), if at_an_end { Found::End } else { Found::Torn }, "{length}");
        }
        let zeros = [whole.clone(), vec![0; 100]].concat();
        assert_eq!(read(&zeros).1.unwrap(), Found::Torn, "as a file system leaves it that lost power");
    }

    #[test]
    fn zeros_up_to_the_end_are_torn_wherever_they_begin() {
        // It does not get smaller, and has no zero.
        let noise = |seed: u32| -> Vec<u8> {
            (1..700u32).map(|at| at.wrapping_mul(seed).to_le_bytes()[2] | 1).collect()
        };
        let frames = [noise(2_654_435_761), noise(2_246_822_519)];
        let whole = file(&[&frames[0], &frames[1]]);
        let second = file(&[&frames[0]]).len();
        let is_lost = |from: usize, to: usize| whole[from..to.max(from)].iter().any(|byte| *byte != 0);
        for from in 0..whole.len() {
            for behind in [0, 1, 100_000] {
                let lost = [&whole[..from], &vec![0; whole.len() - from + behind]].concat();
                let said = format!("zeros from byte {from}, {behind} behind");
                let left = lost.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                let zeros = lost.len() - left;
                let (all, end) = read(&lost);
                if is_lost(from, whole.len()) {
                    let is_a_loss = left < START || zeros >= 16 || (lost.len() - 1) / 512 * 512 >= left;
                    assert_eq!(matches!(end, Ok(Found::Torn)), is_a_loss, "{said}");
                    assert_eq!(all.len(), usize::from(!is_lost(from, second)), "{said}");
                } else {
                    assert_eq!((all.len(), end.unwrap() == Found::End), (2, behind == 0), "{said}");
                }
                let more = [&lost, &b"longer than a header of a frame"[..]].concat();
                assert!(read(&more).1.is_err(), "{said} and then something else");
            }
        }
    }

    #[test]
    fn a_file_that_was_not_even_begun_is_torn_at_its_first_byte() {
        for length in 0..START {
            for zeros in [0, 1, START - length, 100_000] {
                let file = [&start()[..length], &vec![0; zeros]].concat();
                let mut frames = Frames::new(&file[..]).unwrap();
                let is_begun = file.starts_with(&start());
                let found = if file.len() == START && is_begun { Found::End } else { Found::Torn };
                assert_eq!(frames.find().unwrap(), found, "{length} bytes and {zeros} zeros");
                assert_eq!(frames.offset(), if is_begun { START as u64 } else { 0 });
            }
        }
    }

    #[test]
    fn whatever_is_changed_is_found_with_its_place() {
        let whole = file(&[b"the first frame", b"the second frame"]);
        let second = file(&[b"the first frame"]).len();
        for at in START..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                let (all, end) = read(&changed);
                let error = end.expect_err("a changed bit");
                let frame = if at < second { START } else { second };
                assert_eq!((error.offset, all.len()), (frame as u64, usize::from(at >= second)), "{error}");
            }
        }
    }

    #[test]
    fn foreign_files_and_other_versions_are_named() {
        for (file, said) in [
            (&b"numarek"[..], "not a recording"),
            (b"num\0rec", "not a recording"),
            (b"\0numarec\n\x01\0\0\0", "not a recording"),
            (b"numarec\n\x07", "not a recording"),
            (b"{\"schemaVersion\":1}", "not a recording"),
            ([vec![0; 70_000], b"x".to_vec()].concat().as_slice(), "not a recording"),
            (b"numarec\n\x07\0\0\0", "it has version 7 of recordings, and this program reads version 1"),
        ] {
            let error = read(file).1.unwrap_err();
            assert!(error.to_string().starts_with("at byte 0: "), "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
    }

    /// A frame that says this of itself, with checksums that fit.
    fn forged(stored: &[u8], says: u32, plain: u32) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(says.to_le_bytes());
        frame.extend(plain.to_le_bytes());
        frame.extend(crc32fast::hash(stored).to_le_bytes());
        frame.extend(crc32fast::hash(&frame).to_le_bytes());
        [&start()[..], &frame, stored].concat()
    }

    #[test]
    fn bombs_are_not_inflated_beyond_what_they_say_nor_beyond_the_limit() {
        let bomb = compress_to_vec(&vec![0; 8 << 20], 9);
        let length = u32::try_from(bomb.len()).unwrap();
        assert!(length < 10_000, "{length}");
        for plain in [0, 100, (8 << 20) - 1] {
            let error = read(&forged(&bomb, length, plain)).1.unwrap_err();
            assert!(matches!(error.problem, RecordingProblem::Inflate(_)), "{error}");
        }
        for (stored, plain) in [(u32::MAX, 1), (1, u32::MAX), (length, 1 << 30)] {
            let error = read(&forged(&bomb, stored, plain)).1.unwrap_err();
            assert!(matches!(error.problem, RecordingProblem::TooLarge(_)), "{error}");
        }
        assert_eq!(read(&forged(&bomb, 30 << 20, 1)).1.unwrap(), Found::Torn, "and nothing was set aside");
    }

    #[test]
    fn a_turn_that_is_too_large_is_no_frame() {
        assert_eq!(encode(&vec![0; PLAIN_LIMIT + 1]), None);
        let frame = encode(&vec![0; PLAIN_LIMIT]).unwrap();
        assert_eq!(read(&[&start()[..], &frame].concat()).0[0].len(), PLAIN_LIMIT);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200), forge in any::<bool>()) {
            let file = if forge {
                forged(&bytes, u32::try_from(bytes.len()).unwrap(), 100)
            } else {
                [&start()[..], &bytes].concat()
            };
            let _ = read(&file);
        }
    }
}
