//! The kernel's text about cgroups and tasks: any text is a value or an error, and any cgroup path has
//! a printable name.
#![cfg_attr(feature = "libfuzzer", no_main)]

use enforcer_core::{
    parse::{
        keyed::parse_keyed,
        mountinfo::parse_cgroup_mounts,
        numa_maps::NumaMaps,
        numa_stat::{parse_numa_stat_v1, parse_numa_stat_v2},
        pressure::parse_pressure,
        task_sched::TaskSched,
        task_stat::parse_task_stat,
        task_status::TaskStatus,
    },
    workload::{CgroupPath, identify},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = parse_keyed(text);
    let _ = parse_cgroup_mounts(text);
    let _ = parse_numa_stat_v1(text, enforcer_core::page_size::PageSize::SMALLEST, true);
    let _ = parse_numa_stat_v2(text);
    let _ = parse_pressure(text);
    let _ = parse_task_stat(text);
    let (mut maps, mut status, mut sched) =
        (NumaMaps::default(), TaskStatus::default(), TaskSched::default());
    for line in text.lines() {
        let _ = maps.add_line(line);
        let _ = status.add_line(line);
        let _ = sched.add_line(line);
    }
    let identity = identify(&CgroupPath::new(text));
    assert!(!identity.name.chars().any(char::is_control));
});

/// libFuzzer brings its own. Without it, a build of the workspace compiles the target and links no fuzzer.
#[cfg(not(feature = "libfuzzer"))]
fn main() {}
