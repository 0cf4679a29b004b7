//! The format of a recording: gzip members (RFC 1952), one for each turn, so that `zcat FILE | jq` reads it.
//!
//! The header of each member names the format and its version in its comment, and its own size in an extra
//! field (`NE`, a little-endian u32). By that size one member is found after another without inflating any,
//! and a changed member is not taken for a *torn* one: its end is missing, as after a crash.
//! A file that lost power has zeros from anywhere in a member up to the end of the file, because it had the
//! length before the bytes: that is torn too. Zeros with anything else behind them are damage, and so is a
//! zero or two at the end of a file, as any change may leave them.
//!
//! Memory is bounded whatever the file says: what is read grows with what is there, and what is inflated
//! stops at [`PLAIN_LIMIT`].

use std::{
    io::{self, Read, Write},
    ops::Range,
};

use flate2::{Compression, GzBuilder, bufread::GzDecoder};
use thiserror::Error;

/// Version of the format, and of the parts in it.
pub const VERSION: u32 = 2;

/// What a recording of version 1 begins with: frames of an own making.
const FIRST_VERSION: &[u8] = b"numarec\n";

/// What each frame begins with, but for its size.
const HEAD: &[u8; 46] = b"\x1f\x8b\x08\x14\0\0\0\0\0\xff\x08\0NE\x04\0\0\0\0\0numa-enforcer recording 2\0";

/// Where the size of a frame is, in bytes from its beginning.
pub const SIZE: Range<usize> = 16..20;

/// Bytes of a frame before compression; a turn with more is not recorded.
pub const PLAIN_LIMIT: usize = 32 << 20;

/// Bytes of a frame: what does not get smaller gets a little larger.
const STORED_LIMIT: usize = PLAIN_LIMIT + (PLAIN_LIMIT >> 4);

/// Zeros at the end that no frame has by chance, and that no change of it leaves.
const LOST: u64 = 16;
/// Where a member says how many bytes were in it, from its end (RFC 1952); a sound frame has zeros there.
const PLAIN_SIZE: usize = 4;
/// What a disk writes as a whole; zeros from the beginning of one are lost, however few.
const SECTOR: u64 = 512;
/// More than this nothing that is written as one file loses: it never ends, as a device does.
const MOST_LOST: u64 = 1 << 30;

/// Deflate's level: three quarters of what the best one saves, in a fifth of the time.
const LEVEL: u32 = 3;

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
    /// A frame was changed or lost.
    #[error("the frame is damaged: {0}")]
    Damaged(&'static str),
    /// A frame would be larger than any that is written.
    #[error("a frame of {0} bytes; there are {STORED_LIMIT} at most")]
    TooLarge(u32),
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
    Impossible(#[from] enforcer_core::replay::InvalidTurnInput),
}

/// The frame with this payload; `None` where it is too large.
pub fn encode(plain: &[u8]) -> Option<Vec<u8>> {
    if plain.len() > PLAIN_LIMIT {
        return None;
    }
    let (extra, comment) = (HEAD.get(12..SIZE.end)?, HEAD.get(SIZE.end..HEAD.len() - 1)?);
    let builder = GzBuilder::new().extra(extra).comment(comment);
    let mut member = builder.write(Vec::new(), Compression::new(LEVEL));
    member.write_all(plain).ok()?;
    let mut frame = member.finish().ok()?;
    let size = u32::try_from(frame.len()).ok()?;
    frame.get_mut(SIZE)?.copy_from_slice(&size.to_le_bytes());
    Some(frame)
}

/// One step through a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameStep<Frame> {
    /// A frame.
    Frame(Frame),
    /// Nothing further.
    End,
    /// A frame that was begun and not finished.
    Torn,
}

/// The frames of a recording, one after another.
#[derive(Debug)]
pub struct FrameReader<R> {
    source: R,
    /// Where the frame begins that was found last.
    offset: u64,
    /// Where the next one begins.
    next: u64,
    frame: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// Reads from the frame on that begins at `offset` of the file, which is where `source` is.
    pub fn at(offset: u64, source: R) -> Self {
        Self { source, offset, next: offset, frame: Vec::new() }
    }

    /// Where the frame, or the end, that was found last begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The same, of an error.
    pub(super) fn failed(&self, problem: impl Into<RecordingProblem>) -> RecordingError {
        RecordingError { offset: self.offset, problem: problem.into() }
    }

    /// The next frame, inflated. After anything but a frame there is no further one.
    pub fn read(&mut self) -> Result<FrameStep<Vec<u8>>, RecordingError> {
        match self.skip()? {
            FrameStep::Frame(()) => {}
            FrameStep::End => return Ok(FrameStep::End),
            FrameStep::Torn => return Ok(FrameStep::Torn),
        }
        match inflate(&self.frame).map(|(plain, behind)| (plain, behind.is_empty())) {
            Ok((plain, true)) => Ok(FrameStep::Frame(plain)),
            Ok((_, false)) => Err(self.failed(RecordingProblem::Damaged("its size was changed"))),
            Err(_) if self.is_lost()? => Ok(FrameStep::Torn),
            Err(why) => Err(self.failed(RecordingProblem::Damaged(why))),
        }
    }

    /// The same, but looks no further than at where the frame begins and ends.
    pub fn skip(&mut self) -> Result<FrameStep<()>, RecordingError> {
        self.offset = self.next;
        self.frame.clear();
        self.read_up_to(HEAD.len())?;
        if self.frame.is_empty() {
            return Ok(FrameStep::End);
        }
        let Some(size) = size(&self.frame) else {
            let written = self.frame.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let is_begun = is_beginning(&self.frame[..written]);
            if is_begun && zeros(&mut self.source).map_err(|error| self.failed(error))?.is_some() {
                return Ok(FrameStep::Torn);
            }
            return Err(self.failed(foreign(&self.frame, self.offset)));
        };
        if size as usize > STORED_LIMIT {
            return Err(self.failed(RecordingProblem::TooLarge(size)));
        }
        self.read_up_to(size as usize)?;
        if self.frame.len() < size as usize {
            return match inflate(&self.frame) {
                Ok(_) => Err(self.failed(RecordingProblem::Damaged("its size was changed"))),
                Err(_) => Ok(FrameStep::Torn),
            };
        }
        self.next = self.offset + self.frame.len() as u64;
        Ok(FrameStep::Frame(()))
    }

    /// Is the frame that was read last, and that cannot be inflated, one of which zeros were left up to the
    /// end of the file?
    fn is_lost(&mut self) -> Result<bool, RecordingError> {
        let within = self.frame.iter().rev().take_while(|byte| **byte == 0).count() as u64;
        let behind = zeros(&mut self.source).map_err(|error| self.failed(error))?;
        let end = self.next + behind.unwrap_or_default();
        let lost = behind.map_or(0, |behind| within + behind);
        let last_sector = end.saturating_sub(1) / SECTOR * SECTOR;
        let is_loss = within > 0 && (lost >= LOST || last_sector >= end - lost);
        Ok(is_loss && (lost >= PLAIN_SIZE as u64 || self.is_whole_but_for_its_plain_size()))
    }

    /// Is nothing of the frame that was read last wrong but the count of its bytes before compression?
    fn is_whole_but_for_its_plain_size(&self) -> bool {
        let mut frame = self.frame.clone();
        let mut plain = Vec::new();
        let read = GzDecoder::new(&frame[..]).take(PLAIN_LIMIT as u64).read_to_end(&mut plain);
        let (Err(_), Ok(size)) = (read, u32::try_from(plain.len())) else { return false };
        let Some(said) = frame.last_chunk_mut::<PLAIN_SIZE>() else { return false };
        *said = size.to_le_bytes();
        inflate(&frame).is_ok()
    }

    /// Reads on until there are so many bytes of the frame, or as many as there are.
    fn read_up_to(&mut self, bytes: usize) -> Result<(), RecordingError> {
        let more = bytes.saturating_sub(self.frame.len()) as u64;
        let read = self.source.by_ref().take(more).read_to_end(&mut self.frame);
        read.map(drop).map_err(|error| self.failed(error))
    }
}

/// Can a frame begin so, as far as this goes?
fn is_beginning(bytes: &[u8]) -> bool {
    let fits = |(at, (byte, expected)): (usize, (&u8, &u8))| byte == expected || SIZE.contains(&at);
    bytes.len() <= HEAD.len() && bytes.iter().zip(HEAD).enumerate().all(fits)
}

/// What a whole header says of the size of its frame.
fn size(header: &[u8]) -> Option<u32> {
    let bytes = header.get(SIZE)?.first_chunk()?;
    (header.len() == HEAD.len() && is_beginning(header)).then(|| u32::from_le_bytes(*bytes))
}

/// What it is that begins with these bytes, which no frame does.
fn foreign(bytes: &[u8], offset: u64) -> RecordingProblem {
    let mark = &HEAD[SIZE.end..HEAD.len() - 2];
    let version = bytes.get(SIZE.end..).and_then(|comment| comment.strip_prefix(mark));
    let digits = version.and_then(|version| version.split(|byte| !byte.is_ascii_digit()).next());
    let number = digits.and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
    match number.filter(|number| *number != VERSION) {
        Some(number) => RecordingProblem::Version(number),
        None if bytes.starts_with(FIRST_VERSION) => RecordingProblem::Version(1),
        None if offset == 0 => RecordingProblem::Foreign,
        None => RecordingProblem::Damaged("something else begins here"),
    }
}

/// The payload of the member at the beginning of these bytes, and what is behind it.
fn inflate(mut bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), &'static str> {
    let mut plain = Vec::new();
    let member = GzDecoder::new(&mut bytes);
    let read = member.take(PLAIN_LIMIT as u64 + 1).read_to_end(&mut plain);
    read.map_err(|_damage| "it cannot be inflated, or its checksum does not fit")?;
    if plain.len() > PLAIN_LIMIT { Err("it is larger than any that is written") } else { Ok((plain, bytes)) }
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
    use flate2::Crc;
    use proptest::prelude::*;

    use super::*;

    fn file(frames: &[&[u8]]) -> Vec<u8> {
        frames.iter().flat_map(|plain| encode(plain).unwrap()).collect()
    }

    type End = Result<FrameStep<Vec<u8>>, RecordingError>;

    /// All frames, and what the recording ends with.
    fn read(file: &[u8]) -> (Vec<Vec<u8>>, End) {
        let (mut all, mut frames) = (Vec::new(), FrameReader::at(0, file));
        loop {
            match frames.read() {
                Ok(FrameStep::Frame(plain)) => all.push(plain),
                end => return (all, end),
            }
        }
    }

    #[test]
    fn frames_come_back_as_they_were() {
        let long = vec![b'x'; 100_000];
        let (all, end) = read(&file(&[b"one", b"", &long]));
        assert_eq!(all, [b"one".to_vec(), Vec::new(), long]);
        assert_eq!(end.unwrap(), FrameStep::End);
        assert_eq!(read(&file(&[])).1.unwrap(), FrameStep::End);
    }

    #[test]
    fn a_file_that_ends_early_gives_what_is_whole() {
        let whole = file(&[b"one", b"two"]);
        let first = file(&[b"one"]).len();
        for length in 0..whole.len() {
            let (all, end) = read(&whole[..length]);
            let at_an_end = length == 0 || length == first;
            assert_eq!(all.len(), usize::from(length >= first), "{length}");
            assert_eq!(end.unwrap(), if at_an_end { FrameStep::End } else { FrameStep::Torn }, "{length}");
        }
        let zeros = [whole.clone(), vec![0; 100]].concat();
        assert_eq!(read(&zeros).1.unwrap(), FrameStep::Torn, "as a file system leaves it that lost power");
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
                    let is_a_loss = zeros >= 16 || (lost.len() - 1) / 512 * 512 >= left;
                    assert_eq!(matches!(end, Ok(FrameStep::Torn)), is_a_loss, "{said}");
                    assert_eq!(all.len(), usize::from(!is_lost(from, second)), "{said}");
                } else {
                    assert_eq!((all.len(), end.unwrap() == FrameStep::End), (2, behind == 0), "{said}");
                }
                let more = [&lost, &b"longer than a header of a frame"[..]].concat();
                assert!(read(&more).1.is_err(), "{said} and then something else");
            }
        }
    }

    /// It does not get smaller.
    fn noise(length: usize) -> Vec<u8> {
        let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        std::iter::successors(Some(7), next).map(|state| state.to_le_bytes()[3]).take(length).collect()
    }

    #[test]
    fn zeros_that_a_sound_frame_has_in_its_last_sector_hide_no_damage() {
        let frames = (300..2_000).map(|length| encode(&noise(length)).unwrap());
        let mut tried = 0;
        for frame in frames.filter(|frame| (1..4).contains(&(frame.len() % 512))) {
            assert_eq!(frame[frame.len() - 2..], [0, 0], "the high bytes of its size before compression");
            for at in (HEAD.len()..frame.len() - 8).step_by(29) {
                let mut changed = frame.clone();
                changed[at] ^= 4;
                let (all, end) = read(&changed);
                assert!(end.is_err() && all.is_empty(), "{} bytes, changed at {at}: {end:?}", frame.len());
                tried += 1;
            }
        }
        assert!(tried > 100, "{tried}");
    }

    #[test]
    fn a_lost_sector_with_nothing_but_the_high_bytes_of_a_size_is_torn() {
        let mut frames = (66_000..67_000).map(|length| encode(&noise(length)).unwrap());
        let mut frame = frames.find(|frame| frame.len() % 512 == 3).unwrap();
        let sector = frame.len() - 3;
        assert!(frame[sector..].iter().any(|byte| *byte != 0));
        frame[sector..].fill(0);
        assert_eq!(read(&frame).1.unwrap(), FrameStep::Torn);
    }

    #[test]
    fn a_file_that_was_not_even_begun_is_torn_at_its_first_byte() {
        let frame = encode(b"the first frame").unwrap();
        for length in 0..HEAD.len() {
            for zeros in [0, 1, HEAD.len() - length, 100_000] {
                let file = [&frame[..length], &vec![0; zeros]].concat();
                let (all, end) = read(&file);
                let expected = if file.is_empty() { FrameStep::End } else { FrameStep::Torn };
                assert_eq!((all.len(), end.unwrap()), (0, expected), "{length} bytes and {zeros} zeros");
            }
        }
    }

    #[test]
    fn whatever_is_changed_is_found_with_its_place() {
        let whole = file(&[b"the first frame", b"the second frame"]);
        let second = file(&[b"the first frame"]).len();
        let mut filling = 0;
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                let (all, end) = read(&changed);
                let error = match end {
                    Err(error) => error,
                    // A deflate stream ends with bits that fill its last byte and mean nothing.
                    end => {
                        assert_eq!(read(&whole).0, all, "{end:?}");
                        filling += 1;
                        continue;
                    }
                };
                let frame = if at < second { 0 } else { second };
                assert_eq!((error.offset, all.len()), (frame as u64, usize::from(at >= second)), "{error}");
            }
        }
        assert!(filling < 16, "{filling} bits of two frames");
    }

    #[test]
    fn a_frame_is_a_gzip_member_that_names_its_format_and_size() {
        let frame = encode(b"{}\n").unwrap();
        assert_eq!(size(&frame[..HEAD.len()]).map(|size| size as usize), Some(frame.len()));
        let mut plain = String::new();
        let both = [&frame[..], &frame].concat();
        flate2::read::MultiGzDecoder::new(&both[..]).read_to_string(&mut plain).unwrap();
        assert_eq!(plain, "{}\n{}\n");
    }

    #[test]
    fn foreign_files_and_other_versions_are_named() {
        let of_version = |version: &str| {
            [&HEAD[..HEAD.len() - 2], version.as_bytes(), b"\0 and what is behind it"].concat()
        };
        let gzip = GzBuilder::new().write(Vec::new(), Compression::fast()).finish().unwrap();
        for (file, said) in [
            (&b"numarek"[..], "not a recording"),
            (b"\0\x1f\x8b", "not a recording"),
            (&gzip, "not a recording"),
            (b"{\"schemaVersion\":1}", "not a recording"),
            ([vec![0; 70_000], b"x".to_vec()].concat().as_slice(), "not a recording"),
            (b"numarec\n\x01\0\0\0", "it has version 1 of recordings, and this program reads version 2"),
            (&of_version("7"), "it has version 7 of recordings, and this program reads version 2"),
            (&of_version("31"), "it has version 31 of recordings"),
        ] {
            let error = read(file).1.unwrap_err();
            assert!(error.to_string().starts_with("at byte 0: "), "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
        let behind = [encode(b"{}").unwrap(), of_version("3")].concat();
        assert!(matches!(read(&behind).1.unwrap_err().problem, RecordingProblem::Version(3)));
    }

    /// A frame that says so of its size, with a member of this payload.
    fn forged(plain: &[u8], size: u32) -> Vec<u8> {
        let extra = [&HEAD[12..SIZE.start], &size.to_le_bytes()].concat();
        let builder = GzBuilder::new().extra(extra).comment(&HEAD[SIZE.end..HEAD.len() - 1]);
        let mut member = builder.write(Vec::new(), Compression::new(8));
        member.write_all(plain).unwrap();
        member.finish().unwrap()
    }

    #[test]
    fn bombs_are_not_inflated_beyond_the_limit_and_no_size_is_believed() {
        let zeros = vec![0; PLAIN_LIMIT + 1];
        let size = u32::try_from(forged(&zeros, 0).len()).unwrap();
        assert!(size < 100_000, "{size}");
        let problem = |file: &[u8]| read(file).1.unwrap_err().problem.to_string();
        assert!(problem(&forged(&zeros, size)).contains("larger than any that is written"));
        let honest = &zeros[..8 << 20];
        let length = u32::try_from(forged(honest, 0).len()).unwrap();
        for wrong in [0, 45, 46, length - 1, length + 1, 30 << 20] {
            let said = problem(&forged(honest, wrong));
            assert!(said.starts_with("the frame is damaged: "), "{wrong}: {said}");
        }
        assert!(problem(&forged(honest, u32::MAX)).contains("there are"));
        let begun = &forged(honest, 30 << 20)[..1_000];
        assert_eq!(read(begun).1.unwrap(), FrameStep::Torn, "and nothing was set aside");
    }

    #[test]
    fn a_turn_that_is_too_large_is_no_frame() {
        assert_eq!(encode(&vec![0; PLAIN_LIMIT + 1]), None);
        assert_eq!(read(&encode(&vec![0; PLAIN_LIMIT]).unwrap()).0[0].len(), PLAIN_LIMIT);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200), forge in any::<bool>()) {
            let mut file = [&HEAD[..], &bytes].concat();
            if forge {
                let mut sum = Crc::new();
                sum.update(&bytes);
                file.extend([sum.sum().to_le_bytes(), sum.amount().to_le_bytes()].concat());
                let size = u32::try_from(file.len()).unwrap();
                file[SIZE].copy_from_slice(&size.to_le_bytes());
            }
            let _ = (read(&file), read(&bytes));
        }
    }
}
