//! Walking a cgroup hierarchy that changes underfoot.
//!
//! Iterative, so that no depth of nesting can exhaust the stack, and bounded in depth and number. A
//! cgroup that vanishes on the way is simply not there; one that cannot be read is reported, and the
//! walk goes on.
//!
//! Cost: one `stat` per cgroup, and one directory listing per cgroup that has children (kernfs counts
//! them in the number of links, `kernfs_refresh_inode` in fs/kernfs/inode.c).

use std::{ffi::OsString, fs, io, os::unix::fs::MetadataExt, path::Path};

use enforcer_core::workload::CgroupPath;
use rustix::{fs::FileType, io::Errno};

use super::{cgroup::ControllerRoot, read_dir};

/// Greatest depth below the start; systemd and the kubelet together need about 10.
const MAX_DEPTH: usize = 64;
/// Greatest number of cgroups. The kernel allows 65,535 memory cgroups at a time (`MEM_CGROUP_ID_MAX`).
const MAX_CGROUPS: usize = 65_536;

/// What a walk found.
#[derive(Debug, Default)]
pub struct Walk {
    /// Every cgroup, parents before their children, siblings by name.
    pub cgroups: Vec<Visited>,
    /// What could not be listed.
    pub unreadable: Vec<(CgroupPath, io::Error)>,
    /// Cgroups whose children were left out because of a bound.
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
    let mut walk = Walk::default();
    let mut pending = vec![(start.clone(), root.dir(start), 0)];
    while let Some((path, dir, depth)) = pending.pop() {
        if walk.cgroups.len() == MAX_CGROUPS {
            walk.cut.push(path);
            break;
        }
        match visit(&path, &dir, kernfs) {
            Ok((visited, children)) => {
                walk.cgroups.push(visited);
                if depth == MAX_DEPTH && !children.is_empty() {
                    walk.cut.push(path);
                    continue;
                }
                // The last one pushed is the next one visited.
                for name in children.iter().rev() {
                    match name.to_str() {
                        Some(text) => pending.push((path.child(text), dir.join(text), depth + 1)),
                        None => walk.unreadable.push((path.child(&name.to_string_lossy()), not_text())),
                    }
                }
            }
            Err(error) if vanished(&error) => {}
            Err(error) => walk.unreadable.push((path, error)),
        }
    }
    walk
}

/// Does the error say that the cgroup is gone? A file of a removed cgroup gives ENODEV.
pub fn vanished(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

fn not_text() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its name is not UTF-8")
}

fn visit(path: &CgroupPath, dir: &Path, kernfs: bool) -> io::Result<(Visited, Vec<OsString>)> {
    let metadata = fs::symlink_metadata(dir)?;
    let visited = Visited { path: path.clone(), inode: metadata.ino() };
    let childless = kernfs && metadata.nlink() == 2;
    Ok((visited, if childless { Vec::new() } else { children(dir)? }))
}

fn children(dir: &Path) -> io::Result<Vec<OsString>> {
    let entries = read_dir(dir)?.into_iter();
    let mut names: Vec<OsString> =
        entries.filter(|(_, kind)| *kind == FileType::Directory).map(|(name, _)| name).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf};

    use tempfile::TempDir;

    use super::*;
    use crate::host::{HostRoot, cgroup::CgroupLayout};

    fn root(dir: &Path) -> ControllerRoot {
        ControllerRoot { path: PathBuf::from(dir), v2: true, mounted_cgroup: "/".into() }
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
