//! What daemons in guests have recorded, and the latest audit of a scenario, on their way to this host.
//!
//! A guest has no disk that this host reads, and prints whatever it has to say. So a scenario prints both in
//! hexadecimal, line by line (`recording: HEX`, `audited: HEX`), and here the lines become files again. They
//! are not shown.
//!
//! It prints no more of a recording than is kept with the tests, so that may end in the middle of a turn;
//! that one is left out. Several daemons of one scenario are one behind the other in one file.

use std::{fs, ops::Range, path::Path};

use anyhow::{Context, Result, ensure};

/// What such lines begin with.
const RECORDING: &str = "recording: ";
const AUDITED: &str = "audited: ";

/// Where a turn says how many bytes it has, counted from its beginning.
const SIZE: Range<usize> = 16..20;

/// The lines of one scenario.
#[derive(Debug, Default)]
pub(super) struct Collected {
    recording: Vec<u8>,
    audit: Vec<u8>,
    damaged: bool,
}

impl Collected {
    /// Takes a line, if it is one of these.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let (hex, to) = if let Some(hex) = line.strip_prefix(RECORDING) {
            (hex, &mut self.recording)
        } else if let Some(hex) = line.strip_prefix(AUDITED) {
            (hex, &mut self.audit)
        } else {
            return false;
        };
        let byte = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(text, 16).ok()
        };
        match hex.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>() {
            Some(bytes) => to.extend(bytes),
            None => self.damaged = true,
        }
        true
    }

    /// Writes the files of a play, of what there is; returns what is to be said of them.
    pub(super) fn write(&self, folder: &Path, play: &str) -> Result<String> {
        ensure!(!self.damaged, "a line of it came damaged");
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '@');
        let name: String = play.chars().map(|c| if known(c) { c } else { '-' }).collect();
        let files = [("rec", whole_turns(&self.recording)), ("json", self.audit.as_slice())];
        let mut said = Vec::new();
        for (end, bytes) in files.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let path = folder.join(format!("{name}.{end}"));
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(&path, bytes))
                .with_context(|| format!("write {}", path.display()))?;
            said.push(format!("{} bytes in {}", bytes.len(), path.display()));
        }
        Ok(if said.is_empty() { "no daemon recorded a turn".to_owned() } else { said.join(", ") })
    }
}

/// A recording up to the end of its last whole turn (docs/replay.md); nothing where it has none.
fn whole_turns(bytes: &[u8]) -> &[u8] {
    let mut end = 0;
    while let Some(size) = bytes.get(end..).and_then(|turn| turn.get(SIZE)?.first_chunk()) {
        let next = end + u32::from_le_bytes(*size) as usize;
        if next > bytes.len() || next == end {
            break;
        }
        end = next;
    }
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a turn.
    const TURN: u32 = 23;

    /// Two turns.
    fn recording() -> Vec<u8> {
        [&[1; SIZE.start][..], &TURN.to_le_bytes(), b"abc"].concat().repeat(2)
    }

    fn line(mark: &str, bytes: &[u8]) -> String {
        bytes.iter().fold(mark.to_owned(), |line, byte| format!("{line}{byte:02x}"))
    }

    #[test]
    fn lines_become_the_file_again() {
        let mut collected = Collected::default();
        let (recording, dir) = (recording(), tempfile::tempdir().unwrap());
        assert!(!collected.take("verdict: ok"));
        let said = collected.write(dir.path(), "rig-hog").unwrap();
        assert_eq!(
            (said.as_str(), fs::read_dir(dir.path()).unwrap().count()),
            ("no daemon recorded a turn", 0)
        );
        let (one, other) = recording.split_at(20);
        assert!(collected.take(&line(RECORDING, one)) && collected.take(&line(AUDITED, b"{}")));
        assert!(collected.take(&line(RECORDING, other)));
        collected.write(dir.path(), "eyes-moves@6.1 (x)").unwrap();
        assert_eq!(fs::read(dir.path().join("eyes-moves@6.1--x-.rec")).unwrap(), recording);
        assert_eq!(fs::read(dir.path().join("eyes-moves@6.1--x-.json")).unwrap(), b"{}");
    }

    #[test]
    fn a_turn_that_is_not_whole_is_left_out() {
        let recording = recording();
        let first = TURN as usize;
        for length in 0..=recording.len() {
            let whole = [0, first, recording.len()].into_iter().filter(|end| *end <= length).max().unwrap();
            assert_eq!(whole_turns(&recording[..length]), &recording[..whole], "{length}");
        }
        let zeros = [&recording[..], &[0; 100]].concat();
        assert_eq!(whole_turns(&zeros), recording, "as a crash may leave it");
    }

    #[test]
    fn what_came_damaged_is_no_file() {
        for line in ["recording: 0", "audited: xx", "recording: 00f\u{fffd}"] {
            let mut collected = Collected::default();
            assert!(collected.take(line));
            assert!(collected.write(Path::new("/nowhere"), "x").is_err(), "{line}");
        }
    }
}
