//! Reads what a pointer of the kernel points to, by a plain load.
//!
//! For arguments of BTF tracepoints and what is reached from them: the verifier knows the type of each, so it
//! checks every offset when the program is loaded, and a pointer that is stale reads as 0. A load costs a
//! quarter of a `bpf_probe_read_kernel`. For addresses that the verifier does not know it refuses the
//! program.

/// The field at `base + offset`; a pointer, or an integer of the field's size.
#[inline(always)]
pub fn load<T: Copy>(base: *const u8, offset: u32) -> T {
    // SAFETY: `base` is a pointer that the verifier tracks by type, in a kernel that turns a faulting load
    // into 0. Every value of what is loaded is valid: pointers are not followed but by this function.
    unsafe { base.add(offset as usize).cast::<T>().read_volatile() }
}
