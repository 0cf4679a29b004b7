//! Durations of calls, as a histogram that only grows.
//!
//! Problem: the mean of a thousand quick calls hides the ten that a workload had to wait for, and a maximum
//! never goes down. Idea: calls are counted by duration in fixed classes, so two readings of the counts give
//! the share of slow calls between them.
//!
//! Terminology. A *class* holds durations up to its bound and above that of the class before; a call above
//! every bound is in no class and still counted. Cost: one comparison for each class.

use std::time::Duration;

use serde::Serialize;

/// Bounds of the classes: from a small call of `move_pages(2)` to one that stalls a workload. An answer to a
/// container runtime should take less than one of them. The last ones are for peers that wait: a container
/// runtime for 2 s, kube-scheduler for 5 s.
pub const BOUNDS: [Duration; 12] = [
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
];

/// Calls by duration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallTimes {
    /// Calls of each class, in the order of [`BOUNDS`].
    classes: [u64; BOUNDS.len()],
    /// Number of all calls.
    calls: u64,
    /// Total duration of all calls.
    total: Duration,
}

impl CallTimes {
    /// Counts a call.
    pub fn note(&mut self, took: Duration) {
        let class = BOUNDS.iter().position(|bound| took <= *bound);
        if let Some(class) = class.and_then(|at| self.classes.get_mut(at)) {
            *class = class.saturating_add(1);
        }
        self.calls = self.calls.saturating_add(1);
        self.total = self.total.saturating_add(took);
    }

    /// Number of all calls.
    pub const fn calls(&self) -> u64 {
        self.calls
    }

    /// Total duration of all calls.
    pub const fn total(&self) -> Duration {
        self.total
    }

    /// For each bound, the number of calls that took no longer.
    pub fn within(&self) -> impl Iterator<Item = (Duration, u64)> {
        let sums = self.classes.iter().scan(0_u64, |sum, calls| {
            *sum = sum.saturating_add(*calls);
            Some(*sum)
        });
        BOUNDS.into_iter().zip(sums)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_call_as_long_as_a_bound_is_within_it_and_one_longer_than_all_is_counted() {
        let mut times = CallTimes::default();
        for took in [Duration::ZERO, BOUNDS[4], BOUNDS[4] + Duration::from_nanos(1), Duration::from_secs(9)] {
            times.note(took);
        }
        let within: Vec<u64> = times.within().map(|(_, calls)| calls).collect();
        assert_eq!(within, [1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3]);
        assert_eq!((times.calls(), times.total().as_secs()), (4, 9));
    }

    proptest! {
        #[test]
        fn counts_grow_with_the_bound_up_to_all(took in proptest::collection::vec(0_u64..9_000_000_000, 0..40)) {
            let mut times = CallTimes::default();
            for ns in &took {
                times.note(Duration::from_nanos(*ns));
            }
            let within: Vec<_> = times.within().collect();
            prop_assert!(within.is_sorted());
            for (bound, calls) in within {
                let so = took.iter().filter(|ns| Duration::from_nanos(**ns) <= bound).count();
                prop_assert_eq!(calls, so as u64);
            }
            prop_assert_eq!(times.calls(), took.len() as u64);
        }
    }
}
