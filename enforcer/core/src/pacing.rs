//! Size of page-move calls, and the time of the next one.
//!
//! Problem: a call of `move_pages(2)` holds locks of the process while it runs, and its duration for a number
//! of bytes depends on the machine, the pages and the load, by a factor of a hundred. Also, the copying of
//! all calls together takes memory bandwidth from all workloads.
//!
//! Idea: the size of a call follows measured durations (down at once and in proportion, up by doubling, and
//! only if twice as much would still be in time), and a bucket of credit bounds the bytes of all calls. A
//! part of each call does not depend on its size: before the process is locked the kernel has every CPU put
//! its batches of pages back (`lru_add_drain_all`, called by `do_pages_move` of mm/migrate.c), and waits for
//! busy CPUs. Smaller calls would only repeat that part. So the controller compares a call with smaller ones,
//! and counts the difference.
//!
//! Terminology. The *credit* is what may be moved now; it grows with time up to the *burst*, a tenth of a
//! second's worth. A caller that moves more than it was allowed (a huge page is moved as a whole) owes the
//! rest.
//!
//! Invariant: whatever the calls took, some call is allowed after a finite time. Cost: constant.

use std::time::Duration;

use serde::{Deserialize, Serialize};

const NS_PER_SECOND: u128 = 1_000_000_000;

/// Bounds of a [`CallPacer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallPacerLimits {
    /// Most bytes per second of all calls together; unlimited if absent.
    pub bytes_per_second: Option<u64>,
    /// Longest duration of one call, without the part that does not depend on its size.
    pub call: Duration,
    /// Smallest size of a call in bytes, however long it takes.
    pub smallest: u64,
    /// Largest size of a call in bytes.
    pub largest: u64,
}

impl Default for CallPacerLimits {
    fn default() -> Self {
        Self {
            bytes_per_second: None,
            call: Duration::from_millis(10),
            smallest: 64 << 10,
            largest: 16 << 20,
        }
    }
}

/// What may be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// Make one call of so many bytes.
    Move(u64),
    /// Wait for this long.
    Wait(Duration),
}

/// Size of calls, and the credit of all of them.
#[derive(Debug, Clone)]
pub struct CallPacer {
    limits: CallPacerLimits,
    call_bytes: u64,
    /// Durations of calls by order of magnitude; the index is the base 2 logarithm of the bytes.
    took: [CallDurations; 64],
    /// Negative after a call that moved more than it was allowed.
    credit: i128,
    at_ns: u64,
}

/// First size of a call: some milliseconds on a slow machine.
const FIRST: u64 = 2 << 20;
/// Calls of a size that must be seen before larger ones are compared with them: a single one may have been an
/// outlier.
const LEAST_SEEN: u32 = 2;
/// After so many calls of other sizes the figures of a size are forgotten, so that a change is noticed.
const FADES: u64 = 256;

/// Durations of calls of about one size.
#[derive(Debug, Clone, Copy, Default)]
struct CallDurations {
    bytes: u64,
    ns: u64,
    seen: u32,
    /// Calls of other sizes since then.
    age: u64,
}

impl CallDurations {
    /// Lowers the estimate at once, raises it by a quarter.
    fn note(&mut self, bytes: u64, ns: u64) {
        let most = self.ns.saturating_add(self.ns / 4).saturating_add(1);
        let ns = if self.seen == 0 { ns } else { ns.min(most) };
        *self = Self { bytes, ns, seen: self.seen.saturating_add(1), age: 0 };
    }

    /// The present estimate of a call.
    fn believed_ns(&self) -> u64 {
        self.ns - self.ns / FADES * self.age.min(FADES)
    }
}

impl CallPacer {
    /// Begins at `now_ns` of a monotonic clock with a full credit and calls of 2 MiB.
    pub fn new(limits: CallPacerLimits, now_ns: u64) -> Self {
        let limits = CallPacerLimits { smallest: limits.smallest.clamp(1, limits.largest.max(1)), ..limits };
        let call_bytes = FIRST.clamp(limits.smallest, limits.largest.max(1));
        let mut pace =
            Self { limits, call_bytes, took: [CallDurations::default(); 64], credit: 0, at_ns: now_ns };
        pace.credit = i128::from(pace.burst());
        pace
    }

    /// Bytes of a call, by the durations so far.
    pub fn call_bytes(&self) -> u64 {
        self.call_bytes
    }

    /// What may be done at `now_ns`.
    pub fn allowance(&mut self, now_ns: u64) -> Allowance {
        let Some(rate) = self.rate() else { return Allowance::Move(self.call_bytes) };
        let elapsed = u128::from(now_ns.saturating_sub(self.at_ns));
        let earned = elapsed.saturating_mul(u128::from(rate)) / NS_PER_SECOND;
        if earned > 0 {
            // A remainder of less than a byte stays in the clock.
            self.at_ns = now_ns;
            let burst = i128::from(self.burst());
            self.credit = self.credit.saturating_add(i128::try_from(earned).unwrap_or(burst)).min(burst);
        }
        let wanted = self.call_bytes.min(self.burst());
        let missing = i128::from(wanted) - self.credit;
        if missing <= 0 {
            return Allowance::Move(wanted);
        }
        let wait = missing.unsigned_abs().saturating_mul(NS_PER_SECOND).div_ceil(u128::from(rate));
        Allowance::Wait(Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
    }

    /// Records `bytes` that moved beyond the request: a huge page is moved as a whole.
    pub fn owe(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_sub(i128::from(bytes));
    }

    /// Records a call of `bytes` and its duration.
    pub fn note(&mut self, bytes: u64, took: Duration) {
        self.owe(bytes);
        if bytes == 0 {
            return;
        }
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let by_size = self.by_size(bytes, took);
        self.learn(bytes, took);
        let CallPacerLimits { smallest, largest, .. } = self.limits;
        let call = u64::try_from(self.limits.call.as_nanos()).unwrap_or(u64::MAX);
        if by_size > call && self.is_smallest_and_wrongly_so(bytes, took, call) {
            self.call_bytes = self.call_bytes.saturating_mul(2).min(largest.max(smallest));
        } else if by_size > call {
            let fit = u128::from(bytes) * u128::from(call) / u128::from(by_size);
            let fit = u64::try_from(fit).unwrap_or(u64::MAX);
            self.call_bytes = fit.min(self.call_bytes).max(smallest);
        } else if bytes >= self.call_bytes && by_size.saturating_mul(2) <= call {
            self.call_bytes = self.call_bytes.saturating_mul(2).min(largest.max(smallest));
        }
    }

    /// The part of a call's duration in nanoseconds that its size caused: all of it, without figures of calls
    /// that were half as large or less.
    fn by_size(&self, bytes: u64, took: u64) -> u64 {
        let smaller = self.took.iter().find(|took| took.seen >= LEAST_SEEN);
        let Some(smaller) = smaller.filter(|smaller| smaller.bytes <= bytes / 2) else { return took };
        let longer = u128::from(took.saturating_sub(smaller.believed_ns()));
        let by_size = longer * u128::from(bytes) / u128::from(bytes - smaller.bytes).max(1);
        u64::try_from(by_size).unwrap_or(u64::MAX).min(took)
    }

    /// Are calls at their smallest size, and would twice as large ones not take much longer, by the figures
    /// so far?
    fn is_smallest_and_wrongly_so(&self, bytes: u64, took: u64, call: u64) -> bool {
        let smallest = self.limits.smallest;
        let known = self.took.get(smallest.ilog2() as usize).is_some_and(|took| took.seen >= LEAST_SEEN);
        let larger = self.took.iter().find(|took| took.seen > 0 && took.bytes / 2 >= bytes);
        let in_time = |larger: &CallDurations| {
            let longer = u128::from(larger.believed_ns().saturating_sub(took));
            longer * 2 * u128::from(bytes) / u128::from(larger.bytes - bytes).max(1) <= u128::from(call)
        };
        known && bytes == smallest && self.call_bytes == smallest && larger.is_none_or(in_time)
    }

    fn learn(&mut self, bytes: u64, took: u64) {
        for other in &mut self.took {
            other.age = other.age.saturating_add(1);
        }
        if let Some(own) = self.took.get_mut(bytes.max(1).ilog2() as usize) {
            own.note(bytes, took);
        }
    }

    fn rate(&self) -> Option<u64> {
        self.limits.bytes_per_second.map(|rate| rate.max(1))
    }

    fn burst(&self) -> u64 {
        self.rate().map_or(0, |rate| (rate / 10).max(self.limits.smallest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn limits(rate: Option<u64>) -> CallPacerLimits {
        CallPacerLimits { bytes_per_second: rate, ..CallPacerLimits::default() }
    }

    #[test]
    fn calls_shrink_to_what_is_in_time_and_grow_back_by_doubling() {
        let mut pace = CallPacer::new(limits(None), 0);
        assert_eq!(pace.allowance(0), Allowance::Move(2 * MIB));
        // Eight times too long: an eighth.
        pace.note(2 * MIB, Duration::from_millis(80));
        assert_eq!(pace.call_bytes(), MIB / 4);
        // Just in time: it stays. Half of that: it could be twice as much.
        pace.note(MIB / 4, Duration::from_millis(9));
        assert_eq!(pace.call_bytes(), MIB / 4);
        pace.note(MIB / 4, Duration::from_millis(5));
        assert_eq!(pace.call_bytes(), MIB / 2);
        // The rest of a range says nothing about larger calls.
        pace.note(4096, Duration::from_micros(1));
        assert_eq!(pace.call_bytes(), MIB / 2);
    }

    #[test]
    fn what_every_call_takes_does_not_make_calls_smaller() {
        let mut pace = CallPacer::new(limits(None), 0);
        // Each waits 40 ms for busy CPUs, and copies a MiB in 8 ms.
        let took = |bytes: u64| Duration::from_millis(40) + Duration::from_micros(bytes / 131);
        let sizes: Vec<u64> = (0..200)
            .map(|_| {
                let bytes = pace.call_bytes();
                pace.note(bytes, took(bytes));
                bytes
            })
            .collect();
        assert_eq!(sizes[3], 64 << 10, "nothing is known of smaller ones before: {sizes:?}");
        let mean = sizes[20..].iter().sum::<u64>() / 180;
        assert!(mean > MIB / 2, "{mean} of {sizes:?}");
        assert!(sizes[20..].iter().all(|size| *size < 3 * MIB), "{sizes:?}");
        // The CPUs are idle again, and the controller finds that smaller calls are quicker.
        let quick = |bytes: u64| Duration::from_micros(bytes / 131);
        for _ in 0..1000 {
            let bytes = pace.call_bytes();
            pace.note(bytes, quick(bytes));
        }
        assert!(quick(pace.call_bytes()) <= limits(None).call, "{}", pace.call_bytes());
    }

    #[test]
    fn the_rate_bounds_all_calls_and_a_huge_page_is_paid_for_afterwards() {
        let mut pace = CallPacer::new(limits(Some(10_000_000)), 0);
        assert_eq!(pace.allowance(0), Allowance::Move(1_000_000));
        pace.note(4_000_000, Duration::from_millis(1));
        assert_eq!(pace.allowance(0), Allowance::Wait(Duration::from_millis(400)), "it owes three");
        assert_eq!(pace.allowance(399_000_000), Allowance::Wait(Duration::from_millis(1)));
        assert_eq!(pace.allowance(400_000_000), Allowance::Move(1_000_000));
    }

    proptest! {
        /// For any durations the size stays within its bounds, and no wait is endless.
        #[test]
        fn the_size_stays_within_its_bounds(
            rate in prop::option::of(1u64..1 << 40),
            steps in prop::collection::vec((0u64..1 << 32, 0u64..10_000_000_000, 0u64..1_000_000_000), 0..40),
        ) {
            let bounds = limits(rate);
            let mut pace = CallPacer::new(bounds, 0);
            let mut now = 0;
            for (bytes, took, later) in steps {
                now += later;
                match pace.allowance(now) {
                    Allowance::Move(allowed) => prop_assert!(allowed > 0 && allowed <= bounds.largest),
                    Allowance::Wait(wait) => {
                        prop_assert!(!wait.is_zero());
                        let then = now.saturating_add(u64::try_from(wait.as_nanos()).unwrap());
                        prop_assert!(matches!(pace.clone().allowance(then), Allowance::Move(_)));
                    }
                }
                pace.note(bytes, Duration::from_nanos(took));
                prop_assert!((bounds.smallest..=bounds.largest).contains(&pace.call_bytes()));
            }
        }

        /// For any sequence of requests, the allowed bytes are at most the burst and the rate over the time.
        #[test]
        fn the_rate_is_kept(rate in 1u64..1 << 36, waits in prop::collection::vec(0u64..300_000_000, 1..60)) {
            let mut pace = CallPacer::new(limits(Some(rate)), 0);
            let burst = pace.burst();
            let (mut now, mut moved) = (0u64, 0u128);
            for wait in waits {
                now += wait;
                while let Allowance::Move(bytes) = pace.allowance(now) {
                    pace.note(bytes, Duration::from_micros(1));
                    moved += u128::from(bytes);
                }
                prop_assert!(moved <= u128::from(burst) + u128::from(rate) * u128::from(now) / NS_PER_SECOND + 1);
            }
        }

        /// For any constant part of the durations, the part of the bytes is in time after a few calls, or the
        /// size is the smallest.
        #[test]
        fn what_the_bytes_take_is_in_time(ns_per_page in 1u64..2_000_000, fixed in 0u64..200_000_000) {
            let bounds = limits(None);
            let mut pace = CallPacer::new(bounds, 0);
            let copied = |bytes: u64| Duration::from_nanos(bytes / 4096 * ns_per_page);
            for step in 0..300 {
                let bytes = pace.call_bytes();
                let most = bounds.call * 2;
                // Twice the smallest size is tried again now and then.
                prop_assert!(step < 30 || copied(bytes) <= most || bytes <= bounds.smallest * 2, "{bytes}");
                pace.note(bytes, copied(bytes) + Duration::from_nanos(fixed));
            }
        }

        /// On a machine with a constant time per byte, calls are in time after a few.
        #[test]
        fn a_steady_machine_is_learned(ns_per_page in 1u64..2_000_000, steps in 20usize..30) {
            let bounds = limits(None);
            let mut pace = CallPacer::new(bounds, 0);
            let took = |bytes: u64| Duration::from_nanos(bytes / 4096 * ns_per_page);
            for _ in 0..steps {
                let bytes = pace.call_bytes();
                pace.note(bytes, took(bytes));
            }
            let bytes = pace.call_bytes();
            prop_assert!(took(bytes) <= bounds.call || bytes == bounds.smallest, "{bytes} take {:?}", took(bytes));
            prop_assert!(took(bytes) * 2 > bounds.call || bytes == bounds.largest, "{bytes} take {:?}", took(bytes));
        }
    }
}
