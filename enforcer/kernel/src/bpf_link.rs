//! Commands of `bpf(2)` that open something, and the links between a loaded program and what it is attached
//! to.
//!
//! For kinds of links that the libraries have no way to say: iterators of one process
//! ([`bpf_iter`](super::bpf_iter)) and probes without a perf event ([`probe_multi`](super::probe_multi)).
#![expect(unsafe_code, reason = "glibc has no wrapper for bpf(2)")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// Command of bpf(2) (include/uapi/linux/bpf.h).
const BPF_LINK_CREATE: libc::c_int = 28;

/// The part of `union bpf_attr` that `BPF_LINK_CREATE` takes; the last field is of the kind of link.
#[repr(C)]
struct LinkAttributes<T> {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    of_kind: T,
}

/// Attaches a loaded program, until the link is closed.
///
/// # Safety
///
/// `of_kind` is laid out as the kernel has it for this kind of link, and what it points to is live and as
/// large as it says.
pub(super) unsafe fn link<T>(program: BorrowedFd<'_>, attach_type: u32, of_kind: T) -> io::Result<OwnedFd> {
    let program = program.as_raw_fd().cast_unsigned();
    let mut attributes = LinkAttributes { program, target: 0, attach_type, flags: 0, of_kind };
    // SAFETY: the attributes are those of the command; the caller vouches for what they point to.
    unsafe { call(BPF_LINK_CREATE, &mut attributes) }
}

/// A command that opens something.
///
/// # Safety
///
/// `attributes` are those of the command, and what they point to is live and as large as they say.
pub(super) unsafe fn call<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are live for the whole call; the caller vouches for what they point to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size_of::<T>()) };
    let descriptor = i32::try_from(result).ok().filter(|descriptor| *descriptor >= 0);
    let descriptor = descriptor.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just opened it for us, close-on-exec, and no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
