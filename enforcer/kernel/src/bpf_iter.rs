//! Reads a BPF iterator of one process.
//!
//! Which process is said when the link is made (`bpf_iter_link_info.task`, Linux 6.1), and libbpf-rs has no
//! way to say it, so this is `bpf(2)` with `BPF_LINK_CREATE` and `BPF_ITER_CREATE`. A kernel before that
//! version takes no notice of it and would walk all processes: the caller has to ask for the field first.
#![expect(unsafe_code, reason = "glibc has no wrapper for bpf(2)")]

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use super::bpf_link::{call, link};

/// Command and attach type of bpf(2) (include/uapi/linux/bpf.h).
const BPF_ITER_CREATE: libc::c_int = 33;
const BPF_TRACE_ITER: u32 = 28;

/// `union bpf_iter_link_info` with its member `task`.
#[repr(C)]
struct LinkInfo {
    thread: u32,
    process: u32,
    process_fd: u32,
    rest: u32,
}

/// What `BPF_LINK_CREATE` takes for iterators.
#[repr(C)]
struct OfIterator {
    info: u64,
    info_bytes: u32,
    rest: u32,
}

/// The part of `union bpf_attr` that `BPF_ITER_CREATE` takes.
#[repr(C)]
struct IteratorAttributes {
    link: u32,
    flags: u32,
}

/// What a loaded iterator program writes about one process, as a stream.
pub fn of_process(program: BorrowedFd<'_>, pid: u32) -> io::Result<File> {
    let info = LinkInfo { thread: 0, process: pid, process_fd: 0, rest: 0 };
    let of_kind = OfIterator { info: (&raw const info).expose_provenance() as u64, info_bytes: 16, rest: 0 };
    const { assert!(size_of::<LinkInfo>() == 16) };
    // SAFETY: what it points to is live for the call, and as large as it says.
    let link = unsafe { link(program, BPF_TRACE_ITER, of_kind) }?;
    let mut iterator = IteratorAttributes { link: link.as_raw_fd().cast_unsigned(), flags: 0 };
    // The stream holds what it needs of the link.
    // SAFETY: the attributes point to nothing.
    Ok(File::from(unsafe { call(BPF_ITER_CREATE, &mut iterator) }?))
}
