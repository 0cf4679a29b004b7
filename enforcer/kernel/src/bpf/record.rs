//! Decodes the records of the task iterator.
//!
//! The stream is a sequence of `enforcer_common::task::TaskRecord`, each with as many `NodeFaults` behind it
//! as it says. Every field is taken out with a checked read at its asserted offset; a piece that is too short
//! is left for the next read.

use core::mem::{offset_of, size_of};
use std::collections::BTreeMap;

use enforcer_common::{
    limit::{MASK_CPUS, MASK_WORDS, NODES},
    task::{self, NodeFaults, TaskRecord as Layout},
};
use numa_topology::{
    id::{CpuId, Id as _, NodeId},
    set::CpuSet,
};

use super::bytes::{u32_at, u64_at};

/// Bytes of a record without faults.
const RECORD: usize = size_of::<Layout>();
/// Bytes of one node's faults.
const FAULTS: usize = size_of::<NodeFaults>();
/// Bytes of the longest record.
pub(super) const LONGEST: usize = RECORD + NODES * FAULTS;

/// One thread as the kernel has it; what it does not have is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IteratedTask {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub pid: u32,
    /// `comm`; bytes that are not UTF-8 are replaced.
    pub command: String,
    /// Inode number of its cgroup's directory.
    pub cgroup: Option<u64>,
    /// CPU it last ran on.
    pub cpu: Option<CpuId>,
    /// CPUs it may run on; `None` also where the machine has more CPUs than a record holds.
    pub cpus_allowed: Option<CpuSet>,
    /// Time on CPUs in nanoseconds, user and system together (`se.sum_exec_runtime`).
    pub run_ns: u64,
    /// User time in nanoseconds, as sampled by the kernel's tick.
    pub utime_ns: u64,
    /// System time in nanoseconds, as sampled by the kernel's tick.
    pub stime_ns: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// `__state`: 0 is running or ready (`include/linux/sched.h`).
    pub state: u32,
    /// Scheduling policy (`SCHED_` of `include/uapi/linux/sched.h`).
    pub policy: u32,
    /// Is it a kernel thread?
    pub kernel_thread: bool,
    /// Node that the kernel's NUMA balancer prefers for it.
    pub preferred_node: Option<NodeId>,
    /// `total_numa_faults`; `None` on a kernel without NUMA balancing.
    pub numa_faults: Option<u64>,
    /// Pages that its hinting faults found on each node, as the balancer remembers them; nodes without any
    /// are left out. `None` where the kernel has no balancing, or the number of nodes is not known.
    pub faults_by_node: Option<BTreeMap<NodeId, u64>>,
}

/// A record that announces more nodes than any machine has: nothing behind it can be told apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MalformedRecord;

/// Appends the whole records of `bytes` to `records` and returns how many bytes they took.
///
/// `possible` is the set of CPUs that the machine can have: the kernel's mask may have bits above it.
pub(super) fn decode(
    bytes: &[u8],
    possible: &CpuSet,
    records: &mut Vec<IteratedTask>,
) -> Result<usize, MalformedRecord> {
    let mut taken = 0;
    while let Some(rest) = bytes.get(taken..)
        && let Some(nodes) = u32_at(rest, offset_of!(Layout, fault_nodes))
    {
        let nodes = nodes as usize;
        if nodes > NODES {
            return Err(MalformedRecord);
        }
        let Some((record, behind)) = rest.split_at_checked(RECORD) else { break };
        let Some(faults) = behind.get(..nodes * FAULTS) else { break };
        records.extend(decode_one(record, faults, possible));
        taken += RECORD + faults.len();
    }
    Ok(taken)
}

fn decode_one(bytes: &[u8], faults: &[u8], possible: &CpuSet) -> Option<IteratedTask> {
    let word = |at| u64_at(bytes, at);
    let half = |at| u32_at(bytes, at);
    let present = half(offset_of!(Layout, present))?;
    let has = |flag: u32| present & flag != 0;
    let cgroup = word(offset_of!(Layout, cgroup))?;
    let flags = half(offset_of!(Layout, flags))?;
    let preferred_node = half(offset_of!(Layout, preferred_node))?.cast_signed();
    Some(IteratedTask {
        tid: half(offset_of!(Layout, tid))?,
        pid: half(offset_of!(Layout, tgid))?,
        command: command(bytes.get(offset_of!(Layout, comm)..)?),
        cgroup: (cgroup != 0).then_some(cgroup),
        cpu: has(task::HAS_CPU).then_some(CpuId(half(offset_of!(Layout, cpu))?)),
        cpus_allowed: if has(task::HAS_CPUS_ALLOWED) { allowed(bytes, possible) } else { None },
        run_ns: word(offset_of!(Layout, run_ns))?,
        utime_ns: word(offset_of!(Layout, utime_ns))?,
        stime_ns: word(offset_of!(Layout, stime_ns))?,
        voluntary_switches: word(offset_of!(Layout, voluntary_switches))?,
        involuntary_switches: word(offset_of!(Layout, involuntary_switches))?,
        state: half(offset_of!(Layout, state))?,
        policy: half(offset_of!(Layout, policy))?,
        kernel_thread: flags & task::PF_KTHREAD != 0,
        preferred_node: u32::try_from(preferred_node)
            .ok()
            .filter(|_| has(task::HAS_NUMA_BALANCING))
            .map(NodeId),
        numa_faults: if has(task::HAS_NUMA_BALANCING) {
            Some(word(offset_of!(Layout, numa_faults))?)
        } else {
            None
        },
        faults_by_node: if has(task::HAS_NODE_FAULTS) { Some(by_node(faults)?) } else { None },
    })
}

fn by_node(faults: &[u8]) -> Option<BTreeMap<NodeId, u64>> {
    let mut by_node = BTreeMap::new();
    for (node, pair) in (0..).map(NodeId).zip(faults.chunks_exact(FAULTS)) {
        let shared = u64_at(pair, offset_of!(NodeFaults, shared))?;
        let pages = u64_at(pair, offset_of!(NodeFaults, private))?.saturating_add(shared);
        if pages > 0 {
            by_node.insert(node, pages);
        }
    }
    Some(by_node)
}

fn allowed(bytes: &[u8], possible: &CpuSet) -> Option<CpuSet> {
    if possible.iter().any(|cpu| cpu.number() as usize >= MASK_CPUS) {
        return None;
    }
    let mask = bytes.get(offset_of!(Layout, cpus_allowed)..)?.get(..MASK_WORDS * 8)?;
    let mut words = [0u64; MASK_WORDS];
    for (word, eight) in words.iter_mut().zip(mask.chunks_exact(8)) {
        *word = u64::from_ne_bytes(*eight.first_chunk()?);
    }
    Some(CpuSet::from_words(&words).intersection(possible))
}

fn command(comm: &[u8]) -> String {
    let end = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(comm.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
        record[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn sample(present: u32) -> Vec<u8> {
        let mut record = vec![0; RECORD];
        put(&mut record, offset_of!(Layout, cgroup), &77u64.to_ne_bytes());
        put(&mut record, offset_of!(Layout, run_ns), &5_000u64.to_ne_bytes());
        put(&mut record, offset_of!(Layout, numa_faults), &9u64.to_ne_bytes());
        put(&mut record, offset_of!(Layout, tid), &12u32.to_ne_bytes());
        put(&mut record, offset_of!(Layout, tgid), &11u32.to_ne_bytes());
        put(&mut record, offset_of!(Layout, cpu), &3u32.to_ne_bytes());
        put(&mut record, offset_of!(Layout, preferred_node), &1i32.to_ne_bytes());
        put(&mut record, offset_of!(Layout, present), &present.to_ne_bytes());
        put(&mut record, offset_of!(Layout, flags), &task::PF_KTHREAD.to_ne_bytes());
        put(&mut record, offset_of!(Layout, cpus_allowed), &u64::MAX.to_ne_bytes());
        put(&mut record, offset_of!(Layout, comm), b"kworker/1:0\0xyz");
        record
    }

    fn possible() -> CpuSet {
        "0-3".parse().unwrap()
    }

    fn decoded(present: u32) -> IteratedTask {
        let mut records = Vec::new();
        assert_eq!(decode(&sample(present), &possible(), &mut records), Ok(RECORD));
        records.remove(0)
    }

    #[test]
    fn takes_every_field_from_its_place() {
        let task = decoded(task::HAS_CPU | task::HAS_CPUS_ALLOWED | task::HAS_NUMA_BALANCING);
        assert_eq!((task.tid, task.pid, task.command.as_str()), (12, 11, "kworker/1:0"));
        assert_eq!((task.cgroup, task.cpu, task.run_ns), (Some(77), Some(CpuId(3)), 5_000));
        assert_eq!((task.preferred_node, task.numa_faults), (Some(NodeId(1)), Some(9)));
        assert_eq!(task.cpus_allowed, Some(possible()));
        assert!(task.kernel_thread);
    }

    #[test]
    fn what_the_kernel_does_not_have_is_missing() {
        let task = decoded(0);
        assert_eq!((task.cpu, task.cpus_allowed), (None, None));
        assert_eq!((task.preferred_node, task.numa_faults), (None, None));
        assert_eq!(task.faults_by_node, None);
    }

    /// A record with faults on node 2 of three, and none on the others.
    fn with_faults() -> Vec<u8> {
        let mut record = sample(task::HAS_NODE_FAULTS);
        put(&mut record, offset_of!(Layout, fault_nodes), &3u32.to_ne_bytes());
        for count in [0u64, 0, 0, 0, 30, 4] {
            record.extend(count.to_ne_bytes());
        }
        record
    }

    #[test]
    fn faults_are_by_node_and_only_where_there_are_some() {
        assert_eq!(decoded(task::HAS_NODE_FAULTS).faults_by_node, Some(BTreeMap::new()));
        let mut records = Vec::new();
        let stream = [with_faults(), sample(0), with_faults()].concat();
        assert_eq!(decode(&stream, &possible(), &mut records), Ok(stream.len()));
        let faults: Vec<_> = records.into_iter().map(|record| record.faults_by_node).collect();
        let node_2 = Some([(NodeId(2), 34)].into());
        assert_eq!(faults, [node_2.clone(), None, node_2]);
    }

    #[test]
    fn a_record_is_taken_when_all_of_it_is_there() {
        let stream = [with_faults(), with_faults()].concat();
        for end in 0..stream.len() {
            let mut records = Vec::new();
            let taken = decode(&stream[..end], &possible(), &mut records).unwrap();
            assert_eq!(records.len(), usize::from(end >= with_faults().len()), "{end}");
            assert_eq!(taken, records.len() * with_faults().len(), "{end}");
        }
    }

    #[test]
    fn more_nodes_than_there_can_be_end_the_stream() {
        let mut record = sample(0);
        put(&mut record, offset_of!(Layout, fault_nodes), &1_025u32.to_ne_bytes());
        assert_eq!(decode(&record, &possible(), &mut Vec::new()), Err(MalformedRecord));
    }

    #[test]
    fn no_preference_is_not_node_minus_one() {
        let mut record = sample(task::HAS_NUMA_BALANCING);
        put(&mut record, offset_of!(Layout, preferred_node), &(-1i32).to_ne_bytes());
        let mut records = Vec::new();
        decode(&record, &possible(), &mut records).unwrap();
        assert_eq!(records[0].preferred_node, None);
    }

    #[test]
    fn a_machine_that_is_wider_than_the_mask_has_no_mask() {
        let mut records = Vec::new();
        decode(&sample(task::HAS_CPUS_ALLOWED), &"0-1024".parse().unwrap(), &mut records).unwrap();
        assert_eq!(records[0].cpus_allowed, None);
    }

    proptest! {
        #[test]
        fn any_stream_gives_records_or_is_refused(
            bytes in proptest::collection::vec(prop_oneof![9 => Just(0u8), 1 => any::<u8>()], 0..4_000),
        ) {
            let mut records = Vec::new();
            if let Ok(taken) = decode(&bytes, &possible(), &mut records) {
                prop_assert!(taken <= bytes.len());
                prop_assert!(bytes.len() - taken < LONGEST);
            }
            prop_assert!(records.len() <= bytes.len() / RECORD);
            for record in records {
                prop_assert!(record.cpus_allowed.is_none_or(|cpus| cpus.is_subset(&possible())));
            }
        }
    }
}
