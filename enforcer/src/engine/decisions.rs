//! The latest decisions about each workload, kept in memory for `explain` and `status`.
//!
//! Turns and answers to a container runtime write them; the control socket reads them. The lock is held for
//! one entry or one copy of pointers, never during a placement, a read, a write or a send.
//!
//! Bounded: [`MAX_RECORDS_PER_WORKLOAD`] entries per workload, [`MAX_RECORDS`] in total. Entries of ended
//! workloads go first, those longest untouched before others. Of ended workloads only the latest
//! [`MAX_ENDED_WORKLOADS`] are kept, so a container that restarts forever leaves no more. A repeated decision
//! makes no new entry. Nothing is decided here, and a new daemon starts empty.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use enforcer_core::{
    considered::DecisionTrace,
    plan::Outcome,
    turn::Decision,
    workload::{CgroupPath, Origin, Workload, cut_at},
};

use crate::wall_clock::unix_ms;
use enforcer_report::decision::{DecisionRecord, DecisionState, DecisionSubject};

/// Maximum number of entries of one workload.
const MAX_RECORDS_PER_WORKLOAD: usize = 32;
/// Maximum number of entries of all workloads together.
const MAX_RECORDS: usize = 1024;
/// Maximum number of ended workloads with entries.
const MAX_ENDED_WORKLOADS: usize = 32;
/// Maximum number of updates, and of warnings, in one entry.
const MAX_LINES_PER_RECORD: usize = 32;
/// Maximum length of a text, in characters.
const MAX_TEXT_CHARS: usize = 2000;

/// Handle to the stored decisions; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Decisions(Arc<Mutex<DecisionStore>>);

/// Stored decisions about one workload.
#[derive(Debug, Clone)]
pub struct Remembered {
    /// The workload.
    pub subject: DecisionSubject,
    /// Oldest first.
    pub records: VecDeque<Arc<DecisionRecord>>,
    /// Number of dropped older entries.
    pub forgotten: u64,
    touched: u64,
}

impl Remembered {
    /// The latest decision about the workload itself, not about changes caused by others.
    pub(crate) fn own(&self) -> Option<&DecisionRecord> {
        let of_others = [DecisionState::Changed, DecisionState::Tiered];
        self.records.iter().rev().find(|record| !of_others.contains(&record.state)).map(|record| &**record)
    }
}

#[derive(Debug, Default)]
struct DecisionStore {
    by_workload: BTreeMap<DecisionKey, Remembered>,
    entries: usize,
    /// Incremented with each entry.
    clock: u64,
}

/// Identity of a workload: its cgroup, or the container id where the cgroup is not understood.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum DecisionKey {
    Cgroup(CgroupPath),
    Container(String),
}

impl Decisions {
    fn lock(&self) -> MutexGuard<'_, DecisionStore> {
        // Poisoning is ignored: every update leaves the entries consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a decision made now.
    pub(crate) fn note(&self, subject: DecisionSubject, record: DecisionRecord) {
        self.lock().note(subject, bounded(record), unix_ms());
    }

    /// Stores the decisions and outcomes of a turn.
    pub(super) fn note_turn(
        &self,
        workloads: &[Workload],
        decision: &Decision,
        outcomes: &[Outcome],
        paused: bool,
    ) {
        let mut steps: BTreeMap<&CgroupPath, Vec<Outcome>> = BTreeMap::new();
        for outcome in outcomes {
            steps.entry(outcome.step.action.cgroup()).or_default().push(outcome.clone());
        }
        let in_place: BTreeSet<&CgroupPath> = decision.in_place.iter().collect();
        let refused: BTreeMap<_, _> = decision.refused.iter().map(|one| (&one.workload, one)).collect();
        let now = unix_ms();
        let mut store = self.lock();
        for workload in workloads.iter().filter(|one| !matches!(one.origin, Origin::Process { .. })) {
            let cgroup = &workload.cgroup;
            let considered = decision.considered.get(cgroup).cloned().unwrap_or_default();
            let why = considered.placement.as_ref().map_or("", |given| given.reason.as_str()).to_owned();
            let (state, cause, reason, outcomes) = if let Some(outcomes) = steps.remove(cgroup) {
                (DecisionState::of(&outcomes), None, why, outcomes)
            } else if let Some(refusal) = refused.get(cgroup) {
                (DecisionState::Refused, Some(refusal.cause), refusal.reason.clone(), Vec::new())
            } else if in_place.contains(cgroup) {
                (DecisionState::InPlace, None, why, Vec::new())
            } else {
                if !decision.considered.contains_key(cgroup) {
                    store.release(subject(workload), now);
                }
                continue;
            };
            let record =
                DecisionRecord { cause, paused, reason, considered, outcomes, ..entry("turn", state) };
            store.note(subject(workload), bounded(record), now);
        }
        let there: BTreeSet<&CgroupPath> = workloads.iter().map(|workload| &workload.cgroup).collect();
        for one in store.by_workload.values_mut().filter(|one| one.subject.container_id.is_none()) {
            one.subject.ended |= one.subject.cgroup.as_ref().is_none_or(|path| !there.contains(path));
        }
        store.forget_ended();
    }

    /// Marks a container as ended.
    pub(super) fn end(&self, id: &str) {
        self.end_where(|one| one == id);
    }

    /// Marks all other containers as ended.
    pub(super) fn only(&self, ids: &BTreeSet<&str>) {
        self.end_where(|one| !ids.contains(one));
    }

    fn end_where(&self, ended: impl Fn(&str) -> bool) {
        let mut store = self.lock();
        let of =
            |one: &&Remembered| !one.subject.ended && one.subject.container_id.as_deref().is_some_and(&ended);
        let gone: Vec<DecisionSubject> =
            store.by_workload.values().filter(of).map(|one| one.subject.clone()).collect();
        for subject in gone {
            let reason = "its container has ended, and what it had is free".to_owned();
            let record = DecisionRecord { reason, ..entry("stop", DecisionState::Released) };
            store.note(DecisionSubject { ended: true, ..subject }, record, unix_ms());
        }
        store.forget_ended();
    }

    /// All stored decisions; pointers are copied, not entries.
    pub fn all(&self) -> Vec<Remembered> {
        self.lock().by_workload.values().cloned().collect()
    }
}

/// A new entry of this moment without details.
pub(crate) fn entry(by: &str, state: DecisionState) -> DecisionRecord {
    DecisionRecord {
        first_unix_ms: 0,
        last_unix_ms: 0,
        times: 1,
        by: by.to_owned(),
        state,
        cause: None,
        paused: false,
        reason: String::new(),
        considered: DecisionTrace::default(),
        updates: Vec::new(),
        warnings: Vec::new(),
        outcomes: Vec::new(),
    }
}

/// The workload under the names that users know.
pub fn subject(workload: &Workload) -> DecisionSubject {
    let container_id = match &workload.origin {
        Origin::Pod { container_id, .. } => container_id.clone(),
        _ => None,
    };
    DecisionSubject {
        name: workload.name.clone(),
        cgroup: Some(workload.cgroup.clone()),
        container_id,
        ended: false,
    }
}

fn bounded(mut record: DecisionRecord) -> DecisionRecord {
    let cut = |text: &mut String| {
        if let Cow::Owned(short) = cut_at(text, MAX_TEXT_CHARS) {
            *text = short;
        }
    };
    record.updates.truncate(MAX_LINES_PER_RECORD);
    record.warnings.truncate(MAX_LINES_PER_RECORD);
    record.warnings.iter_mut().chain([&mut record.reason]).for_each(cut);
    record
}

/// Whether this repeats the previous decision. Events never repeat.
fn again(before: &DecisionRecord, record: &DecisionRecord) -> bool {
    let seat = |of: &DecisionRecord| {
        of.considered.placement.as_ref().map(|given| (given.cpus.clone(), given.mems.clone()))
    };
    let steps = |of: &DecisionRecord| -> Vec<_> {
        of.outcomes.iter().map(|outcome| outcome.step.action.clone()).collect()
    };
    let repeats = match record.state {
        DecisionState::Changed => true,
        DecisionState::InPlace | DecisionState::Planned | DecisionState::Refused => {
            seat(before) == seat(record) && steps(before) == steps(record)
        }
        _ => false,
    };
    repeats
        && (before.state, before.cause, before.paused, &before.by)
            == (record.state, record.cause, record.paused, &record.by)
}

impl DecisionStore {
    fn note(&mut self, subject: DecisionSubject, record: DecisionRecord, now: u64) {
        let key = match (&subject.cgroup, &subject.container_id) {
            (Some(path), _) => DecisionKey::Cgroup(path.clone()),
            (None, id) => DecisionKey::Container(id.clone().unwrap_or_default()),
        };
        self.clock += 1;
        let one = self.by_workload.entry(key).or_insert_with(|| Remembered {
            subject: subject.clone(),
            records: VecDeque::new(),
            forgotten: 0,
            touched: 0,
        });
        // A turn may know less of a container than its runtime does.
        let known = one.subject.container_id.take();
        one.subject = DecisionSubject { container_id: subject.container_id.clone().or(known), ..subject };
        one.touched = self.clock;
        let record = DecisionRecord { first_unix_ms: now, last_unix_ms: now, ..record };
        if let Some(last) = one.records.back_mut().filter(|last| again(last, &record)) {
            let (first_unix_ms, times) = (last.first_unix_ms, last.times.saturating_add(1));
            let mut record = DecisionRecord { first_unix_ms, times, ..record };
            if record.considered.candidates.is_empty() {
                // It kept the place for which these were considered.
                record.considered.candidates.clone_from(&last.considered.candidates);
                record.considered.more_candidates = last.considered.more_candidates;
            }
            *last = Arc::new(record);
            return;
        }
        one.records.push_back(Arc::new(record));
        self.entries += 1;
        if one.records.len() > MAX_RECORDS_PER_WORKLOAD {
            one.records.pop_front();
            one.forgotten += 1;
            self.entries -= 1;
        }
        while self.entries > MAX_RECORDS {
            self.forget_one();
        }
    }

    /// Notes that turns no longer control a workload that they controlled until now.
    fn release(&mut self, subject: DecisionSubject, now: u64) {
        let one = subject.cgroup.clone().and_then(|path| self.by_workload.get(&DecisionKey::Cgroup(path)));
        let own = one.and_then(Remembered::own);
        if own.is_some_and(|own| own.by == "turn" && own.state != DecisionState::Released) {
            let reason =
                "no entry of the configuration asks for its place any longer; whatever was set stays until \
                          numa-enforcer restore puts it back"
                    .to_owned();
            self.note(subject, DecisionRecord { reason, ..entry("turn", DecisionState::Released) }, now);
        }
    }

    /// Drops the workloads that ended first, beyond the latest few.
    fn forget_ended(&mut self) {
        let ended = self.by_workload.iter().filter(|(_, one)| one.subject.ended);
        let mut ended: Vec<(u64, DecisionKey)> = ended.map(|(key, one)| (one.touched, key.clone())).collect();
        ended.sort();
        for (_, key) in ended.iter().rev().skip(MAX_ENDED_WORKLOADS) {
            let gone = self.by_workload.remove(key).map_or(0, |one| one.records.len());
            self.entries = self.entries.saturating_sub(gone);
        }
    }

    /// Drops the oldest entry of the workload longest untouched; ended ones first.
    fn forget_one(&mut self) {
        let oldest = self.by_workload.iter().min_by_key(|(_, one)| (!one.subject.ended, one.touched));
        let Some(key) = oldest.map(|(key, _)| key.clone()) else { return self.entries = 0 };
        if let Some(one) = self.by_workload.get_mut(&key) {
            one.forgotten += 1;
            self.entries = self.entries.saturating_sub(usize::from(one.records.pop_front().is_some()));
            if one.records.is_empty() {
                self.by_workload.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
