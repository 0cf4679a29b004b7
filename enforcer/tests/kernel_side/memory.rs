//! Memory with a chosen node and policy: the NUMA system calls of a test.
#![expect(unsafe_code, reason = "glibc has no wrapper for mbind(2) and set_mempolicy(2)")]

use std::{io, ptr};

/// `MPOL_DEFAULT`, `MPOL_BIND` and `MPOL_INTERLEAVE` (include/uapi/linux/mempolicy.h).
pub(crate) const DEFAULT: i32 = 0;
pub(crate) const BIND: i32 = 2;
pub(crate) const INTERLEAVE: i32 = 3;
/// `MPOL_MF_STRICT | MPOL_MF_MOVE`: moves what is elsewhere, and says so where it cannot.
const STRICT_MOVE: u32 = 1 | 2;
/// Bits of a mask of nodes that is one word long, as the kernel counts them.
const MASK_BITS: usize = 65;

const PAGE: usize = 4096;

/// Anonymous memory in pages of the base size, followed by a guard page, so that it is a mapping of its own.
/// Unmapped on drop.
pub(crate) struct Pages {
    start: *mut libc::c_void,
    count: usize,
}

impl Pages {
    /// Touched by this thread.
    pub(crate) fn touched(count: usize) -> Self {
        // SAFETY: a new mapping wherever the kernel likes.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                (count + 1) * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        // SAFETY: the page is the last one of the mapping, and no code has used it yet.
        let guarded = unsafe { libc::mprotect(start.wrapping_byte_add(count * PAGE), PAGE, libc::PROT_NONE) };
        assert_eq!(guarded, 0, "{}", io::Error::last_os_error());
        // SAFETY: the range is in the mapping.
        unsafe { libc::madvise(start, count * PAGE, libc::MADV_NOHUGEPAGE) };
        let mut pages = Self { start, count };
        pages.touch();
        pages
    }

    pub(crate) fn touch(&mut self) {
        for address in self.addresses() {
            // SAFETY: the address is in the mapping, and no other code writes to it.
            unsafe { (address as *mut u8).write_volatile(1) };
        }
    }

    pub(crate) fn addresses(&self) -> Vec<usize> {
        (0..self.count).map(|page| self.start as usize + page * PAGE).collect()
    }

    /// Binds it to one node, and moves there what is elsewhere.
    pub(crate) fn bind(&self, node: u32) -> io::Result<()> {
        let mask = 1u64 << node;
        // SAFETY: the range is the mapping, the mask is live for the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start,
                self.count * PAGE,
                BIND,
                &raw const mask,
                MASK_BITS,
                STRICT_MOVE,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.start, (self.count + 1) * PAGE) };
    }
}

/// Sets the memory policy of this thread, with a mask of many words.
pub(crate) fn set_wide_policy(mode: i32, nodes: &[u64]) -> io::Result<()> {
    let bits = nodes.len() * 64 + 1;
    // SAFETY: the mask is live for the call and has so many bits but one, which the kernel does not count.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, nodes.as_ptr(), bits) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the memory policy of this thread.
pub(crate) fn set_policy(mode: i32, nodes: u64) -> io::Result<()> {
    // SAFETY: the mask is live for the call.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, &raw const nodes, MASK_BITS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
