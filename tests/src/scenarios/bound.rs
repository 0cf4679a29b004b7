//! Memory that may not move: is a kernel that sees no remote access taken for one that says there is none?
//!
//! Up to Linux 6.16 pages of a workload with a single node in `cpuset.mems` fault again and again and never
//! move; from 6.17 on the balancer does not look at such a workload at all (`vma_migratable` and
//! `cpusets_enabled` in `task_numa_work`, kernel/sched/fair.c). The figure is right on either.
//!
//! The control is a twin that is not bound: its pages fault once as remote and move, so that the balancer
//! is known to work while the other one is looked at.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

use super::{
    audit::remote_traffic,
    refused::{source_of, why_no_faults},
};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    memory,
    product::{self, Daemon, Metrics, label},
    touch::{Plan, Touching},
    wait,
};

/// Memory of each.
const MEBIBYTES: usize = 40;

/// The same in pages of 4 KiB.
const PAGES: f64 = 10_240.0;

/// Longest time for the balancer to scan it a few times.
const LIMIT: Duration = Duration::from_mins(5);

const FAULTED: &str = "numa_enforcer_workload_numa_hint_fault_pages_total";

/// The first kernel that does not scan what is bound to one node.
const SILENT_SINCE: (u32, u32) = (6, 17);

/// Pages of a workload that faulted, local and remote.
fn faulted(metrics: &Metrics, cgroup: &Cgroup) -> [f64; 2] {
    ["local", "remote"].map(|memory| metrics.sum(FAULTED, &[("memory", memory), label(cgroup)]))
}

/// Two programs on node 1 with their memory on node 0; one of them is bound to it.
pub(super) fn to_one_node(checks: &mut Checks) -> Result<()> {
    let bound = Cgroup::create("/work/bound")?;
    bound.write("cpuset.mems", "0")?;
    let free = Cgroup::create("/work/free")?;
    let start =
        |cgroup: &Cgroup, cpu| Touching::start(cgroup, &[Plan::staying(cpu, &[(0, MEBIBYTES)])], true);
    let (mut bound_program, mut free_program) = (start(&bound, 2)?, start(&free, 3)?);
    let daemon = Daemon::start_counting("observe", &[], "")?;
    let before = daemon.metrics_after_ticks(2)?;
    checks.equal("faults before anything is touched", [0.0; 2], faulted(&before, &bound));
    bound_program.counts()?;
    free_program.counts()?;

    let is_silent = release()? >= SILENT_SINCE;
    let seen = wait::until("the balancer has seen the memory often enough", LIMIT, || {
        let now = daemon.metrics_after_ticks(1)?;
        let ([free_local, free_remote], [_, bound_remote]) = (faulted(&now, &free), faulted(&now, &bound));
        let moved = free_remote >= PAGES * 0.9 && free_local >= PAGES * 0.9;
        Ok((moved && (is_silent || bound_remote >= PAGES * 1.5)).then_some(now))
    });
    let seen = seen.or_else(|error| {
        println!("{error:#}");
        daemon.metrics_after_ticks(1)
    })?;
    let ([_, free_remote], bound_faults) = (faulted(&seen, &free), faulted(&seen, &bound));
    checks.holds("free: each page faulted once as remote", is_about(free_remote, PAGES), free_remote);
    checks.above("free: share of it on node 1", 0.9, Some(memory::share_on(free_program.pid(), 1)?));
    checks.above("bound: share of it on node 0", 0.9, Some(memory::share_on(bound_program.pid(), 0)?));
    if is_silent {
        checks.equal("bound: faults of a kernel that does not look", [0.0; 2], bound_faults);
    } else {
        checks.above(
            "bound: remote faults, also of pages that had faulted",
            PAGES * 1.4,
            Some(bound_faults[1]),
        );
        checks.below("bound: local faults", PAGES * 0.05, Some(bound_faults[0]));
    }

    let (report, _) = product::audit(&["--sample", "5s"])?;
    let workload = report.workload(&bound)?;
    checks.above("bound: remote traffic", 0.9, remote_traffic(workload));
    checks.below("free: remote traffic", 0.1, remote_traffic(report.workload(&free)?));
    if is_silent {
        checks.equal("bound: source of the figure", Some("placement"), source_of(workload));
        let why = why_no_faults(workload);
        checks.holds(
            "bound: why hinting faults are silent",
            why.is_some_and(|why| why.contains("page")),
            why,
        );
    }
    Ok(())
}

/// As many as there are pages, and some that the program has besides.
fn is_about(found: f64, pages: f64) -> bool {
    (pages * 0.99..pages * 1.1).contains(&found)
}

/// Major and minor number of the running kernel.
pub(super) fn release() -> Result<(u32, u32)> {
    const PATH: &str = "/proc/sys/kernel/osrelease";
    let text = fs::read_to_string(PATH).with_context(|| format!("read {PATH}"))?;
    let mut numbers = text.split(['.', '-']).map_while(|part| part.parse().ok());
    numbers.next().zip(numbers.next()).with_context(|| format!("{PATH}: {text:?}"))
}
