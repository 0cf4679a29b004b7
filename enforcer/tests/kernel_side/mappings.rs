//! Every field of the mapping iterator's record against `maps` and `numa_maps`, on mappings that this process
//! made.

use std::{fs, io, ptr};

use enforcer_core::vma::{Vma, VmaFiles, extents};
use enforcer_kernel::bpf::VmaIterator;

use crate::{permitted, refused};

/// Modes of include/uapi/linux/mempolicy.h.
const MPOL_DEFAULT: libc::c_long = 0;
const MPOL_PREFERRED: libc::c_long = 1;
const MPOL_BIND: libc::c_long = 2;
const MPOL_INTERLEAVE: libc::c_long = 3;
const MPOL_LOCAL: libc::c_long = 4;

const MIB: usize = 1 << 20;
/// More mappings than a read of the stream gives, and as many as `vm.max_map_count` allows by default.
const MANY: usize = 60_000;

/// Memory of this process, mapped until this is dropped.
struct Mapped {
    address: *mut libc::c_void,
    bytes: usize,
}

impl Mapped {
    fn new(bytes: usize, flags: libc::c_int) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes; it touches no memory of ours.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { address, bytes })
        }
    }

    fn start(&self) -> u64 {
        self.address.addr() as u64
    }

    /// Gives it a policy on node 0, or on none.
    fn bind(&self, mode: libc::c_long) {
        let node_0 = 1u64;
        let with_nodes = [MPOL_PREFERRED, MPOL_BIND, MPOL_INTERLEAVE].contains(&mode);
        let (mask, bits) = if with_nodes { ((&raw const node_0).addr(), 64) } else { (0, 0) };
        // SAFETY: the range is ours, and `node_0` lives; nothing is moved.
        let result = unsafe { libc::syscall(libc::SYS_mbind, self.address, self.bytes, mode, mask, bits, 0) };
        assert_eq!(result, 0, "mbind {mode}: {}", io::Error::last_os_error());
    }

    /// Makes every second page read-only, and so a mapping of its own.
    fn split(&self) {
        for page in (0..self.bytes / 4096).step_by(2) {
            let at = self.address.wrapping_byte_add(page * 4096);
            // SAFETY: a page of this mapping, which no code reads or writes.
            assert_eq!(unsafe { libc::mprotect(at, 4096, libc::PROT_READ) }, 0);
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and no reference into it exists.
        unsafe { libc::munmap(self.address, self.bytes) };
    }
}

fn by_files() -> Vec<Vma> {
    let mut files = VmaFiles::default();
    fs::read_to_string("/proc/self/maps").unwrap().lines().for_each(|line| files.add_map(line));
    let numa_maps = fs::read("/proc/self/numa_maps").unwrap();
    String::from_utf8_lossy(&numa_maps).lines().for_each(|line| files.add_numa_map(line));
    files.into_mappings()
}

fn iterator() -> Option<VmaIterator> {
    if !permitted() {
        return None;
    }
    match VmaIterator::open() {
        Ok(iterator) => Some(iterator),
        // Linux before 6.1 has none: that is what numa_maps is read for.
        Err(error) => {
            println!("skipped: {error}");
            if !error.to_string().contains("Linux 6.1") {
                refused(&error.to_string());
            }
            None
        }
    }
}

#[test]
fn every_field_of_a_mapping_is_what_maps_and_numa_maps_say() {
    let Some(iterator) = iterator() else { return };
    let (private, shared) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    let modes = [MPOL_DEFAULT, MPOL_PREFERRED, MPOL_BIND, MPOL_INTERLEAVE, MPOL_LOCAL];
    let ours: Vec<(libc::c_long, Mapped)> = [private, shared]
        .iter()
        .flat_map(|flags| modes.map(|mode| (mode, Mapped::new(MIB, *flags).unwrap())))
        .inspect(|(mode, mapped)| mapped.bind(*mode))
        .collect();
    fs::write("/proc/sys/vm/nr_hugepages", "4").unwrap();
    let huge = Mapped::new(2 * MIB, private | libc::MAP_HUGETLB);

    let rest = (0..50).find_map(|_| {
        let (before, records, after) = (by_files(), iterator.read(std::process::id()).unwrap(), by_files());
        (before == after).then_some((before, records))
    });
    let (files, records) = rest.expect("mappings that stay for a moment");
    assert_eq!(records, files);

    let of =
        |mapped: &Mapped| records.iter().find(|vma| (vma.start..vma.end).contains(&mapped.start())).unwrap();
    for (mode, mapped) in &ours {
        let words = ["default", "prefer:0", "bind:0", "interleave:0", "local"];
        assert_eq!(of(mapped).policy.as_ref().unwrap().to_string(), words[usize::try_from(*mode).unwrap()]);
    }
    assert_eq!((of(&ours[0].1).shared, of(&ours[9].1).shared), (Some(false), Some(true)));
    match &huge {
        Ok(huge) => assert_eq!((of(huge).huge, of(&ours[0].1).huge), (Some(true), Some(false))),
        Err(error) => println!("not compared: no huge page: {error}"),
    }
    let bound = extents(&records).into_iter().find(|extent| extent.policy.to_string() == "bind:0").unwrap();
    assert_eq!((bound.bytes, bound.shared_bytes), (2 * MIB as u64, MIB as u64));
}

#[test]
fn as_many_mappings_as_a_process_may_have_are_read_whole() {
    let Some(iterator) = iterator() else { return };
    let before = iterator.read(std::process::id()).unwrap().len();
    let mapped =
        Mapped::new(MANY * 4096, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE).unwrap();
    mapped.split();
    let records = iterator.read(std::process::id()).unwrap();
    assert!(records.len() >= before + MANY - 10, "{} after {before}", records.len());
    assert!(records.is_sorted_by(|a, b| a.end <= b.start), "each once");
    drop(mapped);
    assert!(iterator.read(std::process::id()).unwrap().len() < before + MANY / 2, "control");
}

#[test]
fn a_process_that_is_gone_is_an_error_and_another_ones_mappings_are_not_ours() {
    let Some(iterator) = iterator() else { return };
    let mut child = std::process::Command::new("/proc/self/exe").arg("--list").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    assert!(iterator.read(pid).is_err());
    let parent = std::os::unix::process::parent_id();
    let own = iterator.read(std::process::id()).unwrap();
    assert!(!own.is_empty());
    // The parent may be hidden from BPF.
    assert_ne!(iterator.read(parent).unwrap_or_default(), own);
}
