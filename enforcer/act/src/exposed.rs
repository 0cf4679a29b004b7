//! The files in which containers read what they were given: a directory for each, which the runtime mounts
//! into it.
//!
//! The directory is mounted, not the file: a container that had the file mounted would keep the old one after
//! it is replaced. Each text replaces the one before by a rename. So a program that reads the file, or waits
//! with inotify(7) for the directory, sees a whole one.
//!
//! Only those containers need these files: a write that fails is reported and repeated with the next change,
//! and a container starts without its directory if that cannot be created. Ids come from the runtime and are
//! checked before they become file names. The files are as durable as the cpusets that they describe: not at
//! all. So no answer to a runtime waits for the disk here, as it would in the daemon's `whole_file.rs` or in
//! the journal's `files.rs`, which replace files too. The mode is set whatever the umask, because other users
//! read them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use thiserror::Error;

use super::ready_socket::ReadySocket;
use enforcer_host::{
    READ_LIMIT,
    file_error::{FileError, failed},
    read_bytes, written_text,
};

/// Below the state directory.
const FOLDER: &str = "exposed";
/// The file that containers read.
const FILE: &str = "resources.sh";
/// Its next text.
const NEXT: &str = ".resources.sh";
/// Longest id of a container: those of Kubernetes have 64 characters.
const LONGEST_ID: usize = 128;

/// The directories of all containers.
#[derive(Debug)]
pub struct ResourceDirs {
    dir: PathBuf,
    /// Present text of each container; empty where that is unknown.
    texts: BTreeMap<String, String>,
    /// Sockets of the containers that may report ready.
    ready: BTreeMap<String, ReadySocket>,
}

/// A container has a stale file, or none.
#[derive(Debug, Error)]
pub enum ExposeError {
    /// An id that must not become the name of a file.
    #[error(
        "exposing the place of container {0:?}: its id is not a name of letters, digits, `-`, `_` and `.`"
    )]
    Id(String),
    /// The file system.
    #[error(transparent)]
    File(#[from] FileError),
}

impl ResourceDirs {
    /// Opens the directory below a state directory, with the files of an earlier daemon.
    pub fn open(state_dir: &Path) -> Result<Self, ExposeError> {
        let dir = state_dir.join(FOLDER);
        make_dir(&dir)?;
        let mut texts = BTreeMap::new();
        for entry in fs::read_dir(&dir).map_err(failed("listing", &dir))?.flatten() {
            if let Some(id) = entry.file_name().to_str().filter(|id| is_id(id)) {
                let text = read_bytes(&entry.path().join(FILE), READ_LIMIT).and_then(written_text);
                let text = text.unwrap_or_default();
                texts.insert(id.to_owned(), text);
            }
        }
        Ok(Self { dir, texts, ready: BTreeMap::new() })
    }

    /// Makes the directory of a container that is about to be made; returns its path, to be mounted.
    pub fn begin(&mut self, id: &str, text: &str) -> Result<PathBuf, ExposeError> {
        if !is_id(id) {
            return Err(ExposeError::Id(id.chars().take(LONGEST_ID).collect()));
        }
        let dir = self.dir.join(id);
        make_dir(&dir)?;
        self.texts.insert(id.to_owned(), String::new());
        self.refresh(id, text)?;
        Ok(dir)
    }

    /// Lets a container read this from now on. One without a directory never had it mounted.
    pub fn refresh(&mut self, id: &str, text: &str) -> Result<(), ExposeError> {
        if self.is_stale(id, text) {
            replace(&self.dir.join(id), text)?;
            self.texts.insert(id.to_owned(), text.to_owned());
        }
        Ok(())
    }

    /// Does a container that has a directory read something else?
    pub fn is_stale(&self, id: &str, text: &str) -> bool {
        self.texts.get(id).is_some_and(|before| before != text)
    }

    /// From now on a container can say that it is ready. One without a directory has nothing to say it with.
    pub fn listen(&mut self, id: &str) -> Result<(), ExposeError> {
        if self.texts.contains_key(id) && !self.ready.contains_key(id) {
            let socket = ReadySocket::bind(&self.dir, id)?;
            self.ready.insert(id.to_owned(), socket);
        }
        Ok(())
    }

    /// Returns those of the starting containers that have reported ready. Sockets of other containers are
    /// closed. An error of one container does not stop the others.
    pub fn hear(&mut self, starting: &BTreeSet<String>) -> (BTreeSet<String>, Result<(), ExposeError>) {
        self.ready.retain(|id, _| starting.contains(id));
        let (mut ready, mut outcome) = (BTreeSet::new(), Ok(()));
        for id in starting {
            outcome = outcome.and(self.listen(id));
            let Some(socket) = self.ready.get_mut(id) else { continue };
            outcome = outcome.and(socket.hear().map_err(ExposeError::from));
            if socket.is_ready() {
                ready.insert(id.clone());
            }
        }
        (ready, outcome)
    }

    /// The container is gone. Whether it was exposed does not matter.
    pub fn end(&mut self, id: &str) -> Result<(), ExposeError> {
        self.ready.remove(id);
        if self.texts.remove(id).is_none() {
            return Ok(());
        }
        let dir = self.dir.join(id);
        Ok(fs::remove_dir_all(&dir).or_else(unless_gone).map_err(failed("removing", &dir))?)
    }

    /// Only these containers are there. All others are tried, whatever fails.
    pub fn only(&mut self, is_there: impl Fn(&str) -> bool) -> Result<(), ExposeError> {
        let gone: Vec<String> = self.texts.keys().filter(|id| !is_there(id)).cloned().collect();
        gone.iter().map(|id| self.end(id)).fold(Ok(()), Result::and)
    }

    /// Ids of the containers that have a directory.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().map(String::as_str)
    }
}

fn is_id(id: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=LONGEST_ID).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(known)
}

/// Readable by every user in the container, whatever the daemon's umask.
fn make_dir(dir: &Path) -> Result<(), FileError> {
    let made = DirBuilder::new().mode(0o755).create(dir);
    let made = made.or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists if is_dir(dir) => Ok(()),
        _ => Err(error),
    });
    made.and_then(|()| fs::set_permissions(dir, Permissions::from_mode(0o755))).map_err(failed("making", dir))
}

/// Itself, not what a link leads to.
fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

fn replace(dir: &Path, text: &str) -> Result<(), FileError> {
    let (next, file) = (dir.join(NEXT), dir.join(FILE));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o644);
    options.custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0));
    let written = options.open(&next).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_permissions(Permissions::from_mode(0o644))
    });
    written.map_err(failed("writing", &next))?;
    fs::rename(&next, &file).map_err(failed("renaming to", &file))
}

fn unless_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn read(dir: &Path, id: &str) -> String {
        fs::read_to_string(dir.join(FOLDER).join(id).join(FILE)).unwrap_or_default()
    }

    #[test]
    fn a_container_reads_whole_texts_until_it_is_gone() {
        let state = tempfile::tempdir().unwrap();
        let mut exposed = ResourceDirs::open(state.path()).unwrap();
        let dir = exposed.begin("a", "one\n").unwrap();
        assert_eq!(dir, state.path().join("exposed/a"));
        let inode = |dir: &Path| fs::metadata(dir.join(FILE)).unwrap().ino();
        let first = inode(&dir);
        // Held open, so that its inode is not given to another file.
        let _open = fs::File::open(dir.join(FILE)).unwrap();
        exposed.refresh("a", "one\n").unwrap();
        assert_eq!(inode(&dir), first, "the same again is not written");
        exposed.refresh("a", "two\n").unwrap();
        assert_ne!(inode(&dir), first, "it is another file, not the same with other bytes");
        assert_eq!(read(state.path(), "a"), "two\n");
        let names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [FILE]);
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::metadata(dir.join(FILE)).unwrap().mode() & 0o777, 0o644);
        exposed.refresh("b", "one\n").unwrap();
        assert_eq!(read(state.path(), "b"), "", "no container has that mounted");
        exposed.end("a").unwrap();
        exposed.end("a").unwrap();
        assert!(!dir.exists());
    }

    #[test]
    fn a_later_daemon_finds_and_refreshes_what_there_is() {
        let state = tempfile::tempdir().unwrap();
        let mut first = ResourceDirs::open(state.path()).unwrap();
        for id in ["a", "b", "c"] {
            first.begin(id, "one\n").unwrap();
        }
        let mut later = ResourceDirs::open(state.path()).unwrap();
        assert_eq!(later.ids().collect::<Vec<_>>(), ["a", "b", "c"]);
        later.refresh("a", "two\n").unwrap();
        later.only(|id| ["a", "other"].contains(&id)).unwrap();
        assert_eq!(read(state.path(), "a"), "two\n");
        assert_eq!(later.ids().collect::<Vec<_>>(), ["a"]);
        assert!(!state.path().join("exposed/b").exists());
    }

    #[test]
    fn an_id_is_a_name_or_nothing() {
        let state = tempfile::tempdir().unwrap();
        let mut exposed = ResourceDirs::open(state.path()).unwrap();
        for id in ["", ".", "..", "../x", "a/b", ".hidden", "a\0", "\u{1b}", &"x".repeat(129)] {
            let error = exposed.begin(id, "").unwrap_err();
            assert!(matches!(error, ExposeError::Id(_)) && error.to_string().len() < 400, "{error}");
        }
        assert!(exposed.begin("3f4a-_.x", "").is_ok());
    }

    #[test]
    fn what_cannot_be_written_is_named_and_tried_again() {
        let state = tempfile::tempdir().unwrap();
        let mut exposed = ResourceDirs::open(state.path()).unwrap();
        let dir = exposed.begin("a", "one\n").unwrap();
        let elsewhere = state.path().join("elsewhere");
        fs::write(&elsewhere, "kept").unwrap();
        symlink(&elsewhere, dir.join(NEXT)).unwrap();
        let error = exposed.refresh("a", "two\n").unwrap_err().to_string();
        assert!(error.starts_with("writing ") && error.contains("/exposed/a/"), "{error}");
        assert_eq!(
            (read(state.path(), "a").as_str(), fs::read_to_string(&elsewhere).unwrap().as_str()),
            ("one\n", "kept")
        );
        fs::remove_file(dir.join(NEXT)).unwrap();
        exposed.refresh("a", "two\n").unwrap();
        assert_eq!(read(state.path(), "a"), "two\n");
        symlink(state.path(), state.path().join("exposed/link")).unwrap();
        assert!(exposed.begin("link", "x").is_err());
    }
}
