//! A Pod object as a request.

use std::collections::BTreeMap;

use numa_placement::{
    ContainerKind, ContainerRequest, PodName, PodRequest, QosClass, Resources, device_counts, qos_class,
};
use numa_topology::quantity;
use serde::Deserialize;

/// Most containers of a pod.
const CONTAINERS: usize = 1_000;

/// What a plan needs of a Pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodObject {
    /// Its uid.
    pub uid: String,
    /// Its node; `None` before it is bound.
    pub node: Option<String>,
    /// Whether it may still hold anything.
    pub phase: PodPhase,
    /// Its creation, in the form of the API: texts in the order of time.
    pub created: String,
    /// Its request.
    pub request: PodRequest,
}

/// Whether a pod may still hold anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PodPhase {
    /// It waits or runs.
    #[default]
    Active,
    /// It has succeeded or failed.
    Ended,
}

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
}

impl PodObject {
    /// Reads a Pod; an amount that is no quantity is a fault.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let Pod { metadata, spec, status } = serde_json::from_str(text).map_err(|fault| fault.to_string())?;
        if spec.containers.len() + spec.init_containers.len() > CONTAINERS {
            return Err(format!("more than {CONTAINERS} containers"));
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
        let name = PodName::new(metadata.namespace, metadata.name).with_uid(metadata.uid.clone());
        let mut request = PodRequest::new(name, containers);
        request.annotations = metadata.annotations;
        // With resources of the pod as a whole, the kubelet's managers pass the pod over.
        request.qos = match status.qos_class.as_deref() {
            _ if spec.resources.is_some() => QosClass::Burstable,
            Some("Guaranteed") => QosClass::Guaranteed,
            Some("Burstable") => QosClass::Burstable,
            Some("BestEffort") => QosClass::BestEffort,
            _ => qos_class(&request.containers),
        };
        let has_ended = matches!(status.phase.as_str(), "Succeeded" | "Failed");
        Ok(Self {
            uid: metadata.uid,
            node: spec.node_name.filter(|node| !node.is_empty()),
            phase: if has_ended { PodPhase::Ended } else { PodPhase::Active },
            created: metadata.creation_timestamp.unwrap_or_default(),
            request,
        })
    }

    /// Order of creation, then of names.
    pub(super) fn order(&self) -> (&str, &PodName) {
        (&self.created, &self.request.name)
    }
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
