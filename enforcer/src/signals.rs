//! Signals as orders to the daemon.
//!
//! SIGINT and SIGTERM request a [`Stop`] at once, which ends a long move of pages, and order the loop to end.
//! A second one, or whatever does not come to its end within [`GRACE`], ends the process on the spot: the
//! journal makes that as safe as a kill. A daemon that is to restore when it ends takes its time. SIGHUP
//! orders to read the configuration again.
//!
//! Caught and listened to before anything else is done, by a thread of its own: a start may hang as a turn
//! may, on a kubelet that does not answer. A thread takes the privileges of its parent, and this one needs
//! none, so it gives all of them up.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    process,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, error::TryRecvError, unbounded_channel},
    time::sleep,
};

use crate::{cli::Exit, printer::Printer, waker::Waker};
use enforcer_act::pages::Stop;
use enforcer_kernel::privileges;

/// Longest time from the first request to end to the end: the daemon has ended within two seconds.
pub const GRACE: Duration = Duration::from_millis(1_500);
/// Longest time for the last line of the log: nobody may read it.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Name of the signal that ended the daemon, once there was one.
pub type EndedBy = Arc<OnceLock<&'static str>>;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// End.
    Stop,
    /// Read the configuration again.
    Reload,
}

/// The orders, for the thread that carries them out. It waits for them by [`AsFd`].
pub struct Orders {
    receiver: UnboundedReceiver<Order>,
    waker: Waker,
}

impl Orders {
    /// What is sent wakes, and so does the end of the sender.
    pub(crate) fn channel() -> io::Result<(OrderSender, Self)> {
        let waker = Waker::new()?;
        let (sender, receiver) = unbounded_channel();
        Ok((OrderSender { sender, wake: WakeAtEnd(waker.clone()) }, Self { receiver, waker }))
    }

    /// The next order that is there: one to end where no further one can come.
    pub fn next(&mut self) -> Option<Order> {
        // Taken first: what is sent afterwards wakes again.
        self.waker.take();
        match self.receiver.try_recv() {
            Ok(order) => Some(order),
            Err(TryRecvError::Disconnected) => Some(Order::Stop),
            Err(TryRecvError::Empty) => None,
        }
    }
}

impl AsFd for Orders {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// The other end. Its fields are dropped in this order, so that the receiver that wakes finds the end.
pub(crate) struct OrderSender {
    sender: UnboundedSender<Order>,
    wake: WakeAtEnd,
}

impl OrderSender {
    /// False where no order is received any more.
    pub(crate) fn send(&self, order: Order) -> bool {
        let sent = self.sender.send(order).is_ok();
        self.wake.0.wake();
        sent
    }
}

struct WakeAtEnd(Waker);

impl Drop for WakeAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// The signals, caught from now on.
pub struct Signals {
    runtime: Runtime,
    caught: Caught,
}

struct Caught {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    ended_by: EndedBy,
}

impl Signals {
    /// Catches them.
    pub fn catch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let context = runtime.enter();
        let caught = Caught {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            ended_by: EndedBy::default(),
        };
        drop(context);
        Ok(Self { runtime, caught })
    }

    /// Where the name of the signal that ends the daemon will be.
    pub fn ended_by(&self) -> EndedBy {
        Arc::clone(&self.caught.ended_by)
    }

    /// Starts the thread that gives the orders, those of signals that came meanwhile included.
    ///
    /// After an order to end and `grace` the process ends, if somebody receives orders then; `None` for no
    /// such bound.
    pub fn listen(self, stop: Stop, grace: Option<Duration>, log: Printer) -> io::Result<Orders> {
        let Self { runtime, mut caught } = self;
        let (orders, receiver) = Orders::channel()?;
        let listen = async move {
            loop {
                let order = caught.next().await;
                if order == Order::Stop {
                    stop.request();
                }
                // Nobody receives any more when the loop is over.
                if !orders.send(order) {
                    return;
                }
                if order == Order::Stop {
                    return caught.end(&orders, grace, &log).await;
                }
            }
        };
        let listen = move || {
            if let Err(error) = privileges::renounce() {
                tracing::warn!("the thread that listens to signals keeps its privileges: {error}");
            }
            runtime.block_on(listen);
        };
        thread::Builder::new().name("signals".into()).spawn(listen)?;
        Ok(receiver)
    }
}

impl Caught {
    async fn next(&mut self) -> Order {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => self.stop("SIGINT"),
            _ = self.terminate.recv() => self.stop("SIGTERM"),
            _ = self.hangup.recv() => Order::Reload,
        }
    }

    fn stop(&self, signal: &'static str) -> Order {
        // The first one counts.
        let _ = self.ended_by.set(signal);
        Order::Stop
    }

    /// Ends the process, unless the loop that gets the orders ends in time.
    async fn end(mut self, orders: &OrderSender, grace: Option<Duration>, log: &Printer) {
        let again = async { while self.next().await != Order::Stop {} };
        let because = tokio::select! {
            () = orders.sender.closed() => return,
            () = again => "asked twice".to_owned(),
            () = sleep(grace.unwrap_or_default()), if grace.is_some() => {
                format!("what it was at did not end within {GRACE:?}")
            }
        };
        tracing::warn!(
            "ended in the middle of a turn or of its start, whose writes are in the journal: {because}"
        );
        // Printed, or too late.
        let _ = log.finish(LAST_WORDS);
        process::exit(Exit::Ok.code().into());
    }
}
