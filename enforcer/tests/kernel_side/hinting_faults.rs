//! NUMA hinting faults; needs two nodes.

use std::fs;

use enforcer::observe::bpf::{Hook, Programs, Watch};
use enforcer_core::{
    id::{CpuId, NodeId},
    sample::HintFaults,
    set::{CpuSet, NodeSet},
};

use crate::{OwnCgroup, options, permitted, refused, run_on};

/// The first CPU of each of the first two nodes that have CPUs.
fn two_nodes() -> Option<[(CpuId, NodeId); 2]> {
    let nodes = |file: &str| fs::read_to_string(format!("/sys/devices/system/node/{file}")).ok();
    let with_cpus: NodeSet = nodes("has_cpu")?.trim().parse().unwrap();
    let first_cpu = |node: NodeId| -> CpuId {
        let cpus: CpuSet = nodes(&format!("node{node}/cpulist")).unwrap().trim().parse().unwrap();
        cpus.first().unwrap()
    };
    let mut nodes = with_cpus.iter().map(|node| (first_cpu(node), node));
    Some([nodes.next()?, nodes.next()?])
}

/// Node of every CPU as sysfs has it.
fn node_of_sysfs(cpu: CpuId) -> NodeId {
    let mut entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).unwrap().flatten();
    let number = |name: &str| name.strip_prefix("node")?.parse().ok();
    NodeId(entries.find_map(|entry| number(&entry.file_name().to_string_lossy())).unwrap())
}

const PAGE: usize = 4096;

/// Memory that was touched on one node and is then used from another: each of its pages faults once as
/// remote, moves, and is local from then on.
#[test]
fn hinting_faults_are_local_or_remote() {
    if !permitted() {
        return;
    }
    let Some([(near, near_node), (far, far_node)]) = two_nodes() else {
        println!("skipped: needs two NUMA nodes with CPUs");
        return;
    };
    fs::write("/proc/sys/kernel/numa_balancing", "1").unwrap();
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "never").unwrap();
    let (mut programs, degraded) = Programs::attach(&options(node_of_sysfs));
    if !programs.has(Hook::HintFaults) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(near);
            let cgroup = OwnCgroup::enter("hint-faults");
            programs.watch(&[(cgroup.id(), Watch::alone(cgroup.id()))].into()).unwrap();
            let pages = 10_240;
            let mut memory = vec![0u8; pages * PAGE];
            let mut touch = || memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = byte.wrapping_add(1));
            touch();
            run_on(far);
            // The kernel scans once a second of run time; the guest may be slow.
            let (mut faults, mut elsewhere) = (HintFaults::default(), 0);
            for _ in 0..60 {
                let until = std::time::Instant::now() + std::time::Duration::from_secs(1);
                while std::time::Instant::now() < until {
                    touch();
                }
                let counters = programs.read().unwrap();
                let by_node = counters[&cgroup.id()].hint_faults.clone().unwrap();
                faults = by_node.get(&far_node).copied().unwrap_or_default();
                println!("{by_node:?}");
                elsewhere = by_node.get(&near_node).map_or(0, |faults| faults.remote);
                if faults.remote >= pages as u64 && faults.local > 0 {
                    break;
                }
            }
            // The harness's own threads are in the cgroup too, and run where they like: one of their huge
            // pages is 512.
            assert!(elsewhere <= pages as u64 / 10, "{elsewhere} on the node of the memory");
            let expected = pages as u64 - pages as u64 / 100..=pages as u64 + pages as u64 / 10;
            assert!(expected.contains(&faults.remote), "{faults:?}");
            assert!(faults.migrated * 10 >= faults.remote * 9, "{faults:?}");
            assert!(faults.local > 0, "{faults:?}");
        });
    });
}
