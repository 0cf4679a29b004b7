//! Objects of a cluster, as far as plans and checks read them.
//!
//! Invariants: values only; text becomes a value in the crate that asks the API server. What an object does
//! not say is absent or empty, never guessed. Times are seconds since 1970 of the cluster's clocks.

use std::collections::BTreeMap;

use numa_placement::{PodName, PodRequest};
use thiserror::Error;

use super::{
    gate::PodGates,
    plan::{Amounts, amounts_of},
    required_nodes::RequiredNodes,
    state::{GROUP, NodeState, VERSION},
};

/// A Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeObject {
    /// Its name.
    pub name: String,
    /// Its uid; a node that takes the same name later has another one.
    pub uid: String,
    /// Version of its kubelet, as in `v1.36.2`.
    pub kubelet_version: String,
    /// Id of the boot of its machine.
    pub boot_id: String,
    /// Whether it runs another system than Linux.
    pub is_foreign_system: bool,
    /// Whether it is cordoned.
    pub is_cordoned: bool,
    /// Whether its kubelet reports it as ready.
    pub is_ready: bool,
    /// Taints that keep pods away which do not tolerate them.
    pub taints: Vec<Taint>,
    /// `status.allocatable`.
    pub allocatable: Amounts,
    /// Labels, by which pods choose it.
    pub labels: BTreeMap<String, String>,
}

/// A published state with what its object says about it.
#[derive(Debug, Clone, PartialEq)]
pub struct StateObject {
    /// Name of the object, which is that of the node.
    pub name: String,
    /// Group and version of the object, as in `numa-enforcer.io/v1alpha1`.
    pub api_version: String,
    /// Of which node and which daemon it is.
    pub origin: StateOrigin,
    /// Field managers that own what it says, or whose it is; none if the list does not show them.
    pub writers: Vec<String>,
    /// Paths of its fields that this version of the program does not know, whatever their depth.
    pub unknown_fields: Vec<String>,
    /// Its state, or why it cannot be read.
    pub state: Result<NodeState, String>,
}

/// Of which node and which daemon a published state is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateOrigin {
    /// Uid of the Node that owns it.
    pub owner_uid: Option<String>,
    /// Namespace of the lease of the daemon that writes it.
    pub lease_namespace: Option<String>,
    /// Boot of the machine on which that daemon runs.
    pub boot_id: Option<String>,
}

/// A sign of life of the daemon of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseObject {
    /// Its namespace, which is that of the daemon.
    pub namespace: String,
    /// Name of the node.
    pub node: String,
    /// When the daemon renewed it last.
    pub renewed_at: Option<i64>,
    /// For how many seconds it counts after that.
    pub duration_s: u32,
}

/// A Pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodObject {
    /// Its uid.
    pub uid: String,
    /// Uid of the static pod in the kubelet, of which this is the mirror.
    pub mirror_of: Option<String>,
    /// Its node; `None` before it is bound.
    pub node: Option<String>,
    /// Whether it may still hold anything.
    pub phase: PodPhase,
    /// Its place in the order of pods.
    pub arrival: PodArrival,
    /// When its last container ended, if it has ended.
    pub ended_at: Option<i64>,
    /// Its init containers that have ended, sidecars not among them.
    pub ended_init: Vec<String>,
    /// What a scheduler looks at beside amounts.
    pub scheduling: PodScheduling,
    /// What a scheduler counts, if that is not the request: while a resize in place is under way, and for a
    /// pod with amounts of its own or an overhead.
    pub counted: Option<Amounts>,
    /// Its request; with a node, what the node has allocated.
    pub request: PodRequest,
}

/// Whether a pod may still hold anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodPhase {
    /// It waits, or its containers are not all started.
    #[default]
    Pending,
    /// It runs: its node has admitted it.
    Running,
    /// It has succeeded or failed.
    Ended,
}

/// Place of a pod in the order in which pods came.
///
/// Times of the API are whole seconds. Within one, the version of the object decides: versions of one kind of
/// object ascend over the cluster, and a pod that nothing has written since has that of its binding or its
/// creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodArrival {
    /// When it was bound; before that when it was created.
    pub at: i64,
    /// `metadata.resourceVersion`; 0 if it is not known.
    pub version: u64,
}

/// Has the uid the form of a static pod's in its kubelet: a hash, which no uid of the API looks like?
pub fn is_static_uid(uid: &str) -> bool {
    uid.len() == 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What a scheduler looks at of a pod, beside its amounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodScheduling {
    /// Its priority; a scheduler takes the highest first.
    pub priority: i32,
    /// Taints that it tolerates.
    pub tolerations: Vec<Toleration>,
    /// Node that a scheduler has chosen for it and may still change.
    pub nominated_node: Option<String>,
    /// Whether volumes or claims have to be there before it is bound, which may take minutes.
    pub binds_late: bool,
    /// Nodes that it may go to by its own words.
    pub required: RequiredNodes,
    /// What keeps it from the scheduler.
    pub gates: PodGates,
    /// Claims for devices that it names.
    pub claims: Vec<PodClaim>,
}

/// A claim for devices that a pod names (`spec.resourceClaims`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodClaim {
    /// Its name in the pod.
    pub name: String,
    /// Name of the claim, which other pods may name too.
    pub claim: Option<String>,
    /// Name of the template of which the pod gets a claim of its own.
    pub template: Option<String>,
    /// Containers that name it, where these are read.
    pub containers: Vec<String>,
}

/// A taint of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// Taints that a pod tolerates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toleration {
    /// Key of the taints; empty for all of them.
    pub key: String,
    /// `Equal` (or empty) or `Exists`.
    pub operator: String,
    /// Value of the taints, for `Equal`.
    pub value: String,
    /// Effect of the taints; empty for all of them.
    pub effect: String,
}

/// Key of the taint that a cluster gives to a cordoned node.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Why a published state says nothing about a node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ForeignState {
    /// It has another version, whose fields may mean something else.
    #[error("its version is {0}, known is {GROUP}/{VERSION}")]
    OtherVersion(String),
    /// It belongs to a node that was replaced.
    #[error("it belongs to the Node with uid {owner}, and the node has {node}")]
    OtherNode {
        /// Uid of the Node that owns it.
        owner: String,
        /// Uid of the node.
        node: String,
    },
    /// It has a field whose meaning is not known, so its other fields may mean something else.
    #[error("its field {0:?} is of an unknown version")]
    UnknownField(String),
    /// It is no state.
    #[error("{0}")]
    Unreadable(String),
}

impl StateObject {
    /// The state, as one of this node.
    ///
    /// # Errors
    /// If it is of another version or another node, or no state.
    pub fn of_node(&self, node: &NodeObject) -> Result<&NodeState, ForeignState> {
        if !self.api_version.is_empty() && self.api_version != format!("{GROUP}/{VERSION}") {
            return Err(ForeignState::OtherVersion(self.api_version.clone()));
        }
        if let Some(owner) =
            self.origin.owner_uid.as_ref().filter(|owner| !node.uid.is_empty() && **owner != node.uid)
        {
            return Err(ForeignState::OtherNode { owner: owner.clone(), node: node.uid.clone() });
        }
        if let Some(field) = self.unknown_fields.first() {
            return Err(ForeignState::UnknownField(field.clone()));
        }
        self.state.as_ref().map_err(|fault| ForeignState::Unreadable(fault.clone()))
    }
}

impl Taint {
    /// The taint of a cordoned node.
    pub(super) fn unschedulable() -> Self {
        Self { key: UNSCHEDULABLE.into(), value: String::new(), effect: "NoSchedule".into() }
    }

    /// Does it only make a scheduler prefer other nodes?
    fn is_soft(&self) -> bool {
        self.effect == "PreferNoSchedule"
    }
}

impl Toleration {
    /// Does it cover the taint? As `ToleratesTaint` of Kubernetes (`k8s.io/api/core/v1/toleration.go`);
    /// comparisons of numbers tolerate nothing here.
    pub(super) fn covers(&self, taint: &Taint) -> bool {
        let is_effect = self.effect.is_empty() || self.effect == taint.effect;
        let is_key = self.key.is_empty() || self.key == taint.key;
        let is_value = match self.operator.as_str() {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            _ => false,
        };
        is_effect && is_key && is_value
    }
}

impl PodScheduling {
    /// The first taint that keeps the pod away.
    pub fn untolerated<'a>(&self, taints: &'a [Taint]) -> Option<&'a Taint> {
        let is_tolerated = |taint: &Taint| self.tolerations.iter().any(|toleration| toleration.covers(taint));
        taints.iter().find(|taint| !taint.is_soft() && !is_tolerated(taint))
    }
}

impl PodObject {
    /// Its uid in the kubelet and in the kubelet's files.
    pub fn kubelet_uid(&self) -> &str {
        self.mirror_of.as_deref().unwrap_or(&self.uid)
    }

    /// What a scheduler counts for it.
    pub fn amounts(&self) -> Amounts {
        self.counted.clone().unwrap_or_else(|| amounts_of(&self.request))
    }

    /// Order of arrival, then of names.
    pub const fn order(&self) -> (PodArrival, &PodName) {
        (self.arrival, &self.request.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_cover_taints_as_in_kubernetes() {
        let taint = |effect: &str| Taint { key: "gpu".into(), value: "a100".into(), effect: effect.into() };
        let tolerates = |key: &str, operator: &str, value: &str, effect: &str| {
            let [key, operator, value, effect] = [key, operator, value, effect].map(str::to_owned);
            let tolerations = vec![Toleration { key, operator, value, effect }];
            PodScheduling { tolerations, ..PodScheduling::default() }
        };
        for (pod, effect, is_kept_away) in [
            (PodScheduling::default(), "NoSchedule", true),
            (PodScheduling::default(), "NoExecute", true),
            (PodScheduling::default(), "PreferNoSchedule", false),
            (tolerates("gpu", "Equal", "a100", "NoSchedule"), "NoSchedule", false),
            (tolerates("gpu", "", "a100", ""), "NoExecute", false),
            (tolerates("gpu", "Equal", "v100", ""), "NoSchedule", true),
            (tolerates("gpu", "Exists", "", "NoExecute"), "NoSchedule", true),
            (tolerates("gpu", "Exists", "", ""), "NoSchedule", false),
            (tolerates("", "Exists", "", ""), "NoSchedule", false),
            (tolerates("gpu", "Gt", "1", ""), "NoSchedule", true),
        ] {
            let taints = [taint(effect)];
            assert_eq!(pod.untolerated(&taints).is_some(), is_kept_away, "{pod:?} {effect}");
        }
    }
}
