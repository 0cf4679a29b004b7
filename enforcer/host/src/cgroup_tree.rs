//! Walks a cgroup hierarchy that changes meanwhile.
//!
//! The walk is iterative, so that no depth can exhaust the stack, and bounded in depth and number. A cgroup
//! that vanishes is skipped; one that cannot be read is reported, and the walk goes on.
//!
//! A user that can create cgroups must not hide those of others. So the bound is shared: the walk visits one
//! cgroup of each child of a cgroup in turn, and so on below it. Subtrees smaller than their share are
//! complete; the largest ones are cut, and named.
//!
//! Cost: one `stat` per cgroup, and one directory listing per cgroup that has children (kernfs counts them in
//! the number of links, `kernfs_refresh_inode` in fs/kernfs/inode.c).

use std::{
    collections::{BTreeSet, VecDeque},
    ffi::OsString,
    fs, io,
    os::unix::fs::MetadataExt,
};

use enforcer_core::workload::CgroupPath;
use rustix::{fs::FileType, io::Errno};

use super::{HostPath, cgroup::ControllerRoot};

/// Greatest depth below the start; systemd and the kubelet together need about 10.
const MAX_DEPTH: usize = 64;
/// Greatest number of cgroups. The kernel allows 65,535 memory cgroups at a time (`MEM_CGROUP_ID_MAX`).
const MAX_CGROUPS: usize = 65_536;
/// Greatest number of names of one directory that are kept.
const MAX_CHILDREN: usize = 16_384;
/// Names in all from which on a directory has [`FEW_CHILDREN`] at most.
const MAX_NAMES: usize = 4 * MAX_CGROUPS;
/// Names that every directory may have.
const FEW_CHILDREN: usize = 16;
/// Greatest number of subtrees that are named as left out; more are named by what is above them.
const MAX_CUT: usize = 32;

/// Result of a walk.
#[derive(Debug, Default)]
pub struct Walk {
    /// Every cgroup, parents before their children, siblings by name.
    pub cgroups: Vec<Visited>,
    /// Cgroups that could not be listed.
    pub unreadable: Vec<(CgroupPath, io::Error)>,
    /// Cgroups with children that were left out because of a bound.
    pub cut: Vec<CgroupPath>,
}

/// One cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visited {
    /// Where it is.
    pub path: CgroupPath,
    /// Inode of its directory.
    pub inode: u64,
}

/// All cgroups from `start` downwards, `start` included.
///
/// `kernfs` says that the tree is a mounted hierarchy, where the number of links tells whether a
/// directory has children; a copy of one may be on any file system.
pub fn walk(root: &ControllerRoot, start: &CgroupPath, kernfs: bool) -> Walk {
    walk_within(root, start, kernfs, MAX_CGROUPS)
}

fn walk_within(root: &ControllerRoot, start: &CgroupPath, kernfs: bool, most: usize) -> Walk {
    let mut growing = Growing { entries: vec![WalkEntry::new(OsString::new(), 0)], walk: Walk::default() };
    let mut visited = 0;
    while visited < most
        && let Some(next) = growing.next()
    {
        match growing.visit(next, root, start, kernfs) {
            true => visited += 1,
            false if next == 0 => break,
            false => {}
        }
    }
    growing.finish()
}

/// A walk in progress.
struct Growing {
    /// The start first; children of one cgroup are side by side, by name.
    entries: Vec<WalkEntry>,
    walk: Walk,
}

struct WalkEntry {
    name: OsString,
    parent: usize,
    seen: Option<Visited>,
    children: std::ops::Range<usize>,
    /// Children that have something to visit, the next one first.
    pending: VecDeque<usize>,
    /// A part below it was left out.
    is_cut: bool,
}

impl WalkEntry {
    fn new(name: OsString, parent: usize) -> Self {
        let (seen, children, pending) = (None, 0..0, VecDeque::new());
        Self { name, parent, seen, children, pending, is_cut: false }
    }
}

impl Growing {
    /// The entry to visit next: at each level the next child in turn.
    fn next(&mut self) -> Option<usize> {
        let mut at = 0;
        loop {
            let entry = &mut self.entries[at];
            match entry.pending.pop_front() {
                Some(child) => {
                    // Its turn comes again after those of its siblings.
                    entry.pending.push_back(child);
                    at = child;
                }
                // Of the visited entries only the start is left when nothing remains below it.
                None => return entry.seen.is_none().then_some(at),
            }
        }
    }

    /// Visits an entry; false where there is none any longer.
    fn visit(&mut self, at: usize, root: &ControllerRoot, start: &CgroupPath, kernfs: bool) -> bool {
        let found = self.path(at, start).and_then(|path| match visit(&path, &root.dir(&path), kernfs) {
            Ok(found) => Some(found),
            Err(error) if vanished(&error) => None,
            Err(error) => {
                self.walk.unreadable.push((path, error));
                None
            }
        });
        let is_there = found.is_some();
        if let Some((seen, mut names)) = found {
            let depth = self.depth(at);
            let room = MAX_NAMES.saturating_sub(self.entries.len()).clamp(FEW_CHILDREN, MAX_CHILDREN);
            let entry = &mut self.entries[at];
            let room = if depth == MAX_DEPTH { 0 } else { room };
            entry.is_cut = names.len() > room;
            names.truncate(room);
            entry.seen = Some(seen);
            let first = self.entries.len();
            self.entries.extend(names.into_iter().map(|name| WalkEntry::new(name, at)));
            let children = first..self.entries.len();
            self.entries[at].pending = children.clone().collect();
            self.entries[at].children = children;
        }
        self.leave(at);
        is_there
    }

    /// Removes an entry without further work from the turns, and each ancestor that had only that.
    fn leave(&mut self, mut at: usize) {
        while at != 0 && self.entries[at].pending.is_empty() {
            let parent = self.entries[at].parent;
            // Its turn was the latest one, so it is the last.
            let last = self.entries[parent].pending.pop_back();
            debug_assert_eq!(last, Some(at));
            at = parent;
        }
    }

    fn depth(&self, mut at: usize) -> usize {
        let mut depth = 0;
        while at != 0 {
            at = self.entries[at].parent;
            depth += 1;
        }
        depth
    }

    /// Path of an entry; `None`, and reported, if its name is not UTF-8.
    fn path(&mut self, at: usize, start: &CgroupPath) -> Option<CgroupPath> {
        if at == 0 {
            return Some(start.clone());
        }
        let entry = &self.entries[at];
        let above = &self.entries[entry.parent].seen.as_ref()?.path;
        if let Some(name) = entry.name.to_str() {
            return Some(above.child(name));
        }
        let path = above.child(&entry.name.to_string_lossy());
        self.walk.unreadable.push((path, not_text()));
        None
    }

    /// The visited cgroups in order, and the cut ones.
    fn finish(mut self) -> Walk {
        let mut cut = BTreeSet::new();
        let mut pending = vec![0];
        while let Some(at) = pending.pop() {
            let entry = &mut self.entries[at];
            let Some(seen) = entry.seen.take() else { continue };
            pending.extend(entry.children.clone().rev());
            let (is_cut, waiting) = (entry.is_cut, std::mem::take(&mut entry.pending));
            // A visited child reports its own cuts.
            if is_cut || waiting.into_iter().any(|child| self.entries[child].seen.is_none()) {
                cut.insert(seen.path.clone());
            }
            self.walk.cgroups.push(seen);
        }
        while cut.len() > MAX_CUT
            && let Some(deepest) = cut.iter().map(CgroupPath::depth).max()
        {
            cut = cut
                .into_iter()
                .filter_map(|path| if path.depth() == deepest { path.parent() } else { Some(path) })
                .collect();
        }
        self.walk.cut = cut.into_iter().collect();
        self.walk
    }
}

/// Does the error say that the cgroup is gone? A file of a removed cgroup gives ENODEV.
pub fn vanished(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

fn not_text() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its name is not UTF-8")
}

fn visit(path: &CgroupPath, dir: &HostPath, kernfs: bool) -> io::Result<(Visited, Vec<OsString>)> {
    let metadata = fs::symlink_metadata(dir.as_path())?;
    let visited = Visited { path: path.clone(), inode: metadata.ino() };
    let childless = kernfs && metadata.nlink() == 2;
    Ok((visited, if childless { Vec::new() } else { children(dir)? }))
}

fn children(dir: &HostPath) -> io::Result<Vec<OsString>> {
    let entries = dir.read_dir()?.into_iter();
    let mut names: Vec<OsString> =
        entries.filter(|(_, kind)| *kind == FileType::Directory).map(|(name, _)| name).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        os::unix::ffi::OsStrExt,
        path::{Path, PathBuf},
    };

    use tempfile::TempDir;

    use super::*;
    use crate::{HostRoot, cgroup::CgroupLayout};

    fn root(dir: &Path) -> ControllerRoot {
        ControllerRoot { path: HostRoot::live().at(dir), v2: true, mounted_cgroup: "/".into() }
    }

    fn paths(walk: &Walk) -> Vec<&str> {
        walk.cgroups.iter().map(|visited| visited.path.as_str()).collect()
    }

    #[test]
    fn visits_parents_before_children_in_order() {
        let dir = TempDir::new().unwrap();
        for path in ["b/x", "a/y/z", "a/b"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        let walk = walk(&root(dir.path()), &CgroupPath::root(), false);
        assert_eq!(paths(&walk), ["/", "/a", "/a/b", "/a/y", "/a/y/z", "/b", "/b/x"]);
        let inode = fs::metadata(dir.path().join("a/y")).unwrap().ino();
        assert_eq!(walk.cgroups[3].inode, inode);
        assert!(walk.unreadable.is_empty() && walk.cut.is_empty());
    }

    #[test]
    fn a_start_that_is_gone_is_an_empty_walk() {
        let dir = TempDir::new().unwrap();
        let walk = walk(&root(dir.path()), &CgroupPath::new("/gone"), false);
        assert!(walk.cgroups.is_empty() && walk.unreadable.is_empty());
    }

    #[test]
    fn depth_is_bounded_and_said() {
        let dir = TempDir::new().unwrap();
        let deep: PathBuf = dir.path().join(vec!["d"; MAX_DEPTH + 5].join("/"));
        fs::create_dir_all(deep).unwrap();
        let walk = walk(&root(dir.path()), &CgroupPath::root(), false);
        assert_eq!(walk.cgroups.len(), MAX_DEPTH + 1);
        assert_eq!(walk.cut.len(), 1);
    }

    #[test]
    fn a_subtree_of_many_cgroups_hides_nothing_of_the_others_and_is_named() {
        let dir = TempDir::new().unwrap();
        // It sorts before the others, and is as deep.
        for number in 0..500 {
            fs::create_dir_all(dir.path().join(format!("a.slice/user-1.slice/app/{number:03}/x"))).unwrap();
        }
        for path in [
            "a.slice/user-2.slice/app/x/y",
            "k.slice/burstable/pod1/c1",
            "k.slice/burstable/pod1/c2",
            "z/y/x",
        ] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        let walk = walk_within(&root(dir.path()), &CgroupPath::root(), false, 100);
        let paths = paths(&walk);
        assert_eq!(paths.len(), 100);
        for path in ["/a.slice/user-2.slice/app/x/y", "/k.slice/burstable/pod1/c2", "/z/y/x"] {
            assert!(paths.contains(&path), "{path}: {paths:?}");
        }
        assert!(paths.is_sorted() && walk.unreadable.is_empty());
        assert!(!walk.cut.is_empty() && walk.cut.len() <= MAX_CUT, "{:?}", walk.cut);
        let crowd = CgroupPath::new("/a.slice/user-1.slice");
        assert!(walk.cut.iter().all(|path| path.is_within(&crowd)), "{:?}", walk.cut);
    }

    #[test]
    fn two_crowds_have_half_each_and_a_wide_directory_is_cut_where_it_is() {
        let dir = TempDir::new().unwrap();
        for number in 0..200 {
            fs::create_dir_all(dir.path().join(format!("a/{number:03}"))).unwrap();
            fs::create_dir_all(dir.path().join(format!("b/{number:03}"))).unwrap();
        }
        let walk = walk_within(&root(dir.path()), &CgroupPath::root(), false, 101);
        let of =
            |top: &str| walk.cgroups.iter().filter(|one| one.path.is_within(&CgroupPath::new(top))).count();
        assert_eq!((of("/a"), of("/b")), (50, 50));
        assert_eq!(walk.cut, [CgroupPath::new("/a"), CgroupPath::new("/b")]);
    }

    #[test]
    fn the_number_of_links_tells_leaves_of_a_mounted_hierarchy() {
        let live = CgroupLayout::read(&HostRoot::live()).unwrap();
        let memory = live.memory.unwrap_or(live.cpuset);
        let trusting = walk(&memory, &CgroupPath::root(), true);
        let listing = walk(&memory, &CgroupPath::root(), false);
        // Cgroups come and go between the two walks.
        let (trusting, listing) = (paths(&trusting), paths(&listing));
        let common = trusting.iter().filter(|path| listing.contains(path)).count();
        assert!(common * 2 > listing.len(), "{trusting:?} {listing:?}");
    }

    #[test]
    fn names_that_are_not_text_are_reported() {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join(OsStr::from_bytes(b"a\xff"))).unwrap();
        let walk = walk(&root(dir.path()), &CgroupPath::root(), false);
        assert_eq!(paths(&walk), ["/"]);
        assert_eq!(walk.unreadable[0].0.as_str(), "/a\u{fffd}");
    }
}
