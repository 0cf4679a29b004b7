//! Waits until one of several file descriptors is readable: poll(2), for a thread without a runtime.
//!
//! Nothing is registered and nothing allocated, so each call may name other descriptors.

use std::{array, io, os::fd::BorrowedFd, time::Duration};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    time::Timespec,
};

/// Waits at most `longest`; says which descriptors have something to read, an end or an error included. An
/// interruption ends the wait early. At least one descriptor must be there.
pub fn wait<const N: usize>(fds: [Option<BorrowedFd<'_>>; N], longest: Duration) -> io::Result<[bool; N]> {
    let mut there = fds.iter().flatten().copied();
    let Some(first) = there.next() else { return Err(io::ErrorKind::InvalidInput.into()) };
    // Those that are there come first, in their order; what is behind them is left out.
    let mut polled: [PollFd<'_>; N] =
        array::from_fn(|at| if at == 0 { Some(first) } else { there.next() }.unwrap_or(first))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let count = fds.iter().flatten().count();
    // What is too long to be told is for ever.
    let timeout = Timespec::try_from(longest).ok();
    match poll(&mut polled[..count], timeout.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok([false; N]),
        Err(errno) => return Err(errno.into()),
    }
    let mut ready = polled.iter().map(PollFd::revents);
    let ready = fds.map(|fd| fd.and_then(|_| ready.next()).unwrap_or(PollFlags::empty()));
    if ready.iter().any(|ready| ready.contains(PollFlags::NVAL)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a descriptor that cannot be waited for"));
    }
    Ok(ready.map(|ready| !ready.is_empty()))
}
