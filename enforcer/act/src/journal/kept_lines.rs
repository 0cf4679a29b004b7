//! What a file that was set aside has in it, so that its remedy can be named.
//!
//! A file is set aside as soon as one of its lines cannot be read. If a daemon of an older version did so,
//! the lines are whole, and the version that wrote them restores what they say.

use std::{io::BufReader, path::Path};

use super::{
    brake_record::BRAKES,
    files,
    log::LogKind,
    making_record::{MAKING, PendingContainers},
    originals::{JOURNAL, Originals},
    pins_record::{PINS, PinsByCgroup},
    reading::{self, Fold, LogBounds},
    record::RecordedBrake,
};

/// Lines of a file that was set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptLines {
    /// This version reads all of them.
    Readable,
    /// This version reads all but those of a newer version, and these are whole.
    Newer,
    /// At least one is damaged, or the file cannot be read.
    Damaged,
}

impl KeptLines {
    /// Reads a file that was set aside, as its log is read.
    pub fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // `journal` of `journal.damaged.2`.
        match name.split('.').next().unwrap_or_default() {
            name if name == MAKING.name => Self::of_log::<PendingContainers>(path, &MAKING),
            name if name == PINS.name => Self::of_log::<PinsByCgroup>(path, &PINS),
            name if name == BRAKES.name => Self::of_log::<Vec<RecordedBrake>>(path, &BRAKES),
            _ => Self::of_log::<Originals>(path, &JOURNAL),
        }
    }

    fn of_log<F: Fold>(path: &Path, kind: &LogKind) -> Self {
        let Ok(Some(file)) = files::reader(path) else { return Self::Damaged };
        match reading::read::<F>(path, BufReader::new(file), kind.is_shared, LogBounds::default()) {
            Ok(found) if found.damaged.is_empty() => Self::Readable,
            Ok(found) if found.is_newer => Self::Newer,
            _ => Self::Damaged,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{super::lines::sealed, *};

    const NEWER: &str = r#"{"version":6,"record":"unheard-of"}"#;

    #[test]
    fn lines_of_a_newer_version_are_told_from_damaged_ones() {
        let dir = tempfile::tempdir().unwrap();
        let newer = sealed(NEWER);
        for (name, line) in [
            ("journal", r#"{"version":5,"record":"released","id":"/a"}"#),
            ("making", r#"{"version":5,"record":"over","cgroup":"/a"}"#),
            ("brakes", r#"{"version":5,"record":"released","id":7}"#),
        ] {
            let path = dir.path().join(format!("{name}.damaged.2"));
            let is_shared = name != "journal";
            let readable = sealed(line);
            let damaged = readable.replacen("version", "versions", 1);
            let in_shared = |kept| if is_shared { kept } else { KeptLines::Damaged };
            for (text, expected) in [
                (readable.clone(), KeptLines::Readable),
                (format!("{readable}{newer}"), KeptLines::Newer),
                (format!("{readable}{}", newer.repeat(200)), KeptLines::Newer),
                (format!("\n{newer}\n{readable}"), in_shared(KeptLines::Newer)),
                (format!("\n{readable}"), in_shared(KeptLines::Readable)),
                (format!("{}\n{readable}", &readable[..20]), in_shared(KeptLines::Readable)),
                (damaged.clone(), KeptLines::Damaged),
                (format!("{newer}{damaged}"), KeptLines::Damaged),
                (format!("{}{damaged}", newer.repeat(200)), KeptLines::Damaged),
                (newer.replace("unheard-of", "cut"), KeptLines::Damaged),
                (format!("{NEWER}\n"), KeptLines::Damaged),
                (
                    sealed(r#"{"version":5,"record":"paused","sinceUnixMs":1,"untilUnixMs":null}"#),
                    KeptLines::Damaged,
                ),
                ("rubbish\n".to_owned(), KeptLines::Damaged),
            ] {
                fs::write(&path, &text).unwrap();
                assert_eq!(KeptLines::of(&path), expected, "{name}: {text}");
            }
            fs::remove_file(&path).unwrap();
            assert_eq!(KeptLines::of(&path), KeptLines::Damaged, "absent");
            fs::create_dir(&path).unwrap();
            assert_eq!(KeptLines::of(&path), KeptLines::Damaged, "a directory");
        }
    }
}
