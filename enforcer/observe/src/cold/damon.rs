//! Finds touched regions of an address space by DAMON (Documentation/admin-guide/mm/damon/usage.rst).
//!
//! Each watched process has a kernel thread (`kdamond`) with one context of the operations `vaddr` and one
//! scheme that does nothing (`stat`) and matches everything: so the regions that it tried are all regions.
//! The kernel publishes them at the end of its interval, so an answer takes up to two intervals.
//!
//! The kernel has one set of kdamonds. If another program uses it, DAMON is not available. A set left by a
//! killed daemon of ours is known by the odd last digits of its sampling interval. It is taken over, or
//! removed by [`sweep`] when a daemon starts. Dropping this switches everything off.
//!
//! The set has one kdamond more than are watched by, for moving pages by DAMON; this module does not
//! configure it.

use std::{
    collections::BTreeSet,
    fs, io,
    time::{Duration, Instant},
};

use enforcer_core::demotion::AddressRegion;

use enforcer_host::HostPath;

/// Most processes watched at a time.
const SLOTS: usize = 16;
/// Index of the spare kdamond.
const SPARE: usize = SLOTS;
/// Bounds of the number of regions of one process: the minimum sets the resolution, the maximum the cost.
const REGIONS: [u32; 2] = [200, 1000];
/// Looks in one interval of aggregation.
const LOOKS: u32 = 5;
/// Intervals of aggregation in the time after which pages are cold.
const INTERVALS: u32 = 10;
/// Bounds of an interval.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_millis(500);
/// A process without a look in this time loses its slot.
const STALE: Duration = Duration::from_mins(1);
/// Last digits of our sampling intervals, in microseconds.
const MARK: u64 = 137;

/// Our set of kdamonds.
#[derive(Debug)]
pub(super) struct Damon {
    kdamonds: HostPath,
    /// Slots by index of their kdamond; empty before the first process is watched.
    slots: Vec<Option<Slot>>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    pid: u32,
    interval: Duration,
    seen: Instant,
}

impl Damon {
    /// Checks whether DAMON is available; the error says why not.
    pub(super) fn new(sys: &HostPath) -> Result<Self, String> {
        let kdamonds = sys.join("kernel/mm/damon/admin/kdamonds");
        let count = kdamonds.join("nr_kdamonds").read_text().map_err(|error| error.to_string())?;
        let damon = Self { kdamonds, slots: Vec::new() };
        if count.trim() != "0" && !damon.is_ours() {
            return Err(format!("{} is {}: another program uses it", damon.count().display(), count.trim()));
        }
        rustix::fs::access(damon.count().as_path(), rustix::fs::Access::WRITE_OK)
            .map_err(|error| format!("{} may not be written: {error}", damon.count().display()))?;
        Ok(damon)
    }

    /// The directory of the spare kdamond; creates the set.
    pub(super) fn spare(&mut self) -> Result<HostPath, String> {
        if self.slots.is_empty() {
            self.prepare().map_err(|error| error.to_string())?;
        }
        Ok(self.kdamonds.join(SPARE.to_string()))
    }

    /// The regions of a process. For a newly watched process no idle time is known yet.
    pub(super) fn read_idle(
        &mut self,
        pid: u32,
        idle: Duration,
        now: Instant,
    ) -> Result<Vec<AddressRegion>, String> {
        if self.slots.is_empty() {
            self.prepare().map_err(|error| error.to_string())?;
        }
        let interval = (idle / INTERVALS).clamp(SHORTEST, LONGEST);
        let known = self.slots.iter().position(|slot| slot.is_some_and(|slot| slot.pid == pid));
        let index = match known {
            Some(index) => index,
            None => self.free_slot().ok_or("as many processes are watched as can be")?,
        };
        let running = known.is_some_and(|index| {
            self.slots[index].is_some_and(|slot| slot.interval == interval) && self.state(index) == "on"
        });
        if !running {
            self.slots[index] = None;
            self.begin(index, pid, interval).map_err(|error| error.to_string())?;
        }
        self.slots[index] = Some(Slot { pid, interval, seen: now });
        if running {
            self.regions(index, interval).map_err(|error| error.to_string())
        } else {
            Ok(Vec::new())
        }
    }

    /// Stops watching other processes.
    pub(super) fn only(&mut self, pids: &BTreeSet<u32>) {
        for index in 0..self.slots.len() {
            if self.slots[index].is_some_and(|slot| !pids.contains(&slot.pid)) {
                self.end(index);
            }
        }
    }

    /// A free slot, or one without a recent look.
    fn free_slot(&mut self) -> Option<usize> {
        if let Some(free) = self.slots.iter().position(Option::is_none) {
            return Some(free);
        }
        let (index, slot) =
            self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.map(|slot| slot.seen))?;
        let stale = slot.is_some_and(|slot| slot.seen.elapsed() > STALE);
        stale.then(|| self.end(index)).map(|()| index)
    }

    fn count(&self) -> HostPath {
        self.kdamonds.join("nr_kdamonds")
    }

    fn is_ours(&self) -> bool {
        let interval = self.kdamonds.join("0/contexts/0/monitoring_attrs/intervals/sample_us");
        let text = interval.read_text().unwrap_or_default();
        text.trim().parse::<u64>().is_ok_and(|sample| sample % 1000 == MARK)
    }

    /// Creates the set, and removes one that an earlier daemon left.
    fn prepare(&mut self) -> io::Result<()> {
        let there = self.kdamonds.list_dir().ok().flatten().unwrap_or_default();
        for index in there.iter().filter_map(|name| name.parse::<usize>().ok()) {
            self.end(index);
        }
        write(&self.count(), &(SLOTS + 1).to_string())?;
        self.slots = vec![None; SLOTS];
        // From here on it is recognizable as ours.
        self.configure(0, 0, SHORTEST)
    }

    fn take_down(&mut self) {
        for index in 0..=SPARE {
            self.end(index);
        }
        self.slots.clear();
        if let Err(error) = write(&self.count(), "0") {
            tracing::warn!("{error}");
        }
    }

    fn state(&self, index: usize) -> String {
        let text = self.kdamonds.join(format!("{index}/state")).read_text();
        text.map(|text| text.trim().to_owned()).unwrap_or_default()
    }

    fn command(&self, index: usize, command: &str) -> io::Result<()> {
        write(&self.kdamonds.join(format!("{index}/state")), command)
    }

    fn end(&mut self, index: usize) {
        // It has ended by itself if its process has.
        let _ended = self.command(index, "off");
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = None;
        }
    }

    fn begin(&mut self, index: usize, pid: u32, interval: Duration) -> io::Result<()> {
        if self.state(index) == "on" {
            self.command(index, "off")?;
        }
        self.configure(index, pid, interval)?;
        self.command(index, "on")
    }

    fn configure(&self, index: usize, pid: u32, interval: Duration) -> io::Result<()> {
        let dir = self.kdamonds.join(index.to_string());
        let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        let sample = micros / u64::from(LOOKS) / 1000 * 1000 + MARK;
        let all = u64::MAX.to_string();
        let most = u32::MAX.to_string();
        let settings = [
            ("contexts/nr_contexts", "1".to_owned()),
            ("contexts/0/operations", "vaddr".to_owned()),
            ("contexts/0/monitoring_attrs/intervals/sample_us", sample.to_string()),
            ("contexts/0/monitoring_attrs/intervals/aggr_us", (sample * u64::from(LOOKS)).to_string()),
            ("contexts/0/monitoring_attrs/intervals/update_us", (micros * 4).to_string()),
            ("contexts/0/monitoring_attrs/nr_regions/max", REGIONS[1].to_string()),
            ("contexts/0/monitoring_attrs/nr_regions/min", REGIONS[0].to_string()),
            ("contexts/0/targets/nr_targets", "1".to_owned()),
            ("contexts/0/targets/0/pid_target", pid.to_string()),
            ("contexts/0/schemes/nr_schemes", "1".to_owned()),
            ("contexts/0/schemes/0/action", "stat".to_owned()),
            ("contexts/0/schemes/0/access_pattern/sz/max", all),
            ("contexts/0/schemes/0/access_pattern/nr_accesses/max", most.clone()),
            ("contexts/0/schemes/0/access_pattern/age/max", most),
        ];
        settings.iter().try_for_each(|(file, value)| write(&dir.join(file), value))
    }

    fn regions(&self, index: usize, interval: Duration) -> io::Result<Vec<AddressRegion>> {
        self.command(index, "update_schemes_tried_regions")?;
        let dir = self.kdamonds.join(format!("{index}/contexts/0/schemes/0/tried_regions"));
        let names = dir.list_dir().map_err(io::Error::other)?.unwrap_or_default();
        let regions = names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        Ok(regions.filter_map(|name| region(&dir.join(name), interval)).collect())
    }
}

impl Drop for Damon {
    fn drop(&mut self) {
        if !self.slots.is_empty() {
            self.take_down();
        }
    }
}

/// Removes what a killed daemon of ours left: it would go on watching and moving pages.
pub(super) fn sweep(sys: &HostPath) {
    let Ok(mut left) = Damon::new(sys) else { return };
    if left.count().read_text().is_ok_and(|count| count.trim() != "0") {
        tracing::warn!("{}: taken down, an earlier daemon left it", left.kdamonds.display());
        left.take_down();
    }
}

/// One of `tried_regions`. Accesses are the looks of the latest interval that found it touched; age is in
/// intervals.
fn region(dir: &HostPath, interval: Duration) -> Option<AddressRegion> {
    let number = |file: &str| dir.join(file).read_text().ok()?.trim().parse::<u64>().ok();
    let (start, end, accesses, age) =
        (number("start")?, number("end")?, number("nr_accesses")?, number("age")?);
    let percent = (accesses.saturating_mul(100) / u64::from(LOOKS)).min(100);
    // Any touch makes a region touched, however rare.
    let touched_percent = u8::try_from(percent).unwrap_or(100).max(u8::from(accesses > 0));
    let unchanged = interval.saturating_mul(u32::try_from(age).unwrap_or(u32::MAX));
    Some(AddressRegion { start, end, touched_percent, unchanged, exact: false })
}

/// Adds file and value to the kernel's error.
fn write(path: &HostPath, value: &str) -> io::Result<()> {
    fs::write(path.as_path(), value).map_err(|error| {
        io::Error::new(error.kind(), format!("writing {value:?} to {}: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use enforcer_host::HostRoot;

    /// A set of `count` kdamonds, the first with this sampling interval, all switched on.
    fn host(count: usize, sample: u64) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let kdamonds = dir.path().join("kernel/mm/damon/admin/kdamonds");
        for index in 0..=SPARE {
            let intervals = kdamonds.join(format!("{index}/contexts/0/monitoring_attrs/intervals"));
            fs::create_dir_all(&intervals).unwrap();
            fs::write(intervals.join("sample_us"), format!("{sample}\n")).unwrap();
            fs::write(kdamonds.join(format!("{index}/state")), "on\n").unwrap();
        }
        fs::write(kdamonds.join("nr_kdamonds"), format!("{count}\n")).unwrap();
        dir
    }

    fn states(sys: &Path) -> (String, usize) {
        let kdamonds = sys.join("kernel/mm/damon/admin/kdamonds");
        let read = |file: String| fs::read_to_string(kdamonds.join(file)).unwrap().trim().to_owned();
        let on = (0..=SPARE).filter(|index| read(format!("{index}/state")) == "on").count();
        (read("nr_kdamonds".into()), on)
    }

    #[test]
    fn set_of_a_killed_daemon_is_removed_and_a_foreign_set_is_left_alone() {
        for (count, sample, expected) in [
            (SPARE + 1, 20_000 + MARK, ("0", 0)),
            (SPARE + 1, 20_000, ("17", SPARE + 1)),
            (0, 20_000 + MARK, ("0", SPARE + 1)),
        ] {
            let dir = host(count, sample);
            sweep(&HostRoot::live().at(dir.path()));
            let (left, on) = states(dir.path());
            assert_eq!((left.as_str(), on), expected, "{count} {sample}");
        }
        sweep(&HostRoot::live().at("/nonexistent"));
    }
}
