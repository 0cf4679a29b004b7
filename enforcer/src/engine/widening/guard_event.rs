//! Events of a guarded workload, for the log, for `explain` and for counts.

use enforcer_core::{
    named::Named as _,
    plan::{Action, Outcome, OutcomeResult, Step},
    widening::{NodeSetHeadroom, PressureLevel, ReleaseReason, WideningRefusal},
    workload::{CgroupPath, Workload},
};
use numa_topology::set::NodeSet;

use crate::engine::decisions::{entry, subject};
use enforcer_report::decision::{DecisionRecord, DecisionState, DecisionSubject};

/// Source of these decisions in the decision log.
pub(super) const BY: &str = "memory";

/// An event of a guarded workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct GuardEvent {
    /// The workload's cgroup.
    pub(in crate::engine) cgroup: CgroupPath,
    pub(super) what: Happened,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Happened {
    /// A node was added, or the write failed.
    Widened(Addition),
    /// No node was added.
    Refused { sight: NodeSetHeadroom, refusal: WideningRefusal, bound: Option<String> },
    /// A process of the workload was killed.
    Killed { by_limit: bool },
    /// The workload was slowed down until now.
    Slowed { set: String, lasted_ns: u64, why: ReleaseReason, result: Result<(), String> },
    /// The workload should have been slowed down and was not.
    NotSlowed { why: String },
}

/// A node that was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Addition {
    pub(super) stage: PressureLevel,
    pub(super) sight: NodeSetHeadroom,
    /// Memory nodes before and after the write.
    pub(super) before: NodeSet,
    pub(super) mems: NodeSet,
    /// Ancestors that were written first, in words.
    pub(super) above: String,
    pub(super) result: Result<(), String>,
}

impl GuardEvent {
    /// The event in one sentence.
    pub(super) fn sentence(&self) -> String {
        match &self.what {
            Happened::Widened(Addition { stage, sight, before, mems, above, .. }) => {
                format!("memory nodes {before} become {mems}{above}: {sight} ({})", stage.name())
            }
            Happened::Refused { sight, refusal, bound } => {
                let why = match refusal {
                    WideningRefusal::Strict => "it is declared to stay on its memory nodes".to_owned(),
                    WideningRefusal::MemoryLimit => {
                        "its own memory limit ends its growth first (reason=memcg_limit)".to_owned()
                    }
                    WideningRefusal::NoNode => match bound {
                        Some(bound) => format!("no node that it may have has room: {bound}"),
                        None => "no node that it may have has room".to_owned(),
                    },
                };
                format!("its memory nodes are nearly full ({sight}), and none is added: {why}")
            }
            Happened::Slowed { set, lasted_ns, why, .. } => {
                let (ms, why) = (lasted_ns / 1_000_000, why.words());
                format!("it filled its memory nodes faster than one is added, and was slowed down ({set}) for {ms} ms, until {why}")
            }
            Happened::NotSlowed { why } => {
                format!("it fills its memory nodes faster than one is added, and is not slowed down: {why}")
            }
            Happened::Killed { by_limit: true } => {
                "the OOM killer acted because of its own memory limit (reason=memcg_limit): its memory nodes are left alone"
                    .to_owned()
            }
            Happened::Killed { by_limit: false } => {
                "the OOM killer acted because its memory nodes were full".to_owned()
            }
        }
    }

    /// Writes the event to the log.
    pub(super) fn log(&self) {
        let (cgroup, sentence) = (&self.cgroup, self.sentence());
        match &self.what {
            Happened::Widened(Addition { result: Err(error), .. }) => {
                tracing::error!("{cgroup}: {sentence}: {error}");
            }
            Happened::Slowed { result: Err(error), .. } => {
                tracing::error!("{cgroup}: {sentence}; its end could not be written by the daemon: {error}");
            }
            Happened::Killed { by_limit: true } | Happened::Widened(_) | Happened::Slowed { .. } => {
                tracing::info!("{cgroup}: {sentence}");
            }
            _ => tracing::warn!("{cgroup}: {sentence}"),
        }
    }

    /// The event as a decision.
    pub(in crate::engine) fn record(&self, workload: &Workload) -> (DecisionSubject, DecisionRecord) {
        let reason = self.sentence();
        let record = match &self.what {
            Happened::Widened(Addition { mems, result, .. }) => {
                let action = Action::SetMems { cgroup: self.cgroup.clone(), mems: mems.clone() };
                let result = match result {
                    Ok(()) => OutcomeResult::Applied { read_back: mems.to_string() },
                    Err(error) => OutcomeResult::Failed { error: error.clone() },
                };
                let outcomes = vec![Outcome { step: Step { action, reason: reason.clone() }, result }];
                let state = DecisionState::of(&outcomes);
                DecisionRecord { reason, outcomes, ..entry(BY, state) }
            }
            Happened::Slowed { .. } => DecisionRecord { reason, ..entry(BY, DecisionState::Changed) },
            Happened::Refused { .. } | Happened::Killed { .. } | Happened::NotSlowed { .. } => {
                DecisionRecord { reason, ..entry(BY, DecisionState::Refused) }
            }
        };
        (subject(workload), record)
    }
}
