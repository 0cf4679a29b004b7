//! Durations as people type them: `500ms`, `10s`, `2m`, `1h`.

use std::time::Duration;

use thiserror::Error;

/// Nothing that this program waits for is longer.
const LONGEST: Duration = Duration::from_hours(24);

/// Why a text is not a duration.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum DurationError {
    /// No number in front, or no unit behind.
    #[error("a whole number and a unit (ms, s, m or h) expected, like 10s")]
    Shape,
    /// Zero.
    #[error("must be longer than zero")]
    Zero,
    /// Above [`LONGEST`].
    #[error("must not be longer than 24h")]
    TooLong,
}

/// The duration that `text` names.
pub(super) fn parse(text: &str) -> Result<Duration, DurationError> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(DurationError::Shape);
    }
    let milliseconds_per_unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(DurationError::Shape),
    };
    let duration = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(milliseconds_per_unit))
        .map(Duration::from_millis)
        .filter(|duration| *duration <= LONGEST)
        .ok_or(DurationError::TooLong)?;
    if duration.is_zero() { Err(DurationError::Zero) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_a_number_and_a_unit() {
        for (text, milliseconds) in [("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("24h", 86_400_000)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in ["", "10", "s", "-1s", "1.5s", "10 s", "10S", "10d", "+3s", "٣s"] {
            assert_eq!(parse(text), Err(DurationError::Shape), "{text}");
        }
        assert_eq!(parse("0s"), Err(DurationError::Zero));
        assert_eq!(parse("25h"), Err(DurationError::TooLong));
        assert_eq!(parse("99999999999999999999s"), Err(DurationError::TooLong));
        assert_eq!(parse("18446744073709551615h"), Err(DurationError::TooLong));
    }

    proptest! {
        #[test]
        fn any_text_is_a_sane_duration_or_an_error(text in "[0-9msh.+-]{0,24}") {
            if let Ok(duration) = parse(&text) {
                prop_assert!(duration > Duration::ZERO && duration <= LONGEST);
            }
        }
    }
}
