//! Brings the programs' own diagnostics (aya-log) into the daemon's log.
//!
//! They are loaded only when they are asked for, so what is detail to the kernel side is worth a line
//! here.

use ::log::{Level, Log, Metadata, Record};

/// Writes each record of the kernel side as a `tracing` event.
pub(super) struct ToTracing;

impl Log for ToTracing {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        match record.level() {
            Level::Error => tracing::error!(target: "ebpf", "{}", record.args()),
            Level::Warn => tracing::warn!(target: "ebpf", "{}", record.args()),
            Level::Info => tracing::info!(target: "ebpf", "{}", record.args()),
            Level::Debug => tracing::info!(target: "ebpf", "{}", record.args()),
            Level::Trace => tracing::trace!(target: "ebpf", "{}", record.args()),
        }
    }

    fn flush(&self) {}
}
