//! A socket in the directory that a container has mounted, over which it says that it is ready.
//!
//! Problem: only a program itself knows when it has loaded the memory that it seldom needs. Idea: a datagram
//! with the line `READY=1`, as `sd_notify(3)` sends it and many servers do already. Each container has a
//! socket of its own, so a message needs no proof of its sender: only that container has the directory
//! mounted. The mount is read-only, which does not prevent sending.
//!
//! A received message becomes a file beside the socket. A restarted daemon finds it there, and the sender
//! sees that its message arrived.
//!
//! Senders are hostile. Invariants: a message says that the sender is ready and nothing else; at most a few
//! messages, and the beginning of each, are read at a time; the daemon does not wait for a sender, and a
//! sender waits for one turn at most. The kernel closes descriptors that are sent along, as the daemon gives
//! it no room for them.

use std::{
    fs::{self, OpenOptions, Permissions},
    io,
    os::unix::{
        fs::{OpenOptionsExt, PermissionsExt},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use enforcer_host::file_error::{FileError, failed};

/// The socket, in the directory of a container.
const SOCKET: &str = "notify";
/// Appears beside it once it was heard.
const HEARD: &str = "ready";
/// The socket before it is in its place, where no container sees it; a short name, because the kernel takes
/// 107 bytes of a path.
const NEXT: &str = ".notify";
/// The line of a ready message, among other lines or alone.
const READY: &[u8] = b"READY=1";
/// Most messages that are read at once: above what the kernel lets wait (`net.unix.max_dgram_qlen`, 10).
const MOST: usize = 32;
/// Most bytes of one that are read.
const LONGEST: usize = 4096;

/// The socket of one container; the file is gone with this.
#[derive(Debug)]
pub(super) struct ReadySocket {
    socket: UnixDatagram,
    dir: PathBuf,
    is_ready: bool,
}

impl ReadySocket {
    /// Makes that of the container `id` in its directory below `all`, in place of the one of an earlier
    /// daemon.
    pub(super) fn bind(all: &Path, id: &str) -> Result<Self, FileError> {
        let (next, dir) = (all.join(NEXT), all.join(id));
        remove(&next).map_err(failed("removing", &next))?;
        let socket = UnixDatagram::bind(&next).map_err(failed("binding to", &next))?;
        socket.set_nonblocking(true).map_err(failed("opening", &next))?;
        // Every user in the container may send, whatever the daemon's umask. No other process reaches the
        // socket.
        fs::set_permissions(&next, Permissions::from_mode(0o666)).map_err(failed("making", &next))?;
        let place = dir.join(SOCKET);
        fs::rename(&next, &place).map_err(failed("renaming to", &place))?;
        let is_ready = fs::symlink_metadata(dir.join(HEARD)).is_ok();
        Ok(Self { socket, dir, is_ready })
    }

    /// Has it said so, to this daemon or to an earlier one?
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Receives messages since the last call.
    pub(super) fn hear(&mut self) -> Result<(), FileError> {
        let (mut message, mut said) = ([0; LONGEST], false);
        for _ in 0..MOST {
            match self.socket.recv(&mut message) {
                Ok(length) => said |= message.get(..length).is_some_and(says_ready),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(failed("reading", &self.dir.join(SOCKET))(error)),
            }
        }
        if said && !self.is_ready {
            self.is_ready = true;
            let heard = self.dir.join(HEARD);
            let mut options = OpenOptions::new();
            options.write(true).create(true).mode(0o644);
            options.custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0));
            options.open(&heard).map_err(failed("making", &heard))?;
        }
        Ok(())
    }
}

impl Drop for ReadySocket {
    fn drop(&mut self) {
        // Senders get an error from now on, even if the file cannot be removed.
        let _ = remove(&self.dir.join(SOCKET));
    }
}

fn says_ready(message: &[u8]) -> bool {
    message.split(|byte| *byte == b'\n').any(|line| line == READY)
}

fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

    use super::*;

    fn container(all: &Path, id: &str) -> PathBuf {
        let dir = all.join(id);
        fs::create_dir(&dir).unwrap();
        dir
    }

    fn send(dir: &Path, message: &[u8]) -> io::Result<usize> {
        UnixDatagram::unbound()?.send_to(message, dir.join(SOCKET))
    }

    /// Is it ready after these messages?
    fn hears(messages: &[&[u8]]) -> bool {
        let all = tempfile::tempdir().unwrap();
        let dir = container(all.path(), "a");
        let mut socket = ReadySocket::bind(all.path(), "a").unwrap();
        for message in messages {
            send(&dir, message).unwrap();
        }
        socket.hear().unwrap();
        socket.is_ready()
    }

    #[test]
    fn ready_is_a_line_of_its_own_in_whatever_is_sent() {
        let long = [b"STATUS=".as_slice(), &[b'x'; 10_000], b"\nREADY=1"].concat();
        for (messages, ready) in [
            (vec![], false),
            (vec![b"READY=1".as_slice()], true),
            (vec![b"READY=1\nSTATUS=serving\n"], true),
            (vec![b"MAINPID=7\nREADY=1"], true),
            (vec![b"STATUS=loading", b"", b"\xff\0\n", b"READY=1"], true),
            (vec![b"READY=0"], false),
            (vec![b"READY=12", b"STATUS=READY=1", b"ready=1", b"READY=1 "], false),
            (vec![&long], false),
        ] {
            assert_eq!(hears(&messages), ready, "{messages:?}");
        }
    }

    #[test]
    fn readiness_outlives_a_restart_of_the_daemon() {
        let all = tempfile::tempdir().unwrap();
        let (a, b) = (container(all.path(), "a"), container(all.path(), "b"));
        let mut socket = ReadySocket::bind(all.path(), "a").unwrap();
        let metadata = fs::metadata(a.join(SOCKET)).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.mode() & 0o777, 0o666);
        assert!(!all.path().join(NEXT).exists());
        send(&a, READY).unwrap();
        socket.hear().unwrap();
        assert!(a.join(HEARD).exists());
        drop(socket);
        assert!(send(&a, READY).is_err());
        assert!(ReadySocket::bind(all.path(), "a").unwrap().is_ready());
        // Killed, it leaves its file behind.
        std::mem::forget(ReadySocket::bind(all.path(), "b").unwrap());
        let mut socket = ReadySocket::bind(all.path(), "b").unwrap();
        socket.hear().unwrap();
        assert!(!socket.is_ready(), "what another has said");
        send(&b, READY).unwrap();
        socket.hear().unwrap();
        assert!(socket.is_ready());
    }

    #[test]
    fn a_flood_neither_blocks_nor_hides_what_was_said() {
        let all = tempfile::tempdir().unwrap();
        let dir = container(all.path(), "a");
        let mut socket = ReadySocket::bind(all.path(), "a").unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.send_to(&[b'x'; 4096], dir.join(SOCKET)).is_ok() {}
        socket.hear().unwrap();
        assert!(!socket.is_ready());
        sender.send_to(READY, dir.join(SOCKET)).unwrap();
        socket.hear().unwrap();
        assert!(socket.is_ready());
    }

    #[test]
    fn links_of_a_container_lead_nowhere() {
        let all = tempfile::tempdir().unwrap();
        let dir = container(all.path(), "a");
        let elsewhere = all.path().join("elsewhere");
        fs::write(&elsewhere, "kept").unwrap();
        symlink(&elsewhere, dir.join(SOCKET)).unwrap();
        let mut socket = ReadySocket::bind(all.path(), "a").unwrap();
        symlink(all.path().join("made"), dir.join(HEARD)).unwrap();
        send(&dir, READY).unwrap();
        let error = socket.hear().unwrap_err().to_string();
        assert!(error.starts_with("making ") && error.contains("/a/ready"), "{error}");
        assert!(socket.is_ready() && !all.path().join("made").exists());
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "kept");
        fs::create_dir(dir.join("x")).unwrap();
        assert!(ReadySocket::bind(all.path(), "none").is_err(), "it has no directory");
    }
}
