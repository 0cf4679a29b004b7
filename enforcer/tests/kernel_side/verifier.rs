//! The programs stay as small for the verifier as they were.
//!
//! A program that grows is slower, and one day too large for an older kernel. What the verifier of each
//! kernel went through is recorded here; a rise of more than a tenth fails until the record is changed,
//! which is then seen in a review. Kernels that are not recorded are held to the largest record.

use enforcer_core::policy::RunTimeSource;
use enforcer_kernel::bpf::{AttachOptions, CgroupAxis, LoadedProgram, Programs};
use numa_topology::id::NodeId;

use crate::{axis, options, permitted, refused};

/// Instructions by program and series of kernels; `v1` where the cpuset controller is on cgroup v1, which
/// takes another way from a task to its cgroup.
const RECORD: [(&str, &[(&str, u64)]); 25] = [
    ("cgroup_mkdir", &[("6.1", 134), ("6.12", 134)]),
    ("cgroup_rmdir", &[("6.1", 29), ("6.12", 29), ("6.18", 29), ("6.18 v1", 29)]),
    ("cpu_clock", &[("6.1", 81), ("6.12", 72), ("6.18", 71), ("6.18 v1", 145)]),
    ("cpuset_write_resmask", &[("6.1", 5608), ("6.12", 1139)]),
    ("do_mbind", &[("6.1", 1885), ("6.12", 1028)]),
    ("do_set_mempolicy", &[("6.1", 1886), ("6.12", 1028)]),
    ("hardware_near", &[("6.1", 67), ("6.12", 60), ("6.18", 59), ("6.18 v1", 138)]),
    ("hardware_remote", &[("6.1", 68), ("6.12", 59), ("6.18", 58), ("6.18 v1", 132)]),
    ("mark_victim", &[("6.1", 97), ("6.12", 97), ("6.18", 101), ("6.18 v1", 223)]),
    ("mm_migrate_pages", &[("6.1", 101), ("6.12", 108), ("6.18 v1", 191)]),
    ("mm_vmscan_direct_reclaim_begin", &[("6.1", 101), ("6.12", 101), ("6.18", 99), ("6.18 v1", 237)]),
    ("mm_vmscan_wakeup_kswapd", &[("6.1", 95), ("6.12", 95), ("6.18", 93), ("6.18 v1", 163)]),
    ("out_of_memory", &[("6.1", 26), ("6.12", 26), ("6.18", 22)]),
    ("out_of_memory_ends", &[("6.1", 27), ("6.12", 27)]),
    ("reclaim_retry_zone", &[("6.1", 103), ("6.12", 103), ("6.18", 101), ("6.18 v1", 239)]),
    ("sched_migrate_task", &[("6.1", 292), ("6.12", 287), ("6.18", 288), ("6.18 v1", 292)]),
    ("sched_move_numa", &[("6.1", 72), ("6.12", 70), ("6.18", 70), ("6.18 v1", 74)]),
    ("sched_skip_cpuset_numa", &[("6.18", 54), ("6.18 v1", 128)]),
    ("sched_skip_vma_numa", &[("6.12", 107), ("6.18", 107), ("6.18 v1", 264)]),
    ("sched_stick_numa", &[("6.1", 72), ("6.12", 70), ("6.18", 70), ("6.18 v1", 74)]),
    ("sched_swap_numa", &[("6.1", 155), ("6.12", 153), ("6.18", 194), ("6.18 v1", 210)]),
    ("sched_switch", &[("6.1", 116), ("6.12", 107), ("6.18", 105), ("6.18 v1", 109)]),
    ("sched_wakeup_new", &[("6.1", 278), ("6.12", 272), ("6.18", 268), ("6.18 v1", 272)]),
    ("task_numa_fault", &[("6.1", 104), ("6.12", 95), ("6.18", 94)]),
    ("wakeup_kswapd", &[("6.1", 99), ("6.12", 99)]),
];

/// Percent of the record that is still accepted.
const ACCEPTED: u64 = 110;
/// The same for a kernel that is not recorded.
const ACCEPTED_ELSEWHERE: u64 = 200;

#[test]
fn no_program_is_a_tenth_larger_than_recorded() {
    if !permitted() {
        return;
    }
    let mut costs = Vec::new();
    for run_time in [RunTimeSource::Clock, RunTimeSource::Switches] {
        let (programs, degraded) =
            Programs::attach(&AttachOptions { run_time, ..options(|cpu| NodeId(cpu.0)) });
        if programs.costs().is_empty() {
            return refused(&format!("{degraded:?}"));
        }
        costs.extend(programs.costs());
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let series = release.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    let series = if axis().0 == CgroupAxis::Cpuset { format!("{series} v1") } else { series };
    println!("on {series}:");
    for cost in &costs {
        println!("    {} {:?}", cost.name, cost.verified_instructions);
    }
    for cost in &costs {
        let Some(instructions) = cost.verified_instructions else {
            println!("{release} does not tell how many instructions it verified of {}", cost.name);
            continue;
        };
        let limit = limit(cost, &series);
        assert!(
            instructions <= limit,
            "{}: {instructions} instructions on {series}, at most {limit}",
            cost.name
        );
    }
}

fn limit(cost: &LoadedProgram, series: &str) -> u64 {
    let recorded = RECORD.iter().find(|(name, _)| *name == cost.name);
    let (_, recorded) = recorded.unwrap_or_else(|| panic!("{} has no record", cost.name));
    let here = recorded.iter().find(|(of, _)| *of == series).map(|(_, count)| count * ACCEPTED / 100);
    let largest = recorded.iter().map(|(_, count)| *count).max().unwrap_or(0);
    here.unwrap_or(largest * ACCEPTED_ELSEWHERE / 100)
}
