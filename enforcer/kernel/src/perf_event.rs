//! Counting events of a CPU with a program on each overflow: `perf_event_open(2)`.
//!
//! aya opens such events as well, but sets neither `config1`, without which Intel's offcore events count
//! something else, nor a group, without which two alternating counters measure different times; and its
//! descriptors outlive an `exec`.
//!
//! Everything that a CPU does is counted, user space, kernel and guests alike: all of it is traffic.
//! Addresses are not requested (`precise_ip` is 0): the cgroup is known without them.
#![expect(unsafe_code, reason = "glibc has no wrapper for perf_event_open(2)")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use enforcer_core::hardware::PerfEvent;
use numa_topology::id::CpuId;

/// Flags and requests (`include/uapi/linux/perf_event.h`).
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const ENABLE: libc::Ioctl = libc::_IO(b'$' as u32, 0);
const SET_BPF: libc::Ioctl = libc::_IOW::<u32>(b'$' as u32, 8);
/// Bit of [`Attributes::flags`]: the event waits for [`CpuCounter::enable`].
const DISABLED: u64 = 1;

/// The start of `struct perf_event_attr`, as long as it was when `config2` came to it.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    length: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
}

/// Bytes of [`Attributes`]: `PERF_ATTR_SIZE_VER1`.
const ATTRIBUTES: u32 = 72;
const _: () = assert!(size_of::<Attributes>() == ATTRIBUTES as usize);

/// An event of one CPU, for all tasks on it; it counts while this value lives.
#[derive(Debug)]
pub struct CpuCounter(OwnedFd);

impl CpuCounter {
    /// Opens an event that overflows every `period` counts. The first of a group waits to be enabled; one
    /// that has a leader counts when that does, on the same CPU.
    pub fn open(event: &PerfEvent, period: u64, cpu: CpuId, leader: Option<&Self>) -> io::Result<Self> {
        let attributes = Attributes {
            kind: event.kind,
            length: ATTRIBUTES,
            config: event.config,
            sample_period: period,
            flags: if leader.is_none() { DISABLED } else { 0 },
            config1: event.config1,
            ..Attributes::default()
        };
        let every_task: libc::pid_t = -1;
        let cpu =
            libc::c_int::try_from(cpu.0).map_err(|_overflow| io::Error::from_raw_os_error(libc::ENODEV))?;
        let group = leader.map_or(-1, |leader| leader.0.as_raw_fd());
        // SAFETY: `attributes` is live for the whole call and as long as it says; the kernel only reads it.
        let result = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                every_task,
                cpu,
                group,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        let fd =
            libc::c_int::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has just made this descriptor for us, and no other code owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Runs a loaded program on each overflow.
    pub fn run(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: the request takes a number, not a pointer.
        succeeded(unsafe { libc::ioctl(self.0.as_raw_fd(), SET_BPF, program.as_raw_fd()) })
    }

    /// Lets the group that this one leads count.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: as above; 0 is this event and so its group.
        succeeded(unsafe { libc::ioctl(self.0.as_raw_fd(), ENABLE, 0) })
    }
}

fn succeeded(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
