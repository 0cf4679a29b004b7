//! Guests that are booted once, saved, and resumed as often as wanted.
//!
//! Problem: a boot costs seconds, and many jobs need the same machine. Idea: a guest that finds no job on
//! its disk waits for one; in that state its memory, its devices and its root disk are
//! saved. A resumed guest finds a job and files on other disks of the same sizes, and goes on. What
//! it writes is thrown away, so each resume starts from the same state.
//!
//! A snapshot fits only the QEMU, the files and the command line that it was made with, so its name is a
//! hash of all of them. What differs after a resume: the page cache and QEMU's translations
//! are those of a guest that has just booted, uptime is that of the snapshot, and the kernel's random
//! numbers begin alike. The wall clock is set again.
//!
//! All guests share QEMU: snapshots of another one are removed when one is made. Kernels and root file
//! systems are many, so theirs only make another snapshot; of all of them the least recently used are removed
//! when they are too large together.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Instant, SystemTime},
};

use anyhow::{Context, Result, bail, ensure};

use super::{
    console::Console,
    guest::{BOOT_LIMIT, Guest},
    machine::Start,
    monitor::Monitor,
    snapshot::Snapshot,
    watch::{LOOK, lines},
};
use crate::{command, progress::ProgressStep, setup::cache, workspace::Workspace};

/// Part of every key: raise it when snapshots are made in another way.
const FORMAT: &str = "1";

/// Line of a guest that has no job.
const WAITING: &str = "rig: waiting";

/// Most bytes of all snapshots.
const LIMIT: u64 = 2 << 30;

/// All snapshots of one QEMU.
#[derive(Debug)]
pub(crate) struct Snapshots {
    folder: PathBuf,
    qemu: u64,
}

impl Snapshots {
    /// Those of the QEMU in this folder.
    pub(crate) fn of(workspace: &Workspace, qemu: &Path) -> Result<Self> {
        let recipe = [FORMAT.to_owned(), stamp(qemu)?];
        Ok(Self { folder: workspace.rig().join("snapshots"), qemu: key(&recipe) })
    }

    /// The snapshot for a guest's machine, if there is one.
    pub(crate) fn find(&self, guest: &Guest) -> Result<Option<Snapshot>> {
        let place = self.place(guest)?;
        let Ok(folder) = File::open(&place) else { return Ok(None) };
        // The time of the last use; without it the snapshot only looks older than it is.
        let _ = folder.set_modified(SystemTime::now());
        Ok(Some(Snapshot::at(place)))
    }

    /// The snapshot for a guest's machine; made if there is none.
    pub(crate) fn find_or_make(&self, guest: &Guest) -> Result<Snapshot> {
        if let Some(found) = self.find(guest)? {
            return Ok(found);
        }
        let place = self.place(guest)?;
        let mut made = false;
        cache::aside(&self.folder, &place, |unfinished| {
            let step = ProgressStep::begin(format!("save a booted guest: {}", guest.topology.description));
            make(guest, unfinished)?;
            step.done();
            made = true;
            Ok(())
        })?;
        if made {
            self.trim(&place, LIMIT)?;
        }
        Ok(Snapshot::at(place))
    }

    fn place(&self, guest: &Guest) -> Result<PathBuf> {
        let size = fs::metadata(guest.inject).context("look at the disk of files")?.len();
        let anywhere = Path::new("");
        let mut recipe = Guest { inject: anywhere, ..guest.clone() }.arguments(Start::Cold, anywhere);
        recipe.push(size.to_string());
        for part in [&guest.rig.kernel, &guest.rig.initrd, &guest.rig.root] {
            recipe.push(stamp(part)?);
        }
        Ok(self.folder.join(format!("{:016x}-{:016x}", self.qemu, key(&recipe))))
    }

    /// Removes snapshots of another QEMU, and old ones until the rest has at most `limit` bytes; `newest`
    /// stays.
    fn trim(&self, newest: &Path, limit: u64) -> Result<()> {
        let ours = format!("{:016x}-", self.qemu);
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.folder).context("list the snapshots")? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            if name.starts_with(&ours) {
                // Another process may remove it meanwhile.
                if let Ok(folder) = fs::metadata(&path) {
                    kept.push((folder.mtime(), folder.mtime_nsec(), size(&path)?, path));
                }
            } else {
                Snapshot::at(path).discard()?;
            }
        }
        kept.sort();
        let mut total: u64 = kept.iter().map(|(.., bytes, _)| bytes).sum();
        let mut count = kept.len();
        for (.., bytes, path) in kept {
            if total > limit && path != newest {
                Snapshot::at(path).discard()?;
                total -= bytes;
                count -= 1;
            }
        }
        eprintln!("snapshots: {count}, {} MiB in {}", total >> 20, self.folder.display());
        Ok(())
    }
}

/// Boots a guest without a job, and saves it with its disk in `place` when it waits.
fn make(guest: &Guest, place: &Path) -> Result<()> {
    let snapshot = Snapshot::at(place.to_owned());
    fs::create_dir(place).with_context(|| format!("create {}", place.display()))?;
    let mut copy = Command::new("cp");
    command::quietly(copy.arg("--sparse=always").arg(&guest.rig.root).arg(snapshot.root()))?;
    let scratch = tempfile::tempdir().context("create a scratch folder")?;
    let monitor = scratch.path().join("monitor");
    let start = Start::ToBeSaved { root: snapshot.root(), monitor: &monitor };
    let mut child = guest.launch(scratch.path(), "", start, Stdio::null(), Stdio::piped())?;
    let mut console = Console::follow(&Guest::console(scratch.path()));
    wait(&lines(child.stdout()?), &mut console)?;
    Monitor::connect(&monitor)?.save(snapshot.state())
}

/// Waits until the guest waits. Anything else that it says is a reason not to keep it.
fn wait(lines: &Receiver<String>, console: &mut Console) -> Result<()> {
    let deadline = Instant::now() + BOOT_LIMIT;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) if line == WAITING => return Ok(()),
            Ok(line) => bail!("the guest says {line:?}"),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("QEMU ended; console:\n{}", console.text()),
        }
        if let Some(trouble) = console.trouble()? {
            bail!("the guest is in trouble: {trouble:?}");
        }
        ensure!(Instant::now() < deadline, "the guest did not boot within {} s", BOOT_LIMIT.as_secs());
    }
}

/// What tells a file or folder from another one at the same place.
fn stamp(path: &Path) -> Result<String> {
    let file = fs::metadata(path).with_context(|| format!("look at {}", path.display()))?;
    Ok(format!("{} {} {}.{}", path.display(), file.len(), file.mtime(), file.mtime_nsec()))
}

/// Need not be the same under another compiler: snapshots are then made anew.
fn key(recipe: &[String]) -> u64 {
    cache::key(&recipe.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Bytes on disk of a snapshot; its files are sparse.
fn size(folder: &Path) -> Result<u64> {
    /// Unit of `st_blocks` (stat(2)).
    const BLOCK: u64 = 512;
    let mut sum = 0;
    for file in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        sum += file?.metadata().map_or(0, |file| file.blocks() * BLOCK);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;
    use crate::{setup::GuestRig, vm::topology::GuestTopology};

    /// Names of the snapshots in a folder, each with one file of 64 KiB.
    fn names(snapshots: &Snapshots) -> Vec<String> {
        let entries = fs::read_dir(&snapshots.folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn those_of_another_qemu_go_first_and_then_the_least_recently_used() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Snapshots { folder: dir.path().to_owned(), qemu: 7 };
        let names_before = ["a", "b", "c"].map(|machine| format!("{:016x}-{machine}", 7));
        for (age, name) in names_before.iter().map(String::as_str).chain(["other-d"]).enumerate() {
            let folder = dir.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("state"), vec![1; 64 << 10]).unwrap();
            let used = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(100 - age as u64);
            File::open(&folder).unwrap().set_modified(used).unwrap();
        }
        fs::write(dir.path().join(".lock"), "").unwrap();
        let oldest = dir.path().join(&names_before[2]);

        snapshots.trim(&oldest, 1 << 20).unwrap();
        assert_eq!(names(&snapshots)[1..], names_before, "there is room for all of the same QEMU");
        snapshots.trim(&oldest, 130 << 10).unwrap();
        assert_eq!(names(&snapshots)[1..], [names_before[0].clone(), names_before[2].clone()]);
        snapshots.trim(&oldest, 0).unwrap();
        assert_eq!(names(&snapshots)[1..], names_before[2..]);
    }

    #[test]
    fn a_snapshot_is_for_one_machine_one_kernel_and_disks_of_one_size() {
        let dir = tempfile::tempdir().unwrap();
        let disk = |name: &str, size| {
            let path = dir.path().join(name);
            File::create(&path).unwrap().set_len(size).unwrap();
            path
        };
        let (small, alike, large) = (disk("small", 1 << 20), disk("alike", 1 << 20), disk("large", 2 << 20));
        let shipped = Workspace::find().unwrap().topologies();
        let rig = GuestRig {
            architecture: Architecture::Amd64,
            qemu: PathBuf::from("/rig/qemu"),
            kernel: disk("vmlinux", 1),
            initrd: disk("initrd", 1),
            root: disk("root.ext4", 1),
        };
        let with_containers = GuestRig { root: disk("root-containerd.ext4", 1), ..rig.clone() };
        let older =
            GuestRig { kernel: disk("vmlinux-5.10", 1), initrd: disk("initrd-5.10", 1), ..rig.clone() };
        let snapshots = Snapshots { folder: dir.path().to_owned(), qemu: 7 };
        let place_on = |rig: &GuestRig, topology: &str, kernel_arguments: &str, inject: &Path, job: &str| {
            let topology = GuestTopology::load(&shipped, topology).unwrap();
            let limit = BOOT_LIMIT;
            let guest = Guest {
                rig,
                topology: &topology,
                kernel_arguments,
                inject,
                job,
                limit,
                has_network: false,
                snapshot: None,
            };
            snapshots.place(&guest).unwrap()
        };
        let place = |topology: &str, kernel_arguments: &str, inject: &Path, job: &str| {
            place_on(&rig, topology, kernel_arguments, inject, job)
        };
        let one = place("2s", "", &small, "true");
        assert_eq!(one, place("2s", "", &alike, "false"));
        assert_ne!(one, place("hmat", "", &small, "true"));
        assert_ne!(one, place("2s", "numa_balancing=disable", &small, "true"));
        assert_ne!(one, place("2s", "", &large, "true"));
        assert_ne!(one, place_on(&older, "2s", "", &small, "true"));
        assert_ne!(one, place_on(&with_containers, "2s", "", &small, "true"));
        fs::write(&rig.initrd, "made anew").unwrap();
        assert_ne!(one, place("2s", "", &small, "true"), "the same path, another file");
    }
}
