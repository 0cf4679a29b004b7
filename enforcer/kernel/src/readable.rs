//! Waits until one of two file descriptors is readable: poll(2), for a thread that has no runtime.
//!
//! Nothing is registered and nothing allocated, so it can be waited for another descriptor each time.
#![expect(unsafe_code, reason = "std does not poll, and tokio registers what it waits for")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

/// Waits so long at most; says which of the two are readable. An interruption is a wait that is over.
pub fn wait(
    first: BorrowedFd<'_>,
    second: Option<BorrowedFd<'_>>,
    longest: Duration,
) -> io::Result<[bool; 2]> {
    let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // A negative descriptor is left out.
    let mut fds = [poll(first.as_raw_fd()), poll(second.map_or(-1, |fd| fd.as_raw_fd()))];
    let timeout = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the array is ours and has two entries; the kernel writes `revents` of these alone.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), 2, timeout) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok([false; 2]) } else { Err(error) };
    }
    Ok(fds.map(|fd| fd.revents & libc::POLLIN != 0))
}
