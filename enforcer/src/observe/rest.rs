//! Leaves out turns on a host where nothing runs.
//!
//! Problem: a turn reads some files of every workload, and reads the same again for as long as nobody runs.
//! Remote accesses, growing memory and pressure all take CPU time, so that a host whose CPUs idle has nothing
//! new to tell.
//!
//! Idea: between two turns the kernel's count of idle time says how much ran on all CPUs together. Below
//! [`NOTHING`] a turn is left out, until
//! [`Policy::idle_interval`](enforcer_core::policy::Policy::idle_interval) has passed since the latest one,
//! and only while that one left nothing to go on with. What the daemon itself runs is not what it looks for,
//! and does not count. What does not wait for a turn (a cpuset that is written, a container, memory that gets
//! short) does not wait here either: whoever asks for a turn gets it. Somebody new may run next to nothing,
//! and is to be seen all the same, so that the number of cgroups counts too.
//!
//! Must never leave out a turn where it cannot be told what ran. Time that a hypervisor took, and time in
//! which a CPU waited for a disk, is not idle time. Cost: three small files for each turn that is due.

use std::{path::PathBuf, time::Duration};

use ::procfs::{FromRead, Uptime};
use enforcer_core::{
    parse::{keyed::parse_keyed, scalar},
    set::CpuSet,
};

use enforcer_host::{HostRoot, cgroup::CgroupLayout, read_text};
use enforcer_kernel::clock;

/// CPUs that are busy while nothing runs: a quarter of one, for timers and for who looks after the host, such
/// as a kubelet and a container runtime.
const NOTHING: f64 = 0.25;

/// Tells whether anything ran.
#[derive(Debug)]
pub struct Rest {
    uptime: PathBuf,
    online: PathBuf,
    cgroups: Cgroups,
    since: Option<Reading>,
}

/// Where the kernel says how many cgroups there are.
#[derive(Debug)]
enum Cgroups {
    /// `cgroup.stat` at the top of the unified hierarchy.
    Unified(PathBuf),
    /// `/proc/cgroups`, which tells of each hierarchy of v1. Read where all are v2 it brings a line into the
    /// kernel's log (6.15).
    PerController(PathBuf),
}

impl Cgroups {
    /// What changes when their number does.
    fn read(&self) -> Option<String> {
        match self {
            Self::Unified(stat) => {
                let counts = parse_keyed(&read_text(stat).ok()?).ok()?;
                counts.get("nr_descendants").map(u64::to_string)
            }
            Self::PerController(table) => read_text(table).ok(),
        }
    }
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
    cgroups: String,
}

impl Rest {
    /// On this host.
    pub fn new(host: &HostRoot, layout: &CgroupLayout) -> Self {
        let cgroups = if layout.cpuset.v2 {
            Cgroups::Unified(layout.cpuset.path.join("cgroup.stat"))
        } else {
            Cgroups::PerController(host.proc.join("cgroups"))
        };
        let (uptime, online) = (host.proc.join("uptime"), host.sys.join("devices/system/cpu/online"));
        Self { uptime, online, cgroups, since: None }
    }

    /// What ran until now does not count.
    pub fn begin(&mut self) {
        self.since = self.read();
    }

    /// Has next to nothing run since this was last asked, or since it began?
    pub fn is_idle(&mut self) -> bool {
        let before = self.since.take();
        self.begin();
        let (Some(before), Some(now)) = (&before, &self.since) else { return false };
        before.cgroups == now.cgroups && busy(before, now).is_some_and(|cpus| cpus < NOTHING)
    }

    fn read(&self) -> Option<Reading> {
        let Uptime { uptime: up, idle, .. } =
            Uptime::from_read(read_text(&self.uptime).ok()?.as_bytes()).ok()?;
        let cpus = scalar::list(&read_text(&self.online).ok()?).ok()?;
        let own = Duration::from_nanos(clock::own_cpu_ns()).as_secs_f64();
        Some(Reading { up, idle, own, cpus, cgroups: self.cgroups.read()? })
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

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn reading(up: f64, idle: f64, cpus: &str) -> Reading {
        Reading { up, idle, own: 7.0, cpus: cpus.parse().unwrap(), cgroups: String::new() }
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

    /// A host with four CPUs, of which files tell; and who looks at it.
    fn host(files: &[(&str, &str)]) -> (TempDir, Rest) {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, "proc/uptime", "100.00 350.00\n");
        for (file, text) in files {
            write(&dir, file, text);
        }
        let host = HostRoot::captured(dir.path());
        let rest = Rest::new(&host, &CgroupLayout::read(&host).unwrap());
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
        let mut rest = Rest::new(&host, &CgroupLayout::read(&host).unwrap());
        rest.begin();
        assert!(rest.since.is_some_and(|reading| reading.up > 0.0 && !reading.cpus.is_empty()));
    }
}
