//! What a process takes, as the kernel shows it in /proc, for benches of the product.
//!
//! Invariant: a process that has ended is an error, not a zero.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

/// A line of `/proc/PID/status` in bytes: `VmRSS`, `VmHWM`, `RssAnon`.
///
/// # Errors
/// If it cannot be read.
pub fn memory_of(pid: u32, line: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let kib = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':'));
    let kib = kib.and_then(|kib| kib.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} has no {line}"))? << 10)
}

/// CPU time that the threads of a process which still run have taken so far.
///
/// # Errors
/// If it cannot be read.
pub fn cpu_time_of(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/task");
    let mut sum = Duration::ZERO;
    for task in fs::read_dir(&path).with_context(|| format!("read {path}"))? {
        let path = task.with_context(|| format!("read {path}"))?.path().join("schedstat");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let nanoseconds = text.split(' ').next().and_then(|first| first.parse().ok());
        sum += Duration::from_nanos(nanoseconds.with_context(|| format!("{}: {text:?}", path.display()))?);
    }
    Ok(sum)
}
