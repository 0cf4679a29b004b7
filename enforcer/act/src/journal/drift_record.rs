//! Record of repairs per workload, beside the journal. With it, a restarted daemon does not begin a fight
//! with another writer anew.
//!
//! The core defines the content and its checks ([`Drift::to_record`]). The file is one line,
//! replaced as a whole at each change.
//!
//! Invariant: this record neither keeps the daemon from starting nor from repairing. A record that cannot be
//! read counts as none; a write that fails is repeated in the next turn. Each is logged once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use enforcer_core::turn::{Drift, LastingDrift};

use super::{
    error::{JournalError, failed, refused},
    files::{self, forget},
    lines::encode,
    log::{self, LogKind},
    reading::{Fold, ForeignRecord},
    record::Record,
};

pub(super) static DRIFT: LogKind = LogKind { name: "drift", is_shared: true, long: 1 << 20, limit: 1 << 20 };

impl Fold for Option<LastingDrift> {
    fn take(&mut self, record: Record) -> Result<Option<Record>, ForeignRecord> {
        let Record::Drift { drift } = record else { return Err(ForeignRecord) };
        Ok(self.replace(drift).map(|drift| Record::Drift { drift }))
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        self.iter().map(|drift| Record::Drift { drift: drift.clone() })
    }
}

/// Path of the record.
#[derive(Debug)]
pub struct DriftRecord {
    path: PathBuf,
    boot_id: String,
    /// Present content; `None` where a daemon of this boot has not written it.
    latest: Option<Drift>,
    /// The latest write failed, and that was logged.
    fails: bool,
}

impl DriftRecord {
    /// Below the state directory of a journal that is open; with what the daemon before has left.
    pub fn open(state_dir: &Path, boot_id: &str, now_ns: u64) -> (Self, Drift) {
        let path = state_dir.join(DRIFT.name);
        let left = read(state_dir, boot_id, now_ns).unwrap_or_else(|error| {
            tracing::warn!("how often cpusets were put back is counted anew: {error}");
            None
        });
        let is_there = fs::symlink_metadata(&path).is_ok();
        let latest =
            if is_there { left.clone().filter(|left| !left.is_empty()) } else { Some(Drift::default()) };
        (Self { path, boot_id: boot_id.to_owned(), latest, fails: false }, left.unwrap_or_default())
    }

    /// Records the lasting part of the state, if it differs from the present record.
    pub fn keep(&mut self, lasting: Drift) {
        if self.latest.as_ref() == Some(&lasting) {
            return;
        }
        match self.write(&lasting) {
            Ok(()) => (self.latest, self.fails) = (Some(lasting), false),
            Err(error) if !self.fails => {
                tracing::warn!(
                    "a daemon after this one may not know how often cpusets were put back: {error}"
                );
                self.fails = true;
            }
            Err(_said) => {}
        }
    }

    fn write(&self, lasting: &Drift) -> Result<(), JournalError> {
        if lasting.is_empty() {
            return forget(&self.path);
        }
        let mut drift = lasting.to_record(&self.boot_id);
        loop {
            let line =
                encode(&Record::Drift { drift: drift.clone() }).map_err(failed("writing", &self.path))?;
            if line.len() as u64 <= DRIFT.limit {
                return files::rewrite(&self.path, false, std::iter::once(Ok(line))).map(drop);
            }
            drift.halve();
        }
    }

    /// Nothing is set any longer, so nothing can drift. The journal of this directory is open.
    pub fn remove(state_dir: &Path) -> Result<(), JournalError> {
        forget(&state_dir.join(DRIFT.name))
    }
}

fn read(state_dir: &Path, boot_id: &str, now_ns: u64) -> Result<Option<Drift>, JournalError> {
    let found = log::read::<Option<LastingDrift>>(state_dir, &DRIFT)?;
    let invalid = |cause| refused("reading", &state_dir.join(DRIFT.name), cause);
    if let Some(line) = found.damaged.first() {
        return Err(invalid(format!("it is damaged: {line}")));
    }
    let drift = found.state.map(|drift| Drift::of_record(drift, boot_id, now_ns)).transpose();
    drift.map_err(|error| invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{super::lines::sealed, *};

    const NAME: &str = "drift";

    const TEXT: &str = r#"{"version":1,"bootId":"boot-1","workloads":{"/db":{"cgroup_id":7,"goal":{"cpus":"0-1","mems":"0"},"reached":"Yes","repairs":[1,2,3],"left_alone":true}}}"#;

    fn drift() -> Drift {
        Drift::of_record(serde_json::from_str(TEXT).unwrap(), "boot-1", 9).unwrap()
    }

    fn left(dir: &Path) -> bool {
        !DriftRecord::open(dir, "boot-1", 9).1.is_empty()
    }

    #[test]
    fn what_is_kept_is_read_again_is_written_when_it_changes_and_goes_when_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let drift = drift();
        let (mut record, before) = DriftRecord::open(dir.path(), "boot-1", 9);
        assert!(before.is_empty());
        record.keep(Drift::default());
        assert!(!path.exists(), "there is nothing to say");
        record.keep(drift.clone());
        let (mut record, after) = DriftRecord::open(dir.path(), "boot-1", 9);
        assert_eq!(after, drift);
        fs::write(&path, "as it was").unwrap();
        record.keep(drift);
        assert_eq!(fs::read_to_string(&path).unwrap(), "as it was", "nothing has changed");
        record.keep(Drift::default());
        assert!(!path.exists());
    }

    #[test]
    fn a_damaged_record_and_one_of_another_boot_count_as_none_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        fs::write(&path, sealed(TEXT)).unwrap();
        assert!(left(dir.path()), "the control");
        let (_, other) = DriftRecord::open(dir.path(), "boot-2", 9);
        assert!(other.is_empty());
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, sealed(TEXT)).unwrap();
        for text in [sealed(TEXT).replace("[1", "[0"), String::new(), " ".repeat(2 << 20)] {
            fs::write(&path, text).unwrap();
            assert!(!left(dir.path()));
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let (mut record, none) = DriftRecord::open(dir.path(), "boot-1", 9);
        assert!(none.is_empty(), "a symlink is not followed");
        record.keep(none);
        assert!(fs::symlink_metadata(&path).is_err() && elsewhere.exists());
    }

    #[test]
    fn one_that_is_too_long_is_written_in_part() {
        let dir = tempfile::tempdir().unwrap();
        let (mut record, _) = DriftRecord::open(dir.path(), "boot-1", 9);
        let one = &TEXT[TEXT.find("{\"cgroup_id").unwrap()..TEXT.len() - 2];
        let path = "n".repeat(4_000);
        let many: Vec<_> = (0..600).map(|n| format!("\"/{path}{n}\":{one}")).collect();
        let text = format!(r#"{{"version":1,"bootId":"boot-1","workloads":{{{}}}}}"#, many.join(","));
        record.keep(Drift::of_record(serde_json::from_str(&text).unwrap(), "boot-1", 9).unwrap());
        assert_eq!(DriftRecord::open(dir.path(), "boot-1", 9).1.given_up(9).count(), 150);
    }

    #[test]
    fn what_cannot_be_written_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let drift = drift();
        let (mut record, _) = DriftRecord::open(&state, "boot-1", 9);
        record.keep(drift.clone());
        assert!(record.fails);
        fs::create_dir(&state).unwrap();
        record.keep(drift);
        assert!(!record.fails && left(&state));
    }
}
