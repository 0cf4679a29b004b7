//! Cached answers: would a write change what processes of a cgroup have set themselves?
//!
//! Problem: reading the policies of a process walks its page tables with its mmap lock held, and a plan that
//! is not carried out is the same next turn. Idea: answers are kept by cgroup, cgroup id, cpuset and intended
//! write, for [`ANSWER_LASTS_NS`]; only imminent writes are read anew.
//!
//! Invariant: an answer about another cpuset than the present one never counts.

use std::collections::BTreeMap;

use super::{Decision, Inputs, SelfPlacedWorkloads, rounds::TurnHost};
use crate::{sample::Sample, self_placement::CpusetWrites, workload::CgroupPath};
use numa_topology::{
    degraded::Degraded,
    set::{CpuSet, NodeSet},
};

/// Time for which an answer counts, in nanoseconds.
pub const ANSWER_LASTS_NS: u64 = 300_000_000_000;

/// Cached answers about cgroups that a plan would write.
#[derive(Debug, Default)]
pub struct SelfPlacedAnswers(BTreeMap<CgroupPath, CachedAnswer>);

#[derive(Debug)]
struct CachedAnswer {
    cgroup_id: Option<u64>,
    /// Effective CPUs and memory nodes at the look: a write of another program, or of an answer to the
    /// runtime, may have taken what the processes had set.
    cpuset: (Option<CpuSet>, Option<NodeSet>),
    writes: CpusetWrites,
    at_ns: u64,
    /// Placements that the writes would change.
    found: SelfPlacedWorkloads,
    /// The workload's part that stays because of that.
    fixed: SelfPlacedWorkloads,
    unseen: Option<Degraded>,
}

impl SelfPlacedAnswers {
    /// Processes that could not be read, one entry for each cgroup.
    pub fn unseen(&self) -> impl Iterator<Item = &Degraded> {
        self.0.values().filter_map(|answer| answer.unseen.as_ref())
    }

    /// Forgets ended cgroups, expired answers, and answers about another cpuset than the present one.
    pub(super) fn prune(&mut self, sample: &Sample, now_ns: u64) {
        self.0.retain(|cgroup, answer| {
            let Some(now) = sample.cgroups.get(cgroup) else { return false };
            let (cpus, mems) = &answer.cpuset;
            let is_same = sample.cgroup_id(cgroup) == answer.cgroup_id
                && (&now.cpus_effective, &now.mems_effective) == (cpus, mems);
            is_same && (!answer.found.is_empty() || answer.counts(now_ns))
        });
    }

    /// Workloads that stay, by the valid answers.
    pub(super) fn fixed(&self, now_ns: u64) -> SelfPlacedWorkloads {
        let count = self.0.values().filter(|answer| answer.counts(now_ns));
        count.flat_map(|answer| answer.fixed.clone()).collect()
    }

    /// Writes to read processes for. A finding is valid for a time. An empty answer is valid only for writes
    /// that no step is `about_to` make.
    pub(super) fn questions(
        &self,
        decision: &Decision,
        writes: &BTreeMap<CgroupPath, CpusetWrites>,
        now_ns: u64,
        about_to: bool,
    ) -> BTreeMap<CgroupPath, CpusetWrites> {
        let known = |cgroup: &CgroupPath, writes: &CpusetWrites| {
            self.0.get(cgroup).is_some_and(|answer| {
                let lasts = !about_to || !answer.found.is_empty();
                answer.writes == *writes && (answer.at_ns == now_ns || (lasts && answer.counts(now_ns)))
            })
        };
        let new = writes.iter().filter(|(cgroup, writes)| !known(cgroup, writes));
        // A workload that stayed until now may find no other place: repeat the former question about it.
        let due = self.0.iter().filter(|(cgroup, answer)| {
            !answer.counts(now_ns) && !writes.contains_key(*cgroup) && !decision.in_place.contains(cgroup)
        });
        let due = due.map(|(cgroup, answer)| (cgroup.clone(), answer.writes.clone()));
        new.map(|(cgroup, writes)| (cgroup.clone(), writes.clone())).chain(due).collect()
    }

    /// Has `host` read the processes for these writes, and keeps the answers.
    pub(super) fn ask(
        &mut self,
        host: &mut impl TurnHost,
        inputs: &Inputs<'_>,
        decision: &Decision,
        questions: BTreeMap<CgroupPath, CpusetWrites>,
    ) {
        let Inputs { policy, declarations, now_ns: at_ns, sample, .. } = *inputs;
        let respects = |cgroup: &CgroupPath| declarations.respects_self_placement(policy, cgroup);
        for (cgroup, writes) in questions {
            let one = BTreeMap::from([(cgroup.clone(), writes.clone())]);
            let (found, unseen) = host.read_self_placed(&one, &respects);
            let mut fixed = decision.left_because(&found, &one);
            if let Some(before) = self.0.get(&cgroup).filter(|_| fixed.is_empty() && !found.is_empty()) {
                fixed.clone_from(&before.fixed);
            }
            let cgroup_id = sample.cgroup_id(&cgroup);
            let now = sample.cgroups.get(&cgroup);
            let cpuset =
                now.map(|now| (now.cpus_effective.clone(), now.mems_effective.clone())).unwrap_or_default();
            self.0.insert(cgroup, CachedAnswer { cgroup_id, cpuset, writes, at_ns, found, fixed, unseen });
        }
    }

    /// Findings about these writes.
    pub(super) fn found(&self, writes: &BTreeMap<CgroupPath, CpusetWrites>) -> SelfPlacedWorkloads {
        let answers = writes.iter().filter_map(|(cgroup, writes)| {
            self.0.get(cgroup).filter(|answer| answer.writes == *writes).map(|answer| answer.found.clone())
        });
        answers.flatten().collect()
    }
}

impl CachedAnswer {
    fn counts(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.at_ns) < ANSWER_LASTS_NS
    }
}
