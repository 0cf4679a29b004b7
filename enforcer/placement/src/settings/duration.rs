//! Durations as people write them: `500ms`, `10s`, `5m`, `1h`.
//!
//! One whole number and one unit. A number without a unit is refused: readers should not have to guess
//! whether `interval = 10` means seconds.

use std::{fmt, str::FromStr, time::Duration};

use thiserror::Error;

use numa_topology::text::beginning;

/// Units, longest first, in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A duration of the configuration file, in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(u64);

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a length of time: a whole number and one of ms, s, m, h expected, as in 10s")]
pub struct DurationError(String);

impl HumanDuration {
    /// A duration in seconds; saturates.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// As the standard library's type.
    pub const fn get(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// In nanoseconds; saturates.
    pub const fn as_nanos(self) -> u64 {
        self.0.saturating_mul(1_000_000)
    }

    /// Is it zero?
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<Duration> for HumanDuration {
    /// Rounds up to whole milliseconds, so that a nonzero duration stays nonzero; saturates.
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

impl FromStr for HumanDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let refused = || DurationError(beginning(text));
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = trimmed.split_at(digits);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim_start()).ok_or_else(refused)?;
        number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(*factor))
            .map(Self)
            .ok_or_else(refused)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |&&(_, factor): &&(&str, u64)| self.0 >= factor && self.0.is_multiple_of(factor);
        match UNITS.iter().find(fits) {
            Some((name, factor)) => write!(f, "{}{name}", self.0 / factor),
            None => f.write_str("0s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_one_number_and_one_unit() {
        for (text, millis) in [
            ("0s", 0),
            ("500ms", 500),
            ("10s", 10_000),
            ("5 m", 300_000),
            (" 1h ", 3_600_000),
            ("007s", 7_000),
        ] {
            assert_eq!(text.parse::<HumanDuration>().unwrap().get(), Duration::from_millis(millis), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_and_names_it() {
        for text in
            ["", "10", "s", "-5s", "1.5s", "10 sec", "1h30m", "99999999999999999999s", "20000000000000000s"]
        {
            let error = text.parse::<HumanDuration>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn a_long_text_is_cut_in_the_message() {
        let error = "9".repeat(5_000).parse::<HumanDuration>().unwrap_err().to_string();
        assert!(error.len() < 200, "{error}");
    }

    #[test]
    fn prints_the_largest_whole_unit() {
        for text in ["0s", "999ms", "1s", "90s", "2m", "24h"] {
            assert_eq!(text.parse::<HumanDuration>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_fraction_of_a_millisecond_does_not_become_nothing() {
        assert_eq!(HumanDuration::from(Duration::from_nanos(1)).to_string(), "1ms");
        assert_eq!(HumanDuration::from(Duration::from_secs(2)).to_string(), "2s");
        assert_eq!(HumanDuration::from(Duration::ZERO).to_string(), "0s");
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(millis in any::<u64>()) {
            let duration = HumanDuration(millis);
            prop_assert_eq!(duration.to_string().parse::<HumanDuration>().unwrap(), duration);
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<HumanDuration>();
        }
    }
}
