//! How much a container asks for, and who says so.
//!
//! Problem: a manifest has exact numbers, but a container that is seen at run time has only what its
//! cgroup shows, and there the memory request of a Burstable container is not. Idea: take the best
//! source that there is (the annotation with a copy of the resources, the request itself, the OOM
//! score that the kubelet derives from it, the limit) and say which it was.
//!
//! Must never take a number for exact that is an estimate: the source goes with it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::document::Scalar;
use crate::{
    parse::quantity,
    place::{ContainerKind, ContainerRequest, MemorySource, PodRequest},
    workload::{QosClass, printable},
};

/// Key of the annotation that carries a copy of the exact resources.
pub(super) const RESOURCES_KEY: &str = "noderesource.dev/resources";

/// The document of [`RESOURCES_KEY`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodResources {
    init_containers: BTreeMap<String, ContainerResources>,
    containers: BTreeMap<String, ContainerResources>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct ContainerResources {
    requests: BTreeMap<String, Scalar>,
    limits: BTreeMap<String, Scalar>,
}

/// Memory that a container asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAmount {
    /// Bytes that it is promised.
    pub bytes: u64,
    /// Bytes that it may not exceed; no limit when absent.
    pub limit: Option<u64>,
    /// What says so; absent where nothing is promised.
    pub source: Option<MemorySource>,
}

/// What one container asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amounts {
    /// CPU time in thousandths of a CPU.
    pub milli_cpus: u64,
    /// CPU time that it may not exceed; no limit when absent.
    pub milli_cpu_limit: Option<u64>,
    /// Memory.
    pub memory: MemoryAmount,
}

impl Amounts {
    /// Of a container on a machine with this much memory; and what of its annotation was ignored.
    pub fn of(container: &ContainerRequest, pod: &PodRequest, machine_bytes: u64) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let copy = copied_resources(container, pod).unwrap_or_else(|problem| {
            warnings.push(format!("annotation {RESOURCES_KEY}: {}", printable(&problem)));
            ContainerResources::default()
        });
        let mut copied = |amounts: &BTreeMap<String, Scalar>,
                          resource: &str,
                          read: fn(&str) -> Option<u64>| {
            let text = &amounts.get(resource)?.0;
            let amount = read(text);
            if amount.is_none() {
                let shown = printable(&text.chars().take(40).collect::<String>());
                warnings.push(format!("annotation {RESOURCES_KEY}: {resource} `{shown}` is not an amount"));
            }
            amount
        };
        let copied_cpus = copied(&copy.requests, "cpu", quantity::milli_cpus);
        let copied_cpu_limit = copied(&copy.limits, "cpu", quantity::milli_cpus);
        let copied_memory = copied(&copy.requests, "memory", quantity::whole);
        let copied_memory_limit = copied(&copy.limits, "memory", quantity::whole);
        let ContainerRequest { requests, limits, .. } = container;
        let milli_cpu_limit = copied_cpu_limit.or(limits.milli_cpus);
        let limit = copied_memory_limit.or(limits.memory_bytes);
        let estimate = container.oom_score_adj.and_then(|score| bytes_of_oom_score(score, machine_bytes));
        let sources = [
            (MemorySource::Annotation, copied_memory),
            (MemorySource::Request, requests.memory_bytes),
            (MemorySource::OomScoreAdj, estimate.filter(|bytes| limit.is_none_or(|limit| *bytes < limit))),
            (MemorySource::Limit, limit),
        ];
        let mut stated = sources
            .into_iter()
            .filter(|(source, _)| *source != MemorySource::OomScoreAdj || pod.qos == QosClass::Burstable)
            .filter_map(|(source, bytes)| Some((Some(source), bytes?)));
        let (source, bytes) = match pod.qos {
            QosClass::BestEffort => (None, 0),
            // Guaranteed: request and limit are one.
            QosClass::Guaranteed | QosClass::Burstable => {
                stated.find(|(_, bytes)| *bytes > 0).unwrap_or((None, 0))
            }
        };
        let amounts = Self {
            milli_cpus: copied_cpus.or(requests.milli_cpus).or(milli_cpu_limit).unwrap_or(0),
            milli_cpu_limit,
            memory: MemoryAmount { bytes, limit, source },
        };
        (amounts, warnings)
    }
}

/// What the annotation says of a container; nothing where it does not mention it.
fn copied_resources(container: &ContainerRequest, pod: &PodRequest) -> Result<ContainerResources, String> {
    let Some(document) = pod.documents.get(RESOURCES_KEY) else { return Ok(ContainerResources::default()) };
    let mut all: PodResources = document.as_ref().map_err(Clone::clone)?.read()?;
    let of_kind = match container.kind {
        ContainerKind::Init | ContainerKind::Sidecar => &mut all.init_containers,
        ContainerKind::App => &mut all.containers,
    };
    Ok(of_kind.remove(&container.name).unwrap_or_default())
}

/// The memory request that the kubelet made an OOM score of, at least: it subtracts the request, in
/// thousandths of the machine's memory and rounded down, from 1000 (pkg/kubelet/qos/policy.go).
/// Scores outside 3..=999 are not of Burstable containers.
pub fn bytes_of_oom_score(score: i32, machine_bytes: u64) -> Option<u64> {
    let thousandths = u128::try_from(1000 - score).ok().filter(|_| (3..=999).contains(&score))?;
    u64::try_from((thousandths * u128::from(machine_bytes)).div_ceil(1000)).ok()
}
