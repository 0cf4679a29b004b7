//! Wall-clock time for people.
//!
//! This clock may step, and is wrong until the host has synchronized it. So no decision uses it, and
//! durations come from [`enforcer_kernel::clock`] where possible.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Nanoseconds since 1970.
pub(crate) fn unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// By RFC 3339, in UTC and whole seconds, as `2026-01-31T12:00:00Z`.
pub(crate) fn utc_now() -> String {
    utc(unix_ms() / 1_000)
}

/// Seconds since 1970; times beyond the calendar become its last one.
fn utc(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    at.unwrap_or(Timestamp::MAX).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_people_and_programs_read_it() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(utc(4_102_444_799), "2099-12-31T23:59:59Z");
        assert!(utc(u64::MAX).starts_with("9999-12-3"));
        assert_eq!(utc_now().len(), "2026-01-31T12:00:00Z".len());
    }
}
