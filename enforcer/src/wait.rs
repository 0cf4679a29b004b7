//! What the daemon waits for between two turns: a signal, the next turn, the next look at what the kernel
//! side told, and what is so urgent that it wakes whoever waits.
//!
//! What is due goes first, so nothing that is always ready keeps a turn from its time.

use std::{
    future::pending,
    io,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::{Builder, Runtime},
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, error::TryRecvError},
    },
    time::sleep,
};

use crate::signals::Order;

/// Why the daemon goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// A signal.
    Order(Order),
    /// The turn is due.
    Turn,
    /// The look is due.
    Look,
    /// The memory-pressure ring became readable; take what is in it.
    Urgent,
    /// Another source became readable or was notified; look at it.
    Told,
}

/// What wakes whoever waits, besides orders and what is due: descriptors that become readable, and another
/// thread.
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
    /// Notified when a container has started whose original cpuset is to be journalled.
    pub started: Option<&'a Notify>,
}

/// Deadlines of the next turn and of the next look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The next turn.
    pub turn: Instant,
    /// The next look at what is told between turns.
    pub look: Instant,
}

impl Due {
    fn wake(self, now: Instant) -> Option<Wake> {
        if now >= self.turn { Some(Wake::Turn) } else { (now >= self.look).then_some(Wake::Look) }
    }

    fn wait(self, now: Instant) -> Duration {
        self.turn.min(self.look).saturating_duration_since(now)
    }
}

/// Waits on the thread that turns the engine.
pub struct Waiting(Runtime);

impl Waiting {
    /// Takes no privilege, and no other thread.
    pub fn new() -> io::Result<Self> {
        Builder::new_current_thread().enable_all().build().map(Self)
    }

    /// Until something happens. An error says that a file descriptor cannot be waited for.
    ///
    /// They are registered anew each time, because they are others when programs are attached again; where
    /// there is something to read already, that is seen at once.
    pub fn next(
        &self,
        orders: &mut UnboundedReceiver<Order>,
        due: Due,
        heard: Heard<'_>,
    ) -> io::Result<Wake> {
        match orders.try_recv() {
            Ok(order) => return Ok(Wake::Order(order)),
            Err(TryRecvError::Disconnected) => return Ok(Wake::Order(Order::Stop)),
            Err(TryRecvError::Empty) => {}
        }
        let now = Instant::now();
        if let Some(wake) = due.wake(now) {
            return Ok(wake);
        }
        self.0.block_on(async {
            tokio::select! {
                biased;
                order = orders.recv() => Ok(Wake::Order(order.unwrap_or(Order::Stop))),
                () = sleep(due.wait(now)) => Ok(due.wake(Instant::now()).unwrap_or(Wake::Look)),
                ready = readable(heard.urgent) => ready.map(|()| Wake::Urgent),
                ready = readable(heard.filling) => ready.map(|()| Wake::Told),
                ready = readable(heard.came) => ready.map(|()| Wake::Told),
                ready = readable(heard.written) => ready.map(|()| Wake::Told),
                () = told(heard.started) => Ok(Wake::Told),
            }
        })
    }
}

async fn readable(fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let Some(fd) = fd else { return pending().await };
    #[expect(
        deprecated,
        reason = "its successor is unsafe; whoever lends the descriptor keeps it open meanwhile"
    )]
    let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
    // What makes it readable is taken by the caller.
    let _guard = fd.readable().await?;
    Ok(())
}

async fn told(by: Option<&Notify>) {
    match by {
        Some(by) => by.notified().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _, os::fd::AsFd};

    use rustix::pipe::pipe;
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    const NEVER: Duration = Duration::from_hours(1);
    /// Enough for a pause that is seen, and not for a person to wait for.
    const SOON: Duration = Duration::from_millis(30);

    fn due(turn: Duration, look: Duration) -> Due {
        let now = Instant::now();
        Due { turn: now + turn, look: now + look }
    }

    fn urgent(fd: &impl AsFd) -> Heard<'_> {
        Heard { urgent: Some(fd.as_fd()), ..Heard::default() }
    }

    #[test]
    fn what_is_urgent_wakes_without_a_look() {
        let waiting = Waiting::new().unwrap();
        let (_sender, mut orders) = unbounded_channel();
        let (reader, writer) = pipe().unwrap();
        assert_eq!(waiting.next(&mut orders, due(NEVER, SOON), urgent(&reader)).unwrap(), Wake::Look);
        let writing = std::thread::spawn(move || {
            std::thread::sleep(SOON);
            File::from(writer).write_all(b"x").unwrap();
        });
        // Nothing else could wake it for an hour.
        assert_eq!(waiting.next(&mut orders, due(NEVER, NEVER), urgent(&reader)).unwrap(), Wake::Urgent);
        writing.join().unwrap();
        // It was not taken, and the writer is gone: still readable.
        assert_eq!(waiting.next(&mut orders, due(NEVER, NEVER), urgent(&reader)).unwrap(), Wake::Urgent);
        let fd = Some(reader.as_fd());
        for told in [
            Heard { filling: fd, ..Heard::default() },
            Heard { came: fd, ..Heard::default() },
            Heard { written: fd, ..Heard::default() },
        ] {
            assert_eq!(waiting.next(&mut orders, due(NEVER, NEVER), told).unwrap(), Wake::Told);
        }
        // Told while nobody waited.
        let starts = Notify::new();
        starts.notify_one();
        let started = Heard { started: Some(&starts), ..Heard::default() };
        assert_eq!(waiting.next(&mut orders, due(NEVER, NEVER), started).unwrap(), Wake::Told);
        assert_eq!(waiting.next(&mut orders, due(NEVER, SOON), started).unwrap(), Wake::Look, "it was taken");
    }

    #[test]
    fn a_storm_keeps_neither_turns_nor_looks_nor_orders_waiting() {
        let waiting = Waiting::new().unwrap();
        let (sender, mut orders) = unbounded_channel();
        let (reader, writer) = pipe().unwrap();
        File::from(writer).write_all(b"always readable").unwrap();
        for expected in [Wake::Turn, Wake::Look] {
            let due = match expected {
                Wake::Turn => due(SOON, NEVER),
                _ => due(NEVER, SOON),
            };
            let mut times = 0u64;
            let begun = Instant::now();
            loop {
                match waiting.next(&mut orders, due, urgent(&reader)).unwrap() {
                    Wake::Urgent => times += 1,
                    other => break assert_eq!(other, expected),
                }
                assert!(begun.elapsed() < Duration::from_mins(1), "starved through {times} wake-ups");
            }
            assert!(times > 0, "there was no storm");
        }
        sender.send(Order::Reload).unwrap();
        let order = waiting.next(&mut orders, due(NEVER, NEVER), urgent(&reader)).unwrap();
        assert_eq!(order, Wake::Order(Order::Reload));
        drop(sender);
        let order = waiting.next(&mut orders, due(NEVER, NEVER), urgent(&reader)).unwrap();
        assert_eq!(order, Wake::Order(Order::Stop), "nobody is left who could order anything");
    }

    #[test]
    fn a_turn_goes_before_a_look() {
        let now = Instant::now();
        assert_eq!(Due { turn: now, look: now }.wake(now), Some(Wake::Turn));
        assert_eq!(Due { turn: now + SOON, look: now }.wake(now), Some(Wake::Look));
        assert_eq!(Due { turn: now + SOON, look: now + SOON }.wake(now), None);
    }

    #[test]
    fn what_cannot_be_waited_for_is_an_error() {
        let waiting = Waiting::new().unwrap();
        let (_sender, mut orders) = unbounded_channel();
        // epoll(7) does not take regular files.
        let file = tempfile::tempfile().unwrap();
        assert!(waiting.next(&mut orders, due(NEVER, NEVER), urgent(&file)).is_err());
    }
}
