//! Has DAMON move frames to another node (Documentation/admin-guide/mm/damon/usage.rst): a scheme of the
//! action `migrate_cold`.
//!
//! One kdamond with a context of physical memory (`paddr`) gets the frames of cold pages, checks for some
//! intervals that they are still cold, and moves those that are and that belong to the cgroup. DAMON checks
//! no cpuset, so the caller has. A quota for one hour bounds it, and it gets one window only: if the daemon
//! is killed meanwhile, the kdamond moves no more than this round was to. A quota counts attempted bytes.
//!
//! It is switched off and its settings are removed when the call returns.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use numa_topology::id::NodeId;

use super::{Carried, Deadline, PageFrames, Sides, memory, shift_since};
use enforcer_host::HostPath;

/// DAMON's sampling interval.
const SAMPLE: Duration = Duration::from_millis(20);
/// Looks in one interval.
const LOOKS: u32 = 5;
/// Intervals for which a region must be as it is before it is moved.
const AGE: u32 = 2;
/// Period of a quota.
const WINDOW: Duration = Duration::from_hours(1);
/// Time between two readings of the progress.
const LOOK: Duration = Duration::from_millis(50);
/// Time without progress after which a round is over.
const QUIET: Duration = Duration::from_millis(600);

/// Request for one round.
#[derive(Debug, Clone, Copy)]
pub struct DamosOrder<'a> {
    /// Frames to move.
    pub frames: &'a PageFrames,
    /// Target node.
    pub to: NodeId,
    /// Cgroup that the pages are charged to, as the kernel names it.
    pub named: &'a str,
    /// Most bytes.
    pub bytes: u64,
}

/// Can this kernel do it? Tries it on a kdamond that is off.
pub fn probe(kdamond: &Path) -> io::Result<()> {
    let context = Context::of(kdamond);
    context.put("contexts/nr_contexts", "1")?;
    context.put("contexts/0/operations", "paddr")?;
    context.put("contexts/0/schemes/nr_schemes", "1")?;
    context.put("contexts/0/schemes/0/action", "migrate_cold")?;
    context.put("contexts/0/schemes/0/target_nid", "0")?;
    context.put("contexts/0/schemes/0/filters/nr_filters", "1")?;
    context.put("contexts/0/schemes/0/filters/0/type", "memcg")
}

/// Carries an order out, of a cgroup (its directory). The error says why nothing could be done.
pub fn migrate(
    kdamond: &Path,
    cgroup: &HostPath,
    order: &DamosOrder<'_>,
    sides: &Sides,
    deadline: &Deadline,
) -> Result<Carried, String> {
    let before = memory(cgroup)?;
    let mut carried = Carried::default();
    if order.frames.runs.is_empty() || order.bytes == 0 {
        return Ok(carried);
    }
    let context = Context::of(kdamond);
    context.write_order(order).map_err(|error| error.to_string())?;
    // It has to look that often before it may move anything.
    let mut since = Instant::now() + SAMPLE * LOOKS * (AGE + 1);
    loop {
        let quiet = since.elapsed() >= QUIET;
        if deadline.is_over() || quiet || carried.shift.down >= order.bytes || carried.shift.outside > 0 {
            break;
        }
        thread::sleep(LOOK);
        let shift = shift_since(&before, cgroup, sides)?;
        if shift.down > carried.shift.down {
            since = Instant::now();
        }
        carried.shift = shift;
    }
    drop(context);
    carried.shift = shift_since(&before, cgroup, sides)?;
    Ok(carried)
}

/// Settings of a kdamond; dropping them switches it off and clears it.
struct Context(PathBuf);

impl Context {
    fn of(kdamond: &Path) -> Self {
        Self(kdamond.to_owned())
    }

    fn write_order(&self, order: &DamosOrder<'_>) -> io::Result<()> {
        for (file, value) in settings(order) {
            self.put(&file, &value)?;
        }
        self.put("state", "on")
    }

    /// The kernel's own word for what it refuses says little without the file and the value.
    fn put(&self, file: &str, value: &str) -> io::Result<()> {
        let path = self.0.join(file);
        fs::write(&path, value).map_err(|error| {
            io::Error::new(error.kind(), format!("writing {value:?} to {}: {error}", path.display()))
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A kdamond that was never on refuses to be switched off.
        let _off = self.put("state", "off");
        if let Err(error) = self.put("contexts/nr_contexts", "0") {
            tracing::warn!("{error}");
        }
    }
}

/// Files below the kdamond, in the order in which they have to be written.
fn settings(order: &DamosOrder<'_>) -> Vec<(String, String)> {
    let sample = SAMPLE.as_micros();
    let (all, most) = (u64::MAX.to_string(), u32::MAX.to_string());
    let runs = &order.frames.runs;
    let regions = runs.len().max(10) * 4;
    let context: [(&str, String); 22] = [
        ("contexts/nr_contexts", "1".into()),
        ("contexts/0/operations", "paddr".into()),
        ("contexts/0/monitoring_attrs/intervals/sample_us", sample.to_string()),
        ("contexts/0/monitoring_attrs/intervals/aggr_us", (sample * u128::from(LOOKS)).to_string()),
        ("contexts/0/monitoring_attrs/intervals/update_us", (sample * u128::from(LOOKS)).to_string()),
        ("contexts/0/monitoring_attrs/nr_regions/max", regions.to_string()),
        ("contexts/0/monitoring_attrs/nr_regions/min", "10".into()),
        ("contexts/0/schemes/nr_schemes", "1".into()),
        ("contexts/0/schemes/0/action", "migrate_cold".into()),
        ("contexts/0/schemes/0/target_nid", order.to.to_string()),
        ("contexts/0/schemes/0/access_pattern/sz/max", all),
        ("contexts/0/schemes/0/access_pattern/nr_accesses/max", "0".into()),
        ("contexts/0/schemes/0/access_pattern/age/min", AGE.to_string()),
        ("contexts/0/schemes/0/access_pattern/age/max", most),
        ("contexts/0/schemes/0/quotas/bytes", order.bytes.to_string()),
        ("contexts/0/schemes/0/quotas/reset_interval_ms", WINDOW.as_millis().to_string()),
        ("contexts/0/schemes/0/filters/nr_filters", "1".into()),
        ("contexts/0/schemes/0/filters/0/type", "memcg".into()),
        ("contexts/0/schemes/0/filters/0/memcg_path", order.named.to_owned()),
        // What is not of the cgroup is left out.
        ("contexts/0/schemes/0/filters/0/matching", "N".into()),
        ("contexts/0/targets/nr_targets", "1".into()),
        ("contexts/0/targets/0/regions/nr_regions", runs.len().to_string()),
    ];
    let mut settings: Vec<_> = context.into_iter().map(|(file, value)| (file.to_owned(), value)).collect();
    for (index, run) in runs.iter().enumerate() {
        let dir = format!("contexts/0/targets/0/regions/{index}");
        settings.push((format!("{dir}/start"), run.start.to_string()));
        settings.push((format!("{dir}/end"), run.end.to_string()));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::Stop;
    use enforcer_host::HostRoot;

    const MIB: u64 = 1 << 20;

    /// A kdamond with the directories that the kernel makes, and a cgroup.
    fn host() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (kdamond, cgroup) = (dir.path().join("16"), dir.path().join("cgroup"));
        for below in [
            "monitoring_attrs/intervals",
            "monitoring_attrs/nr_regions",
            "schemes/0/access_pattern/sz",
            "schemes/0/access_pattern/nr_accesses",
            "schemes/0/access_pattern/age",
            "schemes/0/quotas",
            "schemes/0/filters/0",
            "targets/0/regions/0",
            "targets/0/regions/1",
        ] {
            fs::create_dir_all(kdamond.join("contexts/0").join(below)).unwrap();
        }
        fs::write(kdamond.join("state"), "off").unwrap();
        fs::create_dir(&cgroup).unwrap();
        stat(&cgroup, 100, 0);
        (dir, kdamond, cgroup)
    }

    fn stat(cgroup: &Path, upper: u64, lower: u64) {
        let text = format!("anon N0={} N2={}\nfile N0=0 N2=0\n", upper * MIB, lower * MIB);
        // Replaced as a whole, like a read from the kernel.
        fs::write(cgroup.join("new"), text).unwrap();
        fs::rename(cgroup.join("new"), cgroup.join("memory.numa_stat")).unwrap();
    }

    fn frames() -> PageFrames {
        PageFrames { runs: vec![4096..8 * MIB, 16 * MIB..48 * MIB] }
    }

    fn sides() -> Sides {
        let set = |text: &str| text.parse().unwrap();
        Sides { upper: set("0"), lower: set("2"), allowed: set("0,2") }
    }

    fn long() -> Deadline {
        Deadline::after(Duration::from_mins(10), &Stop::default())
    }

    #[test]
    fn it_is_told_of_the_frames_of_the_cgroup_and_of_a_quota_and_is_off_afterwards() {
        let (_dir, kdamond, cgroup) = host();
        let frames = frames();
        let order = DamosOrder { frames: &frames, to: NodeId(2), named: "/work/a", bytes: 30 * MIB };
        let carried = thread::scope(|scope| {
            scope.spawn(|| {
                let is_on = || fs::read_to_string(kdamond.join("state")).unwrap() == "on";
                (0..10_000).take_while(|_| !is_on()).for_each(|_| thread::sleep(Duration::from_millis(1)));
                stat(&cgroup, 70, 30);
            });
            migrate(&kdamond, &HostRoot::live().at(&cgroup), &order, &sides(), &long())
        });
        assert_eq!(carried.unwrap().shift.down, 30 * MIB);
        let read = |file: &str| fs::read_to_string(kdamond.join(file)).unwrap();
        for (file, expected) in [
            ("state", "off"),
            ("contexts/nr_contexts", "0"),
            ("contexts/0/operations", "paddr"),
            ("contexts/0/schemes/0/action", "migrate_cold"),
            ("contexts/0/schemes/0/target_nid", "2"),
            ("contexts/0/schemes/0/access_pattern/nr_accesses/max", "0"),
            ("contexts/0/schemes/0/access_pattern/age/min", "2"),
            ("contexts/0/schemes/0/quotas/bytes", "31457280"),
            ("contexts/0/schemes/0/quotas/reset_interval_ms", "3600000"),
            ("contexts/0/schemes/0/filters/0/type", "memcg"),
            ("contexts/0/schemes/0/filters/0/memcg_path", "/work/a"),
            ("contexts/0/schemes/0/filters/0/matching", "N"),
            ("contexts/0/targets/0/regions/nr_regions", "2"),
            ("contexts/0/targets/0/regions/1/start", "16777216"),
            ("contexts/0/targets/0/regions/1/end", "50331648"),
        ] {
            assert_eq!(read(file), expected, "{file}");
        }
    }

    #[test]
    fn it_is_off_too_when_it_moves_nothing_or_when_everything_is_to_end() {
        let (_dir, kdamond, cgroup) = host();
        let frames = frames();
        let order = DamosOrder { frames: &frames, to: NodeId(2), named: "/work/a", bytes: MIB };
        let over = Deadline::after(Duration::ZERO, &Stop::default());
        for deadline in [long(), over] {
            let carried =
                migrate(&kdamond, &HostRoot::live().at(&cgroup), &order, &sides(), &deadline).unwrap();
            assert_eq!(carried, Carried::default());
            assert_eq!(fs::read_to_string(kdamond.join("state")).unwrap(), "off");
            assert_eq!(fs::read_to_string(kdamond.join("contexts/nr_contexts")).unwrap(), "0");
        }
    }

    #[test]
    fn what_the_kernel_refuses_is_told_with_its_file_and_leaves_it_off() {
        let (_dir, kdamond, cgroup) = host();
        probe(&kdamond).unwrap();
        // A kernel before 6.11 has no target.
        fs::remove_dir_all(kdamond.join("contexts/0/schemes/0")).unwrap();
        assert!(probe(&kdamond).unwrap_err().to_string().contains("schemes/0/action"));
        let frames = frames();
        let order = DamosOrder { frames: &frames, to: NodeId(2), named: "/work/a", bytes: MIB };
        let error = migrate(&kdamond, &HostRoot::live().at(&cgroup), &order, &sides(), &long()).unwrap_err();
        assert!(error.contains("schemes/0/action"), "{error}");
        assert_eq!(fs::read_to_string(kdamond.join("state")).unwrap(), "off");
    }

    #[test]
    fn without_frames_or_bytes_nothing_is_switched_on() {
        let (_dir, kdamond, cgroup) = host();
        let (some, none) = (frames(), PageFrames::default());
        for (frames, bytes) in [(&some, 0), (&none, MIB)] {
            let order = DamosOrder { frames, to: NodeId(2), named: "/work/a", bytes };
            migrate(&kdamond, &HostRoot::live().at(&cgroup), &order, &sides(), &long()).unwrap();
            assert!(!kdamond.join("contexts/nr_contexts").exists());
        }
    }
}
