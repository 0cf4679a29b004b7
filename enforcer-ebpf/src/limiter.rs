//! Limits the rate of frequent events.
//!
//! Time is the kernel's ticks: reading them is a plain load, reading the clock costs as much as counting
//! does, and most callers are told to send nothing.

use aya_ebpf::helpers::bpf_jiffies64;

/// The present time if the last event was `interval` ticks ago or there was none (0); `None` if it is too
/// soon.
#[inline(always)]
pub fn due(last: u64, interval: u64) -> Option<u64> {
    // SAFETY: the helper has no precondition.
    let now = unsafe { bpf_jiffies64() };
    (last == 0 || now.wrapping_sub(last) >= interval).then_some(now)
}
