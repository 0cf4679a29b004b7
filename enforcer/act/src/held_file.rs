//! A file of a cgroup that is held open, so that it can be read and written without looking for it again.
//!
//! Opened like every file that is written ([`super::cpuset`]): in a directory that was opened beneath the
//! root of the hierarchy, and through no symlink. A descriptor of a cgroup that has ended fails with
//! `ENODEV`, whatever has its name now.

use std::{
    fmt::Display,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use super::cpuset::{CpusetError, OpenCpuset};

/// An open file of a cgroup.
#[derive(Debug)]
pub(super) struct HeldFile {
    path: PathBuf,
    file: File,
}

impl HeldFile {
    /// Opens it to be read, or written, or both, as `mode` says; nothing is written.
    pub(super) fn open(cpuset: &OpenCpuset, name: &str, mode: OFlags) -> Result<Self, CpusetError> {
        let path = cpuset.path().join(name);
        let flags = mode | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(cpuset.dir(), name, flags, Mode::empty()) {
            Ok(file) => Ok(Self { path, file: file.into() }),
            Err(errno) => Err(CpusetError::Open { path, cause: errno.into() }),
        }
    }

    /// Its path, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its descriptor.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Writes a whole text; the error names operation, path, value and cause.
    pub(super) fn write(&self, text: &str) -> Result<(), String> {
        let failed = |cause: &dyn Display| {
            format!("writing {:?} to {}: {cause}", text.trim_end(), self.path.display())
        };
        // One call: the kernel takes each as a whole text.
        match self.file.write_at(text.as_bytes(), 0) {
            Ok(count) if count == text.len() => Ok(()),
            Ok(count) => Err(failed(&format_args!("only {count} bytes were taken"))),
            Err(error) => Err(failed(&error)),
        }
    }
}

/// Reads a file from its beginning, at most as much as `room` holds; the kernel produces its content anew
/// each time.
pub(super) fn read_whole<'a>(file: &File, room: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let count = file.read_at(room, 0)?;
    Ok(room.get(..count).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use enforcer_core::workload::CgroupPath;

    use super::*;
    use crate::{cpuset::CpusetTree, fixture::Fixture};

    #[test]
    fn what_is_read_and_written_is_whole_and_what_fails_says_which_file() {
        let fixture = Fixture::new(true);
        fixture.cgroup("/a", "0-3\n", "0\n");
        std::os::unix::fs::symlink("cpuset.cpus", fixture.path("/a").join("link")).unwrap();
        let tree = CpusetTree::new(&fixture.layout.cpuset.path, true);
        let cpuset = tree.open(&CgroupPath::new("/a")).unwrap();
        let held = HeldFile::open(&cpuset, "cpuset.cpus", OFlags::RDWR).unwrap();
        held.write("4-7\n").unwrap();
        let mut room = [0; 32];
        assert_eq!(read_whole(held.file(), &mut room).unwrap(), b"4-7\n");
        let reads = HeldFile::open(&cpuset, "cpuset.cpus", OFlags::RDONLY).unwrap();
        let error = reads.write("1\n").unwrap_err();
        assert!(error.starts_with("writing \"1\" to /") && error.contains("/a/cpuset.cpus: "), "{error}");
        for name in ["link", "gone"] {
            let error = HeldFile::open(&cpuset, name, OFlags::RDWR).unwrap_err();
            assert!(error.to_string().contains(&format!("/a/{name}: ")), "{error}");
        }
    }
}
