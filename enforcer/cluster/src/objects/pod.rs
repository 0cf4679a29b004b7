//! A Pod object as a request, and what else plans and checks read of it.

use std::collections::BTreeMap;

use enforcer_core::cluster::objects::{PodArrival, PodObject, PodPhase, PodScheduling, Toleration};
use numa_placement::{
    ContainerKind, ContainerRequest, PodName, PodRequest, QosClass, Resources, device_counts, qos_class,
};
use numa_topology::quantity;
use serde::Deserialize;

use super::seconds;

/// Most containers of a pod.
const CONTAINERS: usize = 1_000;
/// Most tolerations of a pod.
const TOLERATIONS: usize = 1_000;
/// Annotation of the mirror of a static pod: its uid in the kubelet (`pkg/kubelet/types/constants.go`).
const STATIC_UID: &str = "kubernetes.io/config.hash";
/// Annotation that makes a pod a mirror; any pod may have the one above.
const MIRROR: &str = "kubernetes.io/config.mirror";

#[derive(Deserialize)]
struct Pod {
    metadata: PodMetadata,
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    creation_timestamp: Option<String>,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    #[serde(default)]
    init_containers: Vec<Container>,
    containers: Vec<Container>,
    #[serde(default)]
    resources: Option<ContainerResources>,
    #[serde(default)]
    priority: Option<i32>,
    #[serde(default)]
    tolerations: Vec<TolerationFields>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TolerationFields {
    key: String,
    operator: String,
    value: String,
    effect: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    #[serde(default)]
    resources: ContainerResources,
    restart_policy: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerResources {
    requests: BTreeMap<String, String>,
    limits: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: String,
    qos_class: Option<String>,
    conditions: Vec<PodCondition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_transition_time: Option<String>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    name: String,
    #[serde(default)]
    state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    terminated: Option<EndedContainer>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EndedContainer {
    finished_at: Option<String>,
}

impl PodStatus {
    fn phase(&self) -> PodPhase {
        match self.phase.as_str() {
            "Succeeded" | "Failed" => PodPhase::Ended,
            "Running" => PodPhase::Running,
            _ => PodPhase::Pending,
        }
    }

    /// When a scheduler bound the pod.
    fn bound_at(&self) -> Option<i64> {
        let is_bound = |one: &&PodCondition| one.kind == "PodScheduled" && one.status == "True";
        seconds(self.conditions.iter().find(is_bound)?.last_transition_time.as_deref())
    }

    /// When the last container ended; unknown if none has run.
    fn ended_at(&self) -> Option<i64> {
        let ended =
            |status: &ContainerStatus| seconds(status.state.terminated.as_ref()?.finished_at.as_deref());
        self.container_statuses.iter().filter_map(ended).max()
    }
}

/// Reads a Pod; an amount that is no quantity is a fault.
pub(super) fn read(text: &str) -> Result<PodObject, String> {
    let Pod { metadata, spec, status } = serde_json::from_str(text).map_err(|fault| fault.to_string())?;
    if spec.containers.len() + spec.init_containers.len() > CONTAINERS {
        return Err(format!("more than {CONTAINERS} containers"));
    }
    if spec.tolerations.len() > TOLERATIONS {
        return Err(format!("more than {TOLERATIONS} tolerations"));
    }
    let mut containers = Vec::new();
    for container in spec.init_containers {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        let kind = if is_sidecar { ContainerKind::Sidecar } else { ContainerKind::Init };
        containers.push(request(container, kind)?);
    }
    for container in spec.containers {
        containers.push(request(container, ContainerKind::App)?);
    }
    let node = spec.node_name.filter(|node| !node.is_empty());
    let created = seconds(metadata.creation_timestamp.as_deref()).unwrap_or(0);
    let bound_at = status.bound_at().filter(|_| node.is_some());
    let is_init =
        |name: &str| containers.iter().any(|one| one.name == name && one.kind == ContainerKind::Init);
    let statuses = status.init_container_statuses.iter();
    let ended = statuses.filter(|one| one.state.terminated.is_some() && is_init(&one.name));
    let ended_init = ended.map(|one| one.name.clone()).collect();
    let name = PodName::new(metadata.namespace, metadata.name).with_uid(metadata.uid.clone());
    let mut request = PodRequest::new(name, containers);
    let is_mirror = metadata.annotations.contains_key(MIRROR);
    let static_uid = metadata.annotations.get(STATIC_UID).filter(|uid| is_mirror && !uid.is_empty());
    let mirror_of = static_uid.cloned();
    request.annotations = metadata.annotations;
    // With resources of the pod as a whole, the kubelet's managers pass the pod over.
    request.qos = match status.qos_class.as_deref() {
        _ if spec.resources.is_some_and(|whole| !whole.limits.is_empty() || !whole.requests.is_empty()) => {
            QosClass::Burstable
        }
        Some("Guaranteed") => QosClass::Guaranteed,
        Some("Burstable") => QosClass::Burstable,
        Some("BestEffort") => QosClass::BestEffort,
        _ => qos_class(&request.containers),
    };
    let toleration =
        |TolerationFields { key, operator, value, effect }| Toleration { key, operator, value, effect };
    Ok(PodObject {
        uid: metadata.uid,
        mirror_of,
        node,
        phase: status.phase(),
        arrival: PodArrival {
            at: bound_at.unwrap_or(created),
            version: metadata.resource_version.parse().unwrap_or(0),
        },
        ended_at: status.ended_at(),
        ended_init,
        scheduling: PodScheduling {
            priority: spec.priority.unwrap_or(0),
            tolerations: spec.tolerations.into_iter().map(toleration).collect(),
        },
        request,
    })
}

fn request(container: Container, kind: ContainerKind) -> Result<ContainerRequest, String> {
    let Container { name, resources, .. } = container;
    let limits = amounts(&name, &resources.limits)?;
    let mut requests = amounts(&name, &resources.requests)?;
    for (resource, amount) in &limits {
        requests.entry(resource.clone()).or_insert(*amount);
    }
    Ok(ContainerRequest {
        devices: device_counts(&requests),
        requests: Resources::of_amounts(&requests),
        limits: Resources::of_amounts(&limits),
        name,
        kind,
        ..ContainerRequest::default()
    })
}

fn amounts(container: &str, texts: &BTreeMap<String, String>) -> Result<BTreeMap<String, u64>, String> {
    let amount = |(resource, text): (&String, &String)| {
        let amount = if resource == "cpu" { quantity::milli_cpus(text) } else { quantity::whole(text) };
        let amount =
            amount.ok_or_else(|| format!("container {container}: {resource}: no quantity: {text:?}"))?;
        Ok((resource.clone(), amount))
    };
    texts.iter().map(amount).collect()
}
