//! Probes on functions of the kernel that take no perf event (`BPF_TRACE_KPROBE_MULTI`, Linux 5.18 with
//! `CONFIG_FPROBE`).
//!
//! A kprobe of a perf event is refused with the perf event: with `kernel.perf_event_paranoid` at 3 Debian's
//! kernels want `CAP_SYS_ADMIN` for it. A link of this kind wants what loading the program wanted. The
//! program has to be loaded for it, which aya cannot, so this is `bpf(2)` with `BPF_PROG_LOAD` and
//! `BPF_LINK_CREATE`.
#![expect(unsafe_code, reason = "glibc has no wrapper for bpf(2)")]

use std::{
    ffi::CStr,
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use super::bpf_link::{call, link};

/// Command, program type and attach type of bpf(2) (include/uapi/linux/bpf.h).
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_TRACE_KPROBE_MULTI: u32 = 42;
/// The probe is at the end of the function.
const BPF_F_KPROBE_MULTI_RETURN: u32 = 1;

/// The part of `union bpf_attr` that `BPF_PROG_LOAD` takes.
#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    program_type: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// What `BPF_LINK_CREATE` takes for these probes.
#[repr(C)]
struct OfProbes {
    flags: u32,
    count: u32,
    names: u64,
    addresses: u64,
    cookies: u64,
}

/// Loads a program of 8-byte instructions that already name all its maps.
pub fn load(name: &str, instructions: &[u64], license: &CStr) -> io::Result<OwnedFd> {
    let mut attributes = LoadAttributes {
        program_type: BPF_PROG_TYPE_KPROBE,
        count: u32::try_from(instructions.len()).unwrap_or(u32::MAX),
        instructions: instructions.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        attach_type: BPF_TRACE_KPROBE_MULTI,
        ..LoadAttributes::default()
    };
    // The last byte stays 0.
    let room = attributes.name.len() - 1;
    for (byte, of_name) in attributes.name.iter_mut().take(room).zip(name.bytes()) {
        *byte = of_name;
    }
    // SAFETY: the attributes point to the instructions, of which there are so many, and to a string that
    // ends; both are live for the call.
    unsafe { call(BPF_PROG_LOAD, &mut attributes) }
}

/// Attaches a program that was loaded so to a function, until the link is closed.
pub fn attach(program: BorrowedFd<'_>, function: &CStr, at_end: bool) -> io::Result<OwnedFd> {
    let names = [function.as_ptr().expose_provenance() as u64];
    let of_kind = OfProbes {
        flags: if at_end { BPF_F_KPROBE_MULTI_RETURN } else { 0 },
        count: 1,
        names: names.as_ptr().expose_provenance() as u64,
        addresses: 0,
        cookies: 0,
    };
    // SAFETY: it points to one pointer to a string that ends; both are live for the call.
    unsafe { link(program, BPF_TRACE_KPROBE_MULTI, of_kind) }
}
