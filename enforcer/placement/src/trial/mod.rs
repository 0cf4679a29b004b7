//! Trial run: plays pod events on a simulated machine and reports what each pod would get.
//!
//! Problem: before people use a policy, they want to see its effect step by step, with every change for other
//! pods. Idea: play the steps on one [`Allocations`] with the functions that the daemon uses, and report
//! after each step. Nothing is placed here.
//!
//! Terminology: a *step* creates, resizes or deletes one pod, or ends its cold start. After a step its pod
//! has started: the resources of its init containers are released, so their rows in the report show what they
//! had while they ran. A rejected pod leaves no trace, and the next steps follow.
//!
//! Cost: that of placing; for a pod with init containers also a pass over every holder.

mod report;

use std::collections::{BTreeMap, BTreeSet};

pub use self::report::{
    ContainerReport, MoveReport, PLAN_SCHEMA_VERSION, PlanReport, PlannedClaim, PlannedDevice, SeatReport,
    StepKind, StepReport, UpdateReport,
};
use crate::{
    Admission, Allocations, ContainerKind, Holder, Inventory, PodName, PodRequest, QosClass, Rejection,
    RejectionProblem, RejectionReason, Trace, Update, admit_traced, finish_cold_start,
    rejection::ResizeProblem, remove, resize_traced, settings::PlacementSettings, unspill, what_if,
};
use numa_topology::set::{CpuSet, NodeSet};

/// Maximum number of rejected pods for which the trial searches moves of other containers that would make
/// room. One search costs as much as hundreds of placements.
const WHAT_IF_LIMIT: u32 = 32;

/// One step of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialStep {
    /// The action.
    pub action: TrialAction,
    /// Warnings from reading the step, such as fields of a manifest that are ignored here.
    pub warnings: Vec<String>,
}

/// Action of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum TrialAction {
    /// Creates a pod.
    Create(PodRequest),
    /// Changes the amounts that a running pod requests.
    Resize(PodRequest),
    /// Deletes a pod.
    Delete(PodName),
    /// Ends the cold start of a pod's containers on slow memory.
    Warm(PodName),
}

/// A machine, a policy, and the allocations so far.
#[derive(Debug)]
pub struct Trial<'a> {
    inventory: &'a Inventory,
    settings: &'a PlacementSettings,
    allocations: Allocations,
    explain: bool,
    done: u32,
    rejected: u32,
    /// QoS class and container names of each running pod, which no resize may change.
    running: BTreeMap<PodName, (QosClass, BTreeSet<String>)>,
    /// Warnings about the settings that have been reported already.
    said: BTreeSet<String>,
}

/// Plays all steps on an empty machine.
pub fn run(
    inventory: &Inventory,
    settings: &PlacementSettings,
    steps: &[TrialStep],
    explain: bool,
) -> PlanReport {
    let mut trial = Trial::new(inventory, settings, explain);
    let steps = steps.iter().map(|step| trial.step(step)).collect();
    PlanReport { schema_version: PLAN_SCHEMA_VERSION, steps }
}

impl<'a> Trial<'a> {
    /// A trial on an empty machine; `explain` adds the candidates to the report.
    pub fn new(inventory: &'a Inventory, settings: &'a PlacementSettings, explain: bool) -> Self {
        let (allocations, said) = (Allocations::default(), BTreeSet::new());
        let running = BTreeMap::new();
        Self { inventory, settings, allocations, explain, done: 0, rejected: 0, running, said }
    }

    /// Current allocations.
    pub const fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// Plays one step.
    pub fn step(&mut self, step: &TrialStep) -> StepReport {
        self.done = self.done.saturating_add(1);
        let mut trace = if self.explain { Trace::wanted() } else { Trace::default() };
        step.warnings.iter().for_each(|warning| trace.warn(warning.clone()));
        match &step.action {
            TrialAction::Create(pod) => {
                let before = has_init(pod).then(|| PinnedHolders::of_others(&self.allocations, &pod.name));
                let outcome =
                    admit_traced(self.inventory, self.settings, &mut self.allocations, pod, &mut trace);
                if outcome.is_ok() {
                    self.running.insert(pod.name.clone(), lasting(pod));
                }
                self.report(StepKind::Create, pod, before, outcome, trace)
            }
            TrialAction::Resize(whole) => {
                // The init containers have ended, so their amounts no longer count.
                let mut pod = whole.clone();
                pod.containers.retain(|container| container.kind != ContainerKind::Init);
                if let Some(problem) = self.running.get(&pod.name).and_then(|had| may_not_change(had, whole))
                {
                    let reason = Rejection::new(
                        RejectionReason::UnexpectedAdmissionError,
                        RejectionProblem::Resize(problem),
                    )
                    .to_string();
                    let report = self.done_to(StepKind::Resize, &pod.name, &[], trace);
                    return StepReport { admitted: false, reason: Some(reason), ..report };
                }
                let outcome =
                    resize_traced(self.inventory, self.settings, &mut self.allocations, &pod, &mut trace);
                self.report(StepKind::Resize, &pod, None, outcome, trace)
            }
            TrialAction::Delete(name) => self.delete(name, trace),
            TrialAction::Warm(name) => self.warm(name, trace),
        }
    }

    /// Counts a step that is refused before anything is placed, with its reason.
    pub fn refuse(&mut self, action: StepKind, pod: &PodName, reason: String) -> StepReport {
        self.done = self.done.saturating_add(1);
        let report = self.done_to(action, pod, &[], Trace::default());
        StepReport { admitted: false, reason: Some(reason), ..report }
    }

    /// Changes allocations beside the steps; returns what changes for holders that stay.
    pub fn change(&mut self, change: impl FnOnce(&mut Allocations)) -> Vec<UpdateReport> {
        let none = PodName::new("", "");
        let before = PinnedHolders::of_others(&self.allocations, &none);
        change(&mut self.allocations);
        let updates = before.changes(&PinnedHolders::of_others(&self.allocations, &none));
        updates.iter().map(UpdateReport::from).collect()
    }

    fn warm(&mut self, name: &PodName, mut trace: Trace) -> StepReport {
        let holders: Vec<Holder> = self.allocations.of_pod(name).map(|(holder, _)| holder.clone()).collect();
        let ended = holders.iter().filter_map(|holder| finish_cold_start(&mut self.allocations, holder));
        let mut updates: Vec<Update> = ended.collect();
        if updates.is_empty() {
            trace.warn(format!("no container of pod {name} is in a cold start"));
        }
        updates.retain(|update| update.mems.is_some());
        self.done_to(StepKind::Warm, name, &updates, trace)
    }

    fn delete(&mut self, name: &PodName, mut trace: Trace) -> StepReport {
        if self.allocations.of_pod(name).next().is_none() {
            trace.warn(format!("pod {name} holds nothing, so there is nothing to take back"));
        }
        let updates = remove(&mut self.allocations, name);
        self.running.remove(name);
        self.done_to(StepKind::Delete, name, &updates, trace)
    }

    /// Report of a step that places no new pod and is never refused.
    fn done_to(&self, action: StepKind, name: &PodName, updates: &[Update], trace: Trace) -> StepReport {
        let (candidates, warnings) = trace.into_parts();
        StepReport {
            step: self.done,
            action,
            pod: name.to_string(),
            admitted: true,
            reason: None,
            containers: Vec::new(),
            claims: Vec::new(),
            updates: updates.iter().map(UpdateReport::from).collect(),
            warnings,
            what_if: None,
            candidates: self.explain.then_some(candidates),
        }
    }

    fn report(
        &mut self,
        action: StepKind,
        pod: &PodRequest,
        before: Option<PinnedHolders>,
        outcome: Result<Admission, Rejection>,
        mut trace: Trace,
    ) -> StepReport {
        for warning in trace.take_settings_warnings() {
            if self.said.insert(warning.clone()) {
                trace.warn(warning);
            }
        }
        let rejection = outcome.as_ref().err().map(ToString::to_string);
        let what_if = rejection.as_ref().and_then(|_| self.moves_for(pod));
        let (containers, updates) = match outcome {
            Ok(Admission { updates, .. }) => self.finish_pod(pod, before, updates),
            Err(_) => (Vec::new(), Vec::new()),
        };
        let (candidates, warnings) = trace.into_parts();
        StepReport {
            step: self.done,
            action,
            pod: pod.name.to_string(),
            admitted: rejection.is_none(),
            reason: rejection,
            containers,
            claims: Vec::new(),
            updates: updates.iter().map(UpdateReport::from).collect(),
            warnings,
            what_if,
            candidates: self.explain.then_some(candidates),
        }
    }

    /// Moves of other containers that would make room for a rejected pod.
    fn moves_for(&mut self, pod: &PodRequest) -> Option<Vec<MoveReport>> {
        self.rejected = self.rejected.saturating_add(1);
        if self.rejected > WHAT_IF_LIMIT {
            return None;
        }
        let moves = what_if(self.inventory, self.settings, &self.allocations, pod, |_| true)?;
        Some(moves.iter().map(MoveReport::from).collect())
    }

    /// Ends the init containers and reports the final state of all containers.
    fn finish_pod(
        &mut self,
        pod: &PodRequest,
        before: Option<PinnedHolders>,
        updates: Vec<Update>,
    ) -> (Vec<ContainerReport>, Vec<Update>) {
        let mut ended = BTreeMap::new();
        for container in pod.containers.iter().filter(|container| container.kind == ContainerKind::Init) {
            let holder = Holder::new(pod.name.clone(), container.name.clone());
            if let Some(grant) = self.allocations.release(&holder) {
                ended.insert(container.name.as_str(), grant);
            }
        }
        if !ended.is_empty() {
            unspill(&mut self.allocations);
        }
        let running = self.allocations.exclusive_cpus();
        // An init container ran beside others, and beside the containers that its pod had before.
        let own = |holder: &Holder| *holder.pod() == pod.name;
        let others = self.allocations.iter().filter(|(holder, _)| !own(holder));
        let mut beside = CpuSet::new();
        others.for_each(|(_, grant)| beside.extend(&grant.exclusive));
        let rows = pod.containers.iter().filter_map(|container| {
            if let Some(grant) = ended.get(container.name.as_str()) {
                return Some(ContainerReport::new(container, grant, &beside));
            }
            let holder = Holder::new(pod.name.clone(), container.name.clone());
            let grant = self.allocations.get(&holder)?;
            beside.extend(&grant.exclusive);
            Some(ContainerReport::new(container, grant, &running))
        });
        let rows = rows.collect();
        let updates = match before {
            Some(before) if !ended.is_empty() => {
                before.changes(&PinnedHolders::of_others(&self.allocations, &pod.name))
            }
            _ => updates,
        };
        (rows, updates)
    }
}

/// QoS class and container names of a pod, which stay the same for its life.
fn lasting(pod: &PodRequest) -> (QosClass, BTreeSet<String>) {
    // Init containers have ended when a pod is resized, and its manifest may omit them.
    let lasting = pod.containers.iter().filter(|container| container.kind != ContainerKind::Init);
    (pod.qos, lasting.map(|container| container.name.clone()).collect())
}

/// Why a cluster would refuse this resize: it changes the QoS class or the containers.
fn may_not_change((qos, had): &(QosClass, BTreeSet<String>), pod: &PodRequest) -> Option<ResizeProblem> {
    let (class, names) = lasting(pod);
    if class != *qos {
        return Some(ResizeProblem::QosClass { from: *qos, to: class });
    }
    let stranger = names.iter().find(|name| !had.contains(*name));
    if let Some(stranger) = stranger {
        return Some(ResizeProblem::AddsContainer(stranger.clone()));
    }
    let missing = had.iter().find(|name| !names.contains(*name))?;
    Some(ResizeProblem::TakesContainer(missing.clone()))
}

fn has_init(pod: &PodRequest) -> bool {
    pod.containers.iter().any(|container| container.kind == ContainerKind::Init)
}

/// CPUs and memory nodes that the holders outside a pod are pinned to.
#[derive(Debug)]
struct PinnedHolders(BTreeMap<Holder, (Option<CpuSet>, Option<NodeSet>)>);

impl PinnedHolders {
    fn of_others(allocations: &Allocations, pod: &PodName) -> Self {
        let taken = allocations.exclusive_cpus();
        let others = allocations.iter().filter(|(holder, _)| holder.pod() != pod);
        let pinned = others.map(|(holder, grant)| {
            let cpus = grant.pin_cpus.then(|| grant.cpus(&taken));
            (holder.clone(), (cpus, grant.pin_mems.then(|| grant.mems(&taken))))
        });
        Self(pinned.collect())
    }

    /// Holders that are pinned differently in `now`.
    fn changes(&self, now: &Self) -> Vec<Update> {
        let changed = now.0.iter().filter_map(|(holder, (cpus, mems))| {
            let (had_cpus, had_mems) = self.0.get(holder)?;
            let update = Update {
                holder: holder.clone(),
                cpus: cpus.clone().filter(|cpus| had_cpus.as_ref() != Some(cpus)),
                mems: mems.clone().filter(|mems| had_mems.as_ref() != Some(mems)),
            };
            (update.cpus.is_some() || update.mems.is_some()).then_some(update)
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests;
