//! Containers that runtimes have announced, by id: their names, facts, and where in their life they are.
//!
//! Invariant: nothing is granted here.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use enforcer_core::{hosted::Announced, owner::OwnershipFacts, workload::printable};

use super::{leaving::DepartingContainer, pending::PendingContainer};
use enforcer_act::journal::MADE_WITHIN;

/// Longest container name that is shown, in characters.
pub(super) const NAME_LIMIT: usize = 200;

/// Announced containers.
#[derive(Debug, Default)]
pub(in crate::engine) struct ContainerRoster {
    /// `NAMESPACE/POD/CONTAINER` by container id.
    pub(in crate::engine) names: BTreeMap<String, String>,
    /// Facts about other writers of cpusets.
    pub(super) facts: OwnershipFacts,
    /// `NAMESPACE/POD (sandbox)` by sandbox id.
    pub(super) sandboxes: BTreeMap<String, String>,
    /// Containers between the answer to their creation and their start, keyed by the id in the runtime's
    /// list.
    pub(super) pending: BTreeMap<String, PendingContainer>,
    /// Containers that end and may still have processes.
    pub(super) leaving: BTreeMap<String, DepartingContainer>,
    /// Listed containers that had a cgroup.
    pub(super) found: BTreeSet<String>,
    /// Containers that have ended, and when. Later events about them are stale.
    pub(super) ended_lately: BTreeMap<String, Instant>,
}

impl ContainerRoster {
    /// Records the runtime's names of a container.
    pub(super) fn insert_name(&mut self, one: &Announced) {
        let container = one.pod.containers.first().map_or("", |container| container.name.as_str());
        let name = printable(&format!("{}/{}/{container}", one.pod.name.namespace, one.pod.name.name));
        self.names.insert(one.id.clone(), name.chars().take(NAME_LIMIT).collect());
    }

    /// Name of a container for messages: its id if the runtime has not named it.
    pub(super) fn name_of(&self, id: &str) -> String {
        self.names.get(id).cloned().unwrap_or_else(|| printable(id))
    }

    /// Whether a runtime has announced this container or its end.
    pub(in crate::engine) fn knows(&self, id: &str) -> bool {
        let ended = self.ended_lately.get(id).is_some_and(|at| at.elapsed() < MADE_WITHIN);
        ended || self.names.contains_key(id)
    }

    /// Notes that a container runs and will be listed from now on.
    pub(in crate::engine) fn runs(&mut self, id: &str) {
        self.pending.remove(id);
    }

    /// Forgets a container that has ended, except that it has.
    pub(super) fn end(&mut self, id: &str) {
        self.ended_lately.retain(|_, at| at.elapsed() < MADE_WITHIN);
        self.ended_lately.insert(id.to_owned(), Instant::now());
        self.pending.remove(id);
        self.leaving.remove(id);
        self.found.remove(id);
        self.names.remove(id);
        self.facts.containers.remove(id);
    }

    /// Forgets names and facts of all containers that do not leave.
    pub(super) fn keep_leaving(&mut self) {
        let Self { names, facts, leaving, .. } = self;
        names.retain(|id, _| leaving.contains_key(id));
        facts.containers.retain(|id, _| leaving.contains_key(id));
    }
}
