//! Tells seldom what happens often.
//!
//! Time is the kernel's ticks: reading them is a plain load, reading the clock costs as much as counting
//! does, and most of what asks is told to be silent.

use aya_ebpf::helpers::bpf_jiffies64;

/// The time now when the last one was `interval` ticks ago or never, which is 0; else it is too soon.
#[inline(always)]
pub fn due(last: u64, interval: u64) -> Option<u64> {
    // SAFETY: the helper has no precondition.
    let now = unsafe { bpf_jiffies64() };
    (last == 0 || now.wrapping_sub(last) >= interval).then_some(now)
}
