//! Keeps the daemon's threads off exclusive CPUs of containers.
//!
//! Problem: the daemon does not write the cpuset of its own container, so it would stay on CPUs that later
//! become exclusive. Idea: a process may always narrow its own affinity. After each turn the threads get the
//! CPUs of their cgroup without the exclusive CPUs of others. Freed CPUs return to the threads.
//!
//! Invariants: an affinity set before the daemon started is never widened. If no CPU would be left, the
//! threads stay where they are, and a degraded source says so.

use std::{fs, io};

use numa_topology::{degraded::Degraded, set::CpuSet};
use rustix::io::Errno;

use enforcer_kernel::affinity::{affinity, set_affinity};

const EFFECT: &str = "the daemon runs on CPUs that a container has for itself";

/// The daemon's initial affinity, if it is narrower than its cgroup.
#[derive(Debug)]
struct InitialAffinity(Option<CpuSet>);

/// The affinity given to the threads.
#[derive(Debug, Default)]
pub(super) struct OwnCpus {
    /// `None` until the first look.
    pinned: Option<InitialAffinity>,
}

impl OwnCpus {
    /// Keeps off `exclusive`, within the CPUs that the own cgroup `allows`.
    pub(super) fn keep_off(&mut self, exclusive: &CpuSet, allows: &CpuSet) -> Option<Degraded> {
        let failed = |error: io::Error| Degraded::new("own-cpus", error.to_string(), EFFECT);
        let now = match affinity(0) {
            Ok(now) => now,
            Err(error) => return Some(failed(error)),
        };
        let pinned =
            self.pinned.get_or_insert_with(|| InitialAffinity((now != *allows).then(|| now.clone())));
        let base = pinned.0.as_ref().map_or_else(|| allows.clone(), |pinned| pinned.intersection(allows));
        match wanted(&base, exclusive) {
            Some(wanted) if wanted == now => None,
            Some(wanted) => set_all(&wanted).err().map(failed),
            None => {
                let reason =
                    format!("all CPUs of its own cgroup ({base}) are exclusively those of containers");
                Some(Degraded::new("own-cpus", reason, EFFECT))
            }
        }
    }
}

/// The daemon's CPUs; `None` if none would be left.
fn wanted(base: &CpuSet, exclusive: &CpuSet) -> Option<CpuSet> {
    Some(base.difference(exclusive)).filter(|left| !left.is_empty())
}

/// Sets every thread of the process; a thread that ends meanwhile is skipped.
fn set_all(cpus: &CpuSet) -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/task")? {
        let Some(thread) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match set_affinity(thread, cpus) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => {}
            other => other?,
        }
    }
    tracing::info!("the daemon's threads run on CPUs {cpus}: containers have others for themselves");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_left_for_the_daemon_are_allowed_and_unowned() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        for (base, exclusive, left) in [
            ("0-7", "", Some("0-7")),
            ("0-7", "1-2,4", Some("0,3,5-7")),
            ("1-2", "1-2", None),
            ("0-3", "8", Some("0-3")),
        ] {
            assert_eq!(wanted(&set(base), &set(exclusive)), left.map(set), "{base} without {exclusive}");
        }
    }
}
