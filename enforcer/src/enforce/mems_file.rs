//! `cpuset.mems` of cgroups that may have to be widened within milliseconds: held open, and written by a thread of its own
//! for each write.
//!
//! A write of `cpuset.mems` takes effect early and returns late: it waits for page faults of each task in turn, and for
//! pages of other cgroups that are being moved (kernel/cgroup/cpuset.c, `cpuset_write_resmask` flushes one workqueue of all). So
//! nobody waits for a write before the next one.
//!
//! Opened like every cpuset that is written ([`super::cpuset`]): beneath the root of the hierarchy and through no symlink. A descriptor
//! of a cgroup that has ended fails with `ENODEV`, whatever has its name now.
//!
//! Never: an empty set; a write for which no original is in the journal, which whoever hands in a file sees to.

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf, sync::Arc, thread};

use enforcer_core::{set::NodeSet, workload::CgroupPath};
use rustix::fs::{Mode, OFlags};

use super::cpuset::{CpusetError, CpusetFile, CpusetTree};

/// The file of one cgroup, held open.
#[derive(Debug)]
pub struct MemsFile {
    path: PathBuf,
    file: File,
}

impl MemsFile {
    /// Opens it for writing; nothing is written.
    pub fn open(tree: &CpusetTree, cgroup: &CgroupPath) -> Result<Self, CpusetError> {
        let cpuset = tree.open(cgroup)?;
        let name = CpusetFile::Mems.name();
        let path = cpuset.path().join(name);
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::openat(cpuset.dir(), name, flags, Mode::empty()) {
            Ok(file) => Ok(Self { path, file: file.into() }),
            Err(errno) => Err(CpusetError::Open { path, cause: errno.into() }),
        }
    }

    fn write(&self, text: &str) -> Result<(), String> {
        let failed =
            |cause: &dyn std::fmt::Display| format!("writing {text:?} to {}: {cause}", self.path.display());
        if text.is_empty() {
            return Err(failed(&"an empty set is never written"));
        }
        // One call: the kernel takes each as a whole text.
        match self.file.write_at(text.as_bytes(), 0) {
            Ok(count) if count == text.len() => Ok(()),
            Ok(count) => Err(failed(&format_args!("only {count} bytes were taken"))),
            Err(error) => Err(failed(&error)),
        }
    }
}

/// Files to write, those above first.
#[derive(Debug, Clone)]
pub struct MemsWrite {
    /// The workload that it is for.
    pub cgroup: CgroupPath,
    /// Each with what it is to hold.
    pub files: Vec<(Arc<MemsFile>, NodeSet)>,
}

impl MemsWrite {
    /// Writes on a thread of its own, and hands the result to `done` there. Where there can be no thread it is done here: late is
    /// better than never.
    pub fn start(self, done: impl FnOnce(CgroupPath, Result<(), String>) + Send + 'static) {
        let slot = Arc::new(std::sync::Mutex::new(Some((self, done))));
        let job = {
            let slot = Arc::clone(&slot);
            move || {
                let taken = slot.lock().ok().and_then(|mut slot| slot.take());
                if let Some((write, done)) = taken {
                    let result = write.carry_out();
                    done(write.cgroup, result);
                }
            }
        };
        let again = job.clone();
        let spawned: io::Result<_> = thread::Builder::new().name("widening-write".into()).spawn(job);
        if spawned.is_err() {
            again();
        }
    }

    fn carry_out(&self) -> Result<(), String> {
        self.files.iter().try_for_each(|(file, mems)| file.write(&mems.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::enforce::fixture::Fixture;

    #[test]
    fn writes_from_the_top_down_and_stops_at_the_first_failure() {
        let fixture = Fixture::new(true);
        fixture.cgroup("/pod", "0-3", "0\n");
        fixture.cgroup("/pod/leaf", "0-3", "0\n");
        let tree = CpusetTree::new(&fixture.layout.cpuset.path, true);
        let cgroup = CgroupPath::new("/pod/leaf");
        let above = Arc::new(MemsFile::open(&tree, &cgroup.parent().unwrap()).unwrap());
        let leaf = Arc::new(MemsFile::open(&tree, &cgroup).unwrap());
        let wide: NodeSet = "0-1".parse().unwrap();
        let (sender, results) = mpsc::channel();
        let start = |files| {
            let sender = sender.clone();
            let write = MemsWrite { cgroup: cgroup.clone(), files };
            write.start(move |cgroup, result| sender.send((cgroup, result)).unwrap());
            results.recv().unwrap()
        };
        let (whose, result) =
            start(vec![(Arc::clone(&above), wide.clone()), (Arc::clone(&leaf), wide.clone())]);
        assert_eq!((whose, result), (cgroup.clone(), Ok(())));
        for path in ["/pod", "/pod/leaf"] {
            assert!(fixture.read(path, "cpuset.mems").starts_with("0-1"), "{path}");
        }
        let (_, result) = start(vec![(above, NodeSet::new()), (leaf, wide)]);
        assert!(result.unwrap_err().contains("never written"));
    }
}
