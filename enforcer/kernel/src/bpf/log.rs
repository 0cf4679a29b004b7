//! Brings the diagnostics of the programs (aya-log) and of libbpf into the daemon's log.
//!
//! Those of the programs are loaded only when they are asked for, so what is detail to the kernel side is
//! worth a line here.

use ::log::{Level, Log, Metadata, Record};
use libbpf_rs::{PrintLevel, set_print};

/// libbpf prints to standard error unless it is told otherwise; what it returns says the same.
pub(super) fn libbpf_to_tracing() {
    set_print(Some((PrintLevel::Warn, |_, text| tracing::debug!(target: "libbpf", "{}", text.trim_end()))));
}

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
