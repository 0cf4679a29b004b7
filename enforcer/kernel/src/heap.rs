//! Memory that was freed goes back to the kernel.
//!
//! Loading the eBPF programs takes some 20 MB for a moment. glibc keeps what was freed at the top of its
//! heap, and the more the larger the blocks were that it has seen freed (`M_TRIM_THRESHOLD` of mallopt(3) is
//! dynamic until it is set), so a daemon that needs 3 MB holds all of it for as long as it runs. A fixed
//! threshold ends that.
#![expect(unsafe_code, reason = "std does not set up the allocator of the C library")]

/// Bytes that the heap keeps at its top for the next turn.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 1 << 20;

/// From now on the heap keeps a megabyte that is free, and no more. Does nothing with another C library.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers, and may be called at any time and by any thread (mallopt(3):
    // MT-Unsafe init, const:malloc is about the parameter itself, which nothing else here sets or reads).
    let _kept_as_it_was_when_0 = unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT) };
}
