//! What the compiler made of the programs, where it decides whether their counts are right.
//!
//! Lost additions show too seldom for a test on events: two tasks of one CPU must add to one word at once.
//! The instructions show whether any can be lost. Each function is inlined, so a program is all of its code.

use std::collections::BTreeMap;

use aya_obj::Object;

use super::object::object;

/// `BPF_STX | BPF_ATOMIC` of 64 and of 32 bits; before Linux 5.12 the only one was `BPF_XADD`.
const ATOMIC: [u8; 2] = [0xdb, 0xc3];
/// `BPF_ADD` without a result, which is `BPF_XADD`.
const ADD: i32 = 0;

/// Operations of the atomic instructions of each program.
fn atomic_operations() -> BTreeMap<String, Vec<i32>> {
    let object = Object::parse(&object().unwrap()).unwrap();
    let of = |key: &(usize, u64)| {
        let instructions = &object.functions[key].instructions;
        instructions.iter().filter(|one| ATOMIC.contains(&one.code)).map(|one| one.imm).collect()
    };
    object.programs.iter().map(|(name, program)| (name.clone(), of(&program.function_key()))).collect()
}

#[test]
fn programs_that_may_be_preempted_add_atomically() {
    let operations = atomic_operations();
    // Fields that each of them counts in.
    for (program, fields) in [
        ("task_numa_fault", 4),
        ("probe_hinting_fault", 4),
        ("cpuset_write_resmask", 2),
        ("probe_cpuset_ends", 2),
        ("do_set_mempolicy", 2),
        ("probe_policy_ends", 2),
        ("do_mbind", 2),
        ("probe_mbind_ends", 2),
        ("mm_migrate_pages", 2),
        ("sched_skip_vma_numa", 2),
    ] {
        assert!(operations[program].len() >= fields, "{program}: {:?}", operations[program]);
    }
}

#[test]
fn every_atomic_instruction_is_one_of_the_oldest_supported_kernel() {
    for (program, operations) in atomic_operations() {
        assert!(operations.iter().all(|operation| *operation == ADD), "{program}: {operations:?}");
    }
}
