//! A disk in memory that runs full, fails and comes back.

use std::{
    fs, io,
    path::Path,
    sync::{Arc, Mutex},
};

use rustix::io::Errno;

use super::{
    originals::Journal,
    tail::{JournalMedium, Tail},
};

/// A handle to the disk; clones refer to the same.
#[derive(Debug, Clone, Default)]
pub struct FakeDisk(Arc<Mutex<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    bytes: Vec<u8>,
    /// Bytes that fit; no bound when absent.
    room: Option<usize>,
    /// Error of each line.
    add: Option<Errno>,
    /// Nothing can be taken away.
    cut: Option<Errno>,
    /// How often anything was asked of it.
    asked: usize,
}

impl FakeDisk {
    /// As much as is there, and so much more, fits from now on.
    pub fn leave_room(&self, more: Option<usize>) {
        let mut disk = self.0.lock().unwrap();
        disk.room = more.map(|more| disk.bytes.len() + more);
    }

    /// Makes each addition fail when all is added, or not.
    pub fn fail_adds(&self, with: Option<Errno>) {
        self.0.lock().unwrap().add = with;
    }

    /// Makes cuts fail, or not.
    pub fn fail_cuts(&self, with: Option<Errno>) {
        self.0.lock().unwrap().cut = with;
    }

    /// Content that a reader would find.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().bytes.clone()).unwrap()
    }

    /// How often anything was asked of it.
    pub fn asked(&self) -> usize {
        self.0.lock().unwrap().asked
    }
}

impl Journal {
    /// The same journal, with new lines written to this disk.
    #[must_use]
    pub fn appending_to(mut self, disk: &FakeDisk) -> Self {
        self.log.tail = Tail::new(self.log.path(), Box::new(disk.clone()), false);
        self
    }
}

impl JournalMedium for FakeDisk {
    fn is_at(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().bytes.len() as u64)
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.asked += 1;
        let free = disk.room.map_or(bytes.len(), |room| room.saturating_sub(disk.bytes.len()));
        disk.bytes.extend(bytes.iter().take(free));
        let errno = disk.add.or((free < bytes.len()).then_some(Errno::NOSPC));
        errno.map_or(Ok(()), |errno| Err(errno.into()))
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        if let Some(errno) = disk.cut {
            return Err(errno.into());
        }
        disk.bytes.truncate(usize::try_from(length).unwrap());
        Ok(())
    }

    fn handle(&self) -> io::Result<fs::File> {
        Err(Errno::NOTSUP.into())
    }
}
