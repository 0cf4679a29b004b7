//! Claims in a trial on one machine: steps with pods that name claims.
//!
//! Idea: a pod first gets its devices, as a scheduler gives them, then its place. The containers that name a
//! claim of this project's driver have what the daemon would give them, by the code of the daemon; the others
//! are placed by the trial. CPUs of claims are held from all others.
//!
//! Invariant: a pod that is refused leaves no claim.

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::{
    Allocations, Holder, Inventory, PodName, PodRequest,
    settings::PlacementSettings,
    trial::{
        ContainerReport, PLAN_SCHEMA_VERSION, PlanReport, StepKind, StepReport, Trial, TrialAction,
        TrialStep, UpdateReport,
    },
};
use thiserror::Error;

use super::{ClaimBook, ClaimNode, own::DriverOfNode};
use crate::{
    cluster::objects::PodClaim,
    dra::{
        ClaimUid, DRIVER,
        binding::{ContainerHints, ContainerPlace, bind},
    },
    hosted::hold_resource_claims,
};

/// Why a trial of one machine cannot use the slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the ResourceSlices are of several nodes: --cluster plans for these")]
pub struct SeveralNodes;

/// A trial with claims.
#[derive(Debug)]
pub struct ClaimTrial<'a> {
    trial: Trial<'a>,
    inventory: &'a Inventory,
    book: ClaimBook,
    node: String,
    /// Claims of pods by name.
    claims: &'a BTreeMap<PodName, Vec<PodClaim>>,
    /// Containers of pods with claims of this project's driver.
    claiming: BTreeMap<PodName, BTreeSet<String>>,
    steps: u64,
}

impl<'a> ClaimTrial<'a> {
    /// A trial on an empty machine.
    ///
    /// # Errors
    /// If the slices of the book are of several nodes.
    pub fn new(
        (inventory, settings): (&'a Inventory, &'a PlacementSettings),
        book: ClaimBook,
        claims: &'a BTreeMap<PodName, Vec<PodClaim>>,
        explain: bool,
    ) -> Result<Self, SeveralNodes> {
        let node = book.only_node().ok_or(SeveralNodes)?.to_owned();
        let trial = Trial::new(inventory, settings, explain);
        Ok(Self { trial, inventory, book, node, claims, claiming: BTreeMap::new(), steps: 0 })
    }

    /// Plays all steps.
    pub fn run(mut self, steps: &[TrialStep]) -> PlanReport {
        let steps = steps.iter().map(|step| self.step(step)).collect();
        PlanReport::new(PLAN_SCHEMA_VERSION, steps)
    }

    fn step(&mut self, step: &TrialStep) -> StepReport {
        self.steps += 1;
        match &step.action {
            TrialAction::Create(pod) => match self.claims.get(&pod.name) {
                Some(claims) if !claims.is_empty() => self.create(step, pod, claims),
                _ => self.trial.step(step),
            },
            TrialAction::Resize(pod) => {
                let action = TrialAction::Resize(self.without_claiming(pod));
                self.trial.step(&TrialStep { action, warnings: step.warnings.clone() })
            }
            TrialAction::Delete(name) => {
                let mut report = self.trial.step(step);
                let Some(containers) = self.claiming.remove(name) else { return report };
                self.book.end(&name.to_string());
                // The trial itself knows nothing of these containers.
                report.warnings.clone_from(&step.warnings);
                report.updates.extend(self.hold(|allocations| {
                    for container in &containers {
                        allocations.release(&Holder::claiming(&name.to_string(), container));
                    }
                }));
                report
            }
            TrialAction::Warm(_) => self.trial.step(step),
        }
    }

    fn create(&mut self, step: &TrialStep, pod: &PodRequest, named: &[PodClaim]) -> StepReport {
        let node = ClaimNode {
            name: &self.node,
            version: self.steps,
            inventory: Some(self.inventory),
            allocations: self.trial.allocations(),
        };
        let found = self.book.resolve(&pod.name, named).and_then(|claims| self.book.find(&node, &claims));
        let claims = match found {
            Ok(place) => self.book.give(&pod.name.to_string(), place),
            Err(reason) => return self.trial.refuse(StepKind::Create, &pod.name, reason),
        };
        let own = |name: &str| {
            let claim = claims.iter().find(|claim| claim.name == name);
            claim.is_some_and(|claim| claim.devices.iter().any(|device| device.driver == DRIVER))
        };
        let claiming = named.iter().filter(|claim| own(&claim.name)).flat_map(|claim| &claim.containers);
        self.claiming.insert(pod.name.clone(), claiming.cloned().collect());
        let mut updates = self.hold(|_| {});
        let action = TrialAction::Create(self.without_claiming(pod));
        let mut report = self.trial.step(&TrialStep { action, warnings: step.warnings.clone() });
        if !report.admitted {
            self.claiming.remove(&pod.name);
            self.book.end(&pod.name.to_string());
            self.hold(|_| {});
            return report;
        }
        updates.extend(self.give_places(pod, named, &mut report));
        report.claims = claims;
        // What a container has in the end counts.
        updates.extend(std::mem::take(&mut report.updates));
        report.updates = latest(updates);
        report
    }

    /// Has the placement hold what claims have, after this change.
    fn hold(&mut self, change: impl FnOnce(&mut Allocations)) -> Vec<UpdateReport> {
        let grants = self.book.driver_of(&self.node).map(|driver| driver.ledger.exclusive_grants());
        let inventory = self.inventory;
        self.trial.change(|allocations| {
            change(allocations);
            hold_resource_claims(inventory, allocations, grants.unwrap_or_default());
        })
    }

    /// Gives the containers with claims what these have.
    fn give_places(
        &mut self,
        pod: &PodRequest,
        named: &[PodClaim],
        report: &mut StepReport,
    ) -> Vec<UpdateReport> {
        let name = pod.name.to_string();
        let containers = self.claiming.get(&pod.name).cloned().unwrap_or_default();
        let mut updates = Vec::new();
        for (at, container) in pod.containers.iter().enumerate() {
            if !containers.contains(&container.name) {
                continue;
            }
            let labels = named.iter().filter(|claim| claim.containers.contains(&container.name));
            let labels: Vec<&str> = labels.map(|claim| claim.name.as_str()).collect();
            let uids = self.book.uids_of(&pod.name, named, &labels);
            let place = self.book.driver_of(&self.node).and_then(|driver| place_of(driver, &name, &uids));
            let Some(place) = place else { continue };
            let grant = place.grant(&labels.join(", "));
            let holder = Holder::claiming(&name, &container.name);
            let of_container = grant.clone();
            updates.extend(self.trial.change(|allocations| allocations.give(holder, of_container)));
            let others = self.trial.allocations().exclusive_cpus().difference(&place.exclusive_cpus);
            let row = ContainerReport::new(container, &grant, &others);
            report.containers.insert(at.min(report.containers.len()), row);
        }
        updates
    }

    /// The pod without its containers that have claims of this project's driver.
    fn without_claiming(&self, pod: &PodRequest) -> PodRequest {
        let mut pod = pod.clone();
        if let Some(claiming) = self.claiming.get(&pod.name) {
            pod.containers.retain(|container| !claiming.contains(&container.name));
        }
        pod
    }
}

fn place_of(driver: &DriverOfNode, pod_uid: &str, uids: &BTreeSet<ClaimUid>) -> Option<ContainerPlace> {
    bind(&ContainerHints { pod_uid, named: uids }, &driver.ledger, driver.supply()).place
}

/// The last change of each container.
fn latest(updates: Vec<UpdateReport>) -> Vec<UpdateReport> {
    let mut by_container = BTreeMap::<String, UpdateReport>::new();
    for update in updates {
        let UpdateReport { cpus, mems, .. } = &update;
        match by_container.get_mut(&update.container) {
            Some(known) => {
                known.cpus = cpus.clone().or(known.cpus.take());
                known.mems = mems.clone().or(known.mems.take());
            }
            None => drop(by_container.insert(update.container.clone(), update)),
        }
    }
    by_container.into_values().collect()
}
