//! Threads of other users keep the CPUs that they have pinned themselves to, with exactly the capabilities of
//! the shipped unit in enforce mode.
//!
//! Kernels before 6.2 forget such a pin when a cpuset is written; the daemon sets it again, which takes
//! `CAP_SYS_NICE`. Control: without that capability the pin is gone on such a kernel. Later kernels keep it.

use std::{os::unix::process::CommandExt as _, process::Command, time::Duration};

use anyhow::{Context, Result};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

use super::shipped::of_enforcing_unit;
use crate::{
    cgroup::Cgroup,
    check::Checks,
    ids::Ids,
    process::Running,
    product::{self, Daemon},
};

/// Longest wait for the daemon: a bound on a hang, not a promise.
const LIMIT: Duration = Duration::from_mins(2);

/// A user without rights.
const UNPRIVILEGED: u32 = 65_534;

/// On two nodes of two CPUs.
pub(super) fn survive(checks: &mut Checks) -> Result<()> {
    let granted = of_enforcing_unit()?;
    let granted: Vec<&str> = granted.iter().map(String::as_str).collect();
    let without: Vec<&str> = granted.iter().copied().filter(|name| *name != "SYS_NICE").collect();
    checks.holds("the unit grants it", without.len() + 1 == granted.len(), &granted);
    let kept = placed(checks, "with", &granted)?;
    checks.equal("with the shipped capabilities the pin is", Ids::from([1]), kept);
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let forgets = is_before_6_2(&release);
    let lost = placed(checks, "without", &without)?;
    let expected = if forgets { Ids::from([0, 1]) } else { Ids::from([1]) };
    checks.equal(format!("without CAP_SYS_NICE on {release} it is"), expected, lost);
    Ok(())
}

/// Where a thread of another user may run that had pinned itself to CPU 1 when its cgroup is placed on CPUs 0
/// and 1.
fn placed(checks: &mut Checks, name: &str, granted: &[&str]) -> Result<Ids> {
    let cgroup = Cgroup::with_cpuset(&format!("/others/{name}"), "0-3", "0-1")?;
    // It begins in the cgroup, so that its memory is the cgroup's; such a user could not enter it.
    let own = std::process::id();
    cgroup.adopt(own)?;
    // Swapping bytes is work outside the kernel. A thread that is inside it at every tick and never waits
    // holds up the grace period of RCU tasks, and with it each process that detaches a BPF program.
    let busy = ["if=/dev/zero", "of=/dev/null", "bs=33554432", "conv=swab"];
    let process = Running::spawn(Command::new("dd").args(busy).uid(UNPRIVILEGED));
    Cgroup::at("/").adopt(own)?;
    let process = process?;
    let mut pin = CpuSet::new();
    pin.set(1);
    let pid = i32::try_from(process.pid()).ok().and_then(Pid::from_raw).context("a process id")?;
    sched_setaffinity(Some(pid), &pin).context("pin a thread")?;
    let path = cgroup.path();
    let config =
        format!("[[workload]]\nname = \"{name}\"\ncgroup = \"{path}\"\ncpus = 2\nnuma_nodes = \"0\"\n");
    let daemon = Daemon::start_with_only(granted, &config)?;
    checks.comes_to_hold(format!("{name}: the cgroup is placed"), LIMIT, || {
        let cpus = cgroup.ids("cpuset.cpus.effective")?;
        Ok((cpus == Ids::from([0, 1]), cpus))
    })?;
    // The pin is set again in the same turn.
    daemon.metrics_after_ticks(2)?;
    let cpus = process.cpus_allowed()?;
    daemon.end()?;
    product::run(&["restore", "--state-dir", product::STATE])?;
    Ok(cpus)
}

/// Does such a kernel forget pins when a cpuset is written?
pub(super) fn is_before_6_2(release: &str) -> bool {
    let mut numbers =
        release.split(|other: char| !other.is_ascii_digit()).filter_map(|text| text.parse().ok());
    (numbers.next().unwrap_or(0u32), numbers.next().unwrap_or(0u32)) < (6, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_compared_by_its_numbers() {
        for (release, before) in
            [("5.10.0-32-cloud-amd64", true), ("6.1.0-50", true), ("6.12.117+deb13", false), ("6.2", false)]
        {
            assert_eq!(is_before_6_2(release), before, "{release}");
        }
    }
}
