//! What a thread that waits is woken by: a pair of sockets, of which only that something came counts.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixDatagram,
    },
    sync::Arc,
    time::Duration,
};

use enforcer_kernel::readable;

/// Wakes one thread; clones ring the same.
#[derive(Debug, Clone)]
pub struct Bell(Arc<Pair>);

#[derive(Debug)]
struct Pair {
    rings: UnixDatagram,
    hears: UnixDatagram,
}

impl Bell {
    /// One that nobody has rung.
    pub fn new() -> io::Result<Self> {
        let (rings, hears) = UnixDatagram::pair()?;
        rings.set_nonblocking(true)?;
        hears.set_nonblocking(true)?;
        Ok(Self(Arc::new(Pair { rings, hears })))
    }

    /// Wakes whoever waits, or the next who does.
    pub fn ring(&self) {
        // Where there is no room it has been rung often enough.
        let _ = self.0.rings.send(&[1]);
    }

    /// Waits until it rings, until `other` is readable, or so long. Says whether it rang, and whether the
    /// other was readable.
    pub fn wait(&self, other: Option<BorrowedFd<'_>>, longest: Duration) -> io::Result<(bool, bool)> {
        let [rang, readable] = readable::wait(self.0.hears.as_fd(), other, longest)?;
        if rang {
            while self.0.hears.recv(&mut [0; 1]).is_ok() {}
        }
        Ok((rang, readable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_LONG: Duration = Duration::from_millis(1);
    const FOR_EVER: Duration = Duration::from_hours(1);

    #[test]
    fn a_ring_is_heard_once_whoever_was_first() {
        let bell = Bell::new().unwrap();
        assert_eq!(bell.wait(None, NOT_LONG).unwrap(), (false, false));
        bell.ring();
        bell.clone().ring();
        assert_eq!(bell.wait(None, FOR_EVER).unwrap(), (true, false));
        assert_eq!(bell.wait(None, NOT_LONG).unwrap(), (false, false));
        let other = Bell::new().unwrap();
        other.ring();
        assert_eq!(bell.wait(Some(other.0.hears.as_fd()), FOR_EVER).unwrap(), (false, true));
        for _ in 0..100_000 {
            bell.ring();
        }
        assert_eq!(bell.wait(None, FOR_EVER).unwrap(), (true, false), "nobody who rings waits");
    }
}
