//! Slows a workload down for a moment, and lets it go on: `cgroup.freeze` or `memory.high`.
//!
//! The files are opened when the workload is handed in ([`HeldFile`]), like those of its cpuset
//! ([`super::mems_file`]). Before a file is written, the watching process ([`watchdog`]) confirms that it has
//! the descriptor and the original, and the brake is recorded for the next daemon ([`BrakeRecord`]). So the
//! brake is released whichever process is killed, and in whatever order.
//!
//! A write of `cgroup.freeze` takes `cgroup_mutex` and may wait for it. A caller that may not wait does this
//! on a thread of its own.
//!
//! Invariants: no brake without a confirmation of the watching process; no brake of a workload that is frozen
//! already or has a lower `memory.high`; no release of a file that another program has set since.

pub mod undo;
pub mod watchdog;

use std::{collections::BTreeMap, fs::File, io, os::fd::AsFd, sync::Arc};

use enforcer_core::{
    widening::{BrakeKind, ProtectedWorkload, high_mark},
    workload::CgroupPath,
};
use rustix::fs::OFlags;

use self::watchdog::BrakeWatchdog;
use super::{
    cpuset::{CpusetError, CpusetTree, ManagedFile},
    held_file::{HeldFile, read_whole},
    journal::{BrakeRecord, RecordedBrake},
};
use enforcer_kernel::clock;

/// Longest text of a file: a number of 64 bits.
const LONGEST: usize = 32;

/// The files of one cgroup, held open.
#[derive(Debug)]
pub struct BrakeFile {
    cgroup: CgroupPath,
    inode: u64,
    freeze: HeldFile,
    /// `memory.high`, and `memory.current`; none without the memory controller.
    high: Option<(HeldFile, HeldFile)>,
}

/// The file by which a workload is slowed down in this way.
const fn file_of(kind: BrakeKind) -> ManagedFile {
    match kind {
        BrakeKind::Freeze => ManagedFile::Freeze,
        BrakeKind::High => ManagedFile::High,
    }
}

/// Reads a file.
fn text_of(file: &File) -> io::Result<String> {
    let mut room = [0; LONGEST];
    Ok(String::from_utf8_lossy(read_whole(file, &mut room)?).into_owned())
}

/// Reads a held file; the error names it.
fn held_text(held: &HeldFile) -> Result<String, String> {
    text_of(held.file()).map_err(|error| format!("reading {}: {error}", held.path().display()))
}

impl BrakeFile {
    /// Opens them; nothing is written.
    fn open(tree: &CpusetTree, cgroup: &CgroupPath) -> Result<Self, CpusetError> {
        let cpuset = tree.open(cgroup)?;
        let both = OFlags::RDWR;
        let high = HeldFile::open(&cpuset, ManagedFile::High.name(), both);
        let current = HeldFile::open(&cpuset, "memory.current", OFlags::RDONLY);
        Ok(Self {
            cgroup: cgroup.clone(),
            inode: cpuset.inode(),
            freeze: HeldFile::open(&cpuset, ManagedFile::Freeze.name(), both)?,
            high: high.ok().zip(current.ok()),
        })
    }

    /// Cgroup that the files belong to.
    pub fn cgroup(&self) -> &CgroupPath {
        &self.cgroup
    }

    /// The file of a way to slow it down.
    fn of(&self, kind: BrakeKind) -> Result<&HeldFile, String> {
        match (kind, &self.high) {
            (BrakeKind::Freeze, _) => Ok(&self.freeze),
            (BrakeKind::High, Some((high, _))) => Ok(high),
            (BrakeKind::High, None) => Err("it has no memory controller".to_owned()),
        }
    }

    /// Original of a brake's file, and the value of the brake.
    fn original_and_mark(&self, kind: BrakeKind, rate: u64) -> Result<(String, String), String> {
        let original = held_text(self.of(kind)?)?;
        let mark = match (kind, &self.high) {
            (BrakeKind::High, Some((_, current))) => {
                let text = held_text(current)?;
                let current =
                    text.trim().parse::<u64>().map_err(|_error| format!("memory.current is {text:?}"))?;
                let mark = high_mark(current, rate);
                // `max` is no number, and above all of them.
                if original.trim().parse::<u64>().is_ok_and(|has| has <= mark) {
                    return Err(format!("its memory.high is {} already", original.trim()));
                }
                mark.to_string()
            }
            _ if original.trim() != "0" => return Err("its tasks stand still already".to_owned()),
            _ => "1".to_owned(),
        };
        Ok((original, mark))
    }
}

/// The files of all that may be slowed down.
#[derive(Debug, Default)]
pub struct BrakeFiles(BTreeMap<CgroupPath, (Option<u64>, Arc<BrakeFile>)>);

impl BrakeFiles {
    /// Opens the missing files of these workloads, and closes the rest. A file that cannot be opened is
    /// logged and tried again the next time.
    pub fn follow(&mut self, tree: &CpusetTree, guarded: &[ProtectedWorkload]) {
        let mut before = std::mem::take(&mut self.0);
        for one in guarded.iter().filter(|one| !one.strict) {
            let same = |(id, file): (Option<u64>, Arc<BrakeFile>)| {
                (id.is_some() && id == one.cgroup_id).then_some((id, file))
            };
            let kept = before.remove(&one.cgroup).and_then(same);
            let file = match kept {
                Some((_, file)) => Ok(file),
                None => BrakeFile::open(tree, &one.cgroup).map(Arc::new),
            };
            match file {
                Ok(file) => {
                    self.0.insert(one.cgroup.clone(), (one.cgroup_id, file));
                }
                Err(error) if error.is_gone() => {}
                Err(error) => tracing::warn!("workload {} cannot be slowed down: {error}", one.cgroup),
            }
        }
    }

    /// Brake file of a cgroup.
    pub fn get(&self, cgroup: &CgroupPath) -> Option<Arc<BrakeFile>> {
        self.0.get(cgroup).map(|(_, file)| Arc::clone(file))
    }
}

/// A workload that is slowed down.
#[derive(Debug)]
pub struct SlowedWorkload {
    id: u64,
    file: Arc<BrakeFile>,
    kind: BrakeKind,
    set: String,
    original: String,
    /// Since when, by the kernel's clock, in ns.
    pub since_ns: u64,
}

impl SlowedWorkload {
    /// Which cgroup.
    pub fn cgroup(&self) -> &CgroupPath {
        &self.file.cgroup
    }

    /// How.
    pub fn kind(&self) -> BrakeKind {
        self.kind
    }

    /// The file and its set value, for messages.
    pub fn what(&self) -> String {
        format!("{} = {}", file_of(self.kind).name(), self.set)
    }
}

/// Slows workloads down and releases them, together with the watching process.
#[derive(Debug)]
pub struct BrakeControl {
    record: BrakeRecord,
    boot_id: Option<String>,
    watchdog: BrakeWatchdog,
    slowed: Vec<SlowedWorkload>,
    /// This process failed to release a workload.
    stuck: bool,
}

impl BrakeControl {
    /// With a process that watches already.
    pub fn new(record: BrakeRecord, boot_id: Option<String>, watchdog: BrakeWatchdog) -> Self {
        Self { record, boot_id, watchdog, slowed: Vec::new(), stuck: false }
    }

    /// The watching process.
    pub fn watchdog(&self) -> &BrakeWatchdog {
        &self.watchdog
    }

    /// Why the watching process is gone; `None` while it runs.
    pub fn lost(&mut self) -> Option<&str> {
        self.watchdog.lost()
    }

    /// Workloads that are slowed down.
    pub fn slowed(&self) -> &[SlowedWorkload] {
        &self.slowed
    }

    /// Slows a workload down that fills its nodes by `rate` bytes per second, unless it is later than
    /// `until_ns` by then. The error says why it was not.
    pub fn slow(
        &mut self,
        file: Arc<BrakeFile>,
        kind: BrakeKind,
        rate: u64,
        until_ns: u64,
    ) -> Result<(), String> {
        let open = file.of(kind)?;
        let (original, set) = file.original_and_mark(kind, rate)?;
        let since_ns = clock::now_ns();
        if since_ns >= until_ns {
            return Err("it would be over already".to_owned());
        }
        let id = since_ns;
        self.watchdog.hold(id, open.file().as_fd(), &set, original.trim())?;
        let (cgroup, boot_id) = (file.cgroup.clone(), self.boot_id.clone());
        let (set_to, had) = (set.clone(), original.clone());
        let brake = RecordedBrake {
            id,
            cgroup,
            inode: file.inode,
            file: file_of(kind),
            set: set_to,
            original: had,
            boot_id,
        };
        let written =
            self.record.slowed(&brake).map_err(|error| error.to_string()).and_then(|()| open.write(&set));
        if written.is_err() {
            self.forget(id);
        }
        written?;
        self.slowed.push(SlowedWorkload { id, file, kind, set, original, since_ns });
        Ok(())
    }

    /// Releases the workload; `None` where it is not slowed down. The error says why the release failed; the
    /// watching process tries again.
    pub fn release(&mut self, cgroup: &CgroupPath) -> Option<(SlowedWorkload, Result<(), String>)> {
        let index = self.slowed.iter().position(|one| one.cgroup() == cgroup)?;
        let one = self.slowed.swap_remove(index);
        let released = one.file.of(one.kind).and_then(|open| {
            // Another value is from another program, or the file has been released already.
            if held_text(open)?.trim() == one.set { open.write(&one.original) } else { Ok(()) }
        });
        if released.is_ok() {
            self.forget(one.id);
        }
        self.stuck |= released.is_err();
        Some((one, released))
    }

    /// Workloads slowed down for at least `longest_ns`; `now_ns` is a time of the kernel's clock.
    pub fn overdue(&self, now_ns: u64, longest_ns: u64) -> Vec<CgroupPath> {
        let late = |one: &&SlowedWorkload| now_ns.saturating_sub(one.since_ns) >= longest_ns;
        self.slowed.iter().filter(late).map(|one| one.cgroup().clone()).collect()
    }

    fn forget(&mut self, id: u64) {
        self.watchdog.let_go(id);
        let noted = if self.slowed.is_empty() && !self.stuck {
            self.record.clear()
        } else {
            self.record.released(id)
        };
        if let Err(error) = noted {
            tracing::warn!("cannot record that a workload was released from its brake: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
