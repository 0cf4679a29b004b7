//! What a file that was set aside has in it, so that its remedy can be named.
//!
//! A file is set aside as soon as one of its lines cannot be read. If a daemon of an older version did so,
//! the lines are whole, and the version that wrote them restores what they say.

use std::{io::BufReader, path::Path};

use super::{
    files,
    lines::OF_NEWER,
    reading::{self, Fold, LogBounds},
    record::Record,
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

/// Records of any log, which are not kept.
#[derive(Debug, Default)]
struct Unfolded;

impl Fold for Unfolded {
    fn take(&mut self, _record: Record) -> Option<Record> {
        None
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        std::iter::empty()
    }
}

impl KeptLines {
    /// Reads a file that was set aside.
    pub fn of(path: &Path) -> Self {
        let Ok(Some(file)) = files::reader(path) else { return Self::Damaged };
        match reading::read::<Unfolded>(path, BufReader::new(file), true, LogBounds::default()) {
            Ok(found) if found.damaged.is_empty() => Self::Readable,
            Ok(found) if found.damaged.iter().all(|line| line.contains(OF_NEWER)) => Self::Newer,
            _ => Self::Damaged,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{super::lines::sealed, *};

    #[test]
    fn lines_of_a_newer_version_are_told_from_damaged_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.damaged");
        let readable = sealed(r#"{"version":5,"record":"over","cgroup":"/a"}"#);
        let newer = sealed(r#"{"version":6,"record":"unheard-of"}"#);
        let damaged = readable.replace("/a", "/b");
        for (text, expected) in [
            (readable.clone(), KeptLines::Readable),
            (format!("{readable}{newer}"), KeptLines::Newer),
            (format!("\n{newer}\n{readable}"), KeptLines::Newer),
            (damaged.clone(), KeptLines::Damaged),
            (format!("{newer}{damaged}"), KeptLines::Damaged),
            (newer.replace("unheard-of", "cut"), KeptLines::Damaged),
            ("rubbish\n".to_owned(), KeptLines::Damaged),
        ] {
            fs::write(&path, &text).unwrap();
            assert_eq!(KeptLines::of(&path), expected, "{text}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(KeptLines::of(&path), KeptLines::Damaged, "absent");
        fs::create_dir(&path).unwrap();
        assert_eq!(KeptLines::of(&path), KeptLines::Damaged, "a directory");
    }
}
