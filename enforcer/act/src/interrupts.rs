//! Sets the CPUs of interrupts, and puts back what they had.
//!
//! Each write is recorded before, read back after, and made through a directory that was opened once. A
//! set without an online CPU is never asked for (the kernel would refuse it). Interrupts that the kernel
//! manages, and those whose chip or driver has fixed their CPUs, refuse each write (`write_irq_affinity`
//! of kernel/irq/proc.c: EPERM, EIO in older kernels): they are named as such.
//!
//! Invariants: nothing is written when the file holds the value already, when another program has written it
//! since it was read, or when the number belongs to another interrupt by now. An original is put back only
//! over the daemon's own value: what was set, or, as the daemon may have been killed between the record and
//! the write, what was there before. A record ends when its original is back, when another program has set
//! the interrupt, or when the interrupt is gone, and not because a reading lacks it.

use std::{collections::BTreeSet, os::fd::OwnedFd, path::Path};

use enforcer_core::interrupts::{InterruptChange, InterruptTable, SteeredInterrupt, SteeredInterrupts};
use enforcer_host::{
    HostPath, HostRoot,
    interrupts::{interrupt_identity, irq_dir},
};
use numa_topology::set::CpuSet;
use rustix::{
    fs::{Mode, OFlags, StatVfsMountFlags},
    io::Errno,
};

use super::{
    journal::{InterruptRecord, JournalError, RecordedInterrupt, RecordedInterrupts, is_of_another_boot},
    restore::RestoreResult,
};

/// Most bytes of a list of CPUs.
const READ_LIMIT: usize = 64 << 10;

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterruptOutcome {
    /// The interrupt has these CPUs; its chip follows at the next interrupt.
    Set,
    /// It was not written, and the next look decides again.
    Skipped(String),
    /// The kernel refused it.
    Refused {
        /// Operation, path, value and cause.
        cause: String,
        /// It refuses each write for this interrupt.
        is_fixed: bool,
    },
}

/// Writer of `/proc/irq/N/smp_affinity_list`.
#[derive(Debug)]
pub struct InterruptWriter {
    files: IrqFiles,
    host: HostRoot,
    record: InterruptRecord,
    /// Interrupts of the record that were seen to have what was set.
    confirmed: BTreeSet<u32>,
    boot_id: Option<String>,
}

/// An interrupt of the record, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredInterrupt {
    /// Its number.
    pub irq: u32,
    /// The CPUs it had.
    pub original: String,
    /// Its result.
    pub result: RestoreResult,
}

/// `/proc/irq`, opened.
#[derive(Debug)]
struct IrqFiles {
    dir: OwnedFd,
    path: HostPath,
}

impl InterruptWriter {
    /// Opens the directory and the record; the journal of this directory is open.
    ///
    /// # Errors
    ///
    /// If either cannot be opened, or `/proc/irq` is read-only.
    pub fn open(host: &HostRoot, state_dir: &Path, boot_id: Option<&str>) -> Result<Self, String> {
        let files = IrqFiles::open(host)?;
        files.check_writable()?;
        let mut record = InterruptRecord::open(state_dir).map_err(|error| error.to_string())?;
        let gone: Vec<u32> = record
            .open_ones()
            .values()
            .filter(|one| is_gone(host, boot_id, one))
            .map(|one| one.irq)
            .collect();
        for irq in gone {
            record.unsteered(irq).map_err(|error| error.to_string())?;
        }
        let (host, boot_id) = (host.clone(), boot_id.map(str::to_owned));
        Ok(Self { files, host, record, confirmed: BTreeSet::new(), boot_id })
    }

    /// Lines of the record that could not be read.
    pub fn damaged(&self) -> &[String] {
        self.record.damaged()
    }

    /// The interrupts that it has set.
    pub fn steered(&self) -> SteeredInterrupts {
        let read = |one: &RecordedInterrupt| {
            // What is there again after the write is another writer's.
            let was = one.was.as_deref().filter(|_| !self.confirmed.contains(&one.irq)).and_then(parsed);
            Some((
                one.irq,
                SteeredInterrupt { original: parsed(&one.original)?, set: parsed(&one.set)?, was },
            ))
        };
        self.record.open_ones().values().filter_map(read).collect()
    }

    /// Closes the records of interrupts that are gone, or that another program has set: their values are the
    /// originals from then on.
    ///
    /// # Errors
    ///
    /// If the record cannot be written.
    pub fn keep_to(&mut self, table: &InterruptTable) -> Result<(), String> {
        let steered = self.steered();
        let mut over = Vec::new();
        for one in self.record.open_ones().values() {
            let found = table.interrupts.binary_search_by_key(&one.irq, |other| other.number);
            let found = found.ok().and_then(|at| table.interrupts.get(at));
            let same = found.filter(|other| other.identity == one.identity);
            let now = same.and_then(|other| other.affinity.as_ref());
            match (now, steered.get(&one.irq)) {
                (Some(now), Some(steered)) if *now == steered.set => {
                    self.confirmed.insert(one.irq);
                }
                (Some(now), Some(steered)) if !steered.has_set(now) => over.push(one.irq),
                _ if same.is_none() && is_gone(&self.host, self.boot_id.as_deref(), one) => {
                    over.push(one.irq);
                }
                _ => {}
            }
        }
        over.into_iter().try_for_each(|irq| self.close(irq)).map_err(|error| error.to_string())
    }

    fn close(&mut self, irq: u32) -> Result<(), JournalError> {
        self.confirmed.remove(&irq);
        self.record.unsteered(irq)
    }

    /// Carries out a change.
    pub fn apply(&mut self, change: &InterruptChange) -> InterruptOutcome {
        let irq = change.number;
        if interrupt_identity(&self.host, irq) != change.identity {
            return InterruptOutcome::Skipped(format!("interrupt {irq} is another one by now"));
        }
        match self.files.read(irq) {
            Ok(now) if parsed(&now).as_ref() == Some(&change.from) => {}
            Ok(now) => {
                let reason = format!("interrupt {irq} was set to {} meanwhile", now.trim_end());
                return InterruptOutcome::Skipped(reason);
            }
            Err(error) => return InterruptOutcome::Skipped(error),
        }
        let before = self.record.open_ones().get(&irq).cloned();
        let one = RecordedInterrupt {
            irq,
            identity: change.identity.clone(),
            original: change.original.to_string(),
            set: change.to.to_string(),
            was: Some(change.from.to_string()),
            boot_id: self.boot_id.clone(),
        };
        if let Err(error) = self.record.steered(one) {
            return InterruptOutcome::Skipped(error.to_string());
        }
        let outcome = self.files.set(irq, &change.to);
        let has_what_it_had =
            || self.files.read(irq).is_ok_and(|now| parsed(&now).as_ref() == Some(&change.from));
        let recorded = match (&outcome, before) {
            (InterruptOutcome::Set, _) if change.gives_back() => self.close(irq),
            (InterruptOutcome::Set, _) => {
                self.confirmed.insert(irq);
                Ok(())
            }
            // The write may have had an effect that the reading after it has missed.
            _ if !has_what_it_had() => {
                self.confirmed.remove(&irq);
                Ok(())
            }
            (_, Some(before)) => self.record.steered(before),
            (_, None) => self.close(irq),
        };
        if let Err(error) = recorded {
            tracing::warn!("{error}: restore looks at interrupt {irq} once more");
        }
        outcome
    }
}

impl IrqFiles {
    fn open(host: &HostRoot) -> Result<Self, String> {
        let path = irq_dir(host);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path.as_path(), flags, Mode::empty()) {
            Ok(dir) => Ok(Self { dir, path }),
            Err(error) => Err(format!("opening {}: {error}", path.display())),
        }
    }

    fn check_writable(&self) -> Result<(), String> {
        let found =
            rustix::fs::fstatvfs(&self.dir).map_err(|error| format!("{}: {error}", self.path.display()))?;
        if found.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(format!("{} is mounted read-only", self.path.display()));
        }
        Ok(())
    }

    fn file(&self, irq: u32, mode: OFlags) -> Result<OwnedFd, (String, Errno)> {
        let name = format!("{irq}/smp_affinity_list");
        let flags = mode | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, name.as_str(), flags, Mode::empty())
            .map_err(|error| (format!("opening {}: {error}", self.path.join(&name).display()), error))
    }

    fn read(&self, irq: u32) -> Result<String, String> {
        let file = self.file(irq, OFlags::RDONLY).map_err(|(cause, _)| cause)?;
        let mut room = vec![0; READ_LIMIT];
        let mut length = 0;
        while let Some(rest) = room.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match rustix::io::read(&file, rest) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) => return Err(format!("reading smp_affinity_list of interrupt {irq}: {error}")),
            }
        }
        room.truncate(length);
        String::from_utf8(room).map_err(|error| format!("smp_affinity_list of interrupt {irq}: {error}"))
    }

    /// Writes a set and reads it back.
    fn set(&self, irq: u32, cpus: &CpuSet) -> InterruptOutcome {
        let refused = |cause: String, error: Errno| InterruptOutcome::Refused {
            cause,
            // A file system that refuses writes says EROFS, a security module EACCES.
            is_fixed: matches!(error, Errno::IO | Errno::PERM),
        };
        let file = match self.file(irq, OFlags::WRONLY | OFlags::TRUNC) {
            Ok(file) => file,
            Err((cause, error)) => {
                return InterruptOutcome::Refused { cause, is_fixed: error == Errno::IO };
            }
        };
        let text = format!("{cpus}\n");
        let path = self.path.join(format!("{irq}/smp_affinity_list"));
        match rustix::io::write(&file, text.as_bytes()) {
            Ok(count) if count == text.len() => {}
            Ok(_) => {
                return refused(format!("writing {cpus} to {}: cut short", path.display()), Errno::NOSPC);
            }
            Err(error) => return refused(format!("writing {cpus} to {}: {error}", path.display()), error),
        }
        drop(file);
        match self.read(irq) {
            Ok(now) if parsed(&now).as_ref() == Some(cpus) => InterruptOutcome::Set,
            Ok(now) => {
                let cause = format!("{} holds {} after {cpus} was written", path.display(), now.trim_end());
                InterruptOutcome::Refused { cause, is_fixed: false }
            }
            Err(cause) => InterruptOutcome::Refused { cause, is_fixed: false },
        }
    }
}

/// Whether `/proc/irq` can be written; the error says why not.
///
/// # Errors
///
/// If it cannot be opened or is read-only.
pub fn check_irq_dir(host: &HostRoot) -> Result<(), String> {
    IrqFiles::open(host)?.check_writable()
}

/// Puts the originals of the record back, or reports what that would do.
pub(super) fn put_back(
    host: &HostRoot,
    boot_id: Option<&str>,
    state_dir: &Path,
    is_preview: bool,
) -> Result<(Vec<RestoredInterrupt>, Vec<String>), JournalError> {
    let (recorded, damaged) = InterruptRecord::read(state_dir)?;
    if recorded.is_empty() {
        return Ok((Vec::new(), damaged));
    }
    let files = IrqFiles::open(host);
    let online = host.sys.join("devices/system/cpu/online").read_text();
    let online = online.ok().as_deref().and_then(parsed);
    let mut record = if is_preview { None } else { Some(InterruptRecord::open(state_dir)?) };
    let mut results = Vec::new();
    for one in recorded.into_values() {
        let result = match &files {
            _ if is_gone(host, boot_id, &one) => {
                RestoreResult::Skipped { reason: "the interrupt is gone".to_owned() }
            }
            Err(error) => RestoreResult::Failed { error: error.clone() },
            Ok(files) => put_one_back(files, &one, online.as_ref(), is_preview),
        };
        let is_over = !matches!(result, RestoreResult::Failed { .. });
        if let Some(record) = record.as_mut().filter(|_| is_over) {
            record.unsteered(one.irq)?;
        }
        results.push(RestoredInterrupt { irq: one.irq, original: one.original, result });
    }
    Ok((results, damaged))
}

fn put_one_back(
    files: &IrqFiles,
    one: &RecordedInterrupt,
    online: Option<&CpuSet>,
    is_preview: bool,
) -> RestoreResult {
    let Some(original) = parsed(&one.original) else {
        return RestoreResult::Failed {
            error: format!("its original {:?} is no list of CPUs", one.original),
        };
    };
    let from = match files.read(one.irq) {
        Ok(now) => now.trim_end().to_owned(),
        Err(error) => return RestoreResult::Failed { error },
    };
    match parsed(&from) {
        Some(now) if now == original => RestoreResult::Unchanged,
        now if now != parsed(&one.set) && now != one.was.as_deref().and_then(parsed) => {
            let reason = format!("another program has set it to {from} since");
            RestoreResult::Skipped { reason }
        }
        // The kernel would refuse it each time (EINVAL).
        _ if online.is_some_and(|online| online.is_disjoint(&original)) => {
            let reason = format!("its original CPUs {original} are offline; it keeps {from}");
            RestoreResult::Skipped { reason }
        }
        _ if is_preview => RestoreResult::WouldPutBack { from },
        _ => match files.set(one.irq, &original) {
            InterruptOutcome::Set => RestoreResult::PutBack { from },
            InterruptOutcome::Refused { cause, .. } | InterruptOutcome::Skipped(cause) => {
                RestoreResult::Failed { error: cause }
            }
        },
    }
}

/// The interrupts of this host that a record is about.
pub(super) fn recorded(state_dir: &Path) -> Result<RecordedInterrupts, JournalError> {
    InterruptRecord::read(state_dir).map(|(recorded, _)| recorded)
}

/// Was it recorded in another boot, is its number that of another interrupt by now, or of none?
fn is_gone(host: &HostRoot, boot_id: Option<&str>, one: &RecordedInterrupt) -> bool {
    // An identity that cannot be read is none that differs.
    let is_another = || {
        let now = interrupt_identity(host, one.irq);
        now.is_some() && one.identity.is_some() && now != one.identity
    };
    is_of_another_boot(one.boot_id.as_deref(), boot_id) || is_another() || !has_interrupt(host, one.irq)
}

/// False only where `/proc/irq` is there and has no such interrupt.
fn has_interrupt(host: &HostRoot, irq: u32) -> bool {
    let dir = irq_dir(host);
    dir.join(irq.to_string()).exists() || !dir.is_dir()
}

fn parsed(text: &str) -> Option<CpuSet> {
    text.trim().parse().ok().filter(|cpus: &CpuSet| !cpus.is_empty())
}

#[cfg(test)]
mod tests;
