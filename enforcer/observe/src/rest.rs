//! Skips turns on an idle host.
//!
//! Problem: a turn reads some files of every workload, with the same result while no workload runs. Remote
//! accesses, growing memory and pressure all take CPU time, so a host with idle CPUs has no news.
//!
//! Idea: the kernel's count of idle time tells how much ran on all CPUs between two turns. Below [`NOTHING`]
//! a turn is skipped, for at most [`Policy::idle_interval`](enforcer_core::policy::Policy::idle_interval)
//! since the latest one, and only if that one left no work. The daemon's own CPU time does not count. Events
//! that do not wait for a turn (a cpuset write, a container, memory pressure) do not wait here either: a
//! requested turn runs. A new process may run next to nothing and must be seen, so the number of cgroups
//! counts too.
//!
//! Invariant: no turn is skipped if it is unknown what ran. Time taken by a hypervisor, and time spent
//! waiting for a disk, are not idle time. Cost: three small files for each due turn.

use std::time::Duration;

use ::procfs::{FromRead, Uptime};
use enforcer_core::parse::{keyed::parse_keyed, scalar};
use numa_topology::set::CpuSet;

use enforcer_host::{HostPath, HostRoot, cgroup::CgroupLayout};
use enforcer_kernel::clock;

/// Busy CPUs of an idle host: a quarter of one, for timers and services such as a kubelet and a container
/// runtime.
const NOTHING: f64 = 0.25;

/// Detects whether anything ran.
#[derive(Debug)]
pub struct IdleDetector {
    uptime: HostPath,
    online: HostPath,
    cgroups: Cgroups,
    since: Option<IdleReading>,
}

/// Where the kernel shows the number of cgroups.
#[derive(Debug)]
enum Cgroups {
    /// `cgroup.stat` at the top of the unified hierarchy.
    Unified(HostPath),
    /// `/proc/cgroups`, which counts each hierarchy of v1. Reading it without v1 hierarchies writes a line to
    /// the kernel's log (6.15).
    PerController(HostPath),
}

impl Cgroups {
    /// Text that changes with the number of cgroups.
    fn read(&self) -> Option<String> {
        match self {
            Self::Unified(stat) => {
                let counts = parse_keyed(&stat.read_text().ok()?).ok()?;
                counts.get("nr_descendants").map(u64::to_string)
            }
            Self::PerController(table) => table.read_text().ok(),
        }
    }
}

/// The kernel's counts.
#[derive(Debug, Clone, PartialEq)]
struct IdleReading {
    /// Seconds since the boot.
    up: f64,
    /// Seconds in which CPUs idled, of all together.
    idle: f64,
    /// CPU seconds of this process.
    own: f64,
    cpus: CpuSet,
    cgroups: String,
}

impl IdleDetector {
    /// Detector for this host.
    pub fn new(host: &HostRoot, layout: &CgroupLayout) -> Self {
        let cgroups = if layout.cpuset.v2 {
            Cgroups::Unified(layout.cpuset.path.join("cgroup.stat"))
        } else {
            Cgroups::PerController(host.proc.join("cgroups"))
        };
        let (uptime, online) = (host.proc.join("uptime"), host.sys.join("devices/system/cpu/online"));
        Self { uptime, online, cgroups, since: None }
    }

    /// Starts a new period.
    pub fn begin(&mut self) {
        self.since = self.read();
    }

    /// Whether next to nothing has run since the last call or [`begin`](Self::begin).
    pub fn is_idle(&mut self) -> bool {
        let before = self.since.take();
        self.begin();
        let (Some(before), Some(now)) = (&before, &self.since) else { return false };
        before.cgroups == now.cgroups && busy(before, now).is_some_and(|cpus| cpus < NOTHING)
    }

    fn read(&self) -> Option<IdleReading> {
        let Uptime { uptime: up, idle, .. } =
            Uptime::from_read(self.uptime.read_text().ok()?.as_bytes()).ok()?;
        let cpus = scalar::list(&self.online.read_text().ok()?).ok()?;
        let own = Duration::from_nanos(clock::own_cpu_ns()).as_secs_f64();
        Some(IdleReading { up, idle, own, cpus, cgroups: self.cgroups.read()? })
    }
}

/// CPUs that others kept busy on average; `None` after CPU hotplug, or if no time has passed.
#[expect(clippy::cast_precision_loss, reason = "there are fewer CPUs than 2^52")]
fn busy(before: &IdleReading, now: &IdleReading) -> Option<f64> {
    let elapsed = now.up - before.up;
    let idle = now.idle - before.idle;
    let countable = elapsed > 0.0 && idle >= 0.0 && before.cpus == now.cpus;
    countable.then(|| now.cpus.len() as f64 - (idle + now.own - before.own) / elapsed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn reading(up: f64, idle: f64, cpus: &str) -> IdleReading {
        IdleReading { up, idle, own: 7.0, cpus: cpus.parse().unwrap(), cgroups: String::new() }
    }

    #[test]
    fn what_is_not_idle_is_busy_and_what_cannot_be_compared_is_not_told() {
        let before = reading(100.0, 350.0, "0-3");
        for (now, expected) in [
            (reading(110.0, 390.0, "0-3"), Some(0.0)),
            (reading(110.0, 380.0, "0-3"), Some(1.0)),
            (IdleReading { own: 12.0, ..reading(110.0, 380.0, "0-3") }, Some(0.5)),
            (reading(110.0, 350.0, "0-3"), Some(4.0)),
            (reading(110.0, 390.0, "0-4"), None),
            (reading(110.0, 390.0, "0-2,4"), None),
            (reading(100.0, 350.0, "0-3"), None),
            (reading(110.0, 340.0, "0-3"), None),
        ] {
            assert_eq!(busy(&before, &now), expected, "{now:?}");
        }
    }

    /// A host with four CPUs, made of files, and its detector.
    fn host(files: &[(&str, &str)]) -> (TempDir, IdleDetector) {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, "proc/uptime", "100.00 350.00\n");
        for (file, text) in files {
            write(&dir, file, text);
        }
        let host = HostRoot::captured(dir.path());
        let rest = IdleDetector::new(&host, &CgroupLayout::read(&host).unwrap());
        (dir, rest)
    }

    fn write(dir: &TempDir, file: &str, text: &str) {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    const ONLINE: (&str, &str) = ("sys/devices/system/cpu/online", "0-3\n");
    const V2: (&str, &str) = ("sys/fs/cgroup/cgroup.controllers", "cpuset memory\n");
    const STAT: &str = "sys/fs/cgroup/cgroup.stat";

    #[test]
    fn a_host_is_idle_only_where_that_can_be_told() {
        let (dir, mut rest) = host(&[V2, (STAT, "nr_descendants 7\nnr_dying_descendants 0\n")]);
        let up = |text: &str| write(&dir, "proc/uptime", text);
        rest.begin();
        assert!(!rest.is_idle(), "it is not known how many CPUs there are");
        write(&dir, ONLINE.0, ONLINE.1);
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
    fn change_of_the_cgroup_count_ends_the_rest() {
        let v1 = ("sys/fs/cgroup/cpuset/cpuset.cpus", "0-3\n");
        let table = |count: u32| format!("#subsys_name hierarchy num_cgroups enabled\ncpuset 3 {count} 1\n");
        let stat = |count: u32| format!("nr_descendants {count}\nnr_dying_descendants {}\n", 9 - count);
        let texts: [((&str, &str), &str, [String; 2]); 2] =
            [(V2, STAT, [stat(7), stat(8)]), (v1, "proc/cgroups", [table(7), table(8)])];
        for (layout, file, [seven, eight]) in texts {
            let (dir, mut rest) = host(&[layout, ONLINE, (file, &seven)]);
            rest.begin();
            for (second, text, expected) in
                [(110, &seven, true), (120, &eight, false), (130, &eight, true), (140, &seven, false)]
            {
                write(&dir, file, text);
                write(&dir, "proc/uptime", &format!("{second}.00 {}.00\n", 350 + 4 * (second - 100)));
                assert_eq!(rest.is_idle(), expected, "{file} at {second}");
            }
            fs::remove_file(dir.path().join(file)).unwrap();
            write(&dir, "proc/uptime", "150.00 550.00\n");
            assert!(!rest.is_idle(), "{file} is not there");
        }
    }

    #[test]
    fn this_host_tells() {
        let host = HostRoot::live();
        let mut rest = IdleDetector::new(&host, &CgroupLayout::read(&host).unwrap());
        rest.begin();
        assert!(rest.since.is_some_and(|reading| reading.up > 0.0 && !reading.cpus.is_empty()));
    }
}
