//! What the cluster is told of the ledger: the engine's inputs, for the state of the node.
//!
//! Invariant: a snapshot is of one moment. Its stamp changes whenever a snapshot may differ from the last
//! one.

use enforcer_core::{
    cluster::own_engine::{AnnouncedContainer, EngineInputs, EngineSnapshot},
    policy::WorkloadRule,
};
use enforcer_report::runtime::RuntimeLink;
use numa_placement::PodName;

use super::SharedLedger;

/// Number of changes of grants, and of terms.
pub(crate) type LedgerStamp = (u64, u64);

impl SharedLedger {
    /// The stamp of the next snapshot; `None` while containers get no place.
    pub(crate) fn stamp(&self) -> Option<LedgerStamp> {
        let state = self.lock();
        let is_up = matches!(state.trace.report.link, RuntimeLink::Up { .. });
        let places = state.terms.places && state.terms.inventory.is_some() && is_up;
        places.then(|| (state.held.changes, state.terms.applied))
    }

    /// What the engine decides from; `None` while containers get no place.
    pub(crate) fn snapshot(&self) -> Option<EngineSnapshot> {
        let state = self.lock();
        let inventory = state.terms.inventory.as_ref().filter(|_| state.terms.places)?;
        let inputs = EngineInputs::new(inventory, &state.terms.settings, &state.held.allocations);
        let announced = state.roster.facts.containers.values().map(|known| AnnouncedContainer {
            pod: PodName::new(known.namespace.clone(), known.pod.clone()).with_uid(known.pod_uid.clone()),
            container: known.container.clone(),
        });
        let unrepeatable = state.terms.rules.iter().find(|rule| changes_pods(rule)).map(|rule| {
            format!(
                "entry {:?} of the configuration changes what pods ask for, and readers do not know it",
                rule.name
            )
        });
        Some(EngineSnapshot { inputs, announced: announced.collect(), unrepeatable })
    }
}

/// Can the entry apply to a container of a pod?
fn changes_pods(rule: &WorkloadRule) -> bool {
    rule.names_pods() || (rule.cgroup.is_some() && rule.unit.is_none() && rule.command.is_none())
}
