//! What is read of a Pod object: names, kinds of containers, what the kubelet's managers give them, and the
//! kubelet's refusal.
//!
//! Invariants: text and numbers are within the limits of a published state, and a pod beyond them is refused
//! with the reason. The uid of a static pod is believed where a mirror pod has it twice, as the kubelet
//! writes it, and where no pod of the API can have it.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use enforcer_core::cluster::{
    observed::{ApiContainer, ApiPod, ApiRejection},
    state::limits,
};
use jiff::Timestamp;
use numa_placement::ContainerKind;
use numa_topology::quantity;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::resize::{PodCondition, ResizeProgress};

/// Most bytes of names of devices of a pod: thousands of pods may be bound to the node.
const DEVICE_NAMES: usize = 8 << 10;

/// A pod, and the version of its object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadPod {
    pub(super) pod: ApiPod,
    pub(super) node: String,
    pub(super) version: String,
    /// When the kubelet first wrote its status, in seconds since 1970; 0 if it has not.
    pub(super) started_at: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    uid: String,
    namespace: String,
    name: String,
    resource_version: String,
    creation_timestamp: Option<String>,
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "kubernetes.io/config.hash")]
    hash: Option<String>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    mirror: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
    restart_policy: String,
    init_containers: AtMost<Container, { limits::CONTAINERS }>,
    containers: AtMost<Container, { limits::CONTAINERS }>,
    resources: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    #[serde(default)]
    restart_policy: String,
    #[serde(default)]
    resources: Resources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Requests,
    limits: Requests,
}

/// CPUs and devices of a list of resources; others are passed over.
#[derive(Default)]
struct Requests {
    milli_cpus: Option<u64>,
    devices: BTreeMap<String, u64>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    reason: String,
    qos_class: String,
    start_time: Option<String>,
    conditions: AtMost<PodCondition, CONDITIONS>,
    init_container_statuses: AtMost<ContainerStatus, { limits::CONTAINERS }>,
    container_statuses: AtMost<ContainerStatus, { limits::CONTAINERS }>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    #[serde(default)]
    allocated_resources: Requests,
    #[serde(default)]
    resources: Option<Resources>,
    #[serde(default)]
    state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    terminated: Option<Termination>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Termination {
    exit_code: i64,
}

/// Most conditions of a pod; readiness gates add some.
const CONDITIONS: usize = 128;

/// Reads a Pod; a reason is why it cannot be one of the node's pods.
pub(super) fn read(text: &[u8]) -> Result<ReadPod, String> {
    let Pod { metadata, spec, status } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    for (field, value, most) in [
        ("metadata.uid", &metadata.uid, limits::WORD),
        ("metadata.namespace", &metadata.namespace, limits::LABEL),
        ("metadata.name", &metadata.name, limits::NAME),
    ] {
        if value.is_empty() || value.len() > most {
            return Err(format!("{field} has {} characters, 1 to {most} are expected", value.len()));
        }
    }
    let seconds = |text: Option<&str>| Some(text?.parse::<Timestamp>().ok()?.as_second().max(0));
    let started_at = seconds(status.start_time.as_deref());
    let is_failed = status.phase == "Failed";
    let rejection = (is_failed && is_refusal(&status.reason)).then(|| ApiRejection {
        at: started_at.or_else(|| seconds(metadata.creation_timestamp.as_deref())).unwrap_or(0),
        reason: status.reason.chars().take(128).collect(),
    });
    let is_finished = is_failed || status.phase == "Succeeded";
    // Of one that has ended, no container is asked for.
    let containers = if is_finished { Vec::new() } else { containers(&spec, &status) };
    if let Some(long) = containers.iter().find(|one| one.name.len() > limits::LABEL) {
        return Err(format!("a container's name has {} characters", long.name.len()));
    }
    let names = containers.iter().flat_map(|one| one.devices.keys());
    let bytes: usize = names.map(String::len).sum();
    if bytes > DEVICE_NAMES {
        return Err(format!("the names of its devices have {bytes} bytes, at most {DEVICE_NAMES} are kept"));
    }
    let pod = ApiPod {
        config_hash: static_uid(metadata.annotations),
        uid: metadata.uid,
        namespace: metadata.namespace,
        name: metadata.name,
        is_finished,
        containers,
        rejection,
    };
    let (node, version) = (spec.node_name, metadata.resource_version);
    Ok(ReadPod { pod, node, version, started_at: started_at.unwrap_or(0) })
}

/// Reasons of a pod that the kubelet did not admit for want of something that the node has to have
/// (Kubernetes: `pkg/kubelet/cm/admission`, `pkg/kubelet/lifecycle/predicate.go`).
fn is_refusal(reason: &str) -> bool {
    let of_managers =
        ["TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "EmptyPodSharedPoolError"];
    of_managers.contains(&reason) || reason.strip_prefix("OutOf").is_some_and(|resource| !resource.is_empty())
}

/// The uid of the static pod whose mirror this is: a hash, which no uid of the API looks like.
fn static_uid(annotations: Annotations) -> Option<String> {
    let is_hash = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    annotations.hash.filter(|hash| is_hash(hash) && annotations.mirror.as_ref() == Some(hash))
}

fn containers(spec: &Spec, status: &Status) -> Vec<ApiContainer> {
    let init = spec.init_containers.0.iter().map(|one| {
        let is_sidecar = one.restart_policy == "Always";
        (one, if is_sidecar { ContainerKind::Sidecar } else { ContainerKind::Init })
    });
    let all = init.chain(spec.containers.0.iter().map(|one| (one, ContainerKind::App)));
    let statuses = status.init_container_statuses.0.iter().chain(&status.container_statuses.0);
    let statuses: BTreeMap<&str, &ContainerStatus> = statuses.map(|one| (one.name.as_str(), one)).collect();
    let resize = ResizeProgress::of(&status.conditions.0);
    all.map(|(container, kind)| {
        let wish = container.resources.requests.milli_cpus.or(container.resources.limits.milli_cpus);
        let of_container = statuses.get(container.name.as_str());
        let allocated = of_container.and_then(|one| one.allocated_resources.milli_cpus);
        let actual = of_container.and_then(|one| one.resources.as_ref()?.requests.milli_cpus);
        let milli = resize.on_node(wish.unwrap_or(0), allocated, actual);
        let exclusive_cpus = match status.qos_class.as_str() {
            // The managers pass over a pod with resources of its own.
            _ if spec.resources.is_some() => None,
            "Guaranteed" => Some(if milli.is_multiple_of(1_000) { milli / 1_000 } else { 0 }),
            "Burstable" | "BestEffort" => Some(0),
            _ => None,
        };
        let devices = container.resources.limits.devices.clone();
        // A container may have a policy of its own since Kubernetes 1.34.
        let own = Some(container.restart_policy.as_str()).filter(|policy| !policy.is_empty());
        let terminated = of_container.and_then(|one| one.state.terminated.as_ref());
        let has_ended = match (terminated, own.unwrap_or(&spec.restart_policy)) {
            (Some(_), "Never") => true,
            (Some(end), "OnFailure") => end.exit_code == 0,
            _ => false,
        };
        ApiContainer { name: container.name.clone(), kind, exclusive_cpus, has_ended, devices }
    })
    .collect()
}

/// A list that is refused where it is longer.
struct AtMost<T, const N: usize>(Vec<T>);

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

impl<'de> Deserialize<'de> for Requests {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amounts;

        impl<'de> Visitor<'de> for Amounts {
            type Value = Requests;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "amounts of at most {} devices", limits::CONTAINER_RESOURCES)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut amounts: A) -> Result<Requests, A::Error> {
                let mut read = Requests::default();
                while let Some(resource) = amounts.next_key::<String>()? {
                    if resource == "cpu" {
                        read.milli_cpus = quantity::milli_cpus(&amounts.next_value::<String>()?);
                    } else if resource.contains('/') {
                        let count = quantity::whole(&amounts.next_value::<String>()?);
                        if read.devices.len() == limits::CONTAINER_RESOURCES {
                            return Err(serde::de::Error::invalid_length(read.devices.len() + 1, &self));
                        }
                        read.devices.extend(count.filter(|&count| count > 0).map(|count| (resource, count)));
                    } else {
                        amounts.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(read)
            }

            fn visit_unit<E>(self) -> Result<Requests, E> {
                Ok(Requests::default())
            }
        }
        deserializer.deserialize_any(Amounts)
    }
}

/// `NAMESPACE/NAME` of a Pod that is not read, as far as its beginning has them: the server writes both
/// before anything else that has a name.
pub(super) fn name_in(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    let word = |key: &str| {
        let rest = text.split_once(key)?.1.trim_start().strip_prefix('"')?;
        let end = rest.find('"').filter(|&end| end <= limits::NAME)?;
        Some(rest[..end].to_owned())
    };
    let of = |key| word(key).unwrap_or_else(|| "?".to_owned());
    format!("{}/{}", of("\"namespace\":"), of("\"name\":"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"uid": "u", "namespace": "shop", "name": "web", "resourceVersion": "7"},
            "spec": {"nodeName": "a", "containers": [{
                "name": "main", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2", "v.com/gpu": "1"}},
            }]},
            "status": {"phase": "Running", "qosClass": "Guaranteed", "startTime": "1970-01-01T00:01:40Z"},
        })
    }

    fn changed(path: &str, value: Value) -> Result<ReadPod, String> {
        let mut pod = pod();
        let (parent, name) = path.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[name] = value;
        read(pod.to_string().as_bytes())
    }

    #[test]
    fn pod_is_read_as_the_state_needs_it() {
        let read = read(pod().to_string().as_bytes()).unwrap();
        assert_eq!((read.node.as_str(), read.version.as_str(), read.started_at), ("a", "7", 100));
        let expected = ApiContainer {
            name: "main".into(),
            kind: ContainerKind::App,
            exclusive_cpus: Some(2),
            has_ended: false,
            devices: [("v.com/gpu".to_owned(), 1)].into(),
        };
        assert_eq!(read.pod.containers, [expected]);
        assert_eq!((read.pod.is_finished, read.pod.config_hash, read.pod.rejection), (false, None, None));
    }

    #[test]
    fn a_container_that_is_not_started_again_has_ended() {
        let ended = |policy: &str, code: i64| {
            let state = json!({"name": "main", "state": {"terminated": {"exitCode": code}}});
            let mut pod = pod();
            pod["spec"]["restartPolicy"] = json!(policy);
            pod["status"]["containerStatuses"] = json!([state]);
            read(pod.to_string().as_bytes()).unwrap().pod.containers[0].has_ended
        };
        assert!(ended("Never", 1) && ended("OnFailure", 0));
        assert!(!ended("OnFailure", 1) && !ended("Always", 0));
    }

    #[test]
    fn kinds_of_containers_follow_their_restart_policy() {
        let init = json!([{"name": "once"}, {"name": "beside", "restartPolicy": "Always"}]);
        let read = changed("/spec/initContainers", init).unwrap().pod;
        let kinds: Vec<_> = read.containers.iter().map(|one| (one.name.as_str(), one.kind)).collect();
        assert_eq!(
            kinds,
            [("once", ContainerKind::Init), ("beside", ContainerKind::Sidecar), ("main", ContainerKind::App)]
        );
    }

    #[test]
    fn exclusive_cpus_are_those_that_the_kubelet_gives() {
        let of = |read: Result<ReadPod, String>| read.unwrap().pod.containers[0].exclusive_cpus;
        assert_eq!(of(changed("/status/qosClass", json!("Burstable"))), Some(0));
        assert_eq!(of(changed("/status/qosClass", json!(""))), None);
        assert_eq!(of(changed("/spec/resources", json!({"limits": {"cpu": "2"}}))), None);
        let amounts = json!({"requests": {"cpu": "1500m"}});
        assert_eq!(
            of(changed("/spec/containers/0/resources", amounts)),
            Some(0),
            "a part of a CPU is shared"
        );
        let limits = json!({"limits": {"cpu": 3, "memory": "1Gi"}});
        assert!(
            changed("/spec/containers/0/resources", limits).is_err(),
            "the API writes quantities as text"
        );
        let resized = json!([{"name": "main", "allocatedResources": {"cpu": "4"}}]);
        assert_eq!(of(changed("/status/containerStatuses", resized)), Some(4), "a wish changes nothing");
        let running = json!([{"name": "main", "resources": {"requests": {"cpu": "4"}}}]);
        assert_eq!(of(changed("/status/containerStatuses", running)), Some(4), "nor without that field");
        assert_eq!(of(changed("/spec/initContainers", Value::Null)), Some(2));
    }

    #[test]
    fn refusals_are_those_of_admission() {
        for (phase, reason, refused) in [
            ("Failed", "TopologyAffinityError", true),
            ("Failed", "SMTAlignmentError", true),
            ("Failed", "UnexpectedAdmissionError", true),
            ("Failed", "EmptyPodSharedPoolError", true),
            ("Failed", "OutOfcpu", true),
            ("Failed", "OutOfvendor.com/gpu", true),
            ("Failed", "OutOf", false),
            ("Failed", "Evicted", false),
            ("Failed", "NodeShutdown", false),
            ("Failed", "", false),
            ("Running", "TopologyAffinityError", false),
        ] {
            let mut pod = pod();
            pod["status"]["phase"] = json!(phase);
            pod["status"]["reason"] = json!(reason);
            let read = read(pod.to_string().as_bytes()).unwrap().pod;
            assert_eq!(read.is_finished, phase == "Failed");
            let rejection = read.rejection.map(|one| (one.reason, one.at));
            assert_eq!(rejection, refused.then(|| (reason.to_owned(), 100)), "{phase} {reason}");
        }
        let mut never_started = pod();
        never_started["status"] = json!({"phase": "Failed", "reason": "OutOfpods"});
        never_started["metadata"]["creationTimestamp"] = json!("1970-01-01T00:00:09Z");
        let read = read(never_started.to_string().as_bytes()).unwrap();
        assert_eq!(read.pod.rejection.unwrap().at, 9);
    }

    #[test]
    fn static_pod_is_believed_where_no_user_can_mean_another_pod() {
        let hash = "0123456789abcdef0123456789abcdef";
        let uid = "6f2bb1a0-6c3a-4b5e-9d0e-0123456789ab";
        for (config, mirror, believed) in
            [(hash, Some(hash), true), (hash, None, false), (hash, Some("x"), false), (uid, Some(uid), false)]
        {
            let annotations =
                json!({"kubernetes.io/config.hash": config, "kubernetes.io/config.mirror": mirror});
            let read = changed("/metadata/annotations", annotations).unwrap();
            assert_eq!(read.pod.config_hash.is_some(), believed, "{config} {mirror:?}");
        }
    }

    #[test]
    fn pod_beyond_the_bounds_is_refused_by_name() {
        let many =
            |count: usize| json!((0..count).map(|n| json!({"name": n.to_string()})).collect::<Vec<_>>());
        assert!(changed("/spec/containers", many(limits::CONTAINERS)).is_ok());
        let refused = changed("/spec/containers", many(limits::CONTAINERS + 1)).unwrap_err();
        assert!(refused.contains("at most 128 entries"), "{refused}");
        let gpus: Value = (0..17).map(|n| (format!("v.com/{n}"), json!("1"))).collect();
        assert!(changed("/spec/containers/0/resources", json!({"limits": gpus})).is_err());
        assert!(changed("/metadata/name", json!("x".repeat(254))).unwrap_err().contains("metadata.name"));
        assert!(changed("/metadata/uid", json!("")).is_err());
        assert!(changed("/spec/containers/0/name", json!("x".repeat(64))).is_err());
        let event = json!({"type": "ADDED", "object": pod()}).to_string();
        assert_eq!(name_in(event.as_bytes()), "shop/web");
        assert_eq!(name_in(b"{\"metadata\":{\"name\":\"web"), "?/?");
        assert_eq!(name_in(&[0xff; 40]), "?/?");
    }
}
