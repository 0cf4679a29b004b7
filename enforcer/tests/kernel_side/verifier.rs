//! The programs stay as small for the verifier as they were.
//!
//! A program that grows is slower, and one day too large for an older kernel. What the verifier of each
//! kernel went through is recorded here; a rise of more than a tenth fails until the record is changed,
//! which is then seen in a review. Kernels that are not recorded are held to the largest record.

use enforcer::observe::bpf::{AttachOptions, CgroupAxis, ProgramCost, Programs};
use enforcer_core::{id::NodeId, policy::RunTimeSource};

use crate::{axis, options, permitted, refused};

/// Instructions by program and series of kernels; `v1` where the cpuset controller is on cgroup v1, which
/// takes another way from a task to its cgroup.
const RECORD: [(&str, &[(&str, u64)]); 14] = [
    ("cgroup_mkdir", &[("6.1", 77), ("6.12", 77), ("6.18", 76), ("6.18 v1", 76)]),
    ("cgroup_release", &[("6.1", 29), ("6.12", 29), ("6.18", 29), ("6.18 v1", 29)]),
    ("cpu_clock", &[("6.1", 81), ("6.12", 72), ("6.18", 71), ("6.18 v1", 145)]),
    ("hardware_near", &[("6.12", 60), ("6.18 v1", 138)]),
    ("hardware_remote", &[("6.12", 59), ("6.18 v1", 132)]),
    ("mark_victim", &[("6.12", 86), ("6.18 v1", 213)]),
    ("mm_vmscan_direct_reclaim_begin", &[("6.12", 88), ("6.18 v1", 224)]),
    ("mm_vmscan_wakeup_kswapd", &[("6.12", 82), ("6.18 v1", 150)]),
    ("out_of_memory", &[("6.12", 16)]),
    ("reclaim_retry_zone", &[("6.12", 90), ("6.18 v1", 226)]),
    ("sched_migrate_task", &[("6.1", 279), ("6.12", 293), ("6.18", 291), ("6.18 v1", 295)]),
    ("sched_switch", &[("6.1", 96), ("6.12", 87), ("6.18", 85), ("6.18 v1", 159)]),
    ("sched_wakeup_new", &[("6.1", 267), ("6.12", 284), ("6.18", 272), ("6.18 v1", 276)]),
    ("task_numa_fault", &[("6.1", 104), ("6.12", 95), ("6.18", 94)]),
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

fn limit(cost: &ProgramCost, series: &str) -> u64 {
    let recorded = RECORD.iter().find(|(name, _)| *name == cost.name);
    let (_, recorded) = recorded.unwrap_or_else(|| panic!("{} has no record", cost.name));
    let here = recorded.iter().find(|(of, _)| *of == series).map(|(_, count)| count * ACCEPTED / 100);
    let largest = recorded.iter().map(|(_, count)| *count).max().unwrap_or(0);
    here.unwrap_or(largest * ACCEPTED_ELSEWHERE / 100)
}
