//! How the calls of the driver ended, for metrics.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use enforcer_report::claims::ClaimCallTotals;

/// Counts since the daemon started.
#[derive(Debug, Default)]
pub struct ClaimTally {
    is_registered: AtomicBool,
    prepared: AtomicU64,
    refused: AtomicU64,
    prepare_micros: AtomicU64,
    given_up: AtomicU64,
    kept: AtomicU64,
    slice_writes: AtomicU64,
}

impl ClaimTally {
    /// Counts a call that prepares a claim.
    pub(super) fn count_prepare(&self, is_prepared: bool, took: Duration) {
        let ended = if is_prepared { &self.prepared } else { &self.refused };
        ended.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.prepare_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts a call that gives a claim up.
    pub(super) fn count_unprepare(&self, is_given_up: bool) {
        let ended = if is_given_up { &self.given_up } else { &self.kept };
        ended.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of writes of slices so far.
    pub(super) fn set_slice_writes(&self, writes: u64) {
        self.slice_writes.store(writes, Ordering::Relaxed);
    }

    /// Whether the kubelet has registered the driver.
    pub(super) fn set_registered(&self, is_registered: bool) {
        self.is_registered.store(is_registered, Ordering::Relaxed);
    }

    /// The counts of now.
    pub(crate) fn totals(&self) -> ClaimCallTotals {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClaimCallTotals {
            is_registered: self.is_registered.load(Ordering::Relaxed),
            prepared: count(&self.prepared),
            refused: count(&self.refused),
            prepare_seconds: Duration::from_micros(count(&self.prepare_micros)).as_secs_f64(),
            given_up: count(&self.given_up),
            kept: count(&self.kept),
            slice_writes: count(&self.slice_writes),
        }
    }
}
