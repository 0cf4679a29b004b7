//! Opens files of a captured machine inside its tree.
//!
//! Problem: a captured tree comes from elsewhere, perhaps from an archive, and may hold symlinks. An absolute
//! one would lead to this host's files, which would then be shown, or copied by `capture --root`, as the
//! other machine's. Idea: the tree is treated as by `chroot` (`RESOLVE_IN_ROOT` of `openat2(2)`): absolute
//! paths start at its root, and `..` stops there.
//!
//! [`HostRoot::captured`](super::HostRoot::captured) registers a root; every path below it is confined to it,
//! for all callers. The running host is never confined.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};

static ROOTS: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Confines every path below `root` from now on.
pub(super) fn confine(root: &Path) {
    let mut roots = ROOTS.write().unwrap_or_else(PoisonError::into_inner);
    if !roots.iter().any(|known| known == root) {
        roots.push(root.to_owned());
    }
}

/// Is a path in a captured tree?
pub(super) fn is_confined(path: &Path) -> bool {
    root_of(path).is_some()
}

fn root_of(path: &Path) -> Option<PathBuf> {
    let roots = ROOTS.read().unwrap_or_else(PoisonError::into_inner);
    roots.iter().find(|root| path.starts_with(root)).cloned()
}

/// A rename anywhere on the host while `..` is resolved makes openat2 say EAGAIN (openat2(2)), which
/// says nothing about the file.
const ATTEMPTS: usize = 100;

/// Opens a path of the running host or, inside of its root, one of a captured machine.
pub(super) fn open(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags.union(OFlags::CLOEXEC);
    let Some(root) = root_of(path) else { return Ok(rustix::fs::open(path, flags, Mode::empty())?) };
    let below = path.strip_prefix(&root).map_err(|_outside| io::ErrorKind::InvalidInput)?;
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let root = rustix::fs::open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    for _ in 1..ATTEMPTS {
        match rustix::fs::openat2(&root, below, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            opened => return Ok(opened?),
        }
    }
    Ok(rustix::fs::openat2(&root, below, flags, Mode::empty(), resolve)?)
}

/// What is at a path, symlinks followed; `None` where there is nothing.
pub(super) fn kind_of(path: &Path) -> Option<FileType> {
    let file = open(path, OFlags::PATH).ok()?;
    rustix::fs::fstat(&file).ok().map(|stat| FileType::from_raw_mode(stat.st_mode))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::{HostRoot, list_dir, read_link, read_text};

    #[test]
    fn links_of_a_captured_machine_stay_inside_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("machine");
        fs::create_dir_all(root.join("sys/devices/a")).unwrap();
        fs::write(root.join("sys/devices/a/numa_node"), "1\n").unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        let secret = dir.path().join("secret");
        for (link, target) in [
            ("absolute", "/sys/devices/a"),
            ("relative", "devices/a"),
            ("live", "/proc/version"),
            ("above", "../../secret"),
            ("outside", secret.to_str().unwrap()),
            ("loop", "loop"),
        ] {
            symlink(target, root.join("sys").join(link)).unwrap();
        }
        let host = HostRoot::captured(&root);
        for inside in ["absolute", "relative"] {
            assert_eq!(read_text(&host.sys.join(inside).join("numa_node")).unwrap(), "1\n");
            assert_eq!(list_dir(&host.sys.join(inside)).unwrap().unwrap(), ["numa_node"]);
            assert_eq!(kind_of(&host.sys.join(inside)), Some(FileType::Directory));
        }
        for outside in ["live", "above", "outside", "loop"] {
            let path = host.sys.join(outside);
            let error = read_text(&path).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()), "{error}");
            assert_eq!(kind_of(&path), None);
            assert!(read_link(&path).is_some(), "a link itself can be read");
        }
    }

    #[test]
    fn a_root_that_is_a_link_is_a_root() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("machine/sys")).unwrap();
        fs::write(dir.path().join("machine/sys/x"), "1").unwrap();
        symlink("machine", dir.path().join("link")).unwrap();
        let host = HostRoot::captured(&dir.path().join("link"));
        assert_eq!(read_text(&host.sys.join("x")).unwrap(), "1");
    }
}
