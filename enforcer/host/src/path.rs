//! A path below one of the trees of a [`HostRoot`](super::HostRoot), and the reads of it.
//!
//! Problem: each read of a captured tree must stay in that tree, and `capture` must note each read. A plain
//! path says nothing of either. Idea: the path carries both, from its root through every [`HostPath::join`].
//!
//! Invariants: only a `HostRoot` makes the first path. A read through this type never leaves a captured tree
//! ([`super::confined`]); [`HostPath::as_path`] is for everything that is not a read here.
//!
//! Cost: two pointers beside the path, both null on the running host. A captured tree is opened once.

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{self, Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::{
    READ_LIMIT, REGULAR, ReadError, as_text, confined::CapturedTree, present, read_regular,
    recording::FileRecorder,
};

/// The most entries of a directory that are listed.
const ENTRY_LIMIT: usize = 1 << 17;

/// A path below a tree of a [`HostRoot`](super::HostRoot). Two are equal if their texts are.
#[derive(Clone)]
pub struct HostPath {
    path: PathBuf,
    access: TreeAccess,
}

/// What reads below a root go through.
#[derive(Clone, Default)]
pub(super) struct TreeAccess {
    /// The captured tree that confines the reads; `None` on the running host.
    pub(super) tree: Option<Arc<CapturedTree>>,
    /// Where the reads are noted.
    pub(super) recorder: Option<FileRecorder>,
}

impl HostPath {
    pub(super) fn new(path: PathBuf, access: TreeAccess) -> Self {
        Self { path, access }
    }

    pub(super) fn access(&self) -> &TreeAccess {
        &self.access
    }

    pub(super) fn recorder(&self) -> Option<&FileRecorder> {
        self.access.recorder.as_ref()
    }

    pub(super) fn recorded_by(&self, recorder: &FileRecorder) -> Self {
        let access = TreeAccess { tree: self.access.tree.clone(), recorder: Some(recorder.clone()) };
        Self { path: self.path.clone(), access }
    }

    /// Is it in a captured tree?
    pub(super) fn is_confined(&self) -> bool {
        self.access.tree.is_some()
    }

    /// A path below this one.
    #[must_use]
    pub fn join(&self, below: impl AsRef<Path>) -> Self {
        Self { path: self.path.join(below), access: self.access.clone() }
    }

    /// The path as text, for messages.
    pub fn display(&self) -> path::Display<'_> {
        self.path.display()
    }

    /// The path alone, for writes, watches, and readers of other crates. Nothing confines or records what
    /// is done with it.
    pub fn as_path(&self) -> &Path {
        &self.path
    }

    /// Opens it: inside of the captured tree, or on the running host.
    pub(super) fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags.union(OFlags::CLOEXEC);
        match &self.access.tree {
            Some(tree) => tree.open_below(&self.path, flags),
            None => Ok(rustix::fs::open(&self.path, flags, Mode::empty())?),
        }
    }

    pub(super) fn failed(&self, cause: io::Error) -> ReadError {
        ReadError { path: self.path.clone(), cause }
    }

    /// The whole text of a file; invalid UTF-8 is replaced.
    ///
    /// Kernel files have no length to trust: a file longer than [`READ_LIMIT`] is an error, and so is
    /// anything that is not a regular file (a FIFO in a captured tree would block).
    pub fn read_text(&self) -> Result<String, ReadError> {
        self.read_text_within(READ_LIMIT)
    }

    /// [`Self::read_text`] with a limit of its own, in bytes.
    pub fn read_text_within(&self, limit: u64) -> Result<String, ReadError> {
        let bytes = self.open(REGULAR).and_then(|file| read_regular(file, limit));
        let text = as_text(bytes.map_err(|cause| self.failed(cause))?);
        if let Some(recorder) = self.recorder() {
            recorder.note_text(&self.path, &text);
        }
        Ok(text)
    }

    /// [`Self::read_text`] where the file may be absent (`None`); one that is there and cannot be read is an
    /// error.
    pub fn read_optional(&self) -> Result<Option<String>, ReadError> {
        present(self.read_text())
    }

    /// Names in a directory, in ascending order; `None` where there is no such directory. Names that
    /// are not UTF-8 are no kernel names and are left out.
    pub fn list_dir(&self) -> Result<Option<Vec<String>>, ReadError> {
        let Some(entries) = present(self.read_dir().map_err(|cause| self.failed(cause)))? else {
            return Ok(None);
        };
        if let Some(recorder) = self.recorder() {
            recorder.note_directory(&self.path);
            for (name, _) in entries.iter().filter(|(_, kind)| *kind != FileType::RegularFile) {
                recorder.note_directory(&self.path.join(name));
            }
        }
        let mut names: Vec<String> =
            entries.into_iter().filter_map(|(name, _)| name.into_string().ok()).collect();
        names.sort_unstable();
        Ok(Some(names))
    }

    /// The entries of a directory with what they are, symlinks not followed; at most [`ENTRY_LIMIT`].
    pub fn read_dir(&self) -> io::Result<Vec<(OsString, FileType)>> {
        let dir = self.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if entries.len() == ENTRY_LIMIT {
                break;
            }
            let kind = match entry.file_type() {
                // Some file systems do not say.
                FileType::Unknown => rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                kind => kind,
            };
            entries.push((OsStr::from_bytes(name.to_bytes()).to_owned(), kind));
        }
        Ok(entries)
    }

    /// Is there a directory? Symlinks are followed.
    pub fn is_dir(&self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    /// Is there anything? Symlinks are followed.
    pub fn exists(&self) -> bool {
        self.kind().is_some()
    }

    /// What is here, symlinks followed; `None` where there is nothing.
    pub(super) fn kind(&self) -> Option<FileType> {
        let file = self.open(OFlags::PATH).ok()?;
        rustix::fs::fstat(&file).ok().map(|stat| FileType::from_raw_mode(stat.st_mode))
    }

    /// What a symbolic link says; `None` where there is no link.
    pub fn read_link(&self) -> Option<PathBuf> {
        let link = self.open(OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        let target = rustix::fs::readlinkat(&link, "", Vec::new()).ok()?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if let Some(recorder) = self.recorder() {
            recorder.note_link(&self.path, &target);
        }
        Some(target)
    }
}

impl PartialEq for HostPath {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for HostPath {}

impl fmt::Debug for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::HostRoot;

    #[test]
    fn reads_no_more_than_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sys")).unwrap();
        fs::write(dir.path().join("sys/file"), "12345").unwrap();
        let path = HostRoot::live_below(dir.path()).sys.join("file");
        assert_eq!(path.read_text_within(5).unwrap(), "12345");
        let error = path.read_text_within(4).unwrap_err().to_string();
        assert_eq!(error, format!("reading {}: longer than 4 bytes", path.display()));
    }

    #[test]
    fn refuses_what_would_block_or_never_end() {
        for path in ["/dev/zero", "/dev/null", "/"] {
            assert!(HostRoot::live().at(path).read_text().is_err(), "{path}");
        }
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(HostRoot::live().at(fifo).read_text().is_err());
    }

    #[test]
    fn tells_absent_from_unreadable() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sys")).unwrap();
        fs::write(dir.path().join("sys/file"), [b'a', 0xff]).unwrap();
        let sys = HostRoot::live_below(dir.path()).sys;
        let file = sys.join("file");
        assert_eq!(file.read_optional().unwrap().unwrap(), "a\u{fffd}");
        assert!(sys.join("none").read_optional().unwrap().is_none());
        assert!(file.join("below").read_optional().unwrap().is_none());
        assert!(sys.read_optional().is_err());
        assert_eq!(sys.list_dir().unwrap().unwrap(), ["file"]);
        assert!(sys.join("none").list_dir().unwrap().is_none());
    }
}
