//! What daemons in guests have recorded, on its way to this host.
//!
//! A guest has no disk that this host reads, and prints whatever it has to say. So a scenario prints its recording in hexadecimal, line by line
//! (`recording: HEX`), and here the lines become a file again. They are not shown.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

/// What such a line begins with.
const MARK: &str = "recording: ";

/// The lines of one scenario.
#[derive(Debug, Default)]
pub(super) struct Collected {
    bytes: Vec<u8>,
    damaged: bool,
}

impl Collected {
    /// Takes a line, if it is one of these.
    pub(super) fn take(&mut self, line: &str) -> bool {
        let Some(hex) = line.strip_prefix(MARK) else { return false };
        let byte = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(text, 16).ok()
        };
        match hex.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>() {
            Some(bytes) => self.bytes.extend(bytes),
            None => self.damaged = true,
        }
        true
    }

    /// Writes the file of a play; returns what is to be said of it.
    pub(super) fn write(&self, folder: &Path, play: &str) -> Result<String> {
        ensure!(!self.damaged, "a line of it came damaged");
        ensure!(!self.bytes.is_empty(), "it printed none");
        let name: String =
            play.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
        let path = folder.join(format!("{name}.rec"));
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, &self.bytes))
            .with_context(|| format!("write {}", path.display()))?;
        Ok(format!("recorded {} bytes to {}", self.bytes.len(), path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_the_file_again() {
        let mut collected = Collected::default();
        assert!(!collected.take("verdict: ok"));
        assert!(collected.take("recording: 00ff"));
        assert!(collected.take("recording: 7f"));
        let dir = tempfile::tempdir().unwrap();
        collected.write(dir.path(), "correct-enforce (6.1)").unwrap();
        assert_eq!(fs::read(dir.path().join("correct-enforce--6.1-.rec")).unwrap(), [0, 255, 127]);
    }

    #[test]
    fn what_came_damaged_is_no_file() {
        for line in ["recording: 0", "recording: xx", "recording: 00f\u{fffd}"] {
            let mut collected = Collected::default();
            assert!(collected.take(line));
            assert!(collected.write(Path::new("/nowhere"), "x").is_err(), "{line}");
        }
        assert!(Collected::default().write(Path::new("/nowhere"), "x").is_err());
    }
}
