//! Durations as quantiles: in buckets of a quarter of an octave, without an allocation.

/// Number of buckets: enough for every time of 64 bits.
const BUCKETS: usize = 256;

/// Measured durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies {
    buckets: [u64; BUCKETS],
    count: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0 }
    }
}

impl Latencies {
    /// Records a duration in ns.
    pub fn note(&mut self, ns: u64) {
        if let Some(bucket) = self.buckets.get_mut(bucket(ns)) {
            *bucket = bucket.saturating_add(1);
            self.count = self.count.saturating_add(1);
        }
    }

    /// Number of recorded durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The duration that `percent` of the recorded ones do not exceed, in ns, up to a fifth too high; `None`
    /// without one.
    pub fn quantile(&self, percent: u64) -> Option<u64> {
        let wanted = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1);
        let mut seen = 0u128;
        self.buckets.iter().enumerate().find_map(|(index, count)| {
            seen += u128::from(*count);
            (seen >= wanted).then(|| ceiling(index))
        })
    }
}

fn bucket(ns: u64) -> usize {
    let ns = ns.max(4);
    let octave = ns.ilog2();
    // The two bits below the highest one.
    octave as usize * 4 + usize::try_from((ns >> (octave - 2)) & 3).unwrap_or(0)
}

/// The longest time in a bucket.
fn ceiling(index: usize) -> u64 {
    let (octave, quarter) = (index / 4, index as u128 % 4);
    let end = (quarter + 5) << octave.saturating_sub(2);
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_of_nothing_and_of_some() {
        let mut times = Latencies::default();
        assert_eq!((times.quantile(50), times.count()), (None, 0));
        for ms in 1..=100u64 {
            times.note(ms * 1_000_000);
        }
        let within = |percent, low: u64, high: u64| {
            let found = times.quantile(percent).unwrap();
            assert!((low * 1_000_000..high * 1_000_000).contains(&found), "{percent} %: {found}");
        };
        within(50, 50, 61);
        within(99, 99, 120);
        assert_eq!(times.count(), 100);
    }

    proptest! {
        #[test]
        fn no_time_exceeds_its_bucket_or_is_far_below_it(ns in 4u64..u64::MAX / 2) {
            let top = ceiling(bucket(ns));
            prop_assert!(top >= ns && top - ns <= ns / 4 + 1, "{} in {}", ns, top);
        }
    }
}
