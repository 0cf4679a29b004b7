//! The layout of every shared type, asserted.
//!
//! Equal numbers stand in `enforcer-ebpf/bpf/enforcer.h`; the test below compares the two files, and
//! each compiler checks its own.

use core::mem::{offset_of, size_of};

use crate::{
    change::ChangeRecord,
    counter::{Accesses, HintFaultPages, Moves, RunTimeCounts, Sent},
    event::EventRecord,
    key::MoveKey,
    managed::ManagedCgroup,
    pressure::PressureRecord,
    tally::{TallyCounts, TallyKey},
    task::{NodeFaults, TaskRecord},
    vma::VmaRecord,
};

/// Asserts the size of a type and the offset of each field at compile time, and lists them for the
/// test that compares them with the C header.
macro_rules! layout {
    ($(#[$doc:meta])* $list:ident: $type:ty, $size:literal { $($field:ident: $offset:literal),* $(,)? }) => {
        const _: () = assert!(size_of::<$type>() == $size);
        $(const _: () = assert!(offset_of!($type, $field) == $offset);)*
        $(#[$doc])*
        pub const $list: &[(&str, usize)] = &[$((stringify!($field), $offset)),*];
    };
}

layout! {
    /// Fields of [`MoveKey`] and their offsets.
    MOVE_KEY: MoveKey, 8 { slot: 0, src: 4, dst: 6 }
}
layout! {
    /// Fields of [`ManagedCgroup`] and their offsets.
    MANAGED_CGROUP: ManagedCgroup, 136 { slot: 0, flags: 4, allowed: 8 }
}
layout! {
    /// Fields of [`Moves`] and their offsets.
    MOVES: Moves, 24 { migrated: 0, started: 8, misplaced: 16 }
}
layout! {
    /// Fields of [`Sent`] and their offsets.
    SENT: Sent, 16 { at: 0, limited: 8 }
}
layout! {
    /// Fields of [`RunTimeCounts`] and their offsets.
    RUN_TIME: RunTimeCounts, 24 { ns: 0, misplaced_ns: 8, samples: 16 }
}
layout! {
    /// Fields of [`EventRecord`] and their offsets.
    EVENT: EventRecord, 32 { time_ns: 0, cgroup: 8, tid: 16, slot: 20, kind: 24, src: 26, dst: 28, detail: 30 }
}
layout! {
    /// Fields of [`PressureRecord`] and their offsets.
    PRESSURE_EVENT: PressureRecord, 32 { time_ns: 0, cgroup: 8, tid: 16, node: 20, kind: 24, order: 26, constraint: 28 }
}
layout! {
    /// Fields of [`HintFaultPages`] and their offsets.
    HINT_FAULT_PAGES: HintFaultPages, 32 { local: 0, remote: 8, migrated: 16, migrate_failed: 24 }
}
layout! {
    /// Fields of [`Accesses`] and their offsets.
    ACCESSES: Accesses, 16 { near: 0, remote: 8 }
}
layout! {
    /// Fields of [`ChangeRecord`] and their offsets.
    CHANGE: ChangeRecord, 184 { event: 0, tgid: 32, scope: 36, comm: 40, nodes: 56 }
}
layout! {
    /// Fields of [`TallyKey`] and their offsets.
    TALLY_KEY: TallyKey, 8 { slot: 0, what: 4, detail: 6 }
}
layout! {
    /// Fields of [`TallyCounts`] and their offsets.
    TALLY: TallyCounts, 16 { first: 0, second: 8 }
}
layout! {
    /// Fields of [`TaskRecord`] and their offsets.
    TASK_RECORD: TaskRecord, 240 {
        cgroup: 0,
        run_ns: 8,
        utime_ns: 16,
        stime_ns: 24,
        voluntary_switches: 32,
        involuntary_switches: 40,
        numa_faults: 48,
        tid: 56,
        tgid: 60,
        cpu: 64,
        state: 68,
        preferred_node: 72,
        present: 76,
        flags: 80,
        policy: 84,
        cpus_allowed: 88,
        comm: 216,
        fault_nodes: 232,
        reserved: 236,
    }
}
layout! {
    /// Fields of [`NodeFaults`] and their offsets.
    NODE_FAULTS: NodeFaults, 16 { shared: 0, private: 8 }
}
layout! {
    /// Fields of [`VmaRecord`] and their offsets.
    VMA_RECORD: VmaRecord, 168 {
        start: 0,
        end: 8,
        flags: 16,
        tgid: 24,
        present: 28,
        mode: 32,
        reserved: 36,
        nodes: 40,
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::{format, string::String, vec::Vec};

    use super::*;
    use crate::{limit, task, vma};

    const HEADER: &str = include_str!("../../enforcer-ebpf/bpf/enforcer.h");

    fn header_line(start: &str) -> Option<&'static str> {
        HEADER.lines().find(|line| line.starts_with(start))
    }

    #[test]
    fn the_c_header_asserts_the_same_layout() {
        for (name, fields, size) in [
            ("task_record", TASK_RECORD, size_of::<TaskRecord>()),
            ("node_faults", NODE_FAULTS, size_of::<NodeFaults>()),
            ("vma_record", VMA_RECORD, size_of::<VmaRecord>()),
        ] {
            let asserted: Vec<String> = HEADER
                .lines()
                .filter(|line| line.starts_with(&format!("ASSERT_OFFSET({name}, ")))
                .map(|line| line.trim_end_matches(';').into())
                .collect();
            let ours: Vec<String> = fields
                .iter()
                .map(|(field, offset)| format!("ASSERT_OFFSET({name}, {field}, {offset})"))
                .collect();
            assert_eq!(asserted, ours);
            let line = format!("ASSERT_SIZE({name}, {size});");
            assert_eq!(header_line(&format!("ASSERT_SIZE({name}, ")), Some(line.as_str()));
        }
    }

    #[test]
    fn the_c_header_has_the_same_constants() {
        for (name, value) in [
            ("HAS_NUMA_BALANCING", task::HAS_NUMA_BALANCING as usize),
            ("HAS_CPUS_ALLOWED", task::HAS_CPUS_ALLOWED as usize),
            ("HAS_CPU", task::HAS_CPU as usize),
            ("HAS_NODE_FAULTS", task::HAS_NODE_FAULTS as usize),
            ("MASK_WORDS", limit::MASK_WORDS),
            ("NODES", limit::NODES),
            ("NODE_WORDS", limit::NODE_WORDS),
            ("HAS_POLICY", vma::HAS_POLICY as usize),
            ("HAS_FLAGS", vma::HAS_FLAGS as usize),
            ("HAS_FILE", vma::HAS_FILE as usize),
        ] {
            let line = format!("#define {name} {value}");
            assert_eq!(header_line(&format!("#define {name} ")), Some(line.as_str()));
        }
    }

    #[test]
    fn the_cpu_table_can_be_indexed_by_a_mask() {
        assert!(limit::CPUS.is_power_of_two());
    }
}
