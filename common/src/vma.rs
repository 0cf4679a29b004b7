//! The record that the mapping iterator writes for each mapping of a process.
//!
//! Written in C (`enforcer-ebpf/bpf/vma.bpf.c`), for the reason that `task.rs` gives.

use crate::limit::NODE_WORDS;

/// One mapping, as `struct vm_area_struct` has it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmaRecord {
    /// `vm_start`: address of its first byte.
    pub start: u64,
    /// `vm_end`: address behind its last byte.
    pub end: u64,
    /// `vm_flags`; only with [`HAS_FLAGS`].
    pub flags: u64,
    /// Process id.
    pub tgid: u32,
    /// `HAS_` flags of this module.
    pub present: u32,
    /// `mode` of its effective policy: its own, else that of the process's first thread. 0 without a policy.
    pub mode: u32,
    /// Always 0.
    pub reserved: u32,
    /// `nodes` of that policy, bit n of word n / 64 for node n.
    pub nodes: [u64; NODE_WORDS],
}

/// The kernel has memory policies, so `mode` and `nodes` are valid.
pub const HAS_POLICY: u32 = 1 << 0;
/// `flags` was read.
pub const HAS_FLAGS: u32 = 1 << 1;
/// It is of a file, shared memory and huge page files included.
pub const HAS_FILE: u32 = 1 << 2;
/// `VM_SHARED` of `flags` (`include/linux/mm.h`).
pub const VM_SHARED: u64 = 0x8;
/// `VM_HUGETLB` of `flags`: of huge pages that are set aside.
pub const VM_HUGETLB: u64 = 0x0040_0000;
