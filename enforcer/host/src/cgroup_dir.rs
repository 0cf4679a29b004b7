//! Reads several files of one cgroup.
//!
//! Problem: a turn reads eight files of each cgroup, and most of its time goes to finding them: a path has to
//! be walked from the root for each, a call tells that the file is one, and another that it has ended.
//!
//! Idea: the directory is looked up once and its files by their names in it. A control file is one record
//! (`kernfs_seq_start` and `kernfs_seq_next` in fs/kernfs/file.c, for files that have but a `seq_show`; all
//! of cpuset, memory and pressure are such, lists of processes are not), which `seq_file` hands out as far as
//! there is room, so that a read that leaves some room was the last.
//!
//! Must never be used for lists (`cgroup.procs`, `cgroup.threads`): a read of these may end anywhere. What is
//! below a captured tree is read as [`HostPath::read_text`] reads it, because it may hold anything.
//!
//! Cost: two calls for the directory and three for each file; [`HostPath::read_text`] takes five, with a
//! longer walk.

use std::{io, os::fd::OwnedFd};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use super::{FIRST_READ, HostPath, READ_LIMIT, ReadError, as_text, too_long};

/// A directory of a cgroup hierarchy.
#[derive(Debug)]
pub struct CgroupDir {
    path: HostPath,
    found: DirLookup,
}

#[derive(Debug)]
enum DirLookup {
    /// It is on this host.
    Here(OwnedFd),
    /// It is in a captured tree.
    Captured,
    /// It cannot be opened, and so can none of its files.
    Not(Errno),
}

impl CgroupDir {
    /// Looks it up. Whether it is there is told by its files.
    pub fn open(path: HostPath) -> Self {
        let found = if path.is_confined() {
            DirLookup::Captured
        } else {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path.as_path(), flags, Mode::empty())
                .map_or_else(DirLookup::Not, DirLookup::Here)
        };
        Self { path, found }
    }

    /// Where it is.
    pub fn path(&self) -> &HostPath {
        &self.path
    }

    /// The text of one of its files that are one record, of less than [`READ_LIMIT`] bytes; invalid UTF-8 is
    /// replaced.
    pub fn read(&self, file: &str) -> Result<String, ReadError> {
        let read = match &self.found {
            DirLookup::Captured => return self.path.join(file).read_text(),
            DirLookup::Here(dir) => read_record(dir, file),
            DirLookup::Not(error) => Err((*error).into()),
        };
        let text = read.map(as_text).map_err(|cause| self.path.join(file).failed(cause))?;
        if let Some(recorder) = self.path.recorder() {
            recorder.note_text(&self.path.as_path().join(file), &text);
        }
        Ok(text)
    }
}

fn read_record(dir: &OwnedFd, file: &str) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, file, flags, Mode::empty())?;
    let mut bytes = Vec::with_capacity(FIRST_READ);
    loop {
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(_) if bytes.len() < bytes.capacity() => return Ok(bytes),
            Ok(_) if bytes.len() as u64 >= READ_LIMIT => return Err(too_long(READ_LIMIT)),
            Ok(_) => bytes.reserve(bytes.capacity()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::{HostRoot, cgroup::CgroupLayout, recording::FileCapture};

    #[test]
    fn files_of_any_length_are_read_as_others_read_them() {
        let dir = tempfile::tempdir().unwrap();
        for length in [0, 1, FIRST_READ - 1, FIRST_READ, FIRST_READ + 1, 2 * FIRST_READ, 5 * FIRST_READ + 7] {
            fs::write(dir.path().join("file"), "x".repeat(length)).unwrap();
            let text = CgroupDir::open(HostRoot::live().at(dir.path())).read("file").unwrap();
            assert!(text.len() == length && text.bytes().all(|byte| byte == b'x'), "{length} bytes");
        }
        fs::write(dir.path().join("file"), [b'a', 0xff]).unwrap();
        assert_eq!(CgroupDir::open(HostRoot::live().at(dir.path())).read("file").unwrap(), "a\u{fffd}");
    }

    #[test]
    fn what_is_no_file_of_it_is_an_error_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        symlink("/proc/version", dir.path().join("link")).unwrap();
        let here = CgroupDir::open(HostRoot::live().at(dir.path()));
        for file in ["below", "link", "none"] {
            let error = here.read(file).unwrap_err();
            assert_eq!(error.path, dir.path().join(file));
        }
        let error = CgroupDir::open(HostRoot::live().at(dir.path().join("gone"))).read("none").unwrap_err();
        assert_eq!((error.path, error.cause.kind()), (dir.path().join("gone/none"), io::ErrorKind::NotFound));
        let long = fs::File::create(dir.path().join("long")).unwrap();
        long.set_len(READ_LIMIT + 1).unwrap();
        assert_eq!(here.read("long").unwrap_err().cause.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_captured_tree_is_not_left_and_nothing_in_it_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let cgroup = dir.path().join("sys/fs/cgroup/a");
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(dir.path().join("inside"), "1\n").unwrap();
        symlink("/inside", cgroup.join("link")).unwrap();
        symlink("/proc/version", cgroup.join("outside")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            cgroup.join("fifo"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let captured = CgroupDir::open(HostRoot::captured(dir.path()).cgroup.join("a"));
        assert_eq!(captured.read("link").unwrap(), "1\n");
        for file in ["outside", "fifo"] {
            assert!(captured.read(file).is_err(), "{file}");
        }
    }

    #[test]
    fn the_kernels_files_are_whole() {
        let layout = CgroupLayout::read(&HostRoot::live()).unwrap();
        for root in [Some(&layout.cpuset), layout.memory.as_ref()].into_iter().flatten() {
            let (dir, names) = (CgroupDir::open(root.path.clone()), root.files());
            for file in [names.cpus, names.mems, names.cpus_effective, names.mems_effective] {
                let once = dir.read(file).ok();
                let to_its_end = root.path.join(file).read_text().ok();
                assert_eq!(once, to_its_end, "{file} in {}", root.path.display());
            }
            // Its numbers move; its lines do not.
            let lines = |text: String| text.lines().count();
            let file = names.memory_numa_stat;
            let to_its_end = root.path.join(file).read_text().ok().map(lines);
            assert_eq!(dir.read(file).ok().map(lines), to_its_end, "{file} in {}", root.path.display());
        }
    }

    #[test]
    fn what_is_read_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let host = HostRoot::live_below(dir.path());
        let cgroup = dir.path().join("sys/fs/cgroup/a");
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(cgroup.join("cpuset.cpus"), "1\n").unwrap();
        let (_, recording) = FileCapture::of(&host, |host| {
            CgroupDir::open(host.cgroup.join("a")).read("cpuset.cpus").unwrap()
        });
        let copy = dir.path().join("copy");
        recording.write(&host, &copy).unwrap();
        assert_eq!(fs::read_to_string(copy.join("sys/fs/cgroup/a/cpuset.cpus")).unwrap(), "1\n");
    }
}
