//! A pause of enforcement, recorded beside the journal, so that a daemon that is started again is still
//! paused.
//!
//! The reason for a pause does not end with a crash, an upgrade or a restart by the supervisor. So the pause
//! is recorded until enforcement is resumed. A pause with an end expires at that time, whether a daemon runs
//! or not. Times are of the host's wall clock, which alone outlives daemon and boot, so this record, alone
//! of all, waits for the disk.
//!
//! One line, replaced as a whole, in a directory that no other user may write.
//!
//! Invariant: a record that cannot be read, or that has anything but its line, is an error, and the daemon
//! takes it for a pause without an end.
//! It never counts as none.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    error::{JournalError, failed, refused},
    files::{check_owned, forget, sync_dir_of},
    log::{self, LogKind},
    reading::{Fold, ForeignRecord, Reading},
    record::{Record, RecordedPause},
};

pub(super) static PAUSE: LogKind = LogKind { name: "pause", is_shared: false, long: 1 << 20, limit: 1 << 20 };

/// The record of a pause; clones share it.
#[derive(Debug, Clone)]
pub struct PauseRecord(Arc<Mutex<PathBuf>>);

impl Fold for Option<RecordedPause> {
    fn take(&mut self, record: Record) -> Result<Option<Record>, ForeignRecord> {
        let Record::Paused(pause) = record else { return Err(ForeignRecord) };
        Ok(self.replace(pause).map(Record::Paused))
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        self.iter().copied().map(Record::Paused)
    }
}

impl RecordedPause {
    /// A pause that has lasted for `for_seconds`, with `left_seconds` left if it has an end.
    pub fn new(now_unix_ms: u64, for_seconds: u64, left_seconds: Option<u64>) -> Self {
        let ms = |seconds: u64| seconds.saturating_mul(1_000);
        Self {
            since_unix_ms: now_unix_ms.saturating_sub(ms(for_seconds)),
            until_unix_ms: left_seconds.map(|left| now_unix_ms.saturating_add(ms(left))),
        }
    }

    /// How long it has lasted; no time where the clock has gone back since.
    pub fn lasted(&self, now_unix_ms: u64) -> Duration {
        Duration::from_millis(now_unix_ms.saturating_sub(self.since_unix_ms))
    }

    /// How long it still lasts: `Some(None)` without an end, `None` when it is over.
    pub fn left(&self, now_unix_ms: u64) -> Option<Option<Duration>> {
        let Some(until) = self.until_unix_ms else { return Some(None) };
        let left = until.checked_sub(now_unix_ms).filter(|left| *left > 0)?;
        Some(Some(Duration::from_millis(left)))
    }
}

impl PauseRecord {
    /// Below this state directory.
    pub fn new(state_dir: &Path) -> Self {
        Self(Arc::new(Mutex::new(state_dir.to_owned())))
    }

    /// Reads the record, if there is one.
    pub fn read(&self) -> Result<Option<RecordedPause>, JournalError> {
        let dir = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let path = dir.join(PAUSE.name);
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        check_owned(&dir)?;
        let Reading { state, damaged, torn, zeros, .. } = log::read(&dir, &PAUSE)?;
        let fault = match (damaged.into_iter().next(), state) {
            (Some(fault), _) => fault,
            // The line is replaced as a whole, so no crash leaves a part of another one.
            (None, _) if torn.is_some() || zeros > 0 => "it has more than its line".to_owned(),
            (None, None) => "no pause is in it".to_owned(),
            (None, pause) => return Ok(pause),
        };
        Err(refused("reading", &path, fault))
    }

    /// Records the pause that `now` returns, or its absence, durably. Calls `now` under the lock, so that the
    /// latest state is recorded last.
    pub fn keep(&self, now: impl FnOnce() -> Option<RecordedPause>) -> Result<(), JournalError> {
        let dir = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let path = dir.join(PAUSE.name);
        let pause = now();
        if pause.is_none() {
            let is_there = fs::symlink_metadata(&path).is_ok();
            forget(&path)?;
            return if is_there { sync_dir_of(&path) } else { Ok(()) };
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&*dir).map_err(failed("creating", &dir))?;
        check_owned(&dir)?;
        let written = log::write(&path, false, &pause)?;
        written.file.sync_all().map_err(failed("syncing", &path))?;
        sync_dir_of(&path)
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::workload::CgroupPath;

    use super::{super::lines::encode, *};

    #[test]
    fn what_is_kept_is_read_again_and_goes_when_there_is_no_pause() {
        let root = tempfile::tempdir().unwrap();
        let record = PauseRecord::new(&root.path().join("state"));
        assert_eq!(record.read().unwrap(), None);
        record.keep(|| None).unwrap();
        for left in [None, Some(600)] {
            let pause = RecordedPause::new(1_000_000, 5, left);
            record.keep(|| Some(pause)).unwrap();
            assert_eq!(PauseRecord::new(&root.path().join("state")).read().unwrap(), Some(pause));
        }
        record.keep(|| None).unwrap();
        assert_eq!(record.read().unwrap(), None);
    }

    #[test]
    fn pause_lasts_for_its_time_across_daemons() {
        let (second, now) = (Duration::from_secs(1), 1_000_000);
        let pause = RecordedPause::new(now, 5, Some(600));
        assert_eq!(pause.lasted(now + 2_000), 7 * second);
        assert_eq!(pause.lasted(0), Duration::ZERO, "the clock went back");
        assert_eq!(pause.left(now + 1_000), Some(Some(599 * second)));
        assert_eq!(pause.left(now + 600_000), None);
        assert_eq!(RecordedPause::new(now, 5, None).left(u64::MAX), Some(None));
    }

    #[test]
    fn what_is_damaged_in_part_is_no_record_of_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (record, path) = (PauseRecord::new(root.path()), root.path().join("pause"));
        let over = RecordedPause::new(1_000, 0, Some(1));
        record.keep(|| Some(over)).unwrap();
        let line = fs::read_to_string(&path).unwrap();
        assert_eq!(record.read().unwrap(), Some(over));
        let foreign = encode(&Record::Over { cgroup: CgroupPath::new("/a") }).unwrap();
        for damage in ["{\"version\":5,\"rec\n", "{\"version\":5,\"rec", "\n", "\0\0", "rubbish", &foreign] {
            for text in [format!("{line}{damage}"), format!("{damage}\n{line}")] {
                fs::write(&path, &text).unwrap();
                assert!(record.read().is_err(), "{text:?}");
            }
        }
        fs::write(&path, line.trim_end()).unwrap();
        assert_eq!(record.read().unwrap(), Some(over), "it lacks only its newline");
    }

    #[test]
    fn what_cannot_be_understood_is_no_record_of_nothing() {
        let root = tempfile::tempdir().unwrap();
        let record = PauseRecord::new(root.path());
        for text in ["", "{}", "{\"version\":2,\"sinceUnixMs\":1,\"untilUnixMs\":null}", "\u{0}"] {
            fs::write(root.path().join("pause"), text).unwrap();
            let error = record.read().unwrap_err().to_string();
            assert!(error.contains("/pause"), "{text:?}: {error}");
        }
        let elsewhere = root.path().join("elsewhere");
        fs::write(&elsewhere, "{\"version\":1,\"sinceUnixMs\":1,\"untilUnixMs\":null}").unwrap();
        fs::remove_file(root.path().join("pause")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, root.path().join("pause")).unwrap();
        assert!(record.read().is_err(), "a symlink is not followed");
        let file = PauseRecord::new(&elsewhere);
        assert!(file.keep(|| Some(RecordedPause::new(0, 0, None))).is_err());
    }
}
