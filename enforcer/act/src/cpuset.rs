//! The cpuset files of one cgroup: read, write, read back.
//!
//! cgroups-rs makes the writes; this module handles three of its properties. It opens files with `O_CREAT |
//! O_TRUNC`, so the module checks first that a file exists. It joins paths without a check, so the module
//! opens a cgroup first, beneath the root of its hierarchy and through no symlink (`openat2`), and then uses
//! `/proc/self/fd/N`: the checked cgroup is the written one, and one that is recreated in between is not
//! touched. It reads the effective files by their v1 names only, so the module reads them itself.
//!
//! Do not use `Cgroup::new` of that crate: it enables controllers in every ancestor.
//!
//! Texts are kept exactly as the kernel gives them, with the newline: writing one back gives the
//! same file again, an empty set (`"\n"`) included.

use std::{
    error::Error,
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use cgroups_rs::fs::cpuset::CpuSetController;
use enforcer_core::hosted::Cpuset as SetTo;
use enforcer_core::{parse::scalar::release, workload::CgroupPath};
use enforcer_host::HostPath;
use numa_topology::set::{CpuSet, NodeSet};
use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most bytes that are read of one cpuset file: a list of every other CPU of 8,192 has 20 KiB.
const READ_LIMIT: u64 = 256 * 1024;

/// The first Linux that remembers where threads have pinned themselves (8f9ea86fdf99).
const REMEMBERS_PINS: (u32, u32) = (6, 2);

/// A file that is written, or the property of a unit of systemd that says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ManagedFile {
    /// Memory nodes.
    #[serde(rename = "cpuset.mems")]
    Mems,
    /// CPUs.
    #[serde(rename = "cpuset.cpus")]
    Cpus,
    /// v1 only: do pages follow when `cpuset.mems` changes? v2 always moves them.
    #[serde(rename = "cpuset.memory_migrate")]
    MemoryMigrate,
    /// v2 only: which controllers the children have; written to empty their cpusets.
    #[serde(rename = "cgroup.subtree_control")]
    SubtreeControl,
    /// v2 only: what partitions below may have.
    #[serde(rename = "cpuset.cpus.exclusive")]
    Exclusive,
    /// v2 only: whether it is the root of a partition.
    #[serde(rename = "cpuset.cpus.partition")]
    Partition,
    /// v2 only: whether its tasks stand still; a brake, and in no journal.
    #[serde(rename = "cgroup.freeze")]
    Freeze,
    /// v2 only: the amount of memory above which its tasks are held up; likewise.
    #[serde(rename = "memory.high")]
    High,
    /// Memory nodes of the unit that the cgroup belongs to.
    #[serde(rename = "AllowedMemoryNodes")]
    AllowedMemoryNodes,
    /// CPUs of the unit that the cgroup belongs to.
    #[serde(rename = "AllowedCPUs")]
    AllowedCpus,
}

impl ManagedFile {
    /// Name of the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mems => "cpuset.mems",
            Self::Cpus => "cpuset.cpus",
            Self::MemoryMigrate => "cpuset.memory_migrate",
            Self::SubtreeControl => "cgroup.subtree_control",
            Self::Exclusive => "cpuset.cpus.exclusive",
            Self::Partition => "cpuset.cpus.partition",
            Self::Freeze => "cgroup.freeze",
            Self::High => "memory.high",
            Self::AllowedMemoryNodes => "AllowedMemoryNodes",
            Self::AllowedCpus => "AllowedCPUs",
        }
    }

    /// The property of a unit that says the same.
    pub fn property(self) -> Option<Self> {
        match self {
            Self::Mems => Some(Self::AllowedMemoryNodes),
            Self::Cpus => Some(Self::AllowedCpus),
            _ => None,
        }
    }

    /// Is it no file, but a property of a unit?
    pub fn is_property(self) -> bool {
        matches!(self, Self::AllowedMemoryNodes | Self::AllowedCpus)
    }

    /// Name of the file with what the kernel makes of it.
    fn effective_name(self, v2: bool) -> Option<&'static str> {
        match (self, v2) {
            (Self::Cpus, true) => Some("cpuset.cpus.effective"),
            (Self::Mems, true) => Some("cpuset.mems.effective"),
            (Self::Cpus, false) => Some("cpuset.effective_cpus"),
            (Self::Mems, false) => Some("cpuset.effective_mems"),
            _ => None,
        }
    }
}

/// Why a cpuset could not be read or written.
#[derive(Debug, Error)]
pub enum CpusetError {
    /// The cgroup is not there, is not below the root, or is reached through a symlink.
    #[error("opening cgroup {path}: {cause}", path = path.display())]
    Open {
        /// Its directory.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// The root cgroup has no cpuset of its own.
    #[error("the root cgroup cannot be confined")]
    Root,
    /// A file could not be read.
    #[error("reading {path}: {cause}", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// A file could not be written.
    #[error("writing {value:?} to {path}: {cause}", path = path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What.
        value: String,
        /// Why not.
        cause: String,
    },
}

impl CpusetError {
    /// Is the cgroup, or its file, not there (any more)?
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Open { cause, .. } | Self::Read { cause, .. } => {
                matches!(Errno::from_io_error(cause), Some(Errno::NOENT | Errno::NODEV | Errno::NOTDIR))
            }
            Self::Root | Self::Write { .. } => false,
        }
    }

    /// Is a cgroup of this name impossible: an invalid name, too long a path, or a path through a symlink?
    pub fn is_never(&self) -> bool {
        matches!(self, Self::Open { cause, .. }
            if matches!(Errno::from_io_error(cause), Some(Errno::INVAL | Errno::NAMETOOLONG | Errno::LOOP)))
    }
}

#[cfg(any(test, feature = "testing"))]
thread_local! {
    static OPENED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How often this thread has opened a cgroup.
#[cfg(any(test, feature = "testing"))]
pub fn opened() -> usize {
    OPENED.get()
}

/// A mounted hierarchy with the cpuset controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpusetTree {
    root: PathBuf,
    v2: bool,
    /// The `/proc` for reading processes of the cgroups.
    proc: Option<HostPath>,
    forgets_pins: bool,
}

impl CpusetTree {
    /// The hierarchy that is mounted at `root`.
    pub fn new(root: &HostPath, v2: bool) -> Self {
        Self { root: root.as_path().to_owned(), v2, proc: None, forgets_pins: false }
    }

    /// Reads pins and policies of processes in this `/proc` before writes, and restores them after.
    #[must_use]
    pub fn with_processes(self, proc: &HostPath) -> Self {
        let release = proc.join("sys/kernel/osrelease").read_text().ok().and_then(|text| release(&text));
        let forgets_pins = release.is_none_or(|release| release < REMEMBERS_PINS);
        Self { proc: Some(proc.clone()), forgets_pins, ..self }
    }

    /// Does a write of `cpuset.cpus` take away where threads have pinned themselves, and the kernel never
    /// gives it back? Yes where its release is not known.
    pub fn forgets_pins(&self) -> bool {
        self.forgets_pins
    }

    /// The `/proc` for reading processes of the cgroups; `None` where they are not read.
    pub fn proc(&self) -> Option<&HostPath> {
        self.proc.as_ref()
    }

    /// Is it the unified hierarchy?
    pub fn is_v2(&self) -> bool {
        self.v2
    }

    /// Directory of a cgroup, for messages and for reading.
    pub fn path_of(&self, cgroup: &CgroupPath) -> PathBuf {
        self.root.join(cgroup.relative())
    }

    /// Opens a cgroup below the root.
    pub fn open(&self, cgroup: &CgroupPath) -> Result<OpenCpuset, CpusetError> {
        if cgroup.relative().is_empty() {
            return Err(CpusetError::Root);
        }
        self.open_or_root(cgroup)
    }

    /// Opens a cgroup, which may be the root: for its children's controllers, and to read what they have.
    pub(super) fn open_or_root(&self, cgroup: &CgroupPath) -> Result<OpenCpuset, CpusetError> {
        self.open_any(cgroup, if cgroup.is_root() { "." } else { cgroup.relative() })
    }

    /// Effective content of the file of a cgroup, the root included; `None` where the kernel has no such
    /// file.
    pub fn read_effective(
        &self,
        cgroup: &CgroupPath,
        file: ManagedFile,
    ) -> Result<Option<String>, CpusetError> {
        self.open_or_root(cgroup)?.read_effective(file)
    }

    fn open_any(&self, cgroup: &CgroupPath, relative: &str) -> Result<OpenCpuset, CpusetError> {
        #[cfg(any(test, feature = "testing"))]
        OPENED.set(OPENED.get() + 1);
        let path = self.path_of(cgroup);
        let failed = |cause: Errno| CpusetError::Open { path: path.clone(), cause: cause.into() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.root, flags, Mode::empty()).map_err(failed)?;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let dir = rustix::fs::openat2(&root, relative, flags, Mode::empty(), beneath).map_err(failed)?;
        let inode = rustix::fs::fstat(&dir).map_err(failed)?.st_ino;
        Ok(OpenCpuset { dir, path, root: self.root.clone(), v2: self.v2, inode })
    }

    /// Own setting of a cgroup, without inherited values; `None` where it cannot be read.
    pub fn set_to(&self, cgroup: &CgroupPath) -> Option<SetTo> {
        let cpuset = self.open(cgroup).ok()?;
        let cpus =
            cpuset.read(ManagedFile::Cpus).ok()?.trim().parse().ok().filter(|set: &CpuSet| !set.is_empty());
        let mems =
            cpuset.read(ManagedFile::Mems).ok()?.trim().parse().ok().filter(|set: &NodeSet| !set.is_empty());
        Some(SetTo { cpus, mems })
    }
}

impl CpusetTree {
    /// Lifts the CPU quota of a cgroup of the unified hierarchy; returns whether it had one. Elsewhere the
    /// quota is in another hierarchy, and stays.
    pub fn lift_quota(&self, cgroup: &CgroupPath) -> Result<bool, CpusetError> {
        if self.v2 { self.open(cgroup)?.lift_quota() } else { Ok(false) }
    }

    /// Is there no such cgroup?
    pub fn is_gone(&self, cgroup: &CgroupPath) -> bool {
        self.open(cgroup).is_err_and(|error| error.is_gone())
    }

    /// Does a process run in a cgroup or below it? One that is gone, or cannot be, has none.
    pub fn is_occupied(&self, cgroup: &CgroupPath) -> Result<bool, CpusetError> {
        let opened = match self.open(cgroup) {
            Err(error) if error.is_gone() || error.is_never() => return Ok(false),
            opened => opened?,
        };
        let occupied = if self.v2 {
            opened.read_name("cgroup.events").map(|text| text.lines().any(|line| line == "populated 1"))
        } else {
            opened.has_processes(&mut { MOST_CGROUPS })
        };
        match occupied {
            Err(error) if error.is_gone() => Ok(false),
            occupied => occupied,
        }
    }
}

/// v2: quota and period of the CPU time, `max 100000` without a quota.
const QUOTA: &str = "cpu.max";
/// No quota; the period stays.
const NO_QUOTA: &str = "max";

/// Most cgroups of one container that are read on v1, which has no count of all below. A container with more
/// counts as occupied.
const MOST_CGROUPS: usize = 1_000;

/// The cpuset of one cgroup, held open.
#[derive(Debug)]
pub struct OpenCpuset {
    dir: OwnedFd,
    path: PathBuf,
    root: PathBuf,
    v2: bool,
    inode: u64,
}

impl OpenCpuset {
    /// Inode of the directory: a cgroup that was made again has another one.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Is it in the unified hierarchy?
    pub fn is_v2(&self) -> bool {
        self.v2
    }

    /// The file's whole text, newline included.
    pub fn read(&self, file: ManagedFile) -> Result<String, CpusetError> {
        self.read_name(file.name())
    }

    /// Does a process run here or below? Reads at most `left` cgroups.
    fn has_processes(&self, left: &mut usize) -> Result<bool, CpusetError> {
        if !self.read_name("cgroup.procs")?.trim().is_empty() {
            return Ok(true);
        }
        let failed = |cause: io::Error| CpusetError::Read { path: self.path.clone(), cause };
        for child in std::fs::read_dir(self.address()).map_err(failed)? {
            let child = child.map_err(failed)?;
            if !child.file_type().map_err(failed)?.is_dir() {
                continue;
            }
            let Some(fewer) = left.checked_sub(1) else { return Ok(true) };
            *left = fewer;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(dir) = rustix::fs::openat(&self.dir, child.file_name(), flags, Mode::empty()) else {
                continue;
            };
            let path = self.path.join(child.file_name());
            let below = Self { dir, path, root: self.root.clone(), v2: self.v2, inode: 0 };
            match below.has_processes(left) {
                Err(error) if error.is_gone() => {}
                Ok(false) => {}
                found => return found,
            }
        }
        Ok(false)
    }

    /// Effective content of the file; `None` where the kernel has no such file.
    pub fn read_effective(&self, file: ManagedFile) -> Result<Option<String>, CpusetError> {
        let Some(name) = file.effective_name(self.v2) else { return Ok(None) };
        match self.read_name(name) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a text to the file, which must exist.
    pub fn write(&self, file: ManagedFile, text: &str) -> Result<(), CpusetError> {
        let failed = |cause: String| CpusetError::Write {
            path: self.path.join(file.name()),
            value: text.into(),
            cause,
        };
        self.check_regular(file).map_err(|cause| failed(cause.to_string()))?;
        let dir = self.address();
        let controller = || CpuSetController::new(dir.clone(), self.root.clone(), self.v2);
        match file {
            ManagedFile::Cpus => {
                controller().set_cpus(text).map_err(|error| failed(self.explain(file, &error)))
            }
            ManagedFile::Mems => {
                controller().set_mems(text).map_err(|error| failed(self.explain(file, &error)))
            }
            ManagedFile::AllowedMemoryNodes | ManagedFile::AllowedCpus => {
                Err(failed("it is a property of a unit, and no file".to_owned()))
            }
            // cgroups-rs takes a bool for memory_migrate, which loses the text, and knows none of the others.
            ManagedFile::MemoryMigrate
            | ManagedFile::SubtreeControl
            | ManagedFile::Exclusive
            | ManagedFile::Partition
            | ManagedFile::Freeze
            | ManagedFile::High => File::options()
                .write(true)
                .truncate(true)
                .open(dir.join(file.name()))
                .and_then(|mut open| open.write_all(text.as_bytes()))
                .map_err(|error| failed(error.to_string())),
        }
    }

    /// A symlink or a device in the file's place is refused, and so is a file that is not there.
    fn check_regular(&self, file: ManagedFile) -> io::Result<()> {
        let stat = rustix::fs::statat(&self.dir, file.name(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
        }
    }

    /// The system's own words for what went wrong below cgroups-rs, and what the kernel means by it here
    /// (kernel/cgroup/cpuset.c, `validate_change`).
    fn explain(&self, file: ManagedFile, error: &cgroups_rs::fs::error::Error) -> String {
        let Some(cause) = error.source() else { return error.to_string() };
        let meaning = match cause.downcast_ref::<io::Error>().and_then(Errno::from_io_error) {
            Some(Errno::BUSY) => {
                ": a cgroup below it, or an exclusive neighbour, uses what would be taken away"
            }
            Some(Errno::ACCESS) if self.is_closed_to_us(file) => {
                ": it may not be opened for writing; files of other users want CAP_DAC_OVERRIDE"
            }
            Some(Errno::ACCESS) => ": the cgroup above it does not have all of these",
            Some(Errno::NOSPC) => ": the set would be empty while the cgroup has tasks",
            Some(Errno::INVAL) => ": not online, or overlapping an exclusive cgroup",
            _ => "",
        };
        format!("{cause}{meaning}")
    }

    /// May the file not even be opened? Both errors are `EACCES`, and cgroups-rs does not say which it was.
    fn is_closed_to_us(&self, file: ManagedFile) -> bool {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.dir, file.name(), flags, Mode::empty());
        opened.is_err_and(|errno| errno == Errno::ACCESS)
    }

    /// Lifts the CPU quota of the cgroup; returns whether it had one.
    fn lift_quota(&self) -> Result<bool, CpusetError> {
        if self.read_name(QUOTA)?.starts_with(NO_QUOTA) {
            return Ok(false);
        }
        let path = self.path.join(QUOTA);
        let failed =
            |cause: io::Error| CpusetError::Write { path, value: NO_QUOTA.into(), cause: cause.to_string() };
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = rustix::fs::openat(&self.dir, QUOTA, flags, Mode::empty()).map_err(io::Error::from);
        open.and_then(|open| File::from(open).write_all(NO_QUOTA.as_bytes())).map_err(failed)?;
        Ok(true)
    }

    pub(super) fn read_name(&self, name: &str) -> Result<String, CpusetError> {
        let failed = |cause: io::Error| CpusetError::Read { path: self.path.join(name), cause };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, name, flags, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let mut text = String::new();
        File::from(file).take(READ_LIMIT).read_to_string(&mut text).map_err(failed)?;
        Ok(text)
    }

    /// A path of the directory that was opened, whatever its name leads to by now.
    pub(super) fn address(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.dir.as_raw_fd()))
    }

    /// The directory itself, opened with `O_PATH`.
    pub(super) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// The directory, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, thread};

    use super::*;
    use crate::fixture::Fixture;
    use enforcer_kernel::privileges;

    #[test]
    fn a_file_that_may_not_be_opened_is_no_cgroup_above_that_is_too_narrow() {
        let fixture = Fixture::new(true);
        fixture.cgroup("/a", "0-3", "0\n");
        let root = fixture.layout.cpuset.path.clone();
        fs::set_permissions(root.join("a/cpuset.cpus").as_path(), fs::Permissions::from_mode(0o400)).unwrap();
        // Root may write what its mode forbids, until it gives that up.
        let write = move || {
            privileges::renounce().unwrap();
            let cpuset = CpusetTree::new(&root, true).open(&CgroupPath::new("/a")).unwrap();
            cpuset.write(ManagedFile::Cpus, "0-1").unwrap_err().to_string()
        };
        let error = thread::spawn(write).join().unwrap();
        assert!(error.contains("cpuset.cpus: Permission denied"), "{error}");
        assert!(error.ends_with("files of other users want CAP_DAC_OVERRIDE"), "{error}");
    }
}
