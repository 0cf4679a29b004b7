//! Resource requests of a container, with their source.
//!
//! Problem: a manifest has exact numbers, but a running container only has those of its cgroup, and the
//! memory request of a Burstable container is not among them. Idea: take the best available source (the
//! annotation with a copy of the resources, the request itself, the OOM score that the kubelet derives from
//! it, the limit) and record the source.
//!
//! Invariant: an estimate is never taken for exact, because the source is always known.

use std::collections::BTreeMap;

use super::annotations::{RESOURCES_KEY, shown_problem};
use crate::document::Scalar;
use crate::{ContainerKind, ContainerRequest, MemorySource, PodRequest, QosClass};
use numa_topology::{quantity, text::printable_within};

/// The document of [`RESOURCES_KEY`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(
        rename_all = "camelCase",
        default,
        expecting = "a map like {containers: {NAME: {requests: {memory: 1Gi}}}}"
    )
)]
struct CopiedPodResources {
    init_containers: BTreeMap<String, CopiedContainerResources>,
    containers: BTreeMap<String, CopiedContainerResources>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(default, expecting = "a map like {requests: {memory: 1Gi}}")
)]
struct CopiedContainerResources {
    requests: BTreeMap<String, Scalar>,
    limits: BTreeMap<String, Scalar>,
}

/// Memory request of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryAmount {
    /// Bytes to promise.
    pub bytes: u64,
    /// Memory limit in bytes; `None` without a limit.
    pub limit: Option<u64>,
    /// Source of the request; `None` if nothing is promised.
    pub source: Option<MemorySource>,
}

/// Requests and limits of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedAmounts {
    /// CPU time in thousandths of a CPU.
    pub milli_cpus: u64,
    /// CPU limit in thousandths; `None` without a limit.
    pub milli_cpu_limit: Option<u64>,
    /// Memory.
    pub memory: MemoryAmount,
}

impl RequestedAmounts {
    /// Amounts of a container on a machine with this much memory, and warnings about its annotation.
    pub fn of(container: &ContainerRequest, pod: &PodRequest, machine_bytes: u64) -> (Self, Vec<String>) {
        let mut warnings = Vec::new();
        let copy = copied_resources(container, pod).unwrap_or_else(|problem| {
            warnings.push(format!("annotation {RESOURCES_KEY}: {}, ignored", shown_problem(&problem)));
            CopiedContainerResources::default()
        });
        let mut copied =
            |amounts: &BTreeMap<String, Scalar>, resource: &str, read: fn(&str) -> Option<u64>| {
                let text = &amounts.get(resource)?.0;
                let amount = read(text);
                if amount.is_none() {
                    let shown = printable_within(text, 40);
                    warnings.push(format!(
                        "annotation {RESOURCES_KEY}: {resource} `{shown}` is not an amount, ignored"
                    ));
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
            // Guaranteed: request and limit are equal.
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

/// The annotation's resources for a container; empty if it does not mention it.
fn copied_resources(
    container: &ContainerRequest,
    pod: &PodRequest,
) -> Result<CopiedContainerResources, String> {
    let Some(document) = pod.documents.get(RESOURCES_KEY) else {
        return Ok(CopiedContainerResources::default());
    };
    let mut all: CopiedPodResources = document.as_ref().map_err(Clone::clone)?.read()?;
    let of_kind = match container.kind {
        ContainerKind::Init | ContainerKind::Sidecar => &mut all.init_containers,
        ContainerKind::App => &mut all.containers,
    };
    Ok(of_kind.remove(&container.name).unwrap_or_default())
}

/// Minimum memory request for an OOM score of the kubelet: it subtracts the request, in thousandths of the
/// machine's memory and rounded down, from 1000 (pkg/kubelet/qos/policy.go). Scores outside `3..=999` are not
/// of Burstable containers.
pub(crate) fn bytes_of_oom_score(score: i32, machine_bytes: u64) -> Option<u64> {
    let score = u128::try_from(score).ok().filter(|score| (3..=999).contains(score))?;
    u64::try_from(((1000 - score) * u128::from(machine_bytes)).div_ceil(1000)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Resources, pools::annotations::tests::pod};

    const GIB: u64 = 1 << 30;

    fn of(pod: &PodRequest) -> (RequestedAmounts, Vec<String>) {
        RequestedAmounts::of(&pod.containers[0], pod, 256 * GIB)
    }

    /// A Burstable pod with these memory requests and limits of its first container.
    fn burstable(annotations: &[(&str, &str)], request: Option<u64>, limit: Option<u64>) -> PodRequest {
        let mut pod = pod(annotations);
        pod.qos = QosClass::Burstable;
        let bytes = |memory_bytes| Resources { memory_bytes, ..Resources::default() };
        (pod.containers[0].requests, pod.containers[0].limits) = (bytes(request), bytes(limit));
        pod
    }

    #[test]
    fn the_best_source_counts_and_is_named() {
        let copy =
            (RESOURCES_KEY, r#"{"containers": {"c1": {"requests": {"memory": "3Gi", "cpu": "1500m"}}}}"#);
        // Exactly a quarter of 256 GiB.
        let quarter = Some(750);
        for (annotations, request, score, limit, bytes, source) in [
            (&[copy][..], Some(GIB), quarter, Some(8 * GIB), 3 * GIB, Some(MemorySource::Annotation)),
            (&[], Some(GIB), quarter, Some(128 * GIB), GIB, Some(MemorySource::Request)),
            (&[], None, quarter, Some(128 * GIB), 64 * GIB, Some(MemorySource::OomScoreAdj)),
            (&[], None, quarter, None, 64 * GIB, Some(MemorySource::OomScoreAdj)),
            (&[], None, quarter, Some(8 * GIB), 8 * GIB, Some(MemorySource::Limit)),
            (&[], None, Some(1000), Some(8 * GIB), 8 * GIB, Some(MemorySource::Limit)),
            (&[], None, None, None, 0, None),
        ] {
            let mut pod = burstable(annotations, request, limit);
            pod.containers[0].oom_score_adj = score;
            let (amounts, warnings) = of(&pod);
            assert_eq!((amounts.memory.bytes, amounts.memory.source), (bytes, source), "{pod:?}");
            assert_eq!(warnings, Vec::<String>::new());
        }
        let (amounts, _) = of(&burstable(&[copy], None, None));
        assert_eq!(amounts.milli_cpus, 1500);
    }

    #[test]
    fn init_containers_are_looked_up_among_their_own() {
        let copy = r#"{"initContainers": {"c1": {"requests": {"memory": 1024}}}, "containers": {"c1": {"requests": {"memory": 2048}}}}"#;
        let mut pod = burstable(&[(RESOURCES_KEY, copy)], None, None);
        assert_eq!(of(&pod).0.memory.bytes, 2048);
        for kind in [ContainerKind::Init, ContainerKind::Sidecar] {
            pod.containers[0].kind = kind;
            assert_eq!(of(&pod).0.memory.bytes, 1024);
        }
    }

    #[test]
    fn other_classes_have_no_estimate() {
        let mut guaranteed = burstable(&[], Some(GIB), Some(GIB));
        guaranteed.qos = QosClass::Guaranteed;
        guaranteed.containers[0].oom_score_adj = Some(500);
        assert_eq!(of(&guaranteed).0.memory.source, Some(MemorySource::Request));
        let mut best_effort = burstable(&[], None, None);
        best_effort.qos = QosClass::BestEffort;
        best_effort.containers[0].oom_score_adj = Some(500);
        assert_eq!(of(&best_effort).0.memory, MemoryAmount { bytes: 0, limit: None, source: None });
    }

    #[test]
    fn a_copy_that_cannot_be_read_is_reported_and_left_out() {
        for (copy, problem) in [
            ("{", "annotation noderesource.dev/resources: "),
            (
                r#""3Gi""#,
                "annotation noderesource.dev/resources: invalid type: string \"3Gi\", expected a map like \
                 {containers: ",
            ),
            (
                r#"{"containers": {"c1": 3}}"#,
                "annotation noderesource.dev/resources: invalid type: integer `3`, expected a map like {requests: ",
            ),
            (r#"{"containers": []}"#, "annotation noderesource.dev/resources: invalid type"),
            (
                r#"{"containers": {"c1": {"requests": {"memory": "much"}}}}"#,
                "annotation noderesource.dev/resources: memory `much` is not an amount",
            ),
        ] {
            let (amounts, warnings) = of(&burstable(&[(RESOURCES_KEY, copy)], Some(GIB), None));
            assert_eq!(amounts.memory.source, Some(MemorySource::Request));
            assert!(matches!(warnings.as_slice(), [one] if one.starts_with(problem)), "{warnings:?}");
        }
    }

    /// As the kubelet computes it for Burstable containers.
    fn oom_score(request: u64, machine_bytes: u64) -> i32 {
        let thousandths = u128::from(request) * 1000 / u128::from(machine_bytes);
        (1000 - i32::try_from(thousandths).unwrap()).clamp(3, 999)
    }

    #[test]
    fn every_score_comes_back_from_its_estimate_on_every_size_of_machine() {
        for size in (1..=384).map(|step| step * 4 * GIB) {
            for score in 3..=999 {
                let request = bytes_of_oom_score(score, size).unwrap();
                assert_eq!(oom_score(request, size), score, "{size} bytes");
            }
        }
        for score in [-998, -1, 0, 2, 1000, i32::MAX, i32::MIN] {
            assert_eq!(bytes_of_oom_score(score, 4 * GIB), None);
        }
    }

    proptest! {
        #[test]
        fn an_estimate_is_within_a_thousandth_of_the_request(thousandths in 1u64..997, size in 1u64..1 << 50, part in 0u64..1000) {
            let size = size.max(1 << 20);
            let request = (u128::from(thousandths) * 1000 + u128::from(part)) * u128::from(size) / 1_000_000;
            let request = u64::try_from(request).unwrap();
            prop_assume!((3..999).contains(&oom_score(request, size)));
            let estimate = bytes_of_oom_score(oom_score(request, size), size).unwrap();
            prop_assert!(estimate.abs_diff(request) <= size / 1000 + 1, "{estimate} for {request} of {size}");
        }
    }
}
