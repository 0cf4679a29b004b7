//! Recognizes cpuset writes that a runtime does because of our answers.
//!
//! Problem: the kernel reports each cpuset write with its process, and systemd, the runtime or its helper
//! (`runc`) carry our answers out. Reported as foreign, they would hide the foreign ones. Idea: a write by
//! such a process to a cgroup in a recent answer is ours.
//!
//! Invariant: this affects reports only. Each turn compares every cpuset with its goal, whatever its writer
//! calls itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use enforcer_core::{
    sample::{Change, ChangeKind, Changes},
    turn::History,
    workload::CgroupPath,
};

use super::{SharedLedger, WRITTEN_BY, pins::PendingPins};

/// Time in which a runtime carries an answer out and a turn hears of it.
const CARRIED_OUT_WITHIN: Duration = Duration::from_mins(1);

/// Names of processes that carry answers out.
const CARRIERS: [&str; 7] = ["systemd", "runc", "crun", "youki", "containerd", "crio", "conmon"];

/// Writes of cpusets that the runtime does because of our answers.
#[derive(Debug, Default)]
pub(in crate::engine) struct RuntimeWrites {
    /// Running containers' cgroups with cpusets that the runtime writes because of an answer, and its time.
    pub(super) pending_writes: BTreeMap<CgroupPath, Instant>,
    /// Cgroups with cpuset writes that the runtime does on our behalf, including new containers, and the time
    /// of the latest answer. The kernel side reports such a write later than the write is done.
    own_writes: BTreeMap<CgroupPath, Instant>,
    /// Cgroups with CPUs that an answer has changed since the latest turn began.
    pub(super) changed_cpus: BTreeSet<CgroupPath>,
    /// Thread pins of these containers from before the change, kept until the runtime has written.
    pub(super) pins: BTreeMap<CgroupPath, PendingPins>,
    /// Time of the latest turn's decision.
    pub(super) decided: Option<Instant>,
}

impl RuntimeWrites {
    /// Cgroups that the runtime may still be writing.
    pub(super) fn pending(&mut self) -> Vec<CgroupPath> {
        self.pending_writes.retain(|_, at| at.elapsed() < WRITTEN_BY);
        self.pending_writes.keys().cloned().collect()
    }

    /// Whether the runtime was given an answer about this cgroup after the latest turn decided.
    pub(super) fn is_newer_than_turn(&self, cgroup: &CgroupPath) -> bool {
        let answered = self.pending_writes.get(cgroup).copied();
        answered.zip(self.decided).is_some_and(|(answered, decided)| answered >= decided)
    }

    /// Notes answers about running containers in these cgroups.
    pub(super) fn note_answers(&mut self, cgroups: Vec<CgroupPath>, now: Instant) {
        self.pending_writes.extend(cgroups.iter().map(|cgroup| (cgroup.clone(), now)));
        self.note_own_writes(cgroups, now);
    }

    /// Whether the runtime may still be writing an answer about this cgroup.
    pub(in crate::engine) fn may_be_writing(&self, cgroup: &CgroupPath) -> bool {
        self.pending_writes.get(cgroup).is_some_and(|at| at.elapsed() < WRITTEN_BY)
    }

    /// Notes answers about these cgroups.
    pub(super) fn note_own_writes(&mut self, cgroups: impl IntoIterator<Item = CgroupPath>, now: Instant) {
        self.own_writes.retain(|_, at| at.elapsed() < CARRIED_OUT_WITHIN);
        self.own_writes.extend(cgroups.into_iter().map(|cgroup| (cgroup, now)));
    }

    /// Backdates all answers by the time in which they are carried out.
    #[cfg(test)]
    pub(in crate::engine) fn expire_own_writes(&mut self) {
        let earlier = |at: &mut Instant| *at = at.checked_sub(CARRIED_OUT_WITHIN).unwrap();
        self.own_writes.values_mut().for_each(earlier);
    }
}

impl SharedLedger {
    /// Exempts the runtime's writes on our behalf from drift. A container that was told other CPUs is
    /// corrected without a cool-down: returning it to its place is no failed correction.
    pub(in crate::engine) fn exempt_own_writes(&self, history: &mut History) {
        history.drift.expect(&self.pending_writes());
        history.forget(&std::mem::take(&mut self.lock().writes.changed_cpus));
    }

    /// Removes the writes that carry our answers out.
    pub(in crate::engine) fn remove_own_writes(&self, changes: &mut Changes) {
        let own = &self.lock().writes.own_writes;
        changes.latest.retain(|change| {
            let Change { workload: Some(cgroup), command, what: ChangeKind::CpusetWritten { .. }, .. } =
                change
            else {
                return true;
            };
            let is_ours = own.get(cgroup).is_some_and(|at| at.elapsed() < CARRIED_OUT_WITHIN);
            !(is_ours && is_carrier(command))
        });
    }
}

/// `runc:[2:INIT]`, `containerd-shim`, `(systemd)`.
fn is_carrier(command: &str) -> bool {
    let command = command.trim_start_matches('(');
    CARRIERS.iter().any(|carrier| {
        let behind = command.strip_prefix(carrier);
        behind.is_some_and(|behind| !behind.starts_with(|next: char| next.is_alphanumeric()))
    })
}

#[cfg(test)]
mod tests {
    use enforcer_core::{
        memory_policy::PolicyMode,
        sample::{CpusetFile, PolicyScope},
    };

    use super::*;

    fn change(cgroup: &str, command: &str, what: ChangeKind) -> Change {
        let workload = Some(CgroupPath::new(cgroup));
        Change { time_ns: 5, workload, cgroup_id: 7, tid: 12, pid: 11, command: command.into(), what }
    }

    #[test]
    fn what_carries_an_answer_out_is_no_foreign_write_and_all_else_is() {
        let placed = SharedLedger::default();
        placed.lock().writes.note_own_writes([CgroupPath::new("/told")], Instant::now());
        let written = || ChangeKind::CpusetWritten { file: CpusetFile::Mems };
        let policy = ChangeKind::PolicySet {
            scope: PolicyScope::Task,
            mode: PolicyMode::Bind,
            numa_nodes: [].into_iter().collect(),
        };
        let latest = vec![
            change("/told", "systemd", written()),
            change("/told", "runc:[2:INIT]", written()),
            change("/told", "containerd-shim", written()),
            change("/told", "sh", written()),
            change("/told", "runcible", written()),
            change("/told", "runc", policy),
            change("/other", "systemd", written()),
        ];
        let mut changes = Changes { latest, ..Changes::default() };
        placed.remove_own_writes(&mut changes);
        let left: Vec<&str> = changes.latest.iter().map(|one| one.command.as_str()).collect();
        assert_eq!(left, ["sh", "runcible", "runc", "systemd"]);
    }
}
