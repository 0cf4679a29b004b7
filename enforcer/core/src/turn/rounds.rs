//! The decision of a turn, in rounds until no write changes what processes have set themselves.
//!
//! Problem: which processes have set policies and pins of their own is known only after their workload has a
//! target, and reading them is slow. Idea: a round decides, then asks about the writes of its plan
//! ([`SelfPlacedAnswers`]). If a write would change a setting, the next round decides with that workload
//! fixed, so that no other workload is promised its CPUs. After [`MOST_ROUNDS`] such workloads are taken out
//! of the plan.
//!
//! Invariants: grants are not borrowed while processes are read; of discarded rounds only the answers stay.

use std::collections::BTreeMap;

use super::{Decision, Inputs, SelfPlacedAnswers, SelfPlacedWorkloads, TurnLimits, TurnOutput, decide_once};
use crate::{decide::cpuset_writes, hosted::Containers, self_placement::CpusetWrites, workload::CgroupPath};
use numa_placement::Allocations;
use numa_topology::{degraded::Degraded, set::NodeSet};

/// Most decisions in one turn; workloads found after the last are taken out of the plan.
const MOST_ROUNDS: usize = 5;

/// What the rounds of a turn read and keep.
pub trait TurnHost {
    /// Lets `decide` decide from the present containers and allocations, and returns its decision. Keeps the
    /// allocations that come with it; the former ones stay for `None`, because another round follows.
    fn with_grants<T>(
        &mut self,
        decide: impl FnOnce(&Containers, &Allocations) -> (T, Option<Allocations>),
    ) -> T;

    /// Why these writes would change what processes of cgroups that `respects` accepts have set, and which
    /// processes could not be read.
    fn read_self_placed(
        &mut self,
        writes: &BTreeMap<CgroupPath, CpusetWrites>,
        respects: &dyn Fn(&CgroupPath) -> bool,
    ) -> (SelfPlacedWorkloads, Option<Degraded>);

    /// Records the last round's output, and the workloads that were `fixed` in it.
    fn note(&mut self, fixed: &SelfPlacedWorkloads, output: &TurnOutput);
}

/// Decides a turn. The containers of `inputs` and their self-placed workloads are replaced by those of `host`
/// and of `answers`.
pub fn decide_turn(
    inputs: &Inputs<'_>,
    limits: TurnLimits,
    answers: &mut SelfPlacedAnswers,
    host: &mut impl TurnHost,
) -> TurnOutput {
    let now_ns = inputs.now_ns;
    answers.prune(inputs.sample, now_ns);
    let mut fixed = answers.fixed(now_ns);
    let mut number = 1;
    loop {
        let (round, is_last) = host.with_grants(|containers, allocations| {
            let inputs = Inputs { containers, self_placed: &fixed, ..*inputs };
            let mut tried = allocations.clone();
            let round = Round::decide(&inputs, limits, answers, &mut tried);
            let is_last = number == MOST_ROUNDS || round.is_settled(answers);
            ((round, is_last), is_last.then_some(tried))
        });
        let Round { mut output, writes, questions } = round;
        if is_last {
            host.note(&fixed, &output);
            answers.ask(host, inputs, &output.decision, questions);
            let mut found = answers.found(&writes);
            found.retain(|cgroup, _| !output.decision.in_place.contains(cgroup));
            output.decision.leave_self_placed(&found);
            return output;
        }
        answers.ask(host, inputs, &output.decision, questions);
        let more = staying(&output.decision, &writes, answers);
        fixed.extend(answers.fixed(now_ns));
        fixed.extend(more);
        number += 1;
    }
}

/// One decision, and what it depends on.
struct Round {
    output: TurnOutput,
    writes: BTreeMap<CgroupPath, CpusetWrites>,
    /// Writes of which the answers do not know whether they change a setting.
    questions: BTreeMap<CgroupPath, CpusetWrites>,
}

impl Round {
    fn decide(
        inputs: &Inputs<'_>,
        limits: TurnLimits,
        answers: &SelfPlacedAnswers,
        allocations: &mut Allocations,
    ) -> Self {
        let output = decide_once(inputs, allocations, limits);
        let mut writes = rebalance_writes(&output);
        writes.extend(cpuset_writes(&output.decision.plan));
        let questions = answers.questions(&output.decision, &writes, inputs.now_ns, limits.may_begin);
        Self { output, writes, questions }
    }

    /// Is nothing left to ask, and does no known setting keep a workload in place?
    fn is_settled(&self, answers: &SelfPlacedAnswers) -> bool {
        self.questions.is_empty() && staying(&self.output.decision, &self.writes, answers).is_empty()
    }
}

/// Workloads that these writes must leave in place, by the answers.
fn staying(
    decision: &Decision,
    writes: &BTreeMap<CgroupPath, CpusetWrites>,
    answers: &SelfPlacedAnswers,
) -> SelfPlacedWorkloads {
    decision.left_because(&answers.found(writes), writes)
}

/// Writes of planned moves to a better place.
fn rebalance_writes(output: &TurnOutput) -> BTreeMap<CgroupPath, CpusetWrites> {
    let planned = output.rebalanced.iter().flat_map(|(turn, _)| &turn.report.moves);
    let writes = planned.map(|one| {
        let cpus = one.cpus_to.iter().map(|cpus| cpus.exclusive.clone());
        let from: NodeSet = one.bytes_from.keys().copied().collect();
        let writes = CpusetWrites {
            cpus: cpus.filter(|cpus| !cpus.is_empty()).collect(),
            mems: Vec::new(),
            moves: vec![(from, one.to)],
        };
        (one.workload.clone(), writes)
    });
    writes.collect()
}
