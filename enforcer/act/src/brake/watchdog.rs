//! The process that releases a brake when the daemon does not.
//!
//! Problem: if the daemon is killed or hangs while a workload is frozen, the workload would stay frozen. A
//! thread would end with the daemon. Idea: another process, the same program, started once, without
//! capabilities, and with nothing open but a socket to the daemon and the record of brakes. Before the daemon
//! writes a file, it sends the descriptor (`SCM_RIGHTS`, unix(7)), the new value and the original, and waits
//! for a confirmation. The process restores the original when the socket closes, that is when the daemon
//! ends, or 1.5 s after the message if the daemon has not released the brake: within two seconds.
//!
//! It is started by exec, not by a bare fork, because a forked copy of a process with threads may call hardly
//! anything safely. Signals that end the daemon do not end it (systemd sends them to both): it ends after the
//! daemon.
//!
//! Messages are one packet each (`SOCK_SEQPACKET`): `hold ID SET ORIGINAL` with a descriptor, `gone ID`;
//! answers: `ready`, `held ID`.
//!
//! Invariant: the process writes only files that still hold what the daemon has set.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{fs::FileExt, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::text_of;
use crate::journal::released_line;
use enforcer_kernel::readable;

/// Name of the hidden command that watches.
pub const COMMAND: &str = "watch-brake";
/// A brake that is older than this is released.
const LONGEST: Duration = Duration::from_millis(1_500);
/// Longest time for its program to start, on a machine that is busy.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// Longest wait for its confirmation of a descriptor. After that a brake is no longer worth it.
const ANSWERS_WITHIN: Duration = Duration::from_millis(200);
/// Longest message: two numbers of 64 bits, and words.
const MESSAGE: usize = 128;
/// Most brakes at a time.
const MOST: usize = 1_024;
/// Checks for the end of the process when it should end, and the time between two.
const LOOKS_AT_ITS_END: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// With nothing to do.
const FOR_EVER: Duration = Duration::from_hours(24);

/// The daemon's end.
#[derive(Debug)]
pub struct BrakeWatchdog {
    socket: OwnedFd,
    child: Option<Child>,
    /// Longest time until it has said that it has a descriptor.
    patience: Duration,
    lost: Option<String>,
}

impl BrakeWatchdog {
    /// Starts the process and waits until it is ready. It notes its releases in `record`.
    pub fn start(record: File) -> Result<Self, String> {
        let failed = |cause: &dyn std::fmt::Display| format!("starting {COMMAND}: {cause}");
        let (near, far) = pair().map_err(|error| failed(&error))?;
        let child = Command::new("/proc/self/exe")
            .arg(COMMAND)
            .stdin(Stdio::from(far))
            .stdout(Stdio::from(record))
            .env_clear()
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&error))?;
        let mut watchdog = Self { socket: near, child: Some(child), patience: ANSWERS_WITHIN, lost: None };
        // Where it does not say so it is ended when this is dropped.
        watchdog.expect("ready", STARTS_WITHIN).map_err(|error| failed(&error))?;
        Ok(watchdog)
    }

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Readable when it has ended.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Why it watches no longer.
    pub fn lost(&mut self) -> Option<&str> {
        let socket = self.socket.as_fd();
        let is_readable = || readable::wait([Some(socket)], Duration::ZERO).is_ok_and(|[it]| it);
        while self.lost.is_none() && is_readable() {
            // What it says unasked is an answer that came too late.
            self.lost = match receive(socket) {
                Ok(Some(_)) => None,
                Ok(None) => Some("it has ended".to_owned()),
                Err(error) => Some(error.to_string()),
            };
        }
        self.lost.as_deref()
    }

    /// Hands over a file that is about to be set, and waits until that is confirmed. Otherwise it must not be
    /// set.
    pub(super) fn hold(
        &mut self,
        id: u64,
        file: BorrowedFd<'_>,
        set: &str,
        original: &str,
    ) -> Result<(), String> {
        if let Some(why) = self.lost() {
            return Err(format!("no process watches over it: {why}"));
        }
        let message = format!("hold {id} {set} {original}");
        let sent = send(self.socket.as_fd(), &message, Some(file)).map_err(|error| error.to_string());
        sent.and_then(|()| self.expect(&format!("held {id}"), self.patience)).map_err(|why| {
            self.let_go(id);
            format!("no process watches over it: {why}")
        })
    }

    /// Reports that a file holds its original again.
    pub(super) fn let_go(&mut self, id: u64) {
        // A process that is gone needs no message.
        let _ = send(self.socket.as_fd(), &format!("gone {id}"), None);
    }

    fn expect(&mut self, answer: &str, longest: Duration) -> Result<(), String> {
        let end = Instant::now() + longest;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let [readable] =
                readable::wait([Some(self.socket.as_fd())], left).map_err(|error| error.to_string())?;
            if readable {
                match receive(self.socket.as_fd()) {
                    Ok(Some((said, _))) if said == answer => return Ok(()),
                    // An answer that came too late.
                    Ok(Some(_)) => continue,
                    Ok(None) => return Err("it has ended".to_owned()),
                    Err(error) => return Err(error.to_string()),
                }
            }
            if left.is_zero() {
                return Err(format!("it did not say {answer:?} within {longest:?}"));
            }
        }
    }

    /// One end of a socket pair, for tests that play the other one.
    #[cfg(test)]
    pub(super) fn over(socket: OwnedFd, patience: Duration) -> Self {
        Self { socket, child: None, patience, lost: None }
    }

    /// The same, after the other end is ready.
    #[cfg(test)]
    pub(super) fn ready_over(socket: OwnedFd) -> Self {
        let mut watchdog = Self::over(socket, STARTS_WITHIN);
        watchdog.expect("ready", STARTS_WITHIN).map_err(io::Error::other).unwrap();
        watchdog
    }
}

impl Drop for BrakeWatchdog {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // It releases what it still has, and ends; this fails only if it has ended already.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        for _ in 0..LOOKS_AT_ITS_END {
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                return;
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        let _killed = child.kill();
        let _reaped = child.wait();
    }
}

/// Two ends of a socket that keeps messages apart.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// A file that is watched for the daemon.
struct WatchedFile {
    id: u64,
    file: File,
    set: String,
    original: String,
    since: Instant,
}

impl WatchedFile {
    /// Restores the original, unless another program has changed the file.
    fn undo(&self) -> io::Result<bool> {
        if text_of(&self.file)?.trim() != self.set {
            return Ok(false);
        }
        self.file.write_at(format!("{}\n", self.original).as_bytes(), 0)?;
        Ok(true)
    }
}

/// Watches until the other end of the socket is gone. Writes to `told` what it released, and logs the reason
/// by `complain`, which must not block: more workloads may have to be released.
pub fn watch(socket: BorrowedFd<'_>, told: &mut dyn Write, complain: &dyn Fn(&str)) -> io::Result<()> {
    let mut held: Vec<WatchedFile> = Vec::new();
    send(socket, "ready", None)?;
    loop {
        let left = |one: &WatchedFile| LONGEST.saturating_sub(one.since.elapsed());
        let longest = held.iter().map(left).min().unwrap_or(FOR_EVER);
        // Half a millisecond is not none.
        let [readable] = readable::wait([Some(socket)], longest + Duration::from_millis(1))?;
        let ended = readable && !take(socket, &mut held);
        let over = |one: &WatchedFile| ended || one.since.elapsed() >= LONGEST;
        for one in held.extract_if(.., |one| over(one)) {
            release(&one, told, complain);
        }
        if ended {
            return Ok(());
        }
    }
}

fn release(one: &WatchedFile, told: &mut dyn Write, complain: &dyn Fn(&str)) {
    let noted = one.undo().and_then(|undone| {
        let line = released_line(one.id)?;
        told.write_all(line.as_bytes())?;
        told.flush()?;
        Ok(undone)
    });
    match noted {
        Ok(true) => complain(&format!("a brake was released because the daemon did not: {}", one.original)),
        Ok(false) => {}
        Err(error) => complain(&format!("releasing a brake for the daemon: {error}")),
    }
}

/// Takes one message; false at the end of the socket.
fn take(socket: BorrowedFd<'_>, held: &mut Vec<WatchedFile>) -> bool {
    let Ok(Some((message, file))) = receive(socket) else { return false };
    let words: Vec<&str> = message.split(' ').collect();
    match (words.as_slice(), file) {
        (["hold", id, set, original], Some(file)) if held.len() < MOST => {
            let Ok(id) = id.parse() else { return true };
            let (set, original) = ((*set).to_owned(), (*original).to_owned());
            held.push(WatchedFile { id, file: file.into(), set, original, since: Instant::now() });
            send(socket, &format!("held {id}"), None).is_ok()
        }
        (["gone", id], _) => {
            held.retain(|one| id.parse() != Ok(one.id));
            true
        }
        _ => true,
    }
}

fn send(socket: BorrowedFd<'_>, message: &str, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("no room for a descriptor"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(message.as_bytes())], &mut control, flags)?;
    Ok(())
}

/// One message and the descriptor that came with it; `None` at the end.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(String, Option<OwnedFd>)>> {
    let mut buffer = [0; MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok(Some((String::from_utf8_lossy(buffer.get(..received.bytes).unwrap_or_default()).into_owned(), file)))
}

#[cfg(test)]
mod tests;
