//! Takes the writes of a workload, or of its group, back after one of its steps failed.
//!
//! Problem: while a plan is carried out, answers to a container runtime give CPUs away. Then the value of a
//! file before its step may no longer be a valid place to go back to. Idea: before an undo the present claims
//! are read. A workload is *kept* with its new values if a newer claim of it exists, or if its old CPUs are
//! exclusive to a workload that is not undone with it. Other members of the group then keep off the CPUs of a
//! kept one in turn. CPUs that the plan meant for a member that was not begun are exclusive to none.
//!
//! Invariant: no write is taken back onto CPUs that are exclusive to another workload. A workload that is
//! kept has the CPUs and memory nodes that it was given, which every prefix of a plan's steps may leave it.
//!
//! Cost: a look at the allocations for each write, and again for each workload that is kept; only where a
//! step failed.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    plan::{Outcome, OutcomeResult},
    workload::CgroupPath,
};
use numa_topology::set::CpuSet;

use super::{actuator::Actuator, claims::CurrentClaims, cpuset::ManagedFile, step_effect::Undo};

/// Why nothing of a workload is the plan's any longer.
pub(super) const OVERTAKEN: &str = "a container runtime was told something newer";

/// The step because of which others are taken back.
pub(super) struct Failed<'plan> {
    /// In the outcomes.
    pub index: usize,
    /// For the outcomes of the others.
    pub because: String,
    /// The workload of the step and those that are carried out with it or not at all, begun or not.
    pub group: BTreeSet<&'plan CgroupPath>,
}

/// Takes writes back, last first, but for those of workloads that are kept. Returns which of these are to be
/// gone on with: those of which something newer is settled. The failed step keeps its own outcome.
pub(super) fn roll_back(
    undo: Vec<(usize, Undo)>,
    failed: &Failed<'_>,
    actuator: &mut dyn Actuator,
    settled: &dyn CurrentClaims,
    outcomes: &mut [Outcome],
) -> BTreeSet<CgroupPath> {
    let mut overtaken = BTreeSet::new();
    let mut kept = kept(&undo, &failed.group, settled);
    for (index, undo) in undo.into_iter().rev() {
        let cgroup = &undo.key.cgroup;
        let is_failed = index == failed.index;
        let is_overtaken = settled.is_overtaken(cgroup);
        if is_overtaken {
            overtaken.insert(cgroup.clone());
            kept.entry(cgroup.clone()).or_insert_with(|| OVERTAKEN.to_owned());
        }
        if let Some(why) = kept.get(cgroup) {
            if let Some(outcome) = outcomes.get_mut(index) {
                say_kept(&mut outcome.result, is_failed, &failed.because, why);
            }
            continue;
        }
        let error = actuator.undo(&undo).err();
        let Some(outcome) = outcomes.get_mut(index) else { continue };
        match &mut outcome.result {
            OutcomeResult::RolledBack { error: first, .. } => {
                *first = first.take().or(error);
            }
            OutcomeResult::Failed { error: text } if is_failed => {
                if let Some(error) = error {
                    *text = format!("{text}; and taking it back: {error}");
                }
            }
            OutcomeResult::Differs { read_back, .. } if is_failed => match error {
                Some(error) => *read_back = format!("{read_back}; taking it back: {error}"),
                None => read_back.push_str("; taken back"),
            },
            result => *result = OutcomeResult::RolledBack { because: failed.because.clone(), error },
        }
    }
    overtaken
}

/// Workloads that are not undone, and why. A member that was not begun still has its old place, whatever the
/// allocations say.
fn kept(
    undo: &[(usize, Undo)],
    group: &BTreeSet<&CgroupPath>,
    settled: &dyn CurrentClaims,
) -> BTreeMap<CgroupPath, String> {
    let (overtaken, mut back): (BTreeSet<&CgroupPath>, BTreeSet<&CgroupPath>) =
        group.iter().copied().partition(|cgroup| settled.is_overtaken(cgroup));
    let mut kept: BTreeMap<CgroupPath, String> =
        overtaken.into_iter().map(|cgroup| (cgroup.clone(), OVERTAKEN.to_owned())).collect();
    let cpus_before =
        |undo: &Undo| (undo.key.file == ManagedFile::Cpus).then(|| undo.before.trim().parse().ok());
    let had: Vec<(&CgroupPath, Option<CpuSet>)> = undo
        .iter()
        .filter_map(|(_, undo)| {
            let cpus: Option<CpuSet> = cpus_before(undo)?;
            // An empty set of its own leaves it those of the cgroup above.
            Some((&undo.key.cgroup, cpus.filter(|cpus| !cpus.is_empty())))
        })
        .collect();
    loop {
        let taken = had.iter().filter(|(cgroup, _)| back.contains(cgroup)).find_map(|(cgroup, cpus)| {
            let by = settled.exclusive_to(cpus.as_ref(), &back)?;
            let cpus = cpus.as_ref().map_or_else(|| "all CPUs".to_owned(), |cpus| format!("CPUs {cpus}"));
            Some((*cgroup, format!("of {cpus}, which it had, some are exclusive to {by}")))
        });
        let Some((cgroup, why)) = taken else { return kept };
        back.remove(cgroup);
        kept.insert(cgroup.clone(), why);
    }
}

/// Says that a step was not taken back; once, whatever number of writes it made.
fn say_kept(result: &mut OutcomeResult, is_failed: bool, because: &str, why: &str) {
    let kept = format!("; not taken back: {why}");
    match result {
        OutcomeResult::Failed { error: text } | OutcomeResult::Differs { read_back: text, .. }
            if is_failed =>
        {
            if !text.ends_with(&kept) {
                text.push_str(&kept);
            }
        }
        result => *result = OutcomeResult::Skipped { because: format!("{because}{kept}") },
    }
}

#[cfg(test)]
mod tests;
