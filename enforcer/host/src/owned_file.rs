//! Opens files that only root or the daemon's own user may have created, safely against other users.
//!
//! The journal and recordings are written with privileges at a path that other users may reach. A symlink is
//! not followed, a pipe does not block, and a file of another user is refused. It must not be used for the
//! kernel's files of a host: in a container these belong to its user.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};

/// Checks that the file belongs to root or to this process's user.
pub fn of_ours(metadata: &fs::Metadata) -> io::Result<()> {
    match metadata.uid() {
        0 => Ok(()),
        uid if uid == rustix::process::geteuid().as_raw() => Ok(()),
        uid => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it belongs to another user ({uid})"),
        )),
    }
}

/// Checks that only its owner may write it.
pub fn of_one_writer(metadata: &fs::Metadata) -> io::Result<()> {
    match metadata.mode() & 0o7777 {
        mode if mode & 0o022 != 0 => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("others may write it (mode {mode:04o})"),
        )),
        _ => Ok(()),
    }
}

/// Explains an error by the kind of the file: the kernel uses the same errors for other causes.
fn of_its_kind(error: io::Error, path: &Path) -> io::Error {
    let Ok(found) = fs::symlink_metadata(path) else { return error };
    match Errno::from_io_error(&error) {
        Some(Errno::LOOP) if found.is_symlink() => {
            io::Error::new(error.kind(), "it is a symbolic link, which is not followed")
        }
        Some(Errno::ISDIR | Errno::NXIO) if !found.is_file() => not_regular(),
        _ => error,
    }
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// Opens a regular file of ours, or creates a private one; never follows a symlink and never blocks.
pub fn open_ours(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // The flags are small positive bits on every Linux, the cast keeps them.
    let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();
    let opened = options.mode(0o600).custom_flags(flags).open(path);
    let file = opened.map_err(|error| of_its_kind(error, path))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(not_regular());
    }
    of_ours(&metadata)?;
    Ok(file)
}
