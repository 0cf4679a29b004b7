//! Waits between two turns for a signal, the next turn, the next look, or memory pressure, which cannot wait
//! for a look.
//!
//! What is due goes first, so a descriptor that is always ready cannot delay a turn. Cost: one poll(2) per
//! wait; nothing stays registered.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use enforcer_kernel::readable;

use crate::signals::{Orders, SignalOrder};
use enforcer_kernel::waker::Waker;

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// An order came.
    Order(SignalOrder),
    /// The turn is due.
    Turn,
    /// The look is due.
    Poll,
    /// The memory-pressure ring became readable; take what is in it.
    Urgent,
    /// Another source became readable or was woken; look at it.
    TurnRequested,
}

/// What ends the wait besides orders and what is due: descriptors that become readable, and another thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heard<'a> {
    /// Memory-pressure ring.
    pub urgent: Option<BorrowedFd<'a>>,
    /// Event ring that is filling up.
    pub filling: Option<BorrowedFd<'a>>,
    /// inotify of new cgroup members.
    pub came: Option<BorrowedFd<'a>>,
    /// inotify of cpuset files that are ours to keep.
    pub written: Option<BorrowedFd<'a>>,
    /// Woken when a container has started without a journalled original.
    pub started: Option<&'a Waker>,
}

/// Deadlines of the next turn and of the next look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnDeadlines {
    /// The next turn.
    pub turn: Instant,
    /// The next look at what is told between turns.
    pub look: Instant,
}

impl TurnDeadlines {
    fn wake(self, now: Instant) -> Option<Wake> {
        if now >= self.turn { Some(Wake::Turn) } else { (now >= self.look).then_some(Wake::Poll) }
    }

    fn wait(self, now: Instant) -> Duration {
        self.turn.min(self.look).saturating_duration_since(now)
    }
}

/// Waits until something happens. An error says that a file descriptor cannot be waited for.
///
/// Descriptors are named anew each time, because they are others when programs are attached again; where
/// there is something to read already, the wait ends at once.
pub fn next(orders: &mut Orders, due: TurnDeadlines, heard: Heard<'_>) -> io::Result<Wake> {
    loop {
        if let Some(order) = orders.take() {
            return Ok(Wake::Order(order));
        }
        let now = Instant::now();
        if let Some(wake) = due.wake(now) {
            return Ok(wake);
        }
        let started = heard.started.map(Waker::as_fd);
        let fds = [Some(orders.as_fd()), heard.urgent, heard.filling, heard.came, heard.written, started];
        let [order, urgent, filling, came, written, started] = readable::wait(fds, due.wait(now))?;
        // Orders, and what has become due meanwhile, go first.
        if order || due.wake(Instant::now()).is_some() {
            continue;
        }
        if urgent {
            return Ok(Wake::Urgent);
        }
        // What makes a descriptor readable is taken by the caller, a waker is taken here.
        if filling || came || written || (started && heard.started.is_some_and(Waker::take)) {
            return Ok(Wake::TurnRequested);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _};

    use rustix::{
        fs::{Mode, OFlags},
        pipe::pipe,
    };

    use super::*;

    const NEVER: Duration = Duration::from_hours(1);
    /// Enough for a pause that is seen, and not for a person to wait for.
    const SOON: Duration = Duration::from_millis(30);

    fn due(turn: Duration, look: Duration) -> TurnDeadlines {
        let now = Instant::now();
        TurnDeadlines { turn: now + turn, look: now + look }
    }

    fn urgent(fd: &impl AsFd) -> Heard<'_> {
        Heard { urgent: Some(fd.as_fd()), ..Heard::default() }
    }

    #[test]
    fn what_is_urgent_wakes_without_a_look() {
        let (_sender, mut orders) = Orders::channel().unwrap();
        let (reader, writer) = pipe().unwrap();
        assert_eq!(next(&mut orders, due(NEVER, SOON), urgent(&reader)).unwrap(), Wake::Poll);
        let writing = std::thread::spawn(move || {
            std::thread::sleep(SOON);
            File::from(writer).write_all(b"x").unwrap();
        });
        // Nothing else could wake it for an hour.
        assert_eq!(next(&mut orders, due(NEVER, NEVER), urgent(&reader)).unwrap(), Wake::Urgent);
        writing.join().unwrap();
        // It was not taken, and the writer is gone: still readable.
        assert_eq!(next(&mut orders, due(NEVER, NEVER), urgent(&reader)).unwrap(), Wake::Urgent);
        let fd = Some(reader.as_fd());
        for told in [
            Heard { filling: fd, ..Heard::default() },
            Heard { came: fd, ..Heard::default() },
            Heard { written: fd, ..Heard::default() },
        ] {
            assert_eq!(next(&mut orders, due(NEVER, NEVER), told).unwrap(), Wake::TurnRequested);
        }
        // Woken before the wait.
        let starts = Waker::new().unwrap();
        starts.wake();
        let started = Heard { started: Some(&starts), ..Heard::default() };
        assert_eq!(next(&mut orders, due(NEVER, NEVER), started).unwrap(), Wake::TurnRequested);
        assert_eq!(next(&mut orders, due(NEVER, SOON), started).unwrap(), Wake::Poll, "it was taken");
    }

    #[test]
    fn a_storm_keeps_neither_turns_nor_looks_nor_orders_waiting() {
        let (sender, mut orders) = Orders::channel().unwrap();
        let (reader, writer) = pipe().unwrap();
        File::from(writer).write_all(b"always readable").unwrap();
        for expected in [Wake::Turn, Wake::Poll] {
            let due = match expected {
                Wake::Turn => due(SOON, NEVER),
                _ => due(NEVER, SOON),
            };
            let mut times = 0u64;
            let begun = Instant::now();
            loop {
                match next(&mut orders, due, urgent(&reader)).unwrap() {
                    Wake::Urgent => times += 1,
                    other => break assert_eq!(other, expected),
                }
                assert!(begun.elapsed() < Duration::from_mins(1), "starved through {times} wake-ups");
            }
            assert!(times > 0, "there was no storm");
        }
        assert!(sender.send(SignalOrder::Reload));
        let order = next(&mut orders, due(NEVER, NEVER), urgent(&reader)).unwrap();
        assert_eq!(order, Wake::Order(SignalOrder::Reload));
        drop(sender);
        let order = next(&mut orders, due(NEVER, NEVER), urgent(&reader)).unwrap();
        assert_eq!(order, Wake::Order(SignalOrder::Stop), "no sender is left");
    }

    #[test]
    fn orders_and_their_end_wake_a_wait_that_has_begun() {
        for order in [Some(SignalOrder::Reload), None] {
            let (sender, mut orders) = Orders::channel().unwrap();
            let sending = std::thread::spawn(move || {
                std::thread::sleep(SOON);
                // Without an order the sender is dropped.
                order.map(|order| sender.send(order))
            });
            let wake = next(&mut orders, due(NEVER, NEVER), Heard::default()).unwrap();
            assert_eq!(wake, Wake::Order(order.unwrap_or(SignalOrder::Stop)));
            assert_ne!(sending.join().unwrap(), Some(false));
        }
    }

    #[test]
    fn a_turn_goes_before_a_look() {
        let now = Instant::now();
        assert_eq!(TurnDeadlines { turn: now, look: now }.wake(now), Some(Wake::Turn));
        assert_eq!(TurnDeadlines { turn: now + SOON, look: now }.wake(now), Some(Wake::Poll));
        assert_eq!(TurnDeadlines { turn: now + SOON, look: now + SOON }.wake(now), None);
    }

    #[test]
    fn what_cannot_be_waited_for_is_an_error() {
        let (_sender, mut orders) = Orders::channel().unwrap();
        // Opened for its path alone.
        let file = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert!(next(&mut orders, due(NEVER, NEVER), urgent(&file)).is_err());
    }
}
