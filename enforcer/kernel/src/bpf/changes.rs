//! Changes by other programs to a workload's CPUs and memory, decoded from the ring of events. Pure.

use core::mem::offset_of;
use std::collections::BTreeMap;

use enforcer_common::{
    change::{ChangeRecord as Layout, file, scope},
    event::{EventRecord, kind},
    limit::NODE_WORDS,
};
use enforcer_core::{
    memory_policy::PolicyMode,
    sample::{Change, ChangeKind, CpusetFile, PolicyScope},
};
use numa_topology::set::NodeSet;

use super::bytes::{u32_at, u64_at};

/// A change, without the workload's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelChange {
    /// Id of the workload's own cgroup.
    pub owner: u64,
    /// The change.
    pub change: Change,
}

/// Whether a record of this kind is a change.
pub(super) const fn is_change(kind: u16) -> bool {
    matches!(kind, kind::CPUSET_WRITTEN | kind::POLICY_SET)
}

/// Decodes the record that begins with `event`; `owners` are those of the slots at the time.
pub(super) fn decode(
    event: &EventRecord,
    record: &[u8],
    owners: &BTreeMap<u32, u64>,
) -> Option<KernelChange> {
    let what = match event.kind {
        kind::CPUSET_WRITTEN => ChangeKind::CpusetWritten { file: cpuset_file(event.detail) },
        kind::POLICY_SET => ChangeKind::PolicySet {
            scope: match u32_at(record, offset_of!(Layout, scope))? {
                scope::TASK => PolicyScope::Task,
                scope::RANGE => PolicyScope::Range,
                _ => return None,
            },
            mode: PolicyMode::from_number(event.detail),
            numa_nodes: {
                let mut words = [0; NODE_WORDS];
                for (at, word) in words.iter_mut().enumerate() {
                    *word = u64_at(record, offset_of!(Layout, nodes) + at * size_of::<u64>())?;
                }
                NodeSet::from_words(&words)
            },
        },
        _ => return None,
    };
    let comm = record.get(offset_of!(Layout, comm)..offset_of!(Layout, nodes))?;
    let command = comm.split(|byte| *byte == 0).next().unwrap_or_default();
    let change = Change {
        time_ns: event.time_ns,
        workload: None,
        cgroup_id: event.cgroup,
        tid: event.tid,
        pid: u32_at(record, offset_of!(Layout, tgid))?,
        command: String::from_utf8_lossy(command).into_owned(),
        what,
    };
    Some(KernelChange { owner: *owners.get(&event.slot)?, change })
}

/// A file as the programs name it.
pub(super) fn cpuset_file(detail: u16) -> CpusetFile {
    match detail {
        file::CPUS => CpusetFile::Cpus,
        file::MEMS => CpusetFile::Mems,
        _ => CpusetFile::Other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(scope: u32) -> Vec<u8> {
        let mut bytes = vec![0u8; size_of::<Layout>()];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(Layout, nodes), &(1u64 << 63 | 2).to_ne_bytes());
        put(offset_of!(Layout, nodes) + 8, &1u64.to_ne_bytes());
        put(offset_of!(Layout, nodes) + 120, &(1u64 << 63).to_ne_bytes());
        put(offset_of!(Layout, tgid), &11u32.to_ne_bytes());
        put(offset_of!(Layout, scope), &scope.to_ne_bytes());
        put(offset_of!(Layout, comm), b"systemd\0garbage!");
        bytes
    }

    fn event(kind: u16, detail: u16) -> EventRecord {
        EventRecord { time_ns: 5, cgroup: 77, tid: 12, slot: 3, kind, detail, ..EventRecord::default() }
    }

    #[test]
    fn takes_every_field_from_its_place() {
        let owners = [(3, 70)].into();
        let of = |kind, detail, scope| decode(&event(kind, detail), &record(scope), &owners);
        let told = |what| {
            let (tid, pid, command) = (12, 11, "systemd".to_owned());
            let change = Change { time_ns: 5, workload: None, cgroup_id: 77, tid, pid, command, what };
            Some(KernelChange { owner: 70, change })
        };
        let written = ChangeKind::CpusetWritten { file: CpusetFile::Mems };
        assert_eq!(of(kind::CPUSET_WRITTEN, file::MEMS, scope::NONE), told(written));
        let numa_nodes = "1,63-64,1023".parse().unwrap();
        let set = ChangeKind::PolicySet { scope: PolicyScope::Range, mode: PolicyMode::Bind, numa_nodes };
        assert_eq!(of(kind::POLICY_SET, 2, scope::RANGE), told(set));
        assert_eq!(of(kind::POLICY_SET, 2, scope::NONE), None);
        assert_eq!(
            decode(&event(kind::POLICY_SET, 2), &record(scope::TASK), &[].into()),
            None,
            "a free slot"
        );
    }

    proptest! {
        #[test]
        fn any_record_is_a_change_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..220), kind in 0u16..6) {
            let change = decode(&event(kind, 1), &bytes, &[(3, 70)].into());
            prop_assert!(change.is_none() || (is_change(kind) && bytes.len() >= offset_of!(Layout, nodes)));
        }
    }
}
