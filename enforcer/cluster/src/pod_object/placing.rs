//! Where a pod without a node may go, and what keeps it from the scheduler.
//!
//! Invariants: a pod whose requirements are larger than what is read, or of another form, is read all the
//! same, and says so: it asks for CPUs and memory as any other. A pod with a node has none of this.

use std::{borrow::Cow, fmt};

use enforcer_core::cluster::{
    gate::{GATE, NotComputed, PlacedMark, PodGates},
    required_nodes::{AffinityTerms, NodeRequirement, NodeTerm, RequiredNodes},
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{AtMost, PodFields, PodSpec, VolumeFields};

/// Most terms of a required node affinity, requirements of a term, and values of a requirement that are read.
const TERMS: usize = 64;
const REQUIREMENTS: usize = 64;
const VALUES: usize = 1_024;
/// Most positions of the gate that are kept; the API server admits one.
const GATES: usize = 64;
/// Most constraints of the spread of a pod.
const CONSTRAINTS: usize = 64;
/// Most requirements of its affinity to other pods; one is enough to know that there are some.
const POD_TERMS: usize = 1_024;
/// Longest annotation of a placed pod in bytes.
const MARK: usize = 1_024;

#[derive(Default, Deserialize)]
#[serde(default)]
struct AffinityFields {
    #[serde(rename = "nodeAffinity")]
    of_nodes: Option<NodeAffinityFields>,
    #[serde(rename = "podAffinity")]
    to_pods: Option<PodAffinityFields>,
    #[serde(rename = "podAntiAffinity")]
    against_pods: Option<PodAffinityFields>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeAffinityFields {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<TermList>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodAffinityFields {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: AtMost<IgnoredAny, POD_TERMS>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TermList {
    node_selector_terms: AtMost<TermFields, TERMS>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TermFields {
    match_expressions: AtMost<RequirementFields, REQUIREMENTS>,
    match_fields: AtMost<RequirementFields, REQUIREMENTS>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RequirementFields {
    key: String,
    operator: String,
    values: AtMost<String, VALUES>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GateName<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SpreadFields<'a> {
    #[serde(borrow)]
    when_unsatisfiable: Cow<'a, str>,
}

/// Positions of the gate of this program in a list of gates, however long that is.
#[derive(Debug, Default)]
pub(crate) struct GatePositions(Vec<usize>);

impl GatePositions {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for GatePositions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Gates;

        impl<'de> Visitor<'de> for Gates {
            type Value = GatePositions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("scheduling gates")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut gates: A) -> Result<GatePositions, A::Error> {
                let (mut ours, mut at) = (Vec::new(), 0);
                while let Some(GateName { name }) = gates.next_element()? {
                    if name == GATE && ours.len() < GATES {
                        ours.push(at);
                    }
                    at += 1;
                }
                Ok(GatePositions(ours))
            }

            fn visit_unit<E>(self) -> Result<GatePositions, E> {
                Ok(GatePositions::default())
            }
        }
        deserializer.deserialize_any(Gates)
    }
}

/// Whether a list of a container's ports has one of the host.
#[derive(Default)]
pub(super) struct HostPorts(bool);

impl<'de> Deserialize<'de> for HostPorts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct PortFields {
            host_port: Option<i64>,
        }
        struct Ports;

        impl<'de> Visitor<'de> for Ports {
            type Value = HostPorts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("ports of a container")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut ports: A) -> Result<HostPorts, A::Error> {
                let mut found = HostPorts(false);
                while let Some(PortFields { host_port }) = ports.next_element()? {
                    found.0 |= host_port.is_some_and(|port| port > 0);
                }
                Ok(found)
            }

            fn visit_unit<E>(self) -> Result<HostPorts, E> {
                Ok(HostPorts(false))
            }
        }
        deserializer.deserialize_any(Ports)
    }
}

/// Nodes that a pod without a node may go to, and what keeps it from the scheduler.
pub(crate) fn required_and_gates(pod: &PodFields) -> (RequiredNodes, PodGates) {
    let PodFields { metadata, spec, .. } = pod;
    if spec.node_name.as_ref().is_some_and(|node| !node.is_empty()) {
        return Default::default();
    }
    let affinity: Result<Option<AffinityFields>, ()> = read(spec.affinity.as_deref());
    let gates: Result<Option<GatePositions>, ()> = read(spec.scheduling_gates.as_deref());
    let is_too_large = affinity.is_err() || gates.is_err();
    let affinity = affinity.unwrap_or_default();
    let not_computed =
        if is_too_large { Some(NotComputed::TooLarge) } else { not_computed(spec, affinity.as_ref()) };
    let ours = gates.ok().flatten().unwrap_or_default().0;
    let mark = metadata.annotations.get(PlacedMark::ANNOTATION).filter(|mark| mark.len() <= MARK);
    let gates = PodGates {
        ours,
        has_annotations: !metadata.annotations.is_empty(),
        placed: mark.and_then(|mark| PlacedMark::read(mark)),
        not_computed,
    };
    let affinity = match affinity {
        None => AffinityTerms::NoAffinity,
        Some(AffinityFields { of_nodes: None, .. }) => AffinityTerms::NoNodeAffinity,
        Some(AffinityFields { of_nodes: Some(of_nodes), .. }) => match of_nodes.required {
            None => AffinityTerms::NoRequirement,
            Some(list) => {
                AffinityTerms::Terms(list.node_selector_terms.0.into_iter().map(NodeTerm::from).collect())
            }
        },
    };
    (RequiredNodes { selector: spec.node_selector.clone(), affinity }, gates)
}

/// A part of a pod; an error if it has another form or is too large.
fn read<'a, T: Deserialize<'a>>(text: Option<&'a RawValue>) -> Result<Option<T>, ()> {
    text.map_or(Ok(None), |text| serde_json::from_slice(text.get().as_bytes()).map_err(drop))
}

/// The first requirement that a gate does not compute.
fn not_computed(spec: &PodSpec, affinity: Option<&AffinityFields>) -> Option<NotComputed> {
    let of_pods = affinity.into_iter().flat_map(|affinity| [&affinity.to_pods, &affinity.against_pods]);
    let has_pods = of_pods.flatten().any(|of_pods| !of_pods.required.0.is_empty());
    let spread: Result<Option<AtMost<SpreadFields<'_>, CONSTRAINTS>>, ()> =
        read(spec.topology_spread_constraints.as_deref());
    let is_spread = spread.map_or(true, |spread| {
        let constraints = spread.unwrap_or_default().0;
        constraints.iter().any(|constraint| constraint.when_unsatisfiable != "ScheduleAnyway")
    });
    let containers = || spec.init_containers.0.iter().chain(&spec.containers.0);
    let has_host_ports = containers().any(|one| one.ports.0);
    [
        (has_pods, NotComputed::PodAffinity),
        (is_spread, NotComputed::TopologySpread),
        (has_host_ports, NotComputed::HostPorts),
        (spec.volumes.0.iter().any(VolumeFields::binds_late), NotComputed::Volumes),
        (!spec.resource_claims.0.is_empty(), NotComputed::DeviceClaims),
    ]
    .into_iter()
    .find_map(|(is_there, what)| is_there.then_some(what))
}

impl From<TermFields> for NodeTerm {
    fn from(TermFields { match_expressions, match_fields }: TermFields) -> Self {
        let all = |list: AtMost<RequirementFields, REQUIREMENTS>| {
            list.0.into_iter().map(NodeRequirement::from).collect()
        };
        Self { labels: all(match_expressions), fields: all(match_fields) }
    }
}

impl From<RequirementFields> for NodeRequirement {
    fn from(RequirementFields { key, operator, values }: RequirementFields) -> Self {
        Self { key, operator, values: values.0 }
    }
}
