//! The file of the control socket, created so that only authorized users can connect, and no live socket is
//! replaced.
//!
//! It is bound in a private directory, gets its mode there, and is renamed into place. So it never has other
//! rights, and the process's umask stays. The target directory is locked meanwhile, so that two daemons
//! cannot take the place at once. An existing file is replaced only if it is a socket without a listener.
//!
//! It never follows a symlink at the end of the path, and never removes anything but a dead socket.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt},
    process::geteuid,
};
use thiserror::Error;

use enforcer_host::file_error::{FileError, failed};

/// Rights of the socket: its owner and its group.
const MODE: u32 = 0o660;

/// Longest wait for another daemon that is binding in the same directory.
const LOCK: Duration = Duration::from_secs(2);

/// Why there is no control socket.
#[derive(Debug, Error)]
pub enum ControlSocketError {
    /// Another process listens there.
    #[error("{path} is taken: {holder} listens on it", path = path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
        /// The process that listens.
        holder: String,
    },
    /// A file operation failed, or the existing file must not be replaced.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A listening socket and its file, which is removed on drop.
#[derive(Debug)]
pub struct ControlSocket {
    listener: Option<UnixListener>,
    /// Group of the socket's file: its members may ask.
    pub group: u32,
    path: PathBuf,
    /// Device and inode: a file that is not ours stays.
    file: (u64, u64),
}

impl ControlSocket {
    /// Binds the socket at `path`; creates a missing directory.
    pub fn bind(path: &Path) -> Result<Self, ControlSocketError> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed("binding", path)(io::Error::from(io::ErrorKind::InvalidInput)).into());
        };
        let builder = &mut DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).map_err(failed("creating", directory))?;
        let above = File::open(directory).map_err(failed("opening", directory))?;
        check_directory(&above).map_err(failed("using the directory", directory))?;
        lock(&above).map_err(failed("locking", directory))?;
        make_room(path)?;

        // A kubelet takes each socket in its registry for a plugin's, but for hidden ones.
        let mut private = OsString::from(".");
        private.push(name);
        private.push(format!(".{}", process::id()));
        let private = directory.join(private);
        // Left by a killed process with our id.
        let _absent = fs::remove_file(private.join("s")).and_then(|()| fs::remove_dir(&private));
        DirBuilder::new().mode(0o700).create(&private).map_err(failed("creating", &private))?;
        let bound = Self::bind_in(&private, path);
        let _kept = fs::remove_dir(&private);
        bound
    }

    fn bind_in(private: &Path, path: &Path) -> Result<Self, ControlSocketError> {
        let inside = File::open(private).map_err(failed("opening", private))?;
        let file = private.join("s");
        // The path in an address has 108 bytes at most, wherever the directory is.
        let short = format!("/proc/self/fd/{}/s", inside.as_raw_fd());
        let listener = UnixListener::bind(short).map_err(failed("binding", path))?;
        let ready = (|| {
            fs::set_permissions(&file, Permissions::from_mode(MODE))?;
            listener.set_nonblocking(true)?;
            let metadata = fs::symlink_metadata(&file)?;
            fs::rename(&file, path)?;
            Ok((metadata.gid(), (metadata.dev(), metadata.ino())))
        })();
        match ready {
            Ok((group, file)) => Ok(Self { listener: Some(listener), group, path: path.to_owned(), file }),
            Err(error) => {
                let _gone = fs::remove_file(&file);
                Err(failed("placing", path)(error).into())
            }
        }
    }

    /// The listener; `None` on a second call.
    pub fn take(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its file is in place. Without it no client can connect.
    pub fn is_in_place(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.file)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if self.is_in_place()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!("removing {}: {error}; the next daemon replaces it", self.path.display());
        }
    }
}

/// A user that may write the directory could replace our socket by his own.
fn check_directory(directory: &File) -> io::Result<()> {
    let metadata = directory.metadata()?;
    let refused = |reason: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    match (metadata.uid(), metadata.mode() & 0o7777) {
        (_, mode) if mode & 0o022 != 0 => refused(format!("others may write it (mode {mode:04o})")),
        (0, _) => Ok(()),
        (uid, _) if uid == geteuid().as_raw() => Ok(()),
        (uid, _) => refused(format!("it belongs to another user ({uid})")),
    }
}

fn lock(directory: &File) -> io::Result<()> {
    let until = Instant::now() + LOCK;
    loop {
        match flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
            other => return Ok(other?),
        }
    }
}

/// Makes sure that there is no file, or a socket without a listener.
fn make_room(path: &Path) -> Result<(), ControlSocketError> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(failed("looking at", path))?,
    };
    if !metadata.file_type().is_socket() {
        return Err(failed("replacing", path)(io::Error::other("it is there and is no socket")).into());
    }
    match listener_of(path) {
        Ok(holder) => Err(ControlSocketError::Taken { path: path.to_owned(), holder }),
        Err(Errno::CONNREFUSED) => Ok(()),
        // A live one with a full queue.
        Err(Errno::WOULDBLOCK) => {
            let holder = "a process that does not answer".to_owned();
            Err(ControlSocketError::Taken { path: path.to_owned(), holder })
        }
        Err(error) => Err(failed("connecting to", path)(error.into()).into()),
    }
}

/// The listening process, as far as the kernel tells.
fn listener_of(path: &Path) -> Result<String, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let pid = sockopt::socket_peercred(&socket)?.pid;
    Ok(format!("another process ({})", pid.as_raw_nonzero()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixStream};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn it_has_its_mode_takes_connections_and_goes_when_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run/control.sock");
        let socket = ControlSocket::bind(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o660, 0o700));
        assert_eq!(names(path.parent().unwrap()), ["control.sock"], "nothing else is left there");
        assert_eq!(socket.group, fs::metadata(&path).unwrap().gid());
        UnixStream::connect(&path).unwrap();
        assert!(socket.is_in_place());
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn one_that_was_taken_away_or_replaced_is_missed_and_what_is_there_stays() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("c");
        let socket = ControlSocket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!socket.is_in_place());
        let _other = ControlSocket::bind(&path).unwrap();
        assert!(!socket.is_in_place());
        drop(socket);
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_dead_one_is_replaced_and_a_live_one_is_not() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("c");
        // As after kill -9: the file stays without a listener.
        drop(UnixListener::bind(&path).unwrap());
        let live = ControlSocket::bind(&path).unwrap();
        let message = ControlSocket::bind(&path).unwrap_err().to_string();
        let own = format!("is taken: another process ({}) listens on it", process::id());
        assert!(message.starts_with(path.to_str().unwrap()) && message.ends_with(&own), "{message}");
        UnixStream::connect(&path).unwrap();
        drop(live);
        ControlSocket::bind(&path).unwrap();
    }

    #[test]
    fn a_live_one_that_does_not_answer_is_live() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("c");
        let _live = ControlSocket::bind(&path).unwrap();
        // No process accepts, so the queue fills up.
        let waiting: Vec<_> = std::iter::from_fn(|| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            connect(&socket, &SocketAddrUnix::new(&path).unwrap()).ok().map(|()| socket)
        })
        .take(100_000)
        .collect();
        assert!(!waiting.is_empty());
        let message = ControlSocket::bind(&path).unwrap_err().to_string();
        assert!(message.contains("does not answer"), "{message}");
    }

    #[test]
    fn what_is_no_socket_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let (file, link) = (root.path().join("file"), root.path().join("link"));
        fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            let message = ControlSocket::bind(path).unwrap_err().to_string();
            assert!(message.ends_with("it is there and is no socket"), "{message}");
        }
        assert_eq!(fs::read_to_string(&link).unwrap(), "text");
    }

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let root = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o1777, 0o770] {
            fs::set_permissions(root.path(), Permissions::from_mode(mode)).unwrap();
            let message = ControlSocket::bind(&root.path().join("c")).unwrap_err().to_string();
            assert!(message.contains("others may write it"), "{message}");
        }
        assert_eq!(names(root.path()), [""; 0]);
    }

    #[test]
    fn a_file_that_took_its_place_stays_when_it_goes() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("c");
        let socket = ControlSocket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        drop(socket);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
    }

    #[test]
    fn of_two_that_start_at_once_one_gets_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("c");
        drop(UnixListener::bind(&path).unwrap());
        let starting: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                thread::spawn(move || ControlSocket::bind(&path))
            })
            .collect();
        // All sockets are kept until all have tried.
        let outcomes: Vec<_> = starting.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        UnixStream::connect(&path).unwrap();
    }
}
