//! On which CPUs a thread of this process may run: `sched_setaffinity(2)` for machines of any size.
//!
//! The wrappers of libraries end at 1,024 CPUs; the system calls take a mask of any length. Words of the mask
//! are those of the kernel's `unsigned long`, lowest CPUs first.
#![expect(unsafe_code, reason = "no wrapper takes a mask of this length")]

use std::io;

use numa_topology::{id::CpuId, set::CpuSet};

/// Bits of the mask: more than `CONFIG_NR_CPUS` can be (8,192 on x86-64).
const CPUS: usize = 8_192;
const BITS: usize = usize::BITS as usize;

type AffinityMask = [usize; CPUS / BITS];

/// CPUs that a thread may run on; 0 is the calling one.
pub fn affinity(thread: libc::pid_t) -> io::Result<CpuSet> {
    let mut mask: AffinityMask = [0; CPUS / BITS];
    // SAFETY: the mask is live for the whole call and as long as is said; the kernel writes no more.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, thread, size_of::<AffinityMask>(), mask.as_mut_ptr())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let is_set = |cpu: &usize| mask[cpu / BITS] >> (cpu % BITS) & 1 == 1;
    Ok((0..CPUS).filter(is_set).filter_map(|cpu| u32::try_from(cpu).ok()).map(CpuId).collect())
}

/// Has a thread run on these CPUs alone, as far as its cpuset has them.
pub fn set_affinity(thread: libc::pid_t, cpus: &CpuSet) -> io::Result<()> {
    let mut mask: AffinityMask = [0; CPUS / BITS];
    for cpu in cpus.iter() {
        if let Some(word) = mask.get_mut(cpu.0 as usize / BITS) {
            *word |= 1 << (cpu.0 as usize % BITS);
        }
    }
    // SAFETY: the mask is live for the whole call and as long as is said; the kernel only reads it.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, thread, size_of::<AffinityMask>(), mask.as_ptr())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_read_and_a_set_without_cpus_is_refused() {
        let thread = std::thread::spawn(|| {
            let before = affinity(0).unwrap();
            let one: CpuSet = before.first().into_iter().collect();
            set_affinity(0, &one).unwrap();
            assert_eq!(affinity(0).unwrap(), one);
            set_affinity(0, &before).unwrap();
            assert_eq!(affinity(0).unwrap(), before);
            assert!(set_affinity(0, &CpuSet::new()).is_err());
            assert_eq!(affinity(libc::pid_t::MAX).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        });
        thread.join().unwrap();
    }
}
