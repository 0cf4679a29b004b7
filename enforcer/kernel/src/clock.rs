//! The kernel's clocks as numbers: the monotonic one, and the one of what this process runs.
//!
//! `std::time::Instant` cannot be compared with the times of eBPF events, nor with what a daemon before this
//! one wrote down. The monotonic clock can: it begins when the machine is started and is the one of
//! `bpf_ktime_get_ns`. It stands still while the machine sleeps.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine was started.
pub fn now_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that all threads of this process have taken.
pub fn own_cpu_ns() -> u64 {
    read_ns(ClockId::ProcessCPUTime)
}

fn read_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(now.tv_nsec))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn running_thread_takes_cpu_time() {
        let (began, before) = (std::time::Instant::now(), own_cpu_ns());
        while own_cpu_ns() < before + 5_000_000 {
            assert!(began.elapsed().as_secs() < 60, "it stands still");
        }
    }

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
