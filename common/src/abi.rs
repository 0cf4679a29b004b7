//! The layout of every shared type, asserted.
//!
//! Equal numbers stand in `enforcer-ebpf/bpf/enforcer.h`; the test below compares the two files, and
//! each compiler checks its own.

use core::mem::{offset_of, size_of};

use crate::{
    counter::{Accesses, HintFaultPages, Moves, RunTime},
    event::Event,
    key::MoveKey,
    managed::ManagedCgroup,
    pressure::PressureEvent,
    task::TaskRecord,
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
    /// Fields of [`RunTime`] and their offsets.
    RUN_TIME: RunTime, 24 { ns: 0, misplaced_ns: 8, samples: 16 }
}
layout! {
    /// Fields of [`Event`] and their offsets.
    EVENT: Event, 32 { time_ns: 0, cgroup: 8, tid: 16, slot: 20, kind: 24, src: 26, dst: 28, detail: 30 }
}
layout! {
    /// Fields of [`PressureEvent`] and their offsets.
    PRESSURE_EVENT: PressureEvent, 32 { time_ns: 0, cgroup: 8, tid: 16, node: 20, kind: 24, order: 26, constraint: 28 }
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
    /// Fields of [`TaskRecord`] and their offsets.
    TASK_RECORD: TaskRecord, 232 {
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
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::{format, string::String, vec::Vec};

    use super::*;
    use crate::{limit, task};

    const HEADER: &str = include_str!("../../enforcer-ebpf/bpf/enforcer.h");

    fn header_line(start: &str) -> Option<&'static str> {
        HEADER.lines().find(|line| line.starts_with(start))
    }

    #[test]
    fn the_c_header_asserts_the_same_layout() {
        let asserted: Vec<String> = HEADER
            .lines()
            .filter(|line| line.starts_with("ASSERT_OFFSET(task_record, "))
            .map(|line| line.trim_end_matches(';').into())
            .collect();
        let ours: Vec<String> = TASK_RECORD
            .iter()
            .map(|(field, offset)| format!("ASSERT_OFFSET(task_record, {field}, {offset})"))
            .collect();
        assert_eq!(asserted, ours);
        let size = format!("ASSERT_SIZE(task_record, {});", size_of::<TaskRecord>());
        assert_eq!(header_line("ASSERT_SIZE(task_record, "), Some(size.as_str()));
    }

    #[test]
    fn the_c_header_has_the_same_constants() {
        for (name, value) in [
            ("HAS_NUMA_BALANCING", task::HAS_NUMA_BALANCING as usize),
            ("HAS_CPUS_ALLOWED", task::HAS_CPUS_ALLOWED as usize),
            ("HAS_CPU", task::HAS_CPU as usize),
            ("MASK_WORDS", limit::MASK_WORDS),
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
