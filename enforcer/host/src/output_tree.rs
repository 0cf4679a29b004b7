//! A directory that files are written below, without following a symlink.
//!
//! Problem: root writes a captured tree whose names and links come from another machine. A path that is
//! right when it is computed may still lead through a link that was written a moment ago. Idea: each part of
//! a path is made and opened below the descriptor of the part before it, with `O_NOFOLLOW`.
//!
//! Invariants: nothing is written outside of the directory, whatever is in it; nothing is overwritten.
//!
//! Cost: two system calls for each part of a path.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, Path},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

/// The directory, which is made if it is not there.
pub(super) struct OutputTree(OwnedFd);

impl OutputTree {
    /// The directory itself may be a symlink: its user names it.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(directory, flags, Mode::empty())?))
    }

    /// Makes a directory and those above it; each may be there.
    pub(super) fn make_dir(&self, below: &Path) -> io::Result<()> {
        self.dir(below).map(drop)
    }

    /// Makes a file that must not be there.
    pub(super) fn make_file(&self, below: &Path) -> io::Result<File> {
        let (dir, name) = self.parent(below)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o666))?.into())
    }

    /// Makes a symlink that must not be there.
    pub(super) fn make_link(&self, to: &Path, below: &Path) -> io::Result<()> {
        let (dir, name) = self.parent(below)?;
        Ok(rustix::fs::symlinkat(to, dir, name)?)
    }

    fn parent<'a>(&self, below: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = below.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.dir(below.parent().unwrap_or(Path::new("")))?, name))
    }

    fn dir(&self, below: &Path) -> io::Result<OwnedFd> {
        let mut dir = self.0.try_clone()?;
        for part in below.components() {
            // `..` and `/` lead out of the directory.
            let Component::Normal(name) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
            dir = open_or_make(dir.as_fd(), name)?;
        }
        Ok(dir)
    }
}

fn open_or_make(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_in_the_directory_are_not_followed_and_paths_do_not_leave_it() {
        let dir = tempfile::tempdir().unwrap();
        let (out, outside) = (dir.path().join("out"), dir.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        let tree = OutputTree::open(&out).unwrap();
        symlink(&outside, out.join("link")).unwrap();
        symlink(outside.join("x"), out.join("x")).unwrap();
        for refused in ["link/x", "link/a/x", "x", "../outside/x", "a/../../outside/x", ""] {
            assert!(tree.make_file(Path::new(refused)).is_err(), "{refused}");
            assert!(tree.make_link(Path::new("y"), Path::new(refused)).is_err(), "{refused}");
        }
        assert!(tree.make_file(&outside.join("x")).is_err(), "an absolute path");
        assert!(tree.make_dir(Path::new("link/a")).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        tree.make_file(Path::new("a/b/x")).unwrap();
        assert!(tree.make_file(Path::new("a/b/x")).is_err(), "must not overwrite");
        tree.make_dir(Path::new("a/b")).unwrap();
    }
}
