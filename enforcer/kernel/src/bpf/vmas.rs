//! Lists the mappings of one process with the memory policy of each, through a BPF iterator.
//!
//! `numa_maps` says the same and more, but walks the page tables of the whole process, with its lock held;
//! this takes the lock for a moment at a time and reads no page table.

use std::{io, mem::offset_of, os::fd::AsFd as _, path::Path};

use enforcer_common::{
    limit::NODE_WORDS,
    vma::{self, VmaRecord as Layout},
};
use enforcer_core::{memory_policy::MemoryPolicy, vma::Vma};
use libbpf_rs::{Object, ObjectBuilder};
use numa_topology::set::NodeSet;
use thiserror::Error;

use super::{
    VMLINUX,
    btf::{KernelTypes, Missing},
    bytes::{u32_at, u64_at},
    iter::in_host_pid_namespace,
    stream,
};
use crate::bpf_iter::of_process;

/// The iterator of `enforcer-ebpf/bpf/vma.bpf.c`, as `build.rs` built it.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/vma.o"));

const RECORD: usize = size_of::<Layout>();
/// Mappings of one process that are read: sixteen times the usual `vm.max_map_count`.
const MAX_MAPPINGS: usize = 1 << 20;

/// Why mappings cannot be listed through BPF.
#[derive(Debug, Error)]
pub enum VmaError {
    /// Process ids of another namespace are others.
    #[error(
        "this is not the host's pid namespace, so process ids would not match (a container needs hostPID)"
    )]
    PidNamespace,
    /// The kernel does not say what it can do.
    #[error("reading the types of the kernel: {0}")]
    Types(String),
    /// The kernel would walk all processes.
    #[error("this kernel's iterators do not keep to one process, which is Linux 6.1: {0}")]
    NoFilter(Missing),
    /// libbpf or the kernel does not take the program.
    #[error("loading the mapping iterator: {0:#}")]
    Load(libbpf_rs::Error),
    /// The object has no such program.
    #[error("the object has no mapping iterator")]
    NoProgram,
    /// The kernel starts it for any number, and lists nothing.
    #[error("no mapping of the process is listed: it is gone, or this kernel hides it from BPF")]
    Nothing,
    /// The kernel does not start it.
    #[error("starting the mapping iterator")]
    Start(#[source] io::Error),
    /// The stream broke off.
    #[error("reading the mapping iterator")]
    Read(#[source] io::Error),
    /// The stream does not end.
    #[error("the mapping iterator gave more than {MAX_MAPPINGS} mappings")]
    Endless,
}

/// A loaded iterator of mappings.
pub struct VmaIterator(Object);

impl VmaIterator {
    /// Name in reports.
    pub const SOURCE: &str = "mapping-iterator";
    /// What is lost without it.
    pub const EFFECT: &str =
        "processes that bind their far memory themselves are found with `sample.numa_maps` only";

    /// Loads it; nothing is read yet.
    pub fn open() -> Result<Self, VmaError> {
        if !in_host_pid_namespace() {
            return Err(VmaError::PidNamespace);
        }
        let types = KernelTypes::read(Path::new(VMLINUX))
            .map_err(|error| VmaError::Types(format!("{VMLINUX}: {error:#}")))?;
        types.offset("bpf_iter_link_info", &["task", "pid"]).map_err(VmaError::NoFilter)?;
        let object = ObjectBuilder::default().open_memory(OBJECT).map_err(VmaError::Load)?;
        Ok(Self(object.load().map_err(VmaError::Load)?))
    }

    /// Every mapping of a process, in the order of their addresses.
    pub fn read(&self, pid: u32) -> Result<Vec<Vma>, VmaError> {
        let program = self.0.progs().next().ok_or(VmaError::NoProgram)?;
        let stream = of_process(program.as_fd(), pid).map_err(VmaError::Start)?;
        let mut mappings = Vec::new();
        stream::read_to_end(stream, VmaError::Read, |bytes| {
            let records = bytes.chunks_exact(RECORD);
            let taken = bytes.len() - records.remainder().len();
            mappings.extend(records.filter_map(|record| decode(record, pid)));
            if mappings.len() > MAX_MAPPINGS { Err(VmaError::Endless) } else { Ok(taken) }
        })?;
        if mappings.is_empty() { Err(VmaError::Nothing) } else { Ok(mappings) }
    }
}

/// `None` for a mapping of another process.
fn decode(bytes: &[u8], pid: u32) -> Option<Vma> {
    if u32_at(bytes, offset_of!(Layout, tgid))? != pid {
        return None;
    }
    let present = u32_at(bytes, offset_of!(Layout, present))?;
    let has = |flag: u32| present & flag != 0;
    let flags = u64_at(bytes, offset_of!(Layout, flags))?;
    let flag = |flag: u64| has(vma::HAS_FLAGS).then_some(flags & flag != 0);
    let mode = u32_at(bytes, offset_of!(Layout, mode))?;
    let mut nodes = [0; NODE_WORDS];
    for (at, word) in nodes.iter_mut().enumerate() {
        *word = u64_at(bytes, offset_of!(Layout, nodes) + at * size_of::<u64>())?;
    }
    let policy = || MemoryPolicy::from_number(u16::try_from(mode).ok()?, NodeSet::from_words(&nodes));
    Some(Vma {
        start: u64_at(bytes, offset_of!(Layout, start))?,
        end: u64_at(bytes, offset_of!(Layout, end))?,
        file: has(vma::HAS_FILE),
        shared: flag(vma::VM_SHARED),
        huge: flag(vma::VM_HUGETLB),
        policy: if has(vma::HAS_POLICY) { policy() } else { None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(present: u32) -> Vec<u8> {
        let mut bytes = vec![0; RECORD];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(Layout, start), &0x1000u64.to_ne_bytes());
        put(offset_of!(Layout, end), &0x3000u64.to_ne_bytes());
        put(offset_of!(Layout, flags), &(vma::VM_SHARED | 0x3).to_ne_bytes());
        put(offset_of!(Layout, tgid), &7u32.to_ne_bytes());
        put(offset_of!(Layout, present), &present.to_ne_bytes());
        put(offset_of!(Layout, mode), &2u32.to_ne_bytes());
        put(offset_of!(Layout, nodes), &0b101u64.to_ne_bytes());
        bytes
    }

    #[test]
    fn takes_every_field_from_its_place() {
        let all = vma::HAS_POLICY | vma::HAS_FLAGS | vma::HAS_FILE;
        let expected = Vma {
            start: 0x1000,
            end: 0x3000,
            file: true,
            shared: Some(true),
            huge: Some(false),
            policy: Some(MemoryPolicy::parse_start("bind:0,2").unwrap()),
        };
        assert_eq!(decode(&record(all), 7), Some(expected));
        assert_eq!(decode(&record(all), 8), None, "of another process");
    }

    #[test]
    fn what_the_kernel_does_not_have_is_missing() {
        let vma = decode(&record(0), 7).unwrap();
        assert_eq!((vma.file, vma.shared, vma.huge, vma.policy), (false, None, None, None));
        assert!((0..RECORD).all(|end| decode(&record(0)[..end], 7).is_none()));
    }

    #[test]
    fn a_mode_that_is_newer_is_no_policy() {
        let mut bytes = record(vma::HAS_POLICY);
        bytes[offset_of!(Layout, mode)..][..4].copy_from_slice(&9u32.to_ne_bytes());
        assert_eq!(decode(&bytes, 7).unwrap().policy, None);
    }
}
