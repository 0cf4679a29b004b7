//! Signals as orders to the daemon.
//!
//! SIGINT and SIGTERM request a [`Stop`] at once, which ends a long move of pages, and order the loop to
//! end. A second one, or a kernel that does not let go of a write within [`GRACE`], ends the process on the
//! spot: the journal makes that as safe as a kill. A daemon that is to restore when it ends takes its time. SIGHUP orders to read the configuration again.
//!
//! Caught as early as possible, so that none is lost; listened to by a thread of its own, which is to be
//! started after privileges were given up, because a thread takes those of its parent.

use std::{io, process, thread, time::Duration};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::sleep,
};

use crate::{cli::Exit, enforce::pages::Stop};

/// Longest time from the first request to end to the end: the daemon has ended within two seconds.
pub const GRACE: Duration = Duration::from_millis(1_500);

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// End.
    Stop,
    /// Read the configuration again.
    Reload,
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
        };
        drop(context);
        Ok(Self { runtime, caught })
    }

    /// Starts the thread that gives the orders, those of signals that came meanwhile included.
    ///
    /// After an order to end and `grace` the process ends, if somebody receives orders then; `None` for no such bound.
    pub fn listen(self, stop: Stop, grace: Option<Duration>) -> io::Result<UnboundedReceiver<Order>> {
        let Self { runtime, mut caught } = self;
        let (orders, receiver) = unbounded_channel();
        let listen = async move {
            loop {
                let order = caught.next().await;
                if order == Order::Stop {
                    stop.request();
                }
                // Nobody receives any more when the loop is over.
                if orders.send(order).is_err() {
                    return;
                }
                if order == Order::Stop {
                    return caught.end(&orders, grace).await;
                }
            }
        };
        thread::Builder::new().name("signals".into()).spawn(move || runtime.block_on(listen))?;
        Ok(receiver)
    }
}

impl Caught {
    async fn next(&mut self) -> Order {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => Order::Stop,
            _ = self.terminate.recv() => Order::Stop,
            _ = self.hangup.recv() => Order::Reload,
        }
    }

    /// Ends the process, unless the loop that gets the orders ends in time.
    async fn end(mut self, orders: &UnboundedSender<Order>, grace: Option<Duration>) {
        let again = async { while self.next().await != Order::Stop {} };
        let because = tokio::select! {
            () = orders.closed() => return,
            () = again => "asked twice".to_owned(),
            () = sleep(grace.unwrap_or_default()), if grace.is_some() => {
                format!("the turn did not end within {GRACE:?}")
            }
        };
        tracing::warn!("ended in the middle of a turn, whose writes are in the journal: {because}");
        process::exit(Exit::Ok.code().into());
    }
}
