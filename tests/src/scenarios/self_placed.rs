//! Do memory policies and CPU affinities that processes have set themselves survive the daemon?
//!
//! The kernel rewrites both at writes of a cpuset, on Linux 6.1 and older affinities for good. Workloads that
//! would lose theirs are left alone, unless that is switched off; then pins come back, and `restore` says
//! what does not. A workload that has set nothing is placed beside them: the control.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

use super::bound::release;
use crate::{
    cgroup::Cgroup,
    check::Checks,
    process::Running,
    product::{self, Daemon},
    wait,
};

/// Longest wait for the daemon: a bound on a hang, not a promise.
const LIMIT: Duration = Duration::from_mins(2);

/// First kernel with `MPOL_PREFERRED_MANY` (mempolicy.h).
const PREFERRED_MANY_SINCE: (u32, u32) = (5, 15);

/// Exit status of a `restore` that is not complete.
const INCOMPLETE: i32 = 2;

/// On two nodes of two CPUs.
pub(super) fn survives(checks: &mut Checks) -> Result<()> {
    respected(checks, "bound-or-pinned", &[("membind=1", "0"), ("interleave=0,1", "1"), ("", "1")])?;
    let preferred = [("preferred=1", "0"), ("preferred-many=0,1", "1")];
    let known = if release()? >= PREFERRED_MANY_SINCE { 2 } else { 1 };
    respected(checks, "preferred", &preferred[..known])?;
    overridden(checks)
}

/// A process with what it has set itself.
struct Own {
    cgroup: Cgroup,
    process: Running,
}

impl Own {
    /// Under a policy of numactl, or with two threads that are pinned to CPUs 0 and 1.
    fn start(name: &str, policy: &str) -> Result<Self> {
        let cgroup = Cgroup::with_cpuset(&format!("/own/{name}"), "0-3", "0-1")?;
        let process = if policy.is_empty() {
            let process = Running::hog_of(&crate::hog::Hog {
                cgroup: cgroup.folder(),
                mebibytes: 8,
                threads: 2,
                pause_ms: 100,
                mebibytes_per_second: 0,
            })?;
            for (tid, cpu) in threads(process.pid())?.into_iter().filter(|tid| *tid != process.pid()).zip(0..)
            {
                let mut cpus = CpuSet::new();
                cpus.set(cpu);
                let pid = i32::try_from(tid).ok().and_then(Pid::from_raw).context("a thread's number")?;
                sched_setaffinity(Some(pid), &cpus).context("pin a thread")?;
            }
            process
        } else {
            Running::under_policy(&cgroup, policy, 16)?
        };
        Ok(Self { cgroup, process })
    }

    /// The policy of its first mapping, and where each of its threads may run.
    fn set(&self) -> Result<(String, Vec<String>)> {
        let pid = self.process.pid();
        let path = format!("/proc/{pid}/numa_maps");
        let maps = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        // Behind an address, and before what the mapping is and where its pages are.
        let fields = maps.lines().next().unwrap_or_default().split(' ').skip(1);
        let of_policy = |field: &&str| !matches!(*field, "heap" | "stack") && !field.contains('=');
        let policy = fields.take_while(of_policy).collect::<Vec<_>>().join(" ");
        let mut cpus = Vec::new();
        for tid in threads(pid)? {
            let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"))?;
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            cpus.push(list.unwrap_or_default().trim().to_owned());
        }
        Ok((policy, cpus))
    }
}

fn threads(pid: u32) -> Result<Vec<u32>> {
    let entries = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut tids: Vec<u32> = names.collect();
    tids.sort_unstable();
    Ok(tids)
}

fn declared(own: &Own, nodes: &str) -> String {
    let path = own.cgroup.path();
    format!("[[workload]]\nname = \"{path}\"\ncgroup = \"{path}\"\ncpus = 1\nnuma_nodes = \"{nodes}\"\n")
}

/// What would lose something is left alone with a reason; the control is placed, and put back.
fn respected(checks: &mut Checks, what: &str, policies: &[(&str, &str)]) -> Result<()> {
    let mut owns = Vec::new();
    for (index, (policy, nodes)) in policies.iter().enumerate() {
        owns.push((Own::start(&format!("{what}{index}"), policy)?, *nodes));
    }
    let control = Cgroup::with_cpuset(&format!("/own/{what}-control"), "0-3", "0-1")?;
    let process = Running::hog(&control, 16)?;
    let control = Own { cgroup: control, process };
    let before: Vec<_> = owns.iter().map(|(own, _)| own.set()).collect::<Result<_>>()?;
    checks.note(format!("{what}: what the processes have set"), &before);
    let originals = control.cgroup.cpuset()?;
    let mut config: String = owns.iter().map(|(own, nodes)| declared(own, nodes)).collect();
    config.push_str(&declared(&control, "0"));
    let daemon = Daemon::start_with("enforce", &config)?;
    let placed = wait::until("the control is placed", LIMIT, || {
        Ok((control.cgroup.cpuset()? != originals).then_some(()))
    });
    placed.with_context(|| format!("the daemon printed:\n{}", Daemon::printed()))?;
    let metrics = daemon.metrics_after_ticks(2)?;
    let refused = metrics.sum("numa_enforcer_workloads_refused", &[("cause", "self-placement")]);
    checks.equal(
        format!("{what}: workloads that are left alone"),
        policies.len().to_string(),
        refused.to_string(),
    );
    for ((own, _), before) in owns.iter().zip(&before) {
        let path = own.cgroup.path().to_owned();
        let told = product::run(&["explain", &path])?;
        checks.holds(
            format!("{what}: explain names why {path} is left"),
            told.stdout.contains("self_placement"),
            &told.stdout,
        );
        checks.equal(format!("{what}: {path} under the daemon"), before, &own.set()?);
    }
    daemon.end()?;
    let output = product::run(&["restore", "--state-dir", product::STATE])?;
    checks.equal(format!("{what}: exit status of restore"), Some(0), output.status);
    checks.equal(format!("{what}: the control after restore"), &originals, &control.cgroup.cpuset()?);
    for ((own, _), before) in owns.iter().zip(&before) {
        checks.equal(format!("{what}: {} after restore", own.cgroup.path()), before, &own.set()?);
    }
    Ok(())
}

/// Asked for, they are placed: the policy is lost and named, the pins come back.
fn overridden(checks: &mut Checks) -> Result<()> {
    let bound = Own::start("overridden-bound", "membind=1")?;
    let pinned = Own::start("overridden-pinned", "")?;
    let (policy, pins) = (bound.set()?, pinned.set()?);
    let originals = [bound.cgroup.cpuset()?, pinned.cgroup.cpuset()?];
    let config =
        format!("self_placement = \"override\"\n{}{}", declared(&bound, "0"), declared(&pinned, "1"));
    let daemon = Daemon::start_with("enforce", &config)?;
    let placed = wait::until("both are placed", LIMIT, || {
        let now = [bound.cgroup.cpuset()?, pinned.cgroup.cpuset()?];
        Ok((now[0].1.trim() == "0" && now[1].1.trim() == "1").then_some(()))
    });
    placed.with_context(|| format!("the daemon printed:\n{}", Daemon::printed()))?;
    // The control of all that: this is what the kernel does.
    checks.equal("override: the policy under the daemon", "bind:0".to_owned(), bound.set()?.0);
    daemon.end()?;
    let output = product::run(&["restore", "--state-dir", product::STATE])?;
    checks.equal("override: exit status of restore", Some(INCOMPLETE), output.status);
    let named = format!("its memory policy {} was rewritten", policy.0);
    checks.holds(
        "override: restore names the policy that is lost",
        output.stdout.contains(&named),
        output.stdout,
    );
    checks.equal("override: the pins after restore", &pins, &pinned.set()?);
    let now = [bound.cgroup.cpuset()?, pinned.cgroup.cpuset()?];
    checks.equal("override: the cpusets after restore", originals, now);
    Ok(())
}
