//! Record of the interrupts whose CPUs the daemon has set, beside the journal: the journal is about cgroups.
//!
//! A line is added before each write, and one that closes it when the original is back. An interrupt belongs
//! to one boot, and to one chip and hardware number: another one may get its number.

use std::{collections::BTreeMap, fs, io, path::Path};

use super::{
    error::JournalError,
    files::check_owned,
    log::{self, Log, LogKind},
    reading::{Fold, ForeignRecord},
    record::{Record, RecordedInterrupt},
};

pub(super) static INTERRUPTS: LogKind =
    LogKind { name: "interrupts", is_shared: false, long: 256 << 10, limit: 64 << 20 };

/// By number.
pub type RecordedInterrupts = BTreeMap<u32, RecordedInterrupt>;

impl Fold for RecordedInterrupts {
    fn take(&mut self, record: Record) -> Result<Option<Record>, ForeignRecord> {
        let was = match record {
            Record::Steered(one) => self.insert(one.irq, one),
            Record::Unsteered { irq } => self.remove(&irq),
            _ => return Err(ForeignRecord),
        };
        Ok(was.map(Record::Steered))
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        self.values().cloned().map(Record::Steered)
    }
}

/// The record of one state directory.
#[derive(Debug)]
pub struct InterruptRecord(Log<RecordedInterrupts>);

impl InterruptRecord {
    /// Opens or makes the one below this directory, which is there. Lines that cannot be read are set aside.
    pub fn open(state_dir: &Path) -> Result<Self, JournalError> {
        check_owned(state_dir)?;
        Log::open(state_dir, &INTERRUPTS).map(Self)
    }

    /// Reads the record and its damaged lines; empty where there is none.
    pub fn read(state_dir: &Path) -> Result<(RecordedInterrupts, Vec<String>), JournalError> {
        let path = state_dir.join(INTERRUPTS.name);
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(Default::default());
        }
        check_owned(state_dir)?;
        let found = log::read(state_dir, &INTERRUPTS)?;
        Ok((found.state, found.damaged))
    }

    /// Interrupts whose originals are not back.
    pub fn open_ones(&self) -> &RecordedInterrupts {
        self.0.state()
    }

    /// Lines that could not be read.
    pub fn damaged(&self) -> &[String] {
        self.0.damaged()
    }

    /// Records an interrupt that is about to be set.
    pub fn steered(&mut self, one: RecordedInterrupt) -> Result<(), JournalError> {
        self.0.append(vec![Record::Steered(one)])
    }

    /// Records that an interrupt has its original again, or is gone.
    pub fn unsteered(&mut self, irq: u32) -> Result<(), JournalError> {
        self.0.append(vec![Record::Unsteered { irq }])
    }
}
