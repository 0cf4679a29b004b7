//! Turns signals into orders to the daemon.
//!
//! SIGINT and SIGTERM request a [`Stop`] at once, which ends long page moves, and order the loop to end. A
//! second signal ends the process at once, and so does a loop that has not ended within [`GRACE`]: the
//! journal makes that as safe as a kill. A daemon that restores on exit has no such limit. SIGHUP orders a
//! reload of the configuration.
//!
//! Signals are caught before anything else, by a thread of its own: the start may hang like a turn, for
//! example on a kubelet that does not answer. A thread inherits privileges; this one needs none and drops all
//! of them.

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

use crate::{exit::Exit, printer::Printer};
use enforcer_act::pages::Stop;
use enforcer_kernel::{privileges, waker::Waker};

/// Longest time from the first request to the end, so that the daemon ends within two seconds.
pub const GRACE: Duration = Duration::from_millis(1_500);
/// Longest time for the last line of the log: its reader may have stalled.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Name of the signal that ended the daemon.
pub type EndedBy = Arc<OnceLock<&'static str>>;

/// Order of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalOrder {
    /// End the daemon.
    Stop,
    /// Reload the configuration.
    Reload,
}

/// Receives the orders; the loop waits on it by [`AsFd`].
pub struct Orders {
    receiver: UnboundedReceiver<SignalOrder>,
    waker: Waker,
}

impl Orders {
    /// A channel that wakes its receiver, also when the sender is dropped.
    pub(crate) fn channel() -> io::Result<(OrderSender, Self)> {
        let waker = Waker::new()?;
        let (sender, receiver) = unbounded_channel();
        Ok((OrderSender { sender, wake: WakeAtEnd(waker.clone()) }, Self { receiver, waker }))
    }

    /// The next queued order; [`SignalOrder::Stop`] once no further order can come.
    pub fn take(&mut self) -> Option<SignalOrder> {
        // Taken first: later orders wake again.
        self.waker.take();
        match self.receiver.try_recv() {
            Ok(order) => Some(order),
            Err(TryRecvError::Disconnected) => Some(SignalOrder::Stop),
            Err(TryRecvError::Empty) => None,
        }
    }
}

impl AsFd for Orders {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

/// The sending end. The order of the fields matters: the receiver that wakes finds the channel closed.
pub(crate) struct OrderSender {
    sender: UnboundedSender<SignalOrder>,
    wake: WakeAtEnd,
}

impl OrderSender {
    /// Returns false if the receiver is gone.
    pub(crate) fn send(&self, order: SignalOrder) -> bool {
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
    /// Starts to catch them.
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

    /// Will hold the name of the signal that ends the daemon.
    pub fn ended_by(&self) -> EndedBy {
        Arc::clone(&self.caught.ended_by)
    }

    /// Starts the thread that gives orders, also for earlier signals.
    ///
    /// If the loop still receives orders `grace` after an order to end, the process ends; `None` for no
    /// limit.
    pub fn listen(self, stop: Stop, grace: Option<Duration>, log: Printer) -> io::Result<Orders> {
        let Self { runtime, mut caught } = self;
        let (orders, receiver) = Orders::channel()?;
        let listen = async move {
            loop {
                let order = caught.next().await;
                if order == SignalOrder::Stop {
                    stop.request();
                }
                // The receiver is gone when the loop has ended.
                if !orders.send(order) {
                    return;
                }
                if order == SignalOrder::Stop {
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
    async fn next(&mut self) -> SignalOrder {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => self.stop("SIGINT"),
            _ = self.terminate.recv() => self.stop("SIGTERM"),
            _ = self.hangup.recv() => SignalOrder::Reload,
        }
    }

    fn stop(&self, signal: &'static str) -> SignalOrder {
        // The first signal counts.
        let _ = self.ended_by.set(signal);
        SignalOrder::Stop
    }

    /// Ends the process unless the loop ends in time.
    async fn end(mut self, orders: &OrderSender, grace: Option<Duration>, log: &Printer) {
        let again = async { while self.next().await != SignalOrder::Stop {} };
        let because = tokio::select! {
            () = orders.sender.closed() => return,
            () = again => "asked twice".to_owned(),
            () = sleep(grace.unwrap_or_default()), if grace.is_some() => {
                format!("its work did not end within {GRACE:?}")
            }
        };
        tracing::warn!(
            "ended in the middle of a turn or of its start; its writes are in the journal: {because}"
        );
        // Printed, or too late.
        let _ = log.finish(LAST_WORDS);
        process::exit(Exit::Ok.code().into());
    }
}
