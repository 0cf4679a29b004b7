//! Wakes one thread that waits in poll(2), by an eventfd.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use crate::readable;
use rustix::event::{EventfdFlags, eventfd};

/// Wakes one thread; clones wake the same.
#[derive(Debug, Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker that was not woken yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }

    /// Ends the present wait, or else the next one.
    pub fn wake(&self) {
        // It fails where the counter is full, which wakes as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Whether it was woken since the last call.
    pub fn take(&self) -> bool {
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }

    /// Waits until it is woken, until `other` is readable, or for `longest`. Returns whether it was woken,
    /// and whether the other was readable.
    pub fn wait(&self, other: Option<BorrowedFd<'_>>, longest: Duration) -> io::Result<(bool, bool)> {
        let [woken, readable] = readable::wait([Some(self.as_fd()), other], longest)?;
        Ok((woken && self.take(), readable))
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);
    const FOREVER: Duration = Duration::from_hours(1);

    #[test]
    fn wakes_once_whether_before_or_during_the_wait() {
        let waker = Waker::new().unwrap();
        assert_eq!(waker.wait(None, SHORT).unwrap(), (false, false));
        waker.wake();
        waker.clone().wake();
        assert_eq!(waker.wait(None, FOREVER).unwrap(), (true, false));
        assert_eq!(waker.wait(None, SHORT).unwrap(), (false, false));
        let other = Waker::new().unwrap();
        other.wake();
        assert_eq!(waker.wait(Some(other.as_fd()), FOREVER).unwrap(), (false, true));
        for _ in 0..100_000 {
            waker.wake();
        }
        assert_eq!(waker.wait(None, FOREVER).unwrap(), (true, false), "waking never blocks");
    }
}
