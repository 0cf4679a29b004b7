//! Events of pods that follow from a turn: what its report has and earlier ones did not.
//!
//! The report is the one source: findings, refusals, outcomes and added memory nodes are decided elsewhere.
//! A state that a turn repeats (a finding, a refusal, an added node) is told once: it counts as told when its
//! event was accepted, and until then each turn tries again. So it also waits until the pod of its workload
//! is known. A correction happens once and waits for nothing: without a known pod, or beyond the rate, it is
//! counted as dropped. A workload that is no container of a pod has no events.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    cluster::events::{EventObject, EventReason, NodeEvent},
    finding::Severity,
    plan::{Outcome, OutcomeResult},
    turn::{RefusalCause, Widened},
    workload::{CgroupPath, Origin, identify},
};
use numa_topology::set::NodeSet;

use crate::{tick::TickReport, view::step::step};

/// What earlier turns have told.
#[derive(Debug, Clone, Default)]
pub struct TurnEvents {
    /// States that last, by what identifies them.
    told: BTreeSet<LastingState>,
    /// States whose event was not accepted yet.
    waiting: BTreeSet<LastingState>,
    /// Memory nodes that were added and told of.
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
    /// A workload with added memory nodes.
    Widening(CgroupPath),
}

/// What one event of a turn tells.
#[derive(Debug, Default)]
struct ToldChanges {
    notes: Vec<String>,
    /// States that count as told when the event is accepted.
    states: Vec<LastingState>,
    /// The same for memory nodes.
    widened: Vec<(CgroupPath, NodeSet)>,
    /// Whether the event also tells what no later turn repeats.
    has_correction: bool,
}

/// Where an event of a workload goes.
enum WorkloadPod {
    Known(EventObject),
    /// A pod that the API server has not told of.
    Unknown,
    /// No container of a pod.
    None,
}

/// Events of one turn: of each object and reason one.
struct ChangesByObject<'a> {
    pod_of: &'a dyn Fn(&str) -> Option<EventObject>,
    events: BTreeMap<(EventObject, EventReason), ToldChanges>,
}

impl ChangesByObject<'_> {
    /// Where to add a note about a lasting state, if the workload is of a known pod.
    fn event(&mut self, cgroup: &CgroupPath, reason: EventReason) -> Option<&mut ToldChanges> {
        match self.pod(cgroup) {
            WorkloadPod::Known(object) => Some(self.events.entry((object, reason)).or_default()),
            WorkloadPod::Unknown | WorkloadPod::None => None,
        }
    }

    fn pod(&self, cgroup: &CgroupPath) -> WorkloadPod {
        let Origin::Pod { pod_uid, .. } = identify(cgroup).origin else { return WorkloadPod::None };
        (self.pod_of)(&pod_uid).map_or(WorkloadPod::Unknown, WorkloadPod::Known)
    }
}

/// What a step has changed, for an event.
pub fn correction(outcome: &Outcome) -> String {
    step(outcome)
}

impl TurnEvents {
    /// Offers to `accept` what a turn tells of the pods that `pod_of` finds by their uid in the kubelet. The
    /// number of events that are dropped: no later turn offers them again.
    pub fn note(
        &mut self,
        turn: &TickReport,
        pod_of: &dyn Fn(&str) -> Option<EventObject>,
        accept: &mut dyn FnMut(NodeEvent) -> bool,
    ) -> u64 {
        let mut changes = ChangesByObject { pod_of, events: BTreeMap::new() };
        let states = lasting_states(turn);
        let widened = turn.widening.as_ref().map(|one| one.widened.clone()).unwrap_or_default();
        let mut dropped = self.forget_ended(&states, &widened);
        for (state, (cgroup, reason, note)) in states {
            if self.told.contains(&state) {
                continue;
            }
            if let Some(event) = changes.event(&cgroup, reason) {
                event.notes.push(note);
                event.states.push(state);
            }
        }
        for outcome in &turn.outcomes {
            if !matches!(outcome.result, OutcomeResult::Applied { .. }) {
                continue;
            }
            match changes.pod(outcome.step.action.cgroup()) {
                WorkloadPod::Known(object) => {
                    let event = changes.events.entry((object, EventReason::NumaCorrected)).or_default();
                    event.notes.push(step(outcome));
                    event.has_correction = true;
                }
                WorkloadPod::Unknown => dropped += 1,
                WorkloadPod::None => {}
            }
        }
        for (cgroup, nodes) in widened {
            let had = self.widened.get(&cgroup);
            let added = had.map_or_else(|| nodes.clone(), |had| nodes.difference(had));
            if added.is_empty() {
                dropped += u64::from(self.waiting.remove(&LastingState::Widening(cgroup.clone())));
                self.widened.insert(cgroup, nodes);
            } else if let Some(event) = changes.event(&cgroup, EventReason::NumaMemoryWidened) {
                let note =
                    format!("its memory nodes were nearly full: memory of NUMA nodes {added} was added");
                event.notes.push(note);
                event.states.push(LastingState::Widening(cgroup.clone()));
                event.widened.push((cgroup, nodes));
            }
        }
        for ((object, reason), changes) in changes.events {
            let is_accepted = accept(NodeEvent::new(object, reason, &changes.notes.join("; ")));
            dropped += u64::from(!is_accepted && changes.has_correction);
            self.keep(changes, is_accepted);
        }
        dropped
    }

    /// Forgets what the turn has no longer; how many states ended before their event was accepted.
    fn forget_ended(
        &mut self,
        states: &BTreeMap<LastingState, (CgroupPath, EventReason, String)>,
        widened: &Widened,
    ) -> u64 {
        let lasts = |state: &LastingState| match state {
            LastingState::Widening(cgroup) => widened.contains_key(cgroup),
            _ => states.contains_key(state),
        };
        let waited = self.waiting.len();
        self.waiting.retain(lasts);
        self.told.retain(lasts);
        self.widened.retain(|cgroup, _| widened.contains_key(cgroup));
        (waited - self.waiting.len()) as u64
    }

    /// Keeps what an event told, or that it has to be told yet.
    fn keep(&mut self, changes: ToldChanges, is_accepted: bool) {
        if is_accepted {
            self.widened.extend(changes.widened);
            for state in changes.states {
                self.waiting.remove(&state);
                self.told.insert(state);
            }
        } else {
            self.waiting.extend(changes.states);
        }
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
mod tests {
    use std::time::Duration;

    use enforcer_core::{
        audit::{Audit, AuditedWorkload},
        cluster::events::{EventLimits, EventLog, NotedEvent},
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
        let mut told = Vec::new();
        let mut accept = |event: NodeEvent| {
            told.push((event.reason, event.note));
            true
        };
        assert_eq!(events.note(turn, &known, &mut accept), 0);
        told
    }

    /// A turn in which each of these pods has a finding.
    fn misaligned(pods: usize) -> TickReport {
        let of_pod = |n: usize| {
            let uid = format!("8b1fbf4c_1e1b_4a65_9f0a_6e3c1a8b{n:04x}");
            let path = format!("/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{ID}.scope");
            let cgroup = CgroupPath::new(&path);
            let origin = identify(&cgroup).origin;
            AuditedWorkload { cgroup, origin, ..fixture::workload("web", "4-7", "1", &[]) }
        };
        let finding = |n| fixture::finding(&mut of_pod(n), Rule::RemoteResidency, Severity::Critical);
        let mut turn = turn();
        turn.audit.findings = (0..pods).map(finding).collect();
        turn
    }

    #[expect(clippy::unnecessary_wraps, reason = "the signature of the callers' lookup")]
    fn any_pod(uid: &str) -> Option<EventObject> {
        Some(EventObject::Pod { namespace: "shop".to_owned(), name: uid.to_owned(), uid: uid.to_owned() })
    }

    #[test]
    fn each_pod_gets_its_event_when_the_rate_allows_it() {
        let turn = misaligned(40);
        let (mut events, mut log) = (TurnEvents::default(), EventLog::new(EventLimits::default()));
        let mut named = Vec::new();
        for at in 0..1_000 {
            let mut accept = |event: NodeEvent| {
                match log.note(event, Duration::from_secs(at), 0, true) {
                    NotedEvent::Write(call) => named.push((call.event.object, call.count)),
                    NotedEvent::Joined => {}
                    NotedEvent::Refused => return false,
                }
                true
            };
            assert_eq!(events.note(&turn, &any_pod, &mut accept), 0);
        }
        named.sort();
        named.dedup();
        assert_eq!(named.len(), 40);
        assert!(named.iter().all(|(_, count)| *count == 1), "each is told once");
    }

    #[test]
    fn state_that_ends_before_its_event_is_accepted_is_dropped() {
        let mut events = TurnEvents::default();
        let widened = BTreeMap::from([(container(), "1".parse().unwrap())]);
        let widening = Some(WideningReport { widened, ..WideningReport::default() });
        let full = TickReport { widening, ..misaligned(3) };
        let mut offered = 0;
        for _ in 0..2 {
            let mut refuse = |_| {
                offered += 1;
                false
            };
            assert_eq!(events.note(&full, &any_pod, &mut refuse), 0);
        }
        assert_eq!(offered, 2 * 4, "each turn tries again");
        assert_eq!(events.note(&misaligned(1), &any_pod, &mut |_| true), 3);
        assert_eq!(events.note(&turn(), &any_pod, &mut |_| true), 0);
    }

    #[test]
    fn correction_that_is_not_told_is_counted() {
        let action = |cgroup| Action::SetCpus { cgroup, cpus: "4-7".parse().unwrap() };
        let applied = |cgroup| Outcome {
            step: Step { action: action(cgroup), reason: "its memory is on node 1".into() },
            result: OutcomeResult::Applied { read_back: "4-7".into() },
        };
        let mut corrected = turn();
        corrected.outcomes = vec![applied(container()), applied(CgroupPath::new("/system.slice/db.service"))];
        let mut events = TurnEvents::default();
        assert_eq!(events.note(&corrected, &|_| None, &mut |_| true), 1, "its pod is not known");
        assert_eq!(events.note(&corrected, &known, &mut |_| false), 1, "beyond the rate");
        assert_eq!(events.note(&corrected, &known, &mut |_| true), 0);
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
        assert_eq!(events.note(&misaligned, &|_| None, &mut |event| panic!("{event:?}")), 0);
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
