//! Files that only root or the daemon's own user may have made, opened so that nobody can turn them against
//! us.
//!
//! The journal and recordings are written with privileges at a path that others may be able to reach. A
//! symlink there is not followed, a pipe does not block, and a file of another user is refused. It must never
//! be used for the kernel's files of a host, which belong to whoever runs in them.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};

/// Does it belong to root or to this process's user?
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

/// May nobody but its owner write it?
pub fn of_one_writer(metadata: &fs::Metadata) -> io::Result<()> {
    match metadata.mode() & 0o7777 {
        mode if mode & 0o022 != 0 => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("others may write it (mode {mode:04o})"),
        )),
        _ => Ok(()),
    }
}

/// Says what the file is, where that is why it cannot be opened: the kernel has the same errors for other
/// reasons.
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

/// Opens a regular file of ours, or makes one that nobody else may read; never follows a symlink and never
/// blocks.
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
