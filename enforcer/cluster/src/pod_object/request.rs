//! The request of a Pod object.
//!
//! A pod that is [resized](crate::resize) in place has two requests: that of the node, and what a scheduler
//! counts.

use std::collections::BTreeMap;

use enforcer_core::cluster::{
    own_engine::{KATALYST, KOORDINATOR},
    plan::{Amounts, amounts_of},
};
use numa_placement::{
    ContainerKind, ContainerRequest, PodName, PodRequest, QosClass, Resources, Undescribed,
    annotations_of_interest, device_counts, foreign::VOLCANO_POLICY, qos_class,
};
use numa_topology::quantity;

use super::{AmountTexts, ContainerFields, ContainerResources, ContainerStatus, PodFields, PodSpec};
use crate::resize::ResizeProgress;

/// Most bytes of the key and of the value of a label, as the API server allows.
const LABEL_KEY: usize = 317;
const LABEL_VALUE: usize = 63;
/// Amounts that can be resized.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// What a pod asks for.
pub(crate) struct ReadRequest {
    /// What its node goes by.
    pub(crate) request: PodRequest,
    /// What a scheduler counts, if that is something else.
    pub(crate) counted: Option<Amounts>,
}

impl PodFields {
    /// Its request.
    ///
    /// # Errors
    /// If an amount is no quantity.
    pub(crate) fn request(&self) -> Result<ReadRequest, String> {
        let Self { metadata, spec, status } = self;
        let mut containers = Vec::new();
        let mut counted = Vec::new();
        let resize = ResizeProgress::of(&status.conditions.0);
        let statuses = self.statuses();
        for (container, kind) in self.containers() {
            let of_container = statuses.get(container.name.as_str()).copied();
            let (on_node, by_scheduler) = requests(container, kind, of_container, resize)?;
            counted.push(by_scheduler.unwrap_or_else(|| on_node.clone()));
            containers.push(on_node);
        }
        let name = PodName::new(metadata.namespace.clone(), metadata.name.clone());
        let name = name.with_uid(metadata.uid.clone());
        let counted = (counted != containers).then(|| amounts_of(&PodRequest::new(name.clone(), counted)));
        let mut request = PodRequest::new(name, containers);
        // Other annotations have up to 256 KiB, and no part in a placement.
        let read = [VOLCANO_POLICY, KOORDINATOR, KATALYST];
        let read = read.iter().filter_map(|key| metadata.annotations.get_key_value(*key));
        request.annotations = annotations_of_interest(&metadata.annotations).0;
        request.annotations.extend(read.map(|(key, value)| (key.clone(), value.clone())));
        let labels = metadata
            .labels
            .iter()
            .filter(|(key, value)| key.len() <= LABEL_KEY && value.len() <= LABEL_VALUE);
        request.labels = labels.map(|(key, value)| (key.clone(), value.clone())).collect();
        request.undescribed = undescribed(spec);
        // With resources of the pod as a whole, the kubelet's managers pass the pod over.
        request.qos = match status.qos_class.as_deref() {
            _ if has_own_resources(spec) => QosClass::Burstable,
            Some("Guaranteed") => QosClass::Guaranteed,
            Some("Burstable") => QosClass::Burstable,
            Some("BestEffort") => QosClass::BestEffort,
            _ => qos_class(&request.containers),
        };
        let counted = with_whole(spec, counted, &request)?;
        Ok(ReadRequest { request, counted })
    }
}

/// What a scheduler counts where the pod as a whole asks for something, which stands for what its containers
/// ask for, or has the overhead of a runtime class (`PodRequests` of `k8s.io/component-helpers/resource`).
fn with_whole(
    spec: &PodSpec,
    counted: Option<Amounts>,
    request: &PodRequest,
) -> Result<Option<Amounts>, String> {
    if spec.overhead.0.is_empty() && !has_own_resources(spec) {
        return Ok(counted);
    }
    let mut counted = counted.unwrap_or_else(|| amounts_of(request));
    if let Some(whole) = &spec.resources {
        counted.extend(amounts("(all)", &whole.limits)?);
        counted.extend(amounts("(all)", &whole.requests)?);
    }
    for (resource, amount) in amounts("(overhead)", &spec.overhead)? {
        let sum = counted.entry(resource).or_default();
        *sum = sum.saturating_add(amount);
    }
    Ok(Some(counted))
}

/// Does the pod as a whole ask for something? The kubelet passes over an empty block.
fn has_own_resources(spec: &PodSpec) -> bool {
    let is_empty = |whole: &ContainerResources| whole.limits.0.is_empty() && whole.requests.0.is_empty();
    spec.resources.as_ref().is_some_and(|whole| !is_empty(whole))
}

fn undescribed(spec: &PodSpec) -> Option<Undescribed> {
    Undescribed::of(&spec.priority_class_name, has_own_resources(spec), !spec.resource_claims.0.is_empty())
}

/// The request of a container that its node goes by, and that of a scheduler if it is another one.
fn requests(
    container: &ContainerFields,
    kind: ContainerKind,
    status: Option<&ContainerStatus>,
    resize: ResizeProgress,
) -> Result<(ContainerRequest, Option<ContainerRequest>), String> {
    let ContainerFields { name, resources, .. } = container;
    let mut limits = amounts(name, &resources.limits)?;
    let mut wanted = amounts(name, &resources.requests)?;
    for (resource, amount) in &limits {
        wanted.entry(resource.clone()).or_insert(*amount);
    }
    let allocated = status.map(|status| amounts(name, &status.allocated_resources)).transpose()?;
    let actual = status.and_then(|status| status.resources.as_ref());
    let actual = actual.map(|actual| amounts(name, &actual.requests)).transpose()?;
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

fn amounts(container: &str, AmountTexts(texts): &AmountTexts) -> Result<BTreeMap<String, u64>, String> {
    let amount = |(resource, text): (&String, &String)| {
        let amount = if resource == "cpu" { quantity::milli_cpus(text) } else { quantity::whole(text) };
        let amount =
            amount.ok_or_else(|| format!("container {container}: {resource}: no quantity: {text:?}"))?;
        Ok((resource.clone(), amount))
    };
    texts.iter().map(amount).collect()
}
