//! Where the host's files are, and how they are read.
//!
//! A [`HostRoot`] is a value that is handed in, so that every reader works on the running host, on a
//! captured tree (`--root DIR`) and on a fixture alike. Each [`HostPath`] below it carries what confines and
//! records its reads. [`workloads`], [`units`], [`sandboxes`] and
//! [`topology`] turn files into values of the core. Nothing is written here, but [`systemd`] asks for
//! properties of units.

pub mod cgroup;
pub mod cgroup_dir;
pub mod cgroup_tree;
mod confined;
pub mod file_error;
pub mod host_facts;
pub mod interrupts;
pub mod lockdown;
pub mod lxc;
mod output_tree;
pub mod owned_file;
mod path;
pub mod processes;
pub mod recording;
pub mod repeated;
pub mod sandboxes;
pub mod systemd;
pub mod topology;
pub mod units;
pub mod workloads;

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;

use self::{confined::CapturedTree, path::TreeAccess, recording::FileRecorder};

pub use self::path::HostPath;

/// The three trees that readers use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoot {
    /// `/sys`
    pub sys: HostPath,
    /// `/proc`
    pub proc: HostPath,
    /// `/sys/fs/cgroup`
    pub cgroup: HostPath,
    /// A copy of another machine: live sources (BPF, system calls) say nothing about it.
    pub captured: bool,
}

/// A file that could not be read.
#[derive(Debug, Error)]
#[error("reading {path}: {cause}", path = path.display())]
pub struct ReadError {
    /// Which file.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub cause: io::Error,
}

impl HostRoot {
    /// The running host.
    pub fn live() -> Self {
        Self::live_below(Path::new("/"))
    }

    /// A host whose `sys` and `proc` are below `root`, with everything else of the running host: symlinks may
    /// lead out of `root`, and writes take effect.
    pub fn live_below(root: &Path) -> Self {
        Self::below(root, false, &TreeAccess::default())
    }

    /// A captured tree with `sys` and `proc` below `root`. Its symlinks do not lead out of it.
    pub fn captured(root: &Path) -> Self {
        let tree = Arc::new(CapturedTree::open(root));
        Self::below(root, true, &TreeAccess { tree: Some(tree), recorder: None })
    }

    fn below(root: &Path, captured: bool, access: &TreeAccess) -> Self {
        let at = |tree| HostPath::new(root.join(tree), access.clone());
        Self { sys: at("sys"), proc: at("proc"), cgroup: at("sys/fs/cgroup"), captured }
    }

    /// The same trees; what is read of them is recorded.
    fn recorded_by(&self, recorder: &FileRecorder) -> Self {
        let Self { sys, proc, cgroup, captured } = self;
        let [sys, proc, cgroup] = [sys, proc, cgroup].map(|path| path.recorded_by(recorder));
        Self { sys, proc, cgroup, captured: *captured }
    }

    /// A place of this host that is known by its whole path, as a mount point is. In a captured tree nothing
    /// can be read of one that is not below its root.
    pub fn at(&self, path: impl Into<PathBuf>) -> HostPath {
        HostPath::new(path.into(), self.sys.access().clone())
    }
}

/// The most that is read of a kernel file; `numa_maps` of a large process is the longest of them.
pub const READ_LIMIT: u64 = 16 << 20;

/// Room for the first read of a file: nearly every kernel file fits, and is read in one call.
const FIRST_READ: usize = 4_096;

fn as_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// `None` where the file or directory is absent.
pub fn present<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.cause.kind(), NotFound | NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bytes of a file outside of a host's trees, of at most `limit` bytes; anything that is not a regular
/// file is an error.
pub fn read_bytes(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_regular(rustix::fs::open(path, REGULAR.union(OFlags::CLOEXEC), Mode::empty())?, limit)
}

/// Opens a file for [`read_regular`]: a FIFO must not block.
const REGULAR: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

fn read_regular(file: OwnedFd, limit: u64) -> io::Result<Vec<u8>> {
    let file = File::from(file);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    read_within(file, limit)
}

/// All that a reader has, if that is at most `limit` bytes.
pub fn read_within(reader: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(FIRST_READ);
    reader.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(too_long(limit));
    }
    Ok(bytes)
}

fn too_long(limit: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes"))
}

/// What a person wrote, as text; unlike the kernel's it must be UTF-8.
pub fn written_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("not UTF-8: {}", error.utf8_error()))
    })
}
