//! The kernel's monotonic clock, as a number.
//!
//! `std::time::Instant` cannot be compared with the times of eBPF events, nor with what a daemon before this one
//! wrote down. This clock can: it begins when the machine is started and is the one of `bpf_ktime_get_ns`. It stands still
//! while the machine sleeps.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine was started.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(now.tv_nsec))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn it_runs_since_the_machine_was_started() {
        let uptime = fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
        let (first, second) = (now_ns(), now_ns());
        assert!(first <= second);
        // Not later than the boot clock of `uptime`, which counts sleep as well.
        #[expect(clippy::cast_precision_loss, reason = "days in seconds")]
        let seconds = first as f64 / 1e9;
        assert!(seconds > 0.0 && seconds < uptime + 60.0, "{seconds} of {uptime}");
    }
}
