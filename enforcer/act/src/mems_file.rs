//! `cpuset.mems` of cgroups that may have to be widened within milliseconds: held open, and written by a
//! thread of its own for each write.
//!
//! A write of `cpuset.mems` takes effect early and returns late: it waits for page faults of each task in
//! turn, and for page moves of other cgroups (kernel/cgroup/cpuset.c, `cpuset_write_resmask` flushes one
//! workqueue of all). So no write waits for an earlier one to return, not even for that of a cgroup above
//! ([`top_down`]).
//!
//! A file ([`HeldFile`]) stays open as long as a cgroup with the same id of the kernel is at its path, or
//! below it: none above that can have been made again meanwhile. Where the cpuset controller was switched off
//! and on again the files are others all the same, and a write fails; then they are opened anew
//! ([`MemsFiles::forget`]).
//!
//! Invariants: no empty set is written, and no file without an original in the journal, which the caller
//! ensures before it hands a file in.

mod top_down;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    thread,
};

use enforcer_core::{widening::ProtectedWorkload, workload::CgroupPath};
use numa_topology::set::NodeSet;
use rustix::fs::OFlags;

use self::top_down::Mems;
use super::{
    cpuset::{CpusetError, CpusetTree, ManagedFile},
    held_file::{HeldFile, read_whole},
};

/// Most bytes that are read of a file: of 1,024 nodes every other one is less. What is longer is waited for.
const LONGEST: usize = 2_560;

/// The file of one cgroup, held open.
#[derive(Debug)]
pub struct MemsFile {
    file: HeldFile,
    /// The same file for reading: the kernel blocks reads by a descriptor while a write by it is in progress.
    read: HeldFile,
}

impl MemsFile {
    /// Opens it for writing; nothing is written.
    pub fn open(tree: &CpusetTree, cgroup: &CgroupPath) -> Result<Self, CpusetError> {
        let cpuset = tree.open(cgroup)?;
        let open = |mode| HeldFile::open(&cpuset, ManagedFile::Mems.name(), mode);
        Ok(Self { file: open(OFlags::WRONLY)?, read: open(OFlags::RDONLY)? })
    }
}

impl Mems for MemsFile {
    fn write(&self, text: &str) -> Result<(), String> {
        if text.is_empty() {
            let path = self.file.path().display();
            return Err(format!("writing {text:?} to {path}: an empty set is never written"));
        }
        self.file.write(text)
    }

    fn has(&self, mems: &NodeSet) -> bool {
        let mut room = [0; LONGEST];
        let text = read_whole(self.read.file(), &mut room).ok();
        let held = text.and_then(|text| str::from_utf8(text).ok()?.trim().parse().ok());
        held.is_some_and(|held: NodeSet| !mems.is_empty() && mems.is_subset(&held))
    }
}

/// The files of all that may have to be widened.
#[derive(Debug)]
pub struct MemsFiles {
    tree: CpusetTree,
    files: BTreeMap<CgroupPath, Arc<MemsFile>>,
    /// Cgroups with open files, by path, with the kernel's ids.
    ids: BTreeMap<CgroupPath, u64>,
    /// Cgroups with files that could not be opened, and the logged reason.
    unusable: BTreeMap<CgroupPath, String>,
}

impl MemsFiles {
    /// None yet, of this hierarchy.
    pub fn new(tree: CpusetTree) -> Self {
        Self { tree, files: BTreeMap::new(), ids: BTreeMap::new(), unusable: BTreeMap::new() }
    }

    /// Opens the missing files of these cgroups and of those above that may be widened for them, and closes
    /// the rest. A file that cannot be opened is tried again each time; new failures are returned.
    pub fn follow<'a>(&mut self, guarded: &'a [ProtectedWorkload]) -> Vec<String> {
        let ids = guarded.iter().filter_map(|one| Some((one.cgroup.clone(), one.cgroup_id?)));
        let ids: BTreeMap<CgroupPath, u64> = ids.collect();
        let written =
            |one: &'a ProtectedWorkload| one.above.iter().map(|(path, _)| path).chain([&one.cgroup]);
        let same = guarded
            .iter()
            .filter(|one| one.cgroup_id.is_some() && one.cgroup_id == self.ids.get(&one.cgroup).copied());
        let same: BTreeSet<&CgroupPath> = same.flat_map(written).collect();
        let before = std::mem::take(&mut self.files);
        let mut unusable = BTreeMap::new();
        for one in guarded {
            for path in written(one) {
                if self.files.contains_key(path) || unusable.contains_key(path) {
                    continue;
                }
                let file = match before.get(path).filter(|_| same.contains(path)) {
                    Some(file) => Ok(Arc::clone(file)),
                    None => MemsFile::open(&self.tree, path).map(Arc::new),
                };
                match file {
                    Ok(file) => {
                        self.files.insert(path.clone(), file);
                    }
                    Err(error) if error.is_gone() => {}
                    Err(error) => {
                        unusable.insert(path.clone(), error.to_string());
                    }
                }
            }
        }
        self.ids = ids;
        let before = std::mem::replace(&mut self.unusable, unusable);
        let news = self.unusable.iter().filter(|(path, error)| before.get(*path) != Some(error));
        news.map(|(path, error)| format!("memory nodes of {path} cannot be widened: {error}")).collect()
    }

    /// The file of a cgroup.
    pub fn get(&self, cgroup: &CgroupPath) -> Option<Arc<MemsFile>> {
        self.files.get(cgroup).map(Arc::clone)
    }

    /// Closes the files of this one and of all above it.
    pub fn forget(&mut self, cgroup: &CgroupPath) {
        self.files.retain(|path, _| !cgroup.is_within(path));
    }
}

/// Files to write, those above first.
#[derive(Debug, Clone)]
pub struct MemsWrite {
    /// The workload that it is for.
    pub cgroup: CgroupPath,
    /// Files with their new values.
    pub files: Vec<(Arc<MemsFile>, NodeSet)>,
}

impl MemsWrite {
    /// Writes on a new thread, and passes the result to `done` there. If no thread can be started, it writes
    /// on the caller's.
    pub fn start(self, done: impl FnOnce(CgroupPath, Result<(), String>) + Send + 'static) {
        let slot = Arc::new(std::sync::Mutex::new(Some((self, done))));
        let job = {
            let slot = Arc::clone(&slot);
            move || {
                let taken = slot.lock().ok().and_then(|mut slot| slot.take());
                if let Some((write, done)) = taken {
                    done(write.cgroup, top_down::write(write.files));
                }
            }
        };
        let again = job.clone();
        let spawned: io::Result<_> = thread::Builder::new().name("widening-write".into()).spawn(job);
        if spawned.is_err() {
            again();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::fixture::Fixture;

    fn guarded(path: &str, cgroup_id: Option<u64>) -> ProtectedWorkload {
        let cgroup = CgroupPath::new(path);
        let above = cgroup.ancestors().filter(|path| !path.is_root());
        let above = above.map(|path| (path, NodeSet::new())).collect();
        ProtectedWorkload {
            bytes: BTreeMap::new(),
            cgroup,
            cgroup_id,
            home: NodeSet::new(),
            mems: NodeSet::new(),
            kept: NodeSet::default(),
            cpu_nodes: NodeSet::new(),
            spares: Vec::new(),
            strict: false,
            above,
            bound: None,
        }
    }

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
        let (written, result) =
            start(vec![(Arc::clone(&above), wide.clone()), (Arc::clone(&leaf), wide.clone())]);
        assert_eq!((written, result), (cgroup.clone(), Ok(())));
        for path in ["/pod", "/pod/leaf"] {
            assert!(fixture.read(path, "cpuset.mems").starts_with("0-1"), "{path}");
        }
        let (_, result) = start(vec![(above, NodeSet::new()), (leaf, wide)]);
        assert!(result.unwrap_err().contains("never written"));
    }

    #[test]
    fn what_cannot_be_opened_is_said_once() {
        let fixture = Fixture::new(true);
        fixture.cgroup("/pod", "0-3", "0\n");
        let mems = fixture.path("/pod").join("cpuset.mems");
        std::fs::remove_file(&mems).unwrap();
        std::fs::create_dir(&mems).unwrap();
        let mut files = MemsFiles::new(CpusetTree::new(&fixture.layout.cpuset.path, true));
        let said = files.follow(&[guarded("/pod", Some(1))]);
        assert!(
            said[0].starts_with("memory nodes of /pod cannot be widened: ") && said.len() == 1,
            "{said:?}"
        );
        assert_eq!(files.follow(&[guarded("/pod", Some(1))]), [""; 0]);
        std::fs::remove_dir(&mems).unwrap();
        std::fs::write(&mems, "0\n").unwrap();
        assert_eq!(files.follow(&[guarded("/pod", Some(1))]), [""; 0]);
        assert!(files.get(&CgroupPath::new("/pod")).is_some());
    }

    #[test]
    fn opens_only_what_was_not_there_before() {
        let fixture = Fixture::new(true);
        for path in ["/pod", "/pod/one", "/pod/two", "/alone"] {
            fixture.cgroup(path, "0-3", "0\n");
        }
        let mut files = MemsFiles::new(CpusetTree::new(&fixture.layout.cpuset.path, true));
        let mut held = BTreeMap::new();
        let mut opened = |files: &mut MemsFiles, guarded: &[ProtectedWorkload]| -> Vec<String> {
            assert_eq!(files.follow(guarded), [""; 0]);
            let is_new = |path: &CgroupPath, file: &Arc<MemsFile>| {
                !held.get(path).is_some_and(|before| Arc::ptr_eq(before, file))
            };
            let new = files.files.iter().filter(|(path, file)| is_new(path, file));
            let new = new.map(|(path, _)| path.to_string()).collect();
            held = files.files.clone();
            new
        };
        let (one, two) = (guarded("/pod/one", Some(1)), guarded("/pod/two", Some(2)));
        let first = [one.clone(), two.clone(), guarded("/alone", None), guarded("/gone", Some(9))];
        assert_eq!(opened(&mut files, &first), ["/alone", "/pod", "/pod/one", "/pod/two"]);
        assert_eq!(opened(&mut files, &first), ["/alone"], "it may be another one each time");
        assert_eq!(opened(&mut files, &[one.clone(), guarded("/pod/two", Some(3))]), ["/pod/two"]);
        assert_eq!(opened(&mut files, &[guarded("/pod/one", Some(4))]), ["/pod", "/pod/one"]);
        assert_eq!(files.files.len(), 2, "of no other cgroup");
        files.forget(&CgroupPath::new("/pod/one"));
        assert!(files.get(&CgroupPath::new("/pod")).is_none());
        assert_eq!(opened(&mut files, &[guarded("/pod/one", Some(4))]), ["/pod", "/pod/one"]);
    }
}
