//! Replaces a file that other programs read at any time: readers see the old text or the new one as a whole.
//!
//! `node_exporter` reads its folder of text files at each scrape. The new text is written beside the file,
//! under a name that neither it nor a glob for `*.prom` matches, and renamed over it. The new file keeps the
//! rights of the old one. Other writers of the folder are outside of this module's control. A path that is
//! not a regular file, such as `/dev/stdout`, is refused.
//!
//! Two other modules replace files under other promises, so they share only the rename. The journal
//! (`act/src/journal/files.rs`) is private to the daemon, appended to, and durable with its folder. The
//! resource files of containers (`act/src/exposed.rs`) must not wait for a disk. Here the old or the new text
//! survives a crash, and the umask sets the rights of a new file, unless all have to read it.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    process,
};

use enforcer_host::file_error::{FileError, failed};

/// Mode of a new file: the exporter runs as another user.
const MODE: u32 = 0o644;

/// Puts this text where `path` is.
pub(crate) fn replace(path: &Path, text: &[u8]) -> Result<(), FileError> {
    put(path, text, None)
}

/// The same, for a file that every user reads, whatever the umask and the rights of the old one.
pub(crate) fn replace_for_all(path: &Path, text: &[u8]) -> Result<(), FileError> {
    put(path, text, Some(Permissions::from_mode(MODE)))
}

fn put(path: &Path, text: &[u8], wanted: Option<Permissions>) -> Result<(), FileError> {
    let fresh = beside(path).ok_or_else(|| failed("writing", path)(io::ErrorKind::InvalidFilename.into()))?;
    let before = wanted.or(before(path).map_err(failed("writing", path))?);
    let written = write(&fresh, text, before)
        .and_then(|()| fs::rename(&fresh, path).map_err(failed("renaming to", path)));
    if written.is_err() {
        // There is nothing, or half of it; either way the error is the one before.
        let _half = fs::remove_file(&fresh);
    }
    written
}

/// Rights of the present file.
fn before(path: &Path) -> io::Result<Option<Permissions>> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => Ok(Some(Permissions::from_mode(there.permissions().mode() & 0o777))),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(fresh: &Path, text: &[u8], permissions: Option<Permissions>) -> Result<(), FileError> {
    // Left by a process of the same number that was killed.
    match fs::remove_file(fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("removing", fresh)(error));
        }
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(fresh)
        .map_err(failed("creating", fresh))?;
    permissions
        .map_or(Ok(()), |permissions| file.set_permissions(permissions))
        .and_then(|()| file.write_all(text))
        .and_then(|()| file.sync_all())
        .map_err(failed("writing", fresh))
}

/// `.numa-enforcer.PID.SUM` in the same folder; `None` of what is no name of a file. A name may be as long as
/// any of the folder, so only its checksum is in it: processes of one number, each in a container of its own,
/// may write several files there.
fn beside(path: &Path) -> Option<PathBuf> {
    let sum = crc32fast::hash(path.file_name()?.as_bytes());
    Some(path.with_file_name(format!(".numa-enforcer.{}.{sum:08x}", process::id())))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn names(dir: &Path) -> Vec<OsString> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn the_new_text_replaces_the_old_one_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("numa.prom");
        for text in ["a long first text\n", "short\n"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(names(dir.path()), ["numa.prom"]);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        replace(&path, b"secret").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_longest_name_that_a_folder_takes_is_replaced_too() {
        let dir = tempfile::tempdir().unwrap();
        for length in [1, 250, 255] {
            let path = dir.path().join("n".repeat(length));
            replace(&path, b"x").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"x");
        }
        assert_eq!(names(dir.path()).len(), 3);
    }

    #[test]
    fn what_cannot_be_written_is_said_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::NamedTempFile::new().unwrap();
        let taken = dir.path().join("numa.prom");
        let make: [&dyn Fn(); 3] = [
            &|| fs::create_dir(&taken).unwrap(),
            &|| std::os::unix::fs::symlink(other.path(), &taken).unwrap(),
            &|| rustix::fs::mkfifoat(rustix::fs::CWD, &taken, rustix::fs::Mode::RUSR).unwrap(),
        ];
        for make in make {
            make();
            let error = replace(&taken, b"x").unwrap_err().to_string();
            assert_eq!(error, format!("writing {}: not a regular file", taken.display()));
            assert_eq!(names(dir.path()), ["numa.prom"]);
            assert!(!fs::symlink_metadata(&taken).unwrap().is_file());
            fs::remove_dir(&taken).or_else(|_| fs::remove_file(&taken)).unwrap();
        }
        assert_eq!(fs::read(other.path()).unwrap(), b"");
        let error = replace(&dir.path().join("no/numa.prom"), b"x").unwrap_err().to_string();
        assert!(error.starts_with("creating "), "{error}");
        assert!(replace(Path::new("/"), b"x").is_err());
    }

    #[test]
    fn a_link_that_waits_under_the_name_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("numa.prom"), dir.path().join("other"));
        fs::write(&other, "untouched").unwrap();
        std::os::unix::fs::symlink(&other, beside(&path).unwrap()).unwrap();
        replace(&path, b"x").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
    }
}
