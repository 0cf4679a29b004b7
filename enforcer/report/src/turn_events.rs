//! Events of pods that follow from a turn: what its report has and earlier ones did not.
//!
//! The report is the one source: findings, refusals, outcomes and added memory nodes are decided elsewhere.
//! A state that a turn repeats (a finding, a refusal, an added node) is told once. Until the pod of a
//! workload is known, what is told of it waits. A workload that is no container of a pod has no events.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    cluster::events::{EventObject, EventReason, NodeEvent},
    finding::Severity,
    plan::OutcomeResult,
    turn::{RefusalCause, Widened},
    workload::{CgroupPath, Origin, identify},
};

use crate::{tick::TickReport, view::step::step};

/// What earlier turns have told.
#[derive(Debug, Clone, Default)]
pub struct TurnEvents {
    /// States that last, by what identifies them.
    told: BTreeSet<LastingState>,
    /// Memory nodes that were added.
    widened: Widened,
}

/// A state that turns repeat until it ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum LastingState {
    /// A finding, by id.
    Finding(String),
    /// A workload that is not moved.
    Refusal(CgroupPath, RefusalCause),
    /// A container without a place, by id, and why.
    Unplaced(String, String),
}

/// Events of one turn: of each object and reason one, with all notes.
struct Told<'a> {
    pod_of: &'a dyn Fn(&str) -> Option<EventObject>,
    notes: BTreeMap<(EventObject, EventReason), Vec<String>>,
}

impl Told<'_> {
    /// Adds a note; whether the workload is of a known pod.
    fn add(&mut self, cgroup: &CgroupPath, reason: EventReason, note: String) -> bool {
        let Origin::Pod { pod_uid, .. } = identify(cgroup).origin else { return false };
        let Some(object) = (self.pod_of)(&pod_uid) else { return false };
        self.notes.entry((object, reason)).or_default().push(note);
        true
    }
}

impl TurnEvents {
    /// What a turn tells of the pods that `pod_of` finds by their uid in the kubelet.
    pub fn note(
        &mut self,
        turn: &TickReport,
        pod_of: &dyn Fn(&str) -> Option<EventObject>,
    ) -> Vec<NodeEvent> {
        let mut told = Told { pod_of, notes: BTreeMap::new() };
        let states = lasting_states(turn);
        self.told.retain(|state| states.contains_key(state));
        for (state, (cgroup, reason, note)) in states {
            if !self.told.contains(&state) && told.add(&cgroup, reason, note) {
                self.told.insert(state);
            }
        }
        for outcome in &turn.outcomes {
            if matches!(outcome.result, OutcomeResult::Applied { .. }) {
                told.add(outcome.step.action.cgroup(), EventReason::NumaCorrected, step(outcome));
            }
        }
        let widened = turn.widening.as_ref().map(|one| one.widened.clone()).unwrap_or_default();
        self.widened.retain(|cgroup, _| widened.contains_key(cgroup));
        for (cgroup, nodes) in widened {
            let had = self.widened.get(&cgroup);
            let added = had.map_or_else(|| nodes.clone(), |had| nodes.difference(had));
            let note = format!("its memory nodes were nearly full: memory of NUMA nodes {added} was added");
            if added.is_empty() || told.add(&cgroup, EventReason::NumaMemoryWidened, note) {
                self.widened.insert(cgroup, nodes);
            }
        }
        let notes = told.notes.into_iter();
        notes.map(|((object, reason), notes)| NodeEvent::new(object, reason, &notes.join("; "))).collect()
    }
}

/// The states of a turn that last, with what is told of each.
fn lasting_states(turn: &TickReport) -> BTreeMap<LastingState, (CgroupPath, EventReason, String)> {
    let mut states = BTreeMap::new();
    for finding in turn.audit.findings.iter().filter(|finding| finding.severity >= Severity::Warning) {
        let note = format!("{}: {}; {}", finding.rule, finding.summary, finding.impact);
        let told = (finding.object.clone(), EventReason::NumaMisaligned, note);
        states.insert(LastingState::Finding(finding.id.clone()), told);
    }
    for one in turn.decision.refused.iter().filter(|one| is_lasting(one.cause)) {
        let told = (one.workload.clone(), EventReason::NumaPlacementRefused, one.reason.clone());
        states.insert(LastingState::Refusal(one.workload.clone(), one.cause), told);
    }
    let unplaced = turn.runtime.as_ref().map(|runtime| &runtime.unplaced).filter(|all| !all.is_empty());
    if let Some(unplaced) = unplaced {
        for workload in &turn.audit.workloads {
            let Origin::Pod { container_id: Some(id), .. } = &workload.origin else { continue };
            if let Some(reason) = unplaced.get(id) {
                let told = (workload.cgroup.clone(), EventReason::NumaPlacementRefused, reason.clone());
                states.insert(LastingState::Unplaced(id.clone(), reason.clone()), told);
            }
        }
    }
    states
}

/// Whether a refusal stays until the node or the configuration changes. The others are of one turn, or of a
/// host that leaves no choice.
const fn is_lasting(cause: RefusalCause) -> bool {
    match cause {
        RefusalCause::NoPlace
        | RefusalCause::Drift
        | RefusalCause::OtherOwner
        | RefusalCause::AboveTooNarrow
        | RefusalCause::NoController
        | RefusalCause::PinnedToIsolated
        | RefusalCause::SelfPlacement => true,
        RefusalCause::OneNode | RefusalCause::NotSeen | RefusalCause::CoolDown => false,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test")]
mod tests {
    use enforcer_core::{
        audit::{Audit, AuditedWorkload},
        finding::Rule,
        plan::{Action, Outcome, Step},
        turn::Refusal,
    };

    use super::*;
    use crate::{fixture, runtime::RuntimeReport, widening::WideningReport};

    const UID: &str = "8b1fbf4c-1e1b-4a65-9f0a-6e3c1a8b7d10";
    const ID: &str = "7f0c5c1d7d0b4f5d9c3f8a0c7e6d5b4a39281706f5e4d3c2b1a0918273645546";

    fn container() -> CgroupPath {
        let pod = UID.replace('-', "_");
        CgroupPath::new(&format!("/kubepods.slice/kubepods-pod{pod}.slice/cri-containerd-{ID}.scope"))
    }

    fn of_pod() -> AuditedWorkload {
        let cgroup = container();
        let origin = identify(&cgroup).origin;
        assert!(matches!(&origin, Origin::Pod { pod_uid, .. } if pod_uid == UID), "{origin:?}");
        AuditedWorkload { cgroup, origin, ..fixture::workload("web", "4-7", "1", &[]) }
    }

    /// A turn without anything, of one container of a pod.
    fn turn() -> TickReport {
        let audit = Audit { workloads: vec![of_pod()], findings: Vec::new(), ..fixture::small() };
        fixture::turn(audit)
    }

    fn known(uid: &str) -> Option<EventObject> {
        let [namespace, name] = ["shop", "web"].map(str::to_owned);
        (uid == UID).then(|| EventObject::Pod { namespace, name, uid: uid.to_owned() })
    }

    fn told(events: &mut TurnEvents, turn: &TickReport) -> Vec<(EventReason, String)> {
        events.note(turn, &known).into_iter().map(|event| (event.reason, event.note)).collect()
    }

    #[test]
    fn findings_are_told_when_they_come_and_again_when_they_return() {
        let mut misaligned = turn();
        misaligned.audit.findings = [
            (Rule::RemoteResidency, Severity::Critical),
            (Rule::ThreadAffinity, Severity::Info),
            (Rule::SpansNodes, Severity::Warning),
        ]
        .map(|(rule, severity)| fixture::finding(&mut of_pod(), rule, severity))
        .into();
        let mut events = TurnEvents::default();
        let first = told(&mut events, &misaligned);
        let [(EventReason::NumaMisaligned, note)] = first.as_slice() else { panic!("{first:?}") };
        assert!(note.contains("remote-residency: 99% of its memory is on node 0"), "{note}");
        assert!(note.contains("; spans-nodes: ") && !note.contains("thread-affinity"), "{note}");
        assert_eq!(told(&mut events, &misaligned), [], "it is known");
        assert_eq!(told(&mut events, &turn()), []);
        assert_eq!(told(&mut events, &misaligned).len(), 1);
    }

    #[test]
    fn finding_waits_until_its_pod_is_known_and_units_have_no_events() {
        let mut misaligned = turn();
        let finding = fixture::finding(&mut of_pod(), Rule::RemoteResidency, Severity::Critical);
        misaligned.audit.findings = vec![finding];
        let mut unit = fixture::workload("db.service", "4-7", "1", &[]);
        misaligned.audit.findings.push(fixture::finding(&mut unit, Rule::Drift, Severity::Critical));
        let mut events = TurnEvents::default();
        assert_eq!(events.note(&misaligned, &|_| None), []);
        assert_eq!(told(&mut events, &misaligned).len(), 1);
    }

    #[test]
    fn applied_steps_are_told_and_dry_runs_are_not() {
        let action = Action::SetCpus { cgroup: container(), cpus: "4-7".parse().unwrap() };
        let step = Step { action, reason: "its memory is on node 1".into() };
        let with = |result: OutcomeResult| {
            let mut one = turn();
            one.outcomes = vec![Outcome { step: step.clone(), result }];
            one
        };
        let mut events = TurnEvents::default();
        assert_eq!(told(&mut events, &with(OutcomeResult::DryRun)), []);
        let applied = with(OutcomeResult::Applied { read_back: "4-7".into() });
        let note = "set-cpus 4-7: applied, is 4-7; planned because its memory is on node 1".to_owned();
        for _ in 0..2 {
            assert_eq!(told(&mut events, &applied), [(EventReason::NumaCorrected, note.clone())]);
        }
    }

    #[test]
    fn refusals_that_last_are_told_once_with_their_reason() {
        let refusal = |cause| Refusal { workload: container(), cause, reason: format!("{cause:?}") };
        let mut refused = turn();
        refused.decision.refused = vec![refusal(RefusalCause::CoolDown), refusal(RefusalCause::NoPlace)];
        let unplaced = [(ID.to_owned(), "no room".to_owned()), ("unknown".to_owned(), "no room".to_owned())];
        refused.runtime = Some(RuntimeReport { unplaced: unplaced.into(), ..RuntimeReport::default() });
        let mut events = TurnEvents::default();
        let expected = (EventReason::NumaPlacementRefused, "NoPlace; no room".to_owned());
        assert_eq!(told(&mut events, &refused), [expected]);
        assert_eq!(told(&mut events, &refused), []);
    }

    #[test]
    fn each_added_memory_node_is_told() {
        let widened = |nodes: &str| {
            let widened = BTreeMap::from([(container(), nodes.parse().unwrap())]);
            TickReport { widening: Some(WideningReport { widened, ..WideningReport::default() }), ..turn() }
        };
        let mut events = TurnEvents::default();
        let notes = |told: Vec<(EventReason, String)>| {
            assert!(told.iter().all(|(reason, _)| *reason == EventReason::NumaMemoryWidened));
            told.into_iter().map(|(_, note)| note).collect::<Vec<_>>().concat()
        };
        assert!(notes(told(&mut events, &widened("0"))).ends_with("memory of NUMA nodes 0 was added"));
        assert_eq!(notes(told(&mut events, &widened("0"))), "");
        assert!(notes(told(&mut events, &widened("0,2"))).contains("NUMA nodes 2 was"));
        assert_eq!(notes(told(&mut events, &widened("0"))), "", "one was given back");
        assert!(!notes(told(&mut events, &widened("0,2"))).is_empty());
        assert_eq!(notes(told(&mut events, &turn())), "");
    }
}
