//! Raw system calls.
//!
//! Nothing but the calls belongs here; what to ask, and what an answer means, is decided elsewhere.
#![expect(
    unsafe_code,
    reason = "glibc has no wrapper for move_pages(2), set_mempolicy(2) and bpf(2), and std none for signal(2) \
              and for execvp(3) with the signals as they are"
)]

use std::{
    ffi::{CString, OsString},
    io,
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt as _,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use numa_topology::{id::NodeId, set::NodeSet};

use super::{Kernel, PageStatus};

/// The running kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

impl Linux {
    /// May this process call `move_pages(2)` at all?
    ///
    /// Container runtimes filter it in their default seccomp profile, whatever the capabilities.
    pub fn probe() -> io::Result<()> {
        // Process 0 is the caller, and no pages are asked for.
        call(0, &[], None).map(drop)
    }
}

impl Kernel for Linux {
    fn locate_pages(&self, pid: u32, pages: &[usize]) -> io::Result<Vec<PageStatus>> {
        call(pid, pages, None)
    }

    fn move_pages(&self, pid: u32, pages: &[usize], to: NodeId) -> io::Result<Vec<PageStatus>> {
        call(pid, pages, Some((to, MPOL_MF_MOVE)))
    }

    fn move_shared_pages(&self, pid: u32, pages: &[usize], to: NodeId) -> io::Result<Vec<PageStatus>> {
        call(pid, pages, Some((to, MPOL_MF_MOVE_ALL)))
    }
}

/// `MPOL_MF_MOVE` (include/uapi/linux/mempolicy.h): only pages that no other process maps.
const MPOL_MF_MOVE: libc::c_int = 2;
/// `MPOL_MF_MOVE_ALL`: those too that others map.
const MPOL_MF_MOVE_ALL: libc::c_int = 4;

/// `move_pages(2)`, with these flags; without `to` it only asks.
fn call(pid: u32, pages: &[usize], to: Option<(NodeId, libc::c_int)>) -> io::Result<Vec<PageStatus>> {
    let pid = libc::pid_t::try_from(pid).map_err(|_overflow| io::Error::from_raw_os_error(libc::ESRCH))?;
    let nodes = to
        .map(|(node, _)| libc::c_int::try_from(node.0).map(|number| vec![number; pages.len()]))
        .transpose()
        .map_err(|_overflow| io::Error::from_raw_os_error(libc::ENODEV))?;
    // The kernel leaves the status of a page that it did not reach as it was.
    let mut status: Vec<libc::c_int> = vec![-libc::EBUSY; pages.len()];
    // SAFETY: `pages`, `nodes` (where not null) and `status` are live for the whole call and each has
    // `pages.len()` elements of the type that the kernel expects (`void *`, `int`, `int`). The
    // addresses in `pages` belong to the other process; the kernel never follows them in ours.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            pages.len(),
            pages.as_ptr(),
            nodes.as_ref().map_or(ptr::null(), Vec::as_ptr),
            status.as_mut_ptr(),
            to.map_or(0, |(_, flags)| flags),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(status
        .into_iter()
        .map(|code| u32::try_from(code).map_or(PageStatus::Errno(-code), |node| PageStatus::On(NodeId(node))))
        .collect())
}

/// `BPF_MAP_LOOKUP_ELEM` (include/uapi/linux/bpf.h).
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;

/// Does this thread need `CAP_BPF`, which it does not have, to read a map that it holds open?
///
/// Asks for an element of no map: the kernel looks at privileges first (`__sys_bpf`, kernel/bpf/syscall.c).
pub fn reading_maps_needs_cap_bpf() -> bool {
    // map_fd, and zeros for key, value and flags; no file has the descriptor -1.
    let mut attributes = [0u64; 4];
    attributes[0] = u64::from(u32::MAX);
    // SAFETY: `attributes` is live for the whole call and as large as is said; the kernel gives up at the
    // descriptor, before it looks at the addresses in it.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_MAP_LOOKUP_ELEM, attributes.as_mut_ptr(), size_of_val(&attributes))
    };
    result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// From now on a write beyond the greatest size that a file may have (`RLIMIT_FSIZE`) fails with `EFBIG`;
/// until then it ends the process (`SIGXFSZ`, setrlimit(2)). The processes that this one starts inherit that.
pub fn ignore_file_size_signal() {
    // SAFETY: no function is installed, the signal is ignored; signal(2) takes two numbers then, and nothing
    // else in the process asks for this signal.
    let _was_default = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether `SIGPIPE` and `SIGXFSZ` were ignored when the process was started: the runtime of Rust ignores the
/// first before `main`, and [`ignore_file_size_signal`] the other.
static INHERITED_IGNORED: [(libc::c_int, AtomicBool); 2] =
    [(libc::SIGPIPE, AtomicBool::new(false)), (libc::SIGXFSZ, AtomicBool::new(false))];

/// Called by the C library before `main`.
#[used]
// SAFETY: the section holds pointers to functions of this type, which may ignore the arguments of `main`.
#[unsafe(link_section = ".init_array")]
static NOTE_SIGNALS: extern "C" fn() = note_signals;

extern "C" fn note_signals() {
    for (signal, is_ignored) in &INHERITED_IGNORED {
        let mut found = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the kernel writes to `found`, which is large enough; without a new action it only asks.
        let asked = unsafe { libc::sigaction(*signal, ptr::null(), found.as_mut_ptr()) };
        // SAFETY: zeros are a valid `sigaction`, and so is what the kernel has written.
        let found = unsafe { found.assume_init() };
        let ignored = asked == 0 && found.sa_sigaction == libc::SIG_IGN;
        is_ignored.store(ignored, Ordering::Relaxed);
    }
}

/// Becomes another program, looked for in `PATH`, which ignores the signals that this one was started with.
/// Returns only if that failed, and why.
pub fn become_program(command: &[OsString]) -> io::Error {
    let words: Result<Vec<CString>, _> = command.iter().map(|word| CString::new(word.as_bytes())).collect();
    let words = match words {
        Ok(words) => words,
        Err(error) => return io::Error::new(io::ErrorKind::InvalidInput, error),
    };
    let mut arguments: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    arguments.push(ptr::null());
    let Some(program) = words.first() else { return io::ErrorKind::InvalidInput.into() };
    for (signal, was_ignored) in &INHERITED_IGNORED {
        let to = if was_ignored.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
        // SAFETY: no function is installed; signal(2) takes two numbers then.
        let _before = unsafe { libc::signal(*signal, to) };
    }
    // SAFETY: the strings end with a zero and live until the call returns, and the list ends with a null
    // pointer.
    unsafe { libc::execvp(program.as_ptr(), arguments.as_ptr()) };
    io::Error::last_os_error()
}

/// `MPOL_F_STATIC_NODES` (include/uapi/linux/mempolicy.h): the nodes stay when the cpuset gets others.
const MPOL_F_STATIC_NODES: libc::c_int = 1 << 15;

/// Sets the memory policy of this thread, by the kernel's number of its mode (`set_mempolicy(2)`). A program
/// that the thread becomes has it, too.
///
/// # Errors
/// `EINVAL` if the kernel does not know the mode, or the cpuset has none of the nodes.
pub fn set_memory_policy(mode: u16, nodes: &NodeSet, keep_nodes: bool) -> io::Result<()> {
    const BITS: usize = libc::c_ulong::BITS as usize;
    let words = nodes.iter().last().map_or(0, |node| node.0 as usize / BITS + 1);
    let mut mask: Vec<libc::c_ulong> = vec![0; words];
    for node in nodes.iter() {
        if let Some(word) = mask.get_mut(node.0 as usize / BITS) {
            *word |= 1 << (node.0 as usize % BITS);
        }
    }
    let flags = if keep_nodes && !mask.is_empty() { MPOL_F_STATIC_NODES } else { 0 };
    let pointer = if mask.is_empty() { ptr::null() } else { mask.as_ptr() };
    // The kernel takes one bit less than it is told (`get_nodes` in mm/mempolicy.c).
    let length = if mask.is_empty() { 0 } else { mask.len() * BITS + 1 };
    // SAFETY: `mask` is live for the whole call, and where it is not null it has as many bits as the kernel
    // reads; the kernel only reads it.
    let result =
        unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::c_int::from(mode) | flags, pointer, length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_our_own_is_somewhere_and_an_unmapped_one_is_not() {
        if let Err(error) = Linux::probe() {
            println!("skipped: move_pages(2) is not usable here: {error}");
            return;
        }
        let page = vec![1u8; 4096];
        let address = page.as_ptr() as usize & !4095;
        match Linux.locate_pages(std::process::id(), &[address, 0]) {
            Ok(status) => {
                assert!(matches!(status[0], PageStatus::On(_)), "{status:?}");
                assert!(matches!(status[1], PageStatus::Errno(libc::ENOENT | libc::EFAULT)), "{status:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_process_that_cannot_exist_is_reported_as_gone() {
        if Linux::probe().is_err() {
            println!("skipped: move_pages(2) is not usable here");
            return;
        }
        let error = Linux.locate_pages(u32::MAX, &[0]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
