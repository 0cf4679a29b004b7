//! The signals that end a command which stays: an interrupt, a hangup and a request to terminate.
//!
//! A daemon has orders beside these (`crate::signals`).

use std::io;

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};

/// From [`catch`](Self::catch) on, these signals end no process by themselves.
pub(super) struct EndingSignals {
    runtime: Runtime,
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl EndingSignals {
    /// Catches them, for the whole process.
    pub(super) fn catch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let context = runtime.enter();
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        let hangup = signal(SignalKind::hangup())?;
        drop(context);
        Ok(Self { runtime, interrupt, terminate, hangup })
    }

    /// Blocks the thread until the first of them.
    pub(super) fn wait(mut self) -> SignalKind {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.interrupt.recv() => SignalKind::interrupt(),
                _ = self.terminate.recv() => SignalKind::terminate(),
                _ = self.hangup.recv() => SignalKind::hangup(),
            }
        })
    }
}
