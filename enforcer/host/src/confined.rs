//! Opens files of a captured machine inside its tree.
//!
//! Problem: a captured tree comes from elsewhere, perhaps from an archive, and may hold symlinks. An absolute
//! one would lead to this host's files, which would then be shown, or copied by `capture --root`, as the
//! other machine's. Idea: the tree is treated as by `chroot` (`RESOLVE_IN_ROOT` of `openat2(2)`): absolute
//! paths start at its root, and `..` stops there.
//!
//! [`HostRoot::captured`](super::HostRoot::captured) opens the tree once, and every path of that root shares
//! it. The running host is never confined.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
};

/// A rename anywhere on the host while `..` is resolved makes openat2 say EAGAIN (openat2(2)), which
/// says nothing about the file.
const ATTEMPTS: usize = 100;

/// The root directory of a captured tree.
pub(super) struct CapturedTree {
    path: PathBuf,
    /// Why it cannot be opened, which every read below it then says.
    dir: Result<OwnedFd, Errno>,
}

impl CapturedTree {
    pub(super) fn open(path: &Path) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self { path: path.to_owned(), dir: rustix::fs::open(path, flags, Mode::empty()) }
    }

    /// Opens a path that begins with that of the tree.
    pub(super) fn open_below(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let below = path.strip_prefix(&self.path).map_err(|_outside| io::ErrorKind::InvalidInput)?;
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let dir = self.dir.as_ref().map_err(|error| *error)?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        for _ in 1..ATTEMPTS {
            match rustix::fs::openat2(dir, below, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                opened => return Ok(opened?),
            }
        }
        Ok(rustix::fs::openat2(dir, below, flags, Mode::empty(), resolve)?)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use rustix::fs::FileType;

    use crate::{HostRoot, recording::FileCapture};

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
            assert_eq!(host.sys.join(inside).join("numa_node").read_text().unwrap(), "1\n");
            assert_eq!(host.sys.join(inside).list_dir().unwrap().unwrap(), ["numa_node"]);
            assert_eq!(host.sys.join(inside).kind(), Some(FileType::Directory));
        }
        for outside in ["live", "above", "outside", "loop"] {
            let path = host.sys.join(outside);
            let error = path.read_text().unwrap_err().to_string();
            assert!(error.contains(path.as_path().to_str().unwrap()), "{error}");
            assert_eq!(path.kind(), None);
            assert!(path.read_link().is_some(), "a link itself can be read");
        }
    }

    #[test]
    fn each_root_confines_its_own_paths_only() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("machine/sys")).unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        symlink("../../secret", dir.path().join("machine/sys/above")).unwrap();
        let captured = HostRoot::captured(&dir.path().join("machine"));
        let live = HostRoot::live_below(&dir.path().join("machine"));
        assert_eq!(captured.sys.as_path(), live.sys.as_path());
        assert_eq!(live.sys.join("above").read_text().unwrap(), "x");
        assert!(captured.sys.join("above").read_text().is_err());
        assert!(captured.sys.join(dir.path().join("secret")).read_text().is_err(), "an absolute path");
        let (recorded, _) = FileCapture::of(&captured, |host| host.sys.join("above").read_text());
        assert!(recorded.is_err(), "a recording root confines like the root that it records");
    }

    #[test]
    fn a_root_is_opened_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("machine/sys")).unwrap();
        fs::write(dir.path().join("machine/sys/x"), "1").unwrap();
        let host = HostRoot::captured(&dir.path().join("machine"));
        fs::rename(dir.path().join("machine"), dir.path().join("moved")).unwrap();
        assert_eq!(host.sys.join("x").read_text().unwrap(), "1");
        let none = HostRoot::captured(&dir.path().join("machine")).sys.join("x").read_text().unwrap_err();
        assert_eq!(none.cause.kind(), std::io::ErrorKind::NotFound);
    }

    #[test]
    fn a_root_that_is_a_link_is_a_root() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("machine/sys")).unwrap();
        fs::write(dir.path().join("machine/sys/x"), "1").unwrap();
        symlink("machine", dir.path().join("link")).unwrap();
        let host = HostRoot::captured(&dir.path().join("link"));
        assert_eq!(host.sys.join("x").read_text().unwrap(), "1");
    }
}
