//! What the API of the cluster says about a node and its pods.

use std::{collections::BTreeMap, sync::Arc};

use numa_placement::{ContainerKind, PodRequest};

/// What the API says about a node. Everything may be missing; what is there is newer or older than the
/// kubelet's files by the delay of a watch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeInApi {
    /// Pods that are bound to the node; `None` if they are not known.
    pub pods: Option<Vec<ApiPod>>,
    /// Where in the changes of the pods this is.
    pub sequence: PodSequence,
    /// Pods that are bound to the node and could not be read, and why.
    pub left_out: Vec<String>,
    /// Extended resources of the node's `status.capacity`, unhealthy devices included; `None` if not known.
    pub device_capacity: Option<BTreeMap<String, u64>>,
}

/// A moment in the changes of a node's pods: it tells whether a pod came and went unseen since another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PodSequence {
    /// Number of the list that the changes follow. Between two lists a pod may have come and gone.
    pub list: u64,
    /// Number of pods that have left since the list.
    pub gone: u64,
}

/// A pod that is bound to the node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ApiPod {
    /// Its uid in the API.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Annotation `kubernetes.io/config.hash` of a mirror pod: the uid of the static pod in the kubelet.
    pub config_hash: Option<String>,
    /// Whether its phase is `Succeeded` or `Failed`.
    pub is_finished: bool,
    /// Its containers.
    pub containers: Vec<ApiContainer>,
    /// What it asks for, if it has not ended or the node refused it; `None` also where it is too large to be
    /// kept.
    pub request: Option<Arc<PodRequest>>,
    /// Why the node refused it, if it did.
    pub rejection: Option<ApiRejection>,
}

impl ApiPod {
    /// Its uid in the kubelet and in the kubelet's files.
    pub fn kubelet_uid(&self) -> &str {
        self.config_hash.as_deref().unwrap_or(&self.uid)
    }
}

/// A container of a pod in the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiContainer {
    /// Its name.
    pub name: String,
    /// When it runs.
    pub kind: ContainerKind,
    /// Number of CPUs that a static CPU manager gives it exclusively, 0 for a shared one; `None` if not
    /// known.
    pub exclusive_cpus: Option<u64>,
    /// Whether it has ended and is not started again.
    pub has_ended: bool,
    /// Devices that it asks for, by resource; also of resources that no device plugin has.
    pub devices: BTreeMap<String, u64>,
}

/// Refusal of a pod by the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiRejection {
    /// `status.reason`, as in `TopologyAffinityError`.
    pub reason: String,
    /// Time of the refusal, in seconds since 1970.
    pub at: i64,
}
