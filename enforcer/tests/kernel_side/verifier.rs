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
    ("cgroup_mkdir", &[("6.1", 132), ("6.12", 132), ("6.18", 131), ("6.18 v1", 131)]),
    ("cgroup_rmdir", &[("6.1", 29), ("6.12", 29), ("6.18", 29), ("6.18 v1", 29)]),
    ("cpu_clock", &[("6.1", 80), ("6.12", 71), ("6.18", 70), ("6.18 v1", 147)]),
    ("cpuset_write_resmask", &[("6.1", 5550), ("6.12", 1142), ("6.18", 1177)]),
    ("do_mbind", &[("6.1", 1907), ("6.12", 1037), ("6.18", 1035)]),
    ("do_set_mempolicy", &[("6.1", 1909), ("6.12", 1038), ("6.18", 1036)]),
    ("hardware_near", &[("6.1", 67), ("6.12", 58), ("6.18", 57), ("6.18 v1", 134)]),
    ("hardware_remote", &[("6.1", 67), ("6.12", 58), ("6.18", 57), ("6.18 v1", 134)]),
    ("mark_victim", &[("6.1", 98), ("6.12", 98), ("6.18", 100), ("6.18 v1", 222)]),
    ("mm_migrate_pages", &[("6.1", 105), ("6.12", 113), ("6.18", 113), ("6.18 v1", 190)]),
    ("mm_vmscan_direct_reclaim_begin", &[("6.1", 99), ("6.12", 99), ("6.18", 97), ("6.18 v1", 235)]),
    ("mm_vmscan_wakeup_kswapd", &[("6.1", 93), ("6.12", 93), ("6.18", 91), ("6.18 v1", 161)]),
    ("out_of_memory", &[("6.1", 26), ("6.12", 26), ("6.18", 22)]),
    ("out_of_memory_ends", &[("6.1", 27), ("6.12", 27), ("6.18", 25)]),
    ("reclaim_retry_zone", &[("6.1", 101), ("6.12", 101), ("6.18", 99), ("6.18 v1", 237)]),
    ("sched_migrate_task", &[("6.1", 308), ("6.12", 288), ("6.18", 303), ("6.18 v1", 307)]),
    ("sched_move_numa", &[("6.1", 79), ("6.12", 79), ("6.18", 79), ("6.18 v1", 83)]),
    ("sched_skip_cpuset_numa", &[("6.18", 64), ("6.18 v1", 141)]),
    ("sched_skip_vma_numa", &[("6.12", 130), ("6.18", 130), ("6.18 v1", 284)]),
    ("sched_stick_numa", &[("6.1", 79), ("6.12", 79), ("6.18", 79), ("6.18 v1", 83)]),
    ("sched_swap_numa", &[("6.1", 174), ("6.12", 174), ("6.18", 215), ("6.18 v1", 227)]),
    ("sched_switch", &[("6.1", 115), ("6.12", 106), ("6.18", 104), ("6.18 v1", 108)]),
    ("sched_wakeup_new", &[("6.1", 315), ("6.12", 276), ("6.18", 273), ("6.18 v1", 277)]),
    ("task_numa_fault", &[("6.1", 106), ("6.12", 99), ("6.18", 97)]),
    ("wakeup_kswapd", &[("6.1", 97), ("6.12", 97), ("6.18", 95)]),
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
