//! Partitions of cpusets for those whose exclusive CPUs are to be nobody else's at all.
//!
//! Problem: a partition needs its CPUs in `cpuset.cpus.exclusive` of every cgroup above it, no two cgroups
//! side by side may name the same CPU there, and all of it must follow the workloads as they come, change and
//! end. Idea: from all who are to have one and all that live, the exact set of each cgroup above follows;
//! what is too much is taken away from the bottom up, then what is missing is added from the top down. A
//! partition begins when a sample shows all of that; one whose CPUs change is ended before, and begins again
//! later. The kernel takes or refuses what is written as a whole and does not say because of which CPU, so
//! each step adds what one partition needs: a refusal is of that one.
//!
//! Never: CPUs are taken away above a partition that lives (6.12 loses them for the whole host when it then
//! ends), a set that somebody else wrote above is changed, a partition begins before its cpuset is as it
//! should be, or once more after the kernel has refused just that ([`Tried`]). Without one the workload keeps
//! its exclusive CPUs as a plain cpuset, which is what it has where there are no partitions.
//!
//! Cost: a look at each cgroup above one that has a partition. Nothing where nobody wants one.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Decision, Inputs};
use crate::{
    partition::Partition,
    plan::{Action, Outcome, OutcomeResult, Step},
    sample::CgroupSample,
    set::CpuSet,
    workload::CgroupPath,
};

/// How often one is begun before it is left alone: somebody else ends it each time.
const BEGINNINGS: u32 = 3;

/// What the daemon has set of partitions, at any time, and not put back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partitioned {
    /// Cgroups that it made the root of one.
    pub begun: BTreeSet<CgroupPath>,
    /// Cgroups whose `cpuset.cpus.exclusive` it set.
    pub exclusive: BTreeSet<CgroupPath>,
}

impl Partitioned {
    /// All of them.
    pub fn all(&self) -> BTreeSet<CgroupPath> {
        self.begun.union(&self.exclusive).cloned().collect()
    }
}

/// A partition that a workload is to be the root of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WantedPartition {
    /// The kernel's id of the cgroup, where it is known.
    pub cgroup_id: Option<u64>,
    /// Its CPUs: all that the workload has.
    pub cpus: CpuSet,
    /// Which kind.
    pub kind: Partition,
}

/// For which partition a cgroup above is set to more, by that cgroup and what it is set to.
pub type AddedAbove = BTreeMap<(CgroupPath, CpuSet), CgroupPath>;

/// Partitions that were begun, and what came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried(BTreeMap<CgroupPath, Attempt>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Attempt {
    wanted: WantedPartition,
    beginnings: u32,
    refused: Option<String>,
}

impl Tried {
    /// Notes what became of a plan.
    pub fn note(&mut self, decision: &Decision, outcomes: &[Outcome]) {
        self.0.retain(|cgroup, attempt| decision.partitions.get(cgroup) == Some(&attempt.wanted));
        for Outcome { step, result } in outcomes {
            let refused = match result {
                OutcomeResult::Applied { .. } => None,
                OutcomeResult::Differs { read_back, .. } => Some(read_back),
                OutcomeResult::Failed { error } => Some(error),
                _ => continue,
            };
            match &step.action {
                Action::SetPartition { cgroup, kind } => {
                    let wanted = decision.partitions.get(cgroup).filter(|wanted| wanted.kind == *kind);
                    if let Some(attempt) = wanted.map(|wanted| self.attempt(cgroup, wanted)) {
                        attempt.beginnings = attempt.beginnings.saturating_add(1);
                        attempt.refused = refused.cloned();
                    }
                }
                // Somebody beside that has these CPUs: who needs them cannot begin.
                Action::SetExclusive { cgroup: above, cpus } if refused.is_some() => {
                    let whose = decision.added_above.get(&(above.clone(), cpus.clone()));
                    let whose = whose.and_then(|cgroup| Some((cgroup, decision.partitions.get(cgroup)?)));
                    if let Some((cgroup, wanted)) = whose {
                        self.attempt(cgroup, wanted).refused = refused.cloned();
                    }
                }
                _ => {}
            }
        }
    }

    fn attempt(&mut self, cgroup: &CgroupPath, wanted: &WantedPartition) -> &mut Attempt {
        let first = || Attempt { wanted: wanted.clone(), beginnings: 0, refused: None };
        self.0.entry(cgroup.clone()).or_insert_with(first)
    }

    /// Everything may be tried again.
    pub fn forgive(&mut self) {
        self.0.clear();
    }

    /// Why this one is not begun (again).
    fn refusal(&self, cgroup: &CgroupPath) -> Option<String> {
        let attempt = self.0.get(cgroup)?;
        let ended = (attempt.beginnings >= BEGINNINGS)
            .then(|| format!("it was begun {BEGINNINGS} times, and another program has ended it each time"));
        attempt.refused.clone().or(ended)
    }
}

/// What this workload is to be, when these are its CPUs; nothing where nobody has declared anything.
pub(super) fn wanted(
    inputs: &Inputs<'_>,
    cgroup: &CgroupPath,
    cpus: Option<&CpuSet>,
    exclusive: &CpuSet,
) -> Option<WantedPartition> {
    let (_, rule) = inputs.declarations.rule(inputs.policy, cgroup)?;
    let kind = rule.partition.filter(|kind| *kind != Partition::Member)?;
    // Of one that shares some, not all are its own.
    let cpus = cpus.filter(|cpus| *cpus == exclusive && !cpus.is_empty())?.clone();
    let cgroup_id = inputs.sample.cgroup_id(cgroup);
    Some(WantedPartition { cgroup_id, cpus, kind })
}

/// Ends the partition of a cgroup whose CPUs are about to change.
pub(super) fn end_before(inputs: &Inputs<'_>, cgroup: &CgroupPath) -> Option<Step> {
    lives(inputs, cgroup).then(|| end(cgroup, "its CPUs change; it begins again when they are set"))
}

/// Puts the steps of partitions around those of workloads, and notes who is to have one and has none.
pub(super) fn frame(inputs: &Inputs<'_>, decision: &mut Decision) {
    if decision.partitions.is_empty() && *inputs.partitioned == Partitioned::default() {
        return;
    }
    let unwanted = inputs
        .partitioned
        .begun
        .iter()
        .filter(|cgroup| !decision.partitions.contains_key(*cgroup) && lives(inputs, cgroup));
    let ended: Vec<Step> = unwanted.map(|cgroup| end(cgroup, "no entry wants it any longer")).collect();
    let mut needed = Needed::new();
    let mut need = |cgroup: &CgroupPath, cpus: &CpuSet| {
        for ancestor in ancestors(cgroup) {
            needed.entry(ancestor).or_default().entry(cgroup.clone()).or_default().extend(cpus);
        }
    };
    living(inputs).for_each(|(cgroup, cpus)| need(cgroup, &cpus));
    let changed: BTreeSet<&CgroupPath> =
        decision.plan.steps.iter().map(|step| step.action.cgroup()).collect();
    let (mut narrow, mut begin) = (Vec::new(), Vec::new());
    for (cgroup, wanted) in &decision.partitions {
        let refusal = || inputs.history.partitions.refusal(cgroup);
        // Whatever was refused above: one that lives, lives.
        let reason = (!lives(inputs, cgroup)).then(refusal).flatten();
        if let Some(reason) = reason.or_else(|| taken_above(inputs, cgroup, wanted)) {
            decision.without_partition.insert(cgroup.clone(), reason);
            continue;
        }
        need(cgroup, &wanted.cpus);
        let seen = inputs.sample.cgroups.get(cgroup);
        let in_effect = !changed.contains(cgroup)
            && seen.is_some_and(|seen| seen.cpus_effective.as_ref() == Some(&wanted.cpus));
        let set = seen.and_then(|seen| seen.cpus.as_ref());
        let begins = seen.and_then(|seen| seen.partition.as_ref()).is_some_and(|it| !it.is(wanted.kind));
        if !in_effect || !begins {
            continue;
        }
        if set.is_some_and(|set| *set != wanted.cpus) {
            narrow.extend(narrowed(inputs, cgroup, wanted));
        } else if allowed_above(inputs, cgroup, wanted) {
            begin.push(Step {
                reason: format!("CPUs {} are its own, and declared to be exclusive", wanted.cpus),
                action: Action::SetPartition { cgroup: cgroup.clone(), kind: wanted.kind },
            });
        }
    }
    let mut steps = ended;
    steps.append(&mut decision.plan.steps);
    steps.append(&mut narrow);
    let (above, added) = exclusive_above(inputs, &needed);
    steps.extend(above);
    decision.added_above = added;
    steps.append(&mut begin);
    decision.plan.steps = steps;
}

/// Its cpuset names CPUs that are another partition's for now, which is how the rest came to be just what it
/// is to have: a partition would name them too.
fn narrowed(
    inputs: &Inputs<'_>,
    cgroup: &CgroupPath,
    wanted: &WantedPartition,
) -> impl Iterator<Item = Step> {
    let reason = format!("its cpuset names more than the CPUs {} that are to be exclusive", wanted.cpus);
    let action = Action::SetCpus { cgroup: cgroup.clone(), cpus: wanted.cpus.clone() };
    end_before(inputs, cgroup).into_iter().chain([Step { action, reason }])
}

/// What each cgroup above must have for which partitions below it.
type Needed = BTreeMap<CgroupPath, BTreeMap<CgroupPath, CpuSet>>;

/// What the cgroups above are set to: first less, from the bottom up, then more, from the top down; and for
/// which partition each of the latter is.
fn exclusive_above(inputs: &Inputs<'_>, needed: &Needed) -> (Vec<Step>, AddedAbove) {
    let (mut less, mut more) = (Vec::new(), Vec::new());
    let mut added = AddedAbove::new();
    let needed_in = |cgroup: &CgroupPath| needed.get(cgroup).into_iter().flatten();
    let now = |cgroup: &CgroupPath| inputs.sample.cgroups.get(cgroup)?.cpus_exclusive.as_ref();
    let all: BTreeSet<&CgroupPath> = needed.keys().chain(&inputs.partitioned.exclusive).collect();
    // What each keeps; who is beside it may have that later.
    let mut kept = BTreeMap::<&CgroupPath, CpuSet>::new();
    for cgroup in all {
        let Some(now) = now(cgroup) else { continue };
        // What it has of others' making is enough, or `taken_above` has said no.
        if !inputs.partitioned.exclusive.contains(cgroup) && !now.is_empty() {
            continue;
        }
        let all = needed_in(cgroup).fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus));
        let stays = now.intersection(&all);
        if stays != *now {
            let gone = now.difference(&stays);
            less.push(set(cgroup, &stays, format!("no partition below it has CPUs {gone} any longer")));
        }
        kept.insert(cgroup, stays);
    }
    for (cgroup, stays) in &kept {
        let beside = kept.iter().filter(|(other, _)| other != &cgroup && other.parent() == cgroup.parent());
        let taken = beside.fold(CpuSet::new(), |taken, (_, theirs)| taken.union(theirs));
        let mut has = stays.clone();
        // A refusal keeps those behind it from being tried, so who was refused before and is needed all the
        // same is last.
        let mut in_turn: Vec<_> = needed_in(cgroup).collect();
        in_turn.sort_by_key(|(partition, _)| inputs.history.partitions.refusal(partition).is_some());
        for (partition, cpus) in in_turn {
            let then = has.union(&cpus.difference(&taken));
            if then != has {
                more.push(set(cgroup, &then, format!("{partition} is to have CPUs {cpus} for itself alone")));
                added.insert(((*cgroup).clone(), then.clone()), partition.clone());
                has = then;
            }
        }
    }
    let depth = |step: &Step| step.action.cgroup().depth();
    less.sort_by_key(|step| std::cmp::Reverse(depth(step)));
    more.sort_by_key(depth);
    less.append(&mut more);
    (less, added)
}

fn set(cgroup: &CgroupPath, cpus: &CpuSet, reason: String) -> Step {
    Step { reason, action: Action::SetExclusive { cgroup: cgroup.clone(), cpus: cpus.clone() } }
}

/// Has somebody else set a cgroup above to CPUs that are not enough?
fn taken_above(inputs: &Inputs<'_>, cgroup: &CgroupPath, wanted: &WantedPartition) -> Option<String> {
    ancestors(cgroup).find_map(|ancestor| {
        let set = inputs.sample.cgroups.get(&ancestor)?.cpus_exclusive.as_ref()?;
        let others = !set.is_empty() && !inputs.partitioned.exclusive.contains(&ancestor);
        (others && !wanted.cpus.is_subset(set)).then(|| {
            format!(
                "another program has set cpuset.cpus.exclusive of {ancestor} to {set}, which lacks some of {}",
                wanted.cpus
            )
        })
    })
}

/// Do all above it allow the partition to begin, as far as was seen?
fn allowed_above(inputs: &Inputs<'_>, cgroup: &CgroupPath, wanted: &WantedPartition) -> bool {
    ancestors(cgroup).all(|ancestor| {
        let seen = inputs.sample.cgroups.get(&ancestor);
        seen.and_then(|seen| seen.cpus_exclusive.as_ref()).is_some_and(|set| wanted.cpus.is_subset(set))
    })
}

/// CPUs that partitions which we began have taken from a cgroup above them.
pub(super) fn taken_from(inputs: &Inputs<'_>, above: &CgroupPath) -> CpuSet {
    let below = living(inputs).filter(|(cgroup, _)| cgroup.is_within(above));
    below.fold(CpuSet::new(), |taken, (_, cpus)| taken.union(&cpus))
}

/// Partitions that we began and that have not ended, with all CPUs that they may have: also one that is not
/// in effect may come to be.
fn living<'a>(inputs: &Inputs<'a>) -> impl Iterator<Item = (&'a CgroupPath, CpuSet)> + use<'a> {
    let sample = inputs.sample;
    inputs.partitioned.begun.iter().filter_map(move |cgroup| {
        let seen = sample.cgroups.get(cgroup).filter(|seen| is_root_of_one(seen))?;
        let cpus = [&seen.cpus, &seen.cpus_effective].into_iter().flatten();
        Some((cgroup, cpus.fold(CpuSet::new(), |all, cpus| all.union(cpus))))
    })
}

/// Is it one of them?
fn lives(inputs: &Inputs<'_>, cgroup: &CgroupPath) -> bool {
    let begun = inputs.partitioned.begun.contains(cgroup);
    begun && inputs.sample.cgroups.get(cgroup).is_some_and(is_root_of_one)
}

fn is_root_of_one(seen: &CgroupSample) -> bool {
    seen.partition.as_ref().is_some_and(|state| state.kind != Partition::Member)
}

fn end(cgroup: &CgroupPath, why: &str) -> Step {
    Step {
        reason: format!("the partition ends: {why}"),
        action: Action::SetPartition { cgroup: cgroup.clone(), kind: Partition::Member },
    }
}

/// The cgroups above one, without the root, which has no such files.
pub(super) fn ancestors(cgroup: &CgroupPath) -> impl Iterator<Item = CgroupPath> + use<> {
    cgroup.ancestors().filter(|path| !path.is_root())
}

#[cfg(test)]
mod tests;
