//! Leaves out turns on a host where nothing runs.
//!
//! Problem: a turn reads some files of every workload, and reads the same again for as long as nobody runs. Remote
//! accesses, growing memory and pressure all take CPU time, so that a host whose CPUs idle has nothing new to tell.
//!
//! Idea: between two turns the kernel's count of idle time says how much ran on all CPUs together. Below
//! [`NOTHING`] a turn is left out, until [`Policy::idle_interval`](enforcer_core::policy::Policy::idle_interval) has passed
//! since the latest one, and only while that one left nothing to go on with. What the daemon itself runs is not what it looks
//! for, and does not count. What does not wait for a turn (a cpuset that is
//! written, a container, memory that gets short) does not wait here either: whoever asks for a turn gets it.
//!
//! Must never leave out a turn where it cannot be told what ran. Time that a hypervisor took, and time in which a CPU
//! waited for a disk, is not idle time. Cost: two small files for each turn that is due.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ::procfs::{FromRead, Uptime};
use enforcer_core::{parse::scalar, set::CpuSet};

use crate::{
    host::{HostRoot, read_text},
    kernel::clock,
};

/// CPUs that are busy while nothing runs: a quarter of one, for timers and for who looks after the host, such as a kubelet
/// and a container runtime.
const NOTHING: f64 = 0.25;

/// Tells whether anything ran.
#[derive(Debug)]
pub struct Rest {
    uptime: PathBuf,
    online: PathBuf,
    since: Option<Reading>,
}

/// What the kernel counts.
#[derive(Debug, Clone, PartialEq)]
struct Reading {
    /// Seconds since the boot.
    up: f64,
    /// Seconds in which CPUs idled, of all together.
    idle: f64,
    /// Seconds that this process ran.
    own: f64,
    cpus: CpuSet,
}

impl Rest {
    /// On this host.
    pub fn new(host: &HostRoot) -> Self {
        let (uptime, online) = (host.proc.join("uptime"), host.sys.join("devices/system/cpu/online"));
        Self { uptime, online, since: None }
    }

    /// What ran until now does not count.
    pub fn begin(&mut self) {
        self.since = read(&self.uptime, &self.online);
    }

    /// Has next to nothing run since this was last asked, or since it began?
    pub fn is_idle(&mut self) -> bool {
        let before = self.since.take();
        self.begin();
        let (Some(before), Some(now)) = (&before, &self.since) else { return false };
        busy(before, now).is_some_and(|cpus| cpus < NOTHING)
    }
}

/// CPUs that others kept busy on average; `None` where CPUs came or went, or no time has passed.
#[expect(clippy::cast_precision_loss, reason = "there are fewer CPUs than 2^52")]
fn busy(before: &Reading, now: &Reading) -> Option<f64> {
    let elapsed = now.up - before.up;
    let idle = now.idle - before.idle;
    let countable = elapsed > 0.0 && idle >= 0.0 && before.cpus == now.cpus;
    countable.then(|| now.cpus.len() as f64 - (idle + now.own - before.own) / elapsed)
}

fn read(uptime: &Path, online: &Path) -> Option<Reading> {
    let Uptime { uptime: up, idle, .. } = Uptime::from_read(read_text(uptime).ok()?.as_bytes()).ok()?;
    let cpus = scalar::list(&read_text(online).ok()?).ok()?;
    let own = Duration::from_nanos(clock::own_cpu_ns()).as_secs_f64();
    Some(Reading { up, idle, own, cpus })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn reading(up: f64, idle: f64, cpus: &str) -> Reading {
        Reading { up, idle, own: 7.0, cpus: cpus.parse().unwrap() }
    }

    #[test]
    fn what_is_not_idle_is_busy_and_what_cannot_be_compared_is_not_told() {
        let before = reading(100.0, 350.0, "0-3");
        for (now, expected) in [
            (reading(110.0, 390.0, "0-3"), Some(0.0)),
            (reading(110.0, 380.0, "0-3"), Some(1.0)),
            (Reading { own: 12.0, ..reading(110.0, 380.0, "0-3") }, Some(0.5)),
            (reading(110.0, 350.0, "0-3"), Some(4.0)),
            (reading(110.0, 390.0, "0-4"), None),
            (reading(110.0, 390.0, "0-2,4"), None),
            (reading(100.0, 350.0, "0-3"), None),
            (reading(110.0, 340.0, "0-3"), None),
        ] {
            assert_eq!(busy(&before, &now), expected, "{now:?}");
        }
    }

    #[test]
    fn a_host_is_idle_only_where_that_can_be_told() {
        let dir = tempfile::tempdir().unwrap();
        let host = HostRoot::captured(dir.path());
        fs::create_dir_all(host.sys.join("devices/system/cpu")).unwrap();
        fs::create_dir_all(&host.proc).unwrap();
        let up = |text: &str| fs::write(host.proc.join("uptime"), text).unwrap();
        up("100.00 350.00\n");
        let mut rest = Rest::new(&host);
        rest.begin();
        assert!(!rest.is_idle(), "it is not known how many CPUs there are");
        fs::write(host.sys.join("devices/system/cpu/online"), "0-3\n").unwrap();
        assert!(!rest.is_idle(), "there is nothing to compare with");
        up("110.00 389.80\n");
        assert!(rest.is_idle());
        up("120.00 427.00\n");
        assert!(!rest.is_idle(), "0.28 CPUs were busy");
        up("130.00 465.00\n");
        assert!(rest.is_idle(), "each time counts from the one before");
        up("140.00 490.00\n");
        rest.begin();
        up("150.00 530.00\n");
        assert!(rest.is_idle(), "what ran before it began does not count");
        up("nonsense\n");
        assert!(!rest.is_idle());
        up("160.00 570.00\n");
        assert!(!rest.is_idle());
    }

    #[test]
    fn this_host_tells() {
        let host = HostRoot::live();
        let mut rest = Rest::new(&host);
        rest.begin();
        assert!(rest.since.is_some_and(|reading| reading.up > 0.0 && !reading.cpus.is_empty()));
    }
}
