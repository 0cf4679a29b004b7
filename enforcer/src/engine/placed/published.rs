//! The ledger in the state of the node: the inputs of the engine.
//!
//! Invariant: a snapshot is of one moment. Its stamp changes whenever a snapshot may differ from the last
//! one.

use enforcer_core::{
    cluster::own_engine::{AnnouncedContainer, EngineInputs, EngineSnapshot, OwnPart},
    policy::WorkloadRule,
};
use enforcer_report::runtime::RuntimeLink;
use numa_placement::PodName;

use super::{Ledger, SharedLedger};

/// Number of changes of grants and of terms, and whether a runtime is there.
pub(crate) type LedgerStamp = (u64, u64, bool);

/// What the ledger has for the state of the node.
#[derive(Debug, Default)]
pub enum LedgerSnapshot {
    /// Containers get no place from this daemon.
    #[default]
    NotPlacing,
    /// They do, and what they have is not known, for this reason.
    NotReady(&'static str),
    /// What the engine decides from.
    Ready(Box<EngineSnapshot>),
}

impl LedgerSnapshot {
    /// For a state.
    pub(crate) fn as_part(&self) -> OwnPart<'_> {
        match self {
            Self::NotPlacing => OwnPart::None,
            Self::NotReady(reason) => OwnPart::Unknown(reason),
            Self::Ready(snapshot) => OwnPart::Known(snapshot),
        }
    }
}

impl SharedLedger {
    /// Changes whenever a snapshot may differ.
    pub(crate) fn stamp(&self) -> LedgerStamp {
        self.lock().stamp()
    }

    /// What the engine decides from, and its stamp.
    pub(crate) fn snapshot(&self) -> (LedgerStamp, LedgerSnapshot) {
        let state = self.lock();
        (state.stamp(), state.snapshot())
    }
}

impl Ledger {
    fn stamp(&self) -> LedgerStamp {
        let is_up = matches!(self.trace.report.link, RuntimeLink::Up { .. });
        (self.held.changes, self.terms.applied, is_up)
    }

    fn snapshot(&self) -> LedgerSnapshot {
        if !self.terms.places {
            return LedgerSnapshot::NotPlacing;
        }
        let Some(inventory) = &self.terms.inventory else {
            return LedgerSnapshot::NotReady("the machine has not been read yet");
        };
        if !matches!(self.trace.report.link, RuntimeLink::Up { .. }) {
            return LedgerSnapshot::NotReady("the runtime has not listed its containers to this daemon");
        }
        let state = self;
        let allocations = state.allocations_without_repeats();
        let inputs = EngineInputs::new(inventory, &state.terms.settings, &allocations);
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
        let snapshot = EngineSnapshot::new(inputs, announced.collect(), unrepeatable);
        LedgerSnapshot::Ready(Box::new(snapshot))
    }
}

/// Can the entry apply to a container of a pod?
fn changes_pods(rule: &WorkloadRule) -> bool {
    rule.names_pods() || (rule.cgroup.is_some() && rule.unit.is_none() && rule.command.is_none())
}
