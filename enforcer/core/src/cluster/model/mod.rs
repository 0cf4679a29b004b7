//! A published state as input of the placement engine.
//!
//! Problem: the engine reads an [`Inventory`], settings and [`Allocations`]; a state comes from another node,
//! perhaps from a broken or hostile daemon. Idea: [`NodeModel::new`] builds all three and refuses a state
//! that contradicts itself. What the state does not tell, or what its parts tell differently, makes the model
//! inexact and is named.
//!
//! Invariants: a refused state changes nothing. A model is exact only if the state says so, every setting of
//! the kubelet has a translation, and held and free amounts add up. Reserved and held CPUs are never offered.
//! Time and memory are bounded by the limits of [`bounds`], which are those of the object's schema.

mod bounds;
mod fault;
mod held;
mod machine;
mod own_engine;
mod shared;
#[cfg(test)]
pub(in crate::cluster) mod tests;

use std::{collections::BTreeSet, sync::Arc};

use numa_placement::{
    Allocations, Inventory, PodRequest,
    settings::{DeclaredClass, KubeletDeviceHints, PlacementSettings, TopologyPolicy},
};
use numa_topology::set::NodeSet;

pub use self::{fault::StateFault, shared::SharedParts};
use super::{
    profile::TranslatedProfile,
    state::{DecidedBy, InexactSource, NodeState, Revision},
};

/// A node as the engine sees it.
#[derive(Debug, Clone)]
pub struct NodeModel {
    /// Order of the state that it was made from.
    pub revision: Revision,
    /// Its resources.
    pub inventory: Arc<Inventory>,
    /// Rules of its kubelet.
    pub settings: Arc<PlacementSettings>,
    /// What its pods hold.
    pub allocations: Allocations,
    /// Uids of the pods that the state covers, refused ones included.
    pub covered: BTreeSet<String>,
    /// Why predictions are inexact; empty if they are exact.
    pub inexact: Vec<InexactSource>,
    /// Which of the node's managers decides.
    pub decided_by: DecidedBy,
    /// Whether its CPU manager gives exclusive CPUs.
    gives_cpus: bool,
}

impl NodeModel {
    /// The model of a state.
    ///
    /// # Errors
    /// If the state exceeds a limit or contradicts itself.
    pub fn new(state: &NodeState) -> Result<Self, StateFault> {
        bounds::check(state)?;
        match state.decided_by {
            DecidedBy::Kubelet => Self::of_kubelet(state),
            DecidedBy::NumaEnforcer => own_engine::model(state),
        }
    }

    fn of_kubelet(state: &NodeState) -> Result<Self, StateFault> {
        let profile = TranslatedProfile::new(&state.kubelet, &state.reserved_cpus, state.machine.nodes.len());
        let inventory = machine::inventory(state, &profile.settings)?;
        let held = held::allocations(state, &inventory)?;
        let mut inexact = profile.inexact;
        inexact.extend(unknown_device_hints(state, &profile.settings));
        inexact.extend(held.differences);
        inexact.extend(named_by_node(state, inexact.is_empty()));
        Ok(Self {
            revision: state.revision,
            covered: covered(state),
            inventory: Arc::new(inventory),
            settings: Arc::new(profile.settings),
            allocations: held.allocations,
            inexact,
            decided_by: DecidedBy::Kubelet,
            gives_cpus: profile.gives_cpus,
        })
    }

    /// Are predictions exact?
    pub fn is_exact(&self) -> bool {
        self.inexact.is_empty()
    }

    /// Does its CPU manager give exclusive CPUs?
    pub const fn gives_cpus(&self) -> bool {
        self.gives_cpus
    }

    /// Does it have a device of this resource with a known NUMA node?
    pub fn has_near_devices(&self, resource: &str) -> bool {
        let units = self.inventory.devices.get(resource);
        units.is_some_and(|units| units.iter().any(|unit| !unit.nodes.is_empty()))
    }

    /// The request as the node's kubelet sees it: a CPU manager with the policy `none` gives no exclusive
    /// CPUs, and its device manager passes over resources that no plugin has (`isDevicePluginResource` in
    /// pkg/kubelet/cm/devicemanager/manager.go).
    pub fn request_of(&self, pod: &PodRequest) -> PodRequest {
        let mut request = pod.clone();
        for container in &mut request.containers {
            container.devices.retain(|resource, _| self.inventory.devices.contains_key(resource));
        }
        if !self.gives_cpus {
            for container in &mut request.containers {
                container.wishes.class = Some(DeclaredClass::Shared);
            }
        }
        request
    }
}

/// Uids of the pods that a state covers.
fn covered(state: &NodeState) -> BTreeSet<String> {
    let pods = state.pods.iter();
    let uids = pods.flat_map(|pod| [Some(&pod.uid), pod.mirror_of.as_ref()]).flatten();
    uids.chain(state.rejected.iter().map(|pod| &pod.uid)).cloned().collect()
}

/// Whether it is not known which NUMA nodes the kubelet counts for a resource of devices.
///
/// Before 1.36 it counts all of them, but for builds of vendors that have the change of 1.36 (Kubernetes pull
/// request 138244). A set of NUMA nodes with one that has no device is never preferred, because the set
/// without it has the same devices. So it decides only where other sets than preferred ones are accepted.
fn unknown_device_hints(state: &NodeState, settings: &PlacementSettings) -> Option<InexactSource> {
    let hints = &settings.hints;
    if hints.kubelet_device_hints != KubeletDeviceHints::AllNodes
        || hints.policy != TopologyPolicy::BestEffort
    {
        return None;
    }
    let left_out = state.devices.iter().find(|supply| {
        let near = supply.by_nodes.iter().fold(NodeSet::new(), |near, group| near.union(&group.nodes));
        !near.is_empty() && state.machine.nodes.iter().any(|node| !near.contains(node.id))
    })?;
    let reason = format!(
        "some kubelets before 1.36 count only the NUMA nodes that have devices of {:?}, and the version does \
         not tell",
        left_out.resource
    );
    Some(InexactSource::new("kubelet:version", reason))
}

/// What the node's daemon calls inexact; `is_first` if the reader has found nothing itself.
fn named_by_node(state: &NodeState, is_first: bool) -> Vec<InexactSource> {
    if state.exact {
        return Vec::new();
    }
    let mut named = state.inexact.clone();
    if named.is_empty() && is_first {
        named.push(InexactSource::new("state", "the daemon of the node does not call it exact"));
    }
    named
}
