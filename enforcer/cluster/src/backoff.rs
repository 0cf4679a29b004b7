//! Time between tries that fail one after another.

use std::time::Duration;

/// Waits that double from the first one to the longest one.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// No try has failed yet.
    pub const fn new((first, longest): (Duration, Duration)) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Notes a failure; the time until the next try.
    pub fn next_wait(&mut self) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// Notes a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut backoff = Backoff::new((Duration::from_secs(2), Duration::from_mins(1)));
        let waits: Vec<u64> = (0..7).map(|_| backoff.next_wait().as_secs()).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60]);
        backoff.failures = u32::MAX;
        assert_eq!(backoff.next_wait(), Duration::from_mins(1));
        backoff.reset();
        assert_eq!(backoff.next_wait(), Duration::from_secs(2));
    }
}
