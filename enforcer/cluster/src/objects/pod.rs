//! A Pod object as a request, and what else plans and checks read of it.
//!
//! A pod that is [resized](crate::resize) in place has two requests: that of the node, and what a scheduler
//! counts.

use std::collections::BTreeMap;

use enforcer_core::cluster::{
    objects::{PodArrival, PodObject, PodPhase, PodScheduling, Toleration},
    own_engine::{KATALYST, KOORDINATOR},
    plan::{Amounts, amounts_of},
};
use numa_placement::{
    ContainerKind, ContainerRequest, PodName, PodRequest, QosClass, Resources, annotations_of_interest,
    device_counts, foreign::VOLCANO_POLICY, qos_class,
};
use numa_topology::quantity;
use serde::Deserialize;

use super::seconds;
use crate::resize::{PodCondition, ResizeProgress};

/// Most containers of a pod.
const CONTAINERS: usize = 1_000;
/// Most bytes of the key and of the value of a label, as the API server allows.
const LABEL_KEY: usize = 317;
const LABEL_VALUE: usize = 63;
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
    #[serde(default)]
    labels: BTreeMap<String, String>,
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
struct ContainerStatus {
    name: String,
    #[serde(default)]
    state: ContainerState,
    #[serde(default)]
    allocated_resources: BTreeMap<String, String>,
    #[serde(default)]
    resources: Option<ContainerResources>,
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

    /// The statuses of all containers.
    fn containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.init_container_statuses.iter().chain(&self.container_statuses)
    }

    /// When a scheduler bound the pod.
    fn bound_at(&self) -> Option<i64> {
        seconds(PodCondition::that_holds(&self.conditions, "PodScheduled")?.since())
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
    let mut counted = Vec::new();
    let resize = ResizeProgress::of(&status.conditions);
    let init = spec.init_containers.into_iter().map(|container| {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        (container, if is_sidecar { ContainerKind::Sidecar } else { ContainerKind::Init })
    });
    for (container, kind) in init.chain(spec.containers.into_iter().map(|one| (one, ContainerKind::App))) {
        let of_container = status.containers().find(|one| one.name == container.name);
        let (on_node, by_scheduler) = requests(container, kind, of_container, resize)?;
        counted.push(by_scheduler.unwrap_or_else(|| on_node.clone()));
        containers.push(on_node);
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
    let counted = (counted != containers).then(|| amounts_of(&PodRequest::new(name.clone(), counted)));
    let mut request = PodRequest::new(name, containers);
    let is_mirror = metadata.annotations.contains_key(MIRROR);
    let static_uid = metadata.annotations.get(STATIC_UID).filter(|uid| is_mirror && !uid.is_empty());
    let mirror_of = static_uid.cloned();
    // Other annotations have up to 256 KiB, and no part in a plan.
    let read = [VOLCANO_POLICY, KOORDINATOR, KATALYST];
    let read = read.iter().filter_map(|key| metadata.annotations.get_key_value(*key));
    request.annotations = annotations_of_interest(&metadata.annotations).0;
    request.annotations.extend(read.map(|(key, value)| (key.clone(), value.clone())));
    request.labels = metadata.labels;
    request.labels.retain(|key, value| key.len() <= LABEL_KEY && value.len() <= LABEL_VALUE);
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
    let is_bound = node.is_some();
    // Most pods of a cluster: no manager has a say about them, and sums are all that counts.
    let counts_alone = is_bound
        && request.qos != QosClass::Guaranteed
        && request.containers.iter().all(|container| container.devices.is_empty());
    let counted = if counts_alone { Some(counted.unwrap_or_else(|| amounts_of(&request))) } else { counted };
    if counts_alone {
        request.containers = Vec::new();
    }
    let toleration =
        |TolerationFields { key, operator, value, effect }| Toleration { key, operator, value, effect };
    let tolerations = spec.tolerations.into_iter().filter(move |_| !is_bound);
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
            // A pod with a node has passed its taints.
            tolerations: tolerations.map(toleration).collect(),
        },
        counted,
        request,
    })
}

/// Amounts that can be resized.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// The request of a container that its node goes by, and that of a scheduler if it is another one.
fn requests(
    container: Container,
    kind: ContainerKind,
    status: Option<&ContainerStatus>,
    resize: ResizeProgress,
) -> Result<(ContainerRequest, Option<ContainerRequest>), String> {
    let Container { name, resources, .. } = container;
    let mut limits = amounts(&name, &resources.limits)?;
    let mut wanted = amounts(&name, &resources.requests)?;
    for (resource, amount) in &limits {
        wanted.entry(resource.clone()).or_insert(*amount);
    }
    let allocated = status.map(|status| amounts(&name, &status.allocated_resources)).transpose()?;
    let actual = status.and_then(|status| status.resources.as_ref());
    let actual = actual.map(|actual| amounts(&name, &actual.requests)).transpose()?;
    let (mut given, mut counted) = (wanted.clone(), wanted.clone());
    for resource in RESIZABLE {
        let of = |amounts: &Option<Amounts>| amounts.as_ref()?.get(resource).copied();
        let Some(wish) = wanted.get(resource).copied() else { continue };
        let (allocated, actual) = (of(&allocated), of(&actual));
        let held = resize.on_node(wish, allocated, actual);
        given.insert(resource.to_owned(), held);
        if limits.get(resource) == Some(&wish) {
            limits.insert(resource.to_owned(), held);
        }
        counted.insert(resource.to_owned(), resize.of_scheduler(wish, allocated, actual));
    }
    let request = |requests: &Amounts| ContainerRequest {
        devices: device_counts(requests),
        requests: Resources::of_amounts(requests),
        limits: Resources::of_amounts(&limits),
        name: name.clone(),
        kind,
        ..ContainerRequest::default()
    };
    Ok((request(&given), (counted != given).then(|| request(&counted))))
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
