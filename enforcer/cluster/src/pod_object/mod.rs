//! A Pod object, as far as this crate reads it.
//!
//! Problem: plans and checks read thousands of pods of a cluster, and the daemon follows those of its node.
//! What a pod asks for must be the same for both, or a prediction of the one is not what the other compares
//! it with. Idea: both read these fields, and [`PodFields::request`] makes the request of them.
//!
//! Invariants: lists and amounts are bounded while they are read, because the author of a pod chooses their
//! lengths. What an object does not say is absent or empty.

mod placing;
mod request;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use enforcer_core::cluster::objects::is_static_uid;
use numa_placement::ContainerKind;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use self::placing::HostPorts;
pub(crate) use self::{
    placing::{GatePositions, required_and_gates},
    request::ReadRequest,
};
use crate::resize::PodCondition;

/// Most containers of a pod, in each of its lists.
const CONTAINERS: usize = 1_000;
/// Most tolerations of a pod.
const TOLERATIONS: usize = 1_000;
/// Most volumes of a pod.
const VOLUMES: usize = 1_000;
/// Most conditions of a pod; readiness gates add some.
const CONDITIONS: usize = 128;
/// Most resources in one list of amounts.
const AMOUNTS: usize = 64;

/// Annotation of the mirror of a static pod: its uid in the kubelet (`pkg/kubelet/types/constants.go`).
const STATIC_UID: &str = "kubernetes.io/config.hash";
/// Annotation that makes a pod a mirror; any pod may have the one above.
const MIRROR: &str = "kubernetes.io/config.mirror";

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodFields {
    pub(crate) metadata: PodMetadata,
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodMetadata {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) creation_timestamp: Option<String>,
    pub(crate) deletion_timestamp: Option<String>,
    pub(crate) resource_version: String,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    pub(crate) node_name: Option<String>,
    pub(crate) restart_policy: String,
    pub(crate) init_containers: AtMost<ContainerFields, CONTAINERS>,
    pub(crate) containers: AtMost<ContainerFields, CONTAINERS>,
    pub(crate) resources: Option<ContainerResources>,
    pub(crate) overhead: AmountTexts,
    pub(crate) resource_claims: AtMost<ClaimFields, CONTAINERS>,
    pub(crate) priority: Option<i32>,
    pub(crate) priority_class_name: String,
    pub(crate) tolerations: AtMost<TolerationFields, TOLERATIONS>,
    pub(crate) volumes: AtMost<VolumeFields, VOLUMES>,
    pub(crate) node_selector: BTreeMap<String, String>,
    /// Read where it matters: a fault in it is none of the pod's request.
    affinity: Option<Box<RawValue>>,
    scheduling_gates: Option<Box<RawValue>>,
    topology_spread_constraints: Option<Box<RawValue>>,
}

/// A claim for devices.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ClaimFields {
    pub(crate) name: String,
    pub(crate) resource_claim_name: Option<String>,
    pub(crate) resource_claim_template_name: Option<String>,
}

/// A volume; only those of claims have to be there before their pod is bound.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeFields {
    persistent_volume_claim: Option<IgnoredAny>,
    ephemeral: Option<IgnoredAny>,
}

impl VolumeFields {
    pub(crate) const fn binds_late(&self) -> bool {
        self.persistent_volume_claim.is_some() || self.ephemeral.is_some()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct TolerationFields {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerFields {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) resources: ContainerResources,
    pub(crate) restart_policy: Option<String>,
    #[serde(default)]
    ports: HostPorts,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerResources {
    pub(crate) requests: AmountTexts,
    pub(crate) limits: AmountTexts,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodStatus {
    pub(crate) phase: String,
    pub(crate) reason: String,
    pub(crate) qos_class: Option<String>,
    pub(crate) nominated_node_name: Option<String>,
    pub(crate) start_time: Option<String>,
    pub(crate) conditions: AtMost<PodCondition, CONDITIONS>,
    pub(crate) init_container_statuses: AtMost<ContainerStatus, CONTAINERS>,
    pub(crate) container_statuses: AtMost<ContainerStatus, CONTAINERS>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) state: ContainerState,
    #[serde(default)]
    pub(crate) allocated_resources: AmountTexts,
    #[serde(default)]
    pub(crate) resources: Option<ContainerResources>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub(crate) terminated: Option<EndedContainer>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct EndedContainer {
    pub(crate) exit_code: i64,
    pub(crate) finished_at: Option<String>,
}

impl PodFields {
    /// What a mirror pod says is the uid of its static pod, as the kubelet writes it: a hash, and the same in
    /// the annotation that makes it a mirror. Any pod may have these annotations.
    pub(crate) fn static_uid(&self) -> Option<&str> {
        let annotations = &self.metadata.annotations;
        let uid = annotations.get(STATIC_UID).filter(|uid| annotations.get(MIRROR) == Some(*uid))?;
        Some(uid.as_str()).filter(|uid| is_static_uid(uid))
    }

    /// Its containers in the order in which they start, each with its kind.
    pub(crate) fn containers(&self) -> impl Iterator<Item = (&ContainerFields, ContainerKind)> {
        let init = self.spec.init_containers.0.iter().map(|container| {
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            (container, if is_sidecar { ContainerKind::Sidecar } else { ContainerKind::Init })
        });
        init.chain(self.spec.containers.0.iter().map(|container| (container, ContainerKind::App)))
    }

    /// Statuses of its containers by their names.
    pub(crate) fn statuses(&self) -> BTreeMap<&str, &ContainerStatus> {
        let all = self.status.init_container_statuses.0.iter().chain(&self.status.container_statuses.0);
        all.map(|one| (one.name.as_str(), one)).collect()
    }
}

/// A list that is refused where it is longer.
pub(crate) struct AtMost<T, const N: usize>(pub(crate) Vec<T>);

impl<T, const N: usize> Default for AtMost<T, N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for AtMost<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const N: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Items<T, N> {
            type Value = AtMost<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {N} entries")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut read = Vec::new();
                while let Some(item) = items.next_element()? {
                    if read.len() == N {
                        return Err(serde::de::Error::invalid_length(N + 1, &self));
                    }
                    read.push(item);
                }
                Ok(AtMost(read))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(AtMost::default())
            }
        }
        deserializer.deserialize_any(Items(PhantomData))
    }
}

/// Amounts by resource, in the notation of Kubernetes.
#[derive(Default)]
pub(crate) struct AmountTexts(pub(crate) BTreeMap<String, String>);

impl<'de> Deserialize<'de> for AmountTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = AmountTexts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "amounts of at most {AMOUNTS} resources")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut amounts: A) -> Result<AmountTexts, A::Error> {
                let mut read = BTreeMap::new();
                while let Some((resource, amount)) = amounts.next_entry()? {
                    if read.len() == AMOUNTS {
                        return Err(serde::de::Error::invalid_length(AMOUNTS + 1, &self));
                    }
                    read.insert(resource, amount);
                }
                Ok(AmountTexts(read))
            }

            fn visit_unit<E>(self) -> Result<AmountTexts, E> {
                Ok(AmountTexts::default())
            }
        }
        deserializer.deserialize_any(Entries)
    }
}
