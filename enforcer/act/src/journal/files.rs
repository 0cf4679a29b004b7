//! Files of the logs: opened only where no other user may write them, and replaced as a whole.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use super::error::{JournalError, failed};
use enforcer_host::owned_file::{of_one_writer, of_ours, open_ours};

/// Refuses a state directory that is a symlink, or that others may write.
pub fn check_owned(state_dir: &Path) -> Result<(), JournalError> {
    let checked = fs::symlink_metadata(state_dir).and_then(|metadata| {
        if !metadata.is_dir() {
            let reason = "not a directory; a symlink is not followed";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        of_one_writer(&metadata)?;
        of_ours(&metadata)
    });
    checked.map_err(failed("using the state directory", state_dir))
}

/// A file of ours, to read it; `None` where there is none.
pub(super) fn reader(path: &Path) -> Result<Option<File>, JournalError> {
    let opened = open_ours(OpenOptions::new().read(true), path).and_then(|file| {
        of_one_hand(path, &file)?;
        Ok(file)
    });
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(failed("reading", path)(cause)),
    }
}

/// Refuses a file that other users may write, unless no other user can enter its directory.
fn of_one_hand(path: &Path, file: &File) -> io::Result<()> {
    of_one_writer(&file.metadata()?).or_else(|error| {
        let dir = fs::symlink_metadata(path.parent().unwrap_or(path))?;
        if dir.mode() & 0o011 == 0 { Ok(()) } else { Err(error) }
    })
}

/// A file that was put in the place of another one.
pub(super) struct Rewritten {
    /// For appending.
    pub(super) file: File,
    /// Path of the kept damaged one.
    pub(super) kept: Option<PathBuf>,
}

/// Puts these lines in the place of the file, all or none of them; a damaged one is kept beside it.
///
/// The file stays open: after the rename no failure may leave the old one in use. Other replaced files
/// (`whole_file.rs`, `exposed.rs`) are closed after the write, and the file in their place may be
/// foreign.
pub(super) fn rewrite(
    path: &Path,
    is_damaged: bool,
    mut lines: impl Iterator<Item = io::Result<String>>,
) -> Result<Rewritten, JournalError> {
    let kept = is_damaged.then(|| keep_damaged(path)).transpose()?;
    let fresh = path.with_extension("new");
    let mut file = open(&fresh)?;
    let written = file.set_len(0).and_then(|()| lines.try_for_each(|line| file.write_all(line?.as_bytes())));
    if let Err(cause) = written {
        // Half a file is useless and takes space.
        let _ = fs::remove_file(&fresh);
        return Err(failed("writing", &fresh)(cause));
    }
    fs::rename(&fresh, path).map_err(failed("renaming to", path))?;
    Ok(Rewritten { file, kept })
}

/// Removes a file, which need not be there.
pub(super) fn forget(path: &Path) -> Result<(), JournalError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("removing", path)(error)),
        _ => Ok(()),
    }
}

/// Makes durable which file has this name.
pub(super) fn sync_dir_of(path: &Path) -> Result<(), JournalError> {
    let dir = path.parent().unwrap_or(path);
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("syncing", dir))
}

/// Copies of damaged journals that are kept: the first one may hold what the later ones have lost.
const MOST_DAMAGED: usize = 8;

/// Damaged journals and records that were set aside in this directory and are still there.
pub fn set_aside(state_dir: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let listed = fs::read_dir(state_dir)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
    let mut kept: Vec<PathBuf> = match listed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed.map_err(failed("listing", state_dir))?,
    };
    let is_damaged = |name: &OsStr| {
        let name = name.as_encoded_bytes();
        let kept: [&[u8]; 5] = [
            b"journal.damaged",
            b"making.damaged",
            b"brakes.damaged",
            b"pins.damaged",
            b"interrupts.damaged",
        ];
        kept.iter().any(|one| name.starts_with(one))
    };
    kept.retain(|path| path.file_name().is_some_and(is_damaged));
    kept.sort_unstable();
    Ok(kept)
}

/// Keeps a damaged journal, as it may hold the only copy of an original, and returns its new path. If there
/// are many already, it replaces the latest.
fn keep_damaged(path: &Path) -> Result<PathBuf, JournalError> {
    let first = std::iter::once(path.with_extension("damaged"));
    let names: Vec<_> =
        first.chain((2..=MOST_DAMAGED).map(|n| path.with_extension(format!("damaged.{n}")))).collect();
    for kept in &names {
        match fs::hard_link(path, kept) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => {
                linked.map_err(failed("keeping what is damaged as", kept))?;
                return Ok(say_kept(path, kept));
            }
        }
    }
    let last = names.last().map_or(path, |last| last);
    let linked = fs::remove_file(last).and_then(|()| fs::hard_link(path, last));
    linked.map_err(failed("keeping what is damaged as", last))?;
    Ok(say_kept(path, last))
}

fn say_kept(path: &Path, kept: &Path) -> PathBuf {
    tracing::error!(
        "{} is damaged, and kept as {}: restore does not put back what cannot be read of it",
        path.display(),
        kept.display()
    );
    kept.to_owned()
}

/// Opens the file for appending and repairs its end: a partial line is cut, and a whole one gets its newline.
pub(super) fn open_whole(path: &Path, torn_at: Option<u64>) -> Result<File, JournalError> {
    let mut file = open(path)?;
    if let Some(length) = torn_at {
        file.set_len(length).map_err(failed("cutting", path))?;
    }
    let mut last = [b'\n'];
    let length = file.metadata().map_err(failed("looking at", path))?.len();
    if let (Some(at), Some(reader)) = (length.checked_sub(1), reader(path)?) {
        reader.read_exact_at(&mut last, at).map_err(failed("reading", path))?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n").map_err(failed("appending to", path))?;
    }
    Ok(file)
}

/// Opens the file for appending, and closes it to others.
pub(super) fn open(path: &Path) -> Result<File, JournalError> {
    let opened = open_ours(OpenOptions::new().append(true).create(true), path).and_then(|file| {
        if of_one_writer(&file.metadata()?).is_err() {
            of_one_hand(path, &file)?;
            tracing::warn!("{}: others could write it; now only its owner can", path.display());
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
        }
        Ok(file)
    });
    opened.map_err(failed("opening", path))
}
