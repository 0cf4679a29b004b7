//! A kernel file that is read again and again: opened once, read from its begin each time into a buffer that
//! is kept.
//!
//! For loops that must neither allocate nor look up a path. Kernel files make their text anew at each read
//! from offset 0 (`seq_read_iter` in `fs/seq_file.c`, `sysfs_kf_seq_show`). Those of nodes and the control
//! files of cgroups are one record each ([`super::cgroup_dir`] says why), so that a read that leaves some
//! room was the last; lists are not to be read so. A file of a cgroup or node that is gone fails with
//! `ENODEV`.

use std::{fs::File, io, os::unix::fs::FileExt};

use rustix::fs::OFlags;

use super::{HostPath, ReadError};

/// The file, and room for its text.
#[derive(Debug)]
pub struct RepeatedFile {
    path: HostPath,
    file: File,
    buffer: Vec<u8>,
}

impl RepeatedFile {
    /// Opens a file of which at most `room` bytes are ever read.
    pub fn open(path: HostPath, room: usize) -> Result<Self, ReadError> {
        let file = File::from(path.open(OFlags::RDONLY).map_err(|cause| path.failed(cause))?);
        Ok(Self { path, file, buffer: vec![0; room] })
    }

    /// Its text now, or as much of it as there is room for; allocates nothing unless it fails.
    pub fn text(&mut self) -> Result<&str, ReadError> {
        let mut filled = 0;
        loop {
            let rest = self.buffer.get_mut(filled..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            let room = rest.len();
            match self.file.read_at(rest, filled as u64) {
                Ok(count) => {
                    filled += count;
                    if count < room {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(self.path.failed(cause)),
            }
        }
        let read = self.buffer.get(..filled).unwrap_or_default();
        std::str::from_utf8(read)
            .map_err(|error| self.path.failed(io::Error::new(io::ErrorKind::InvalidData, error)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::HostRoot;

    #[test]
    fn shows_what_is_there_at_each_reading() {
        let dir = tempfile::TempDir::new().unwrap();
        let host = HostRoot::live();
        let path = dir.path().join("meminfo");
        fs::write(&path, "MemFree: 12 kB\n").unwrap();
        let mut file = RepeatedFile::open(host.at(&path), 64).unwrap();
        assert_eq!(file.text().unwrap(), "MemFree: 12 kB\n");
        fs::write(&path, "MemFree: 3 kB\n").unwrap();
        assert_eq!(file.text().unwrap(), "MemFree: 3 kB\n");
        fs::write(&path, [b'x'; 100]).unwrap();
        assert_eq!(file.text().unwrap().len(), 64, "no more than there is room for");
        fs::write(&path, [0xff]).unwrap();
        assert!(file.text().unwrap_err().to_string().contains("meminfo"));
        assert!(RepeatedFile::open(host.at(dir.path().join("none")), 64).is_err());
    }
}
