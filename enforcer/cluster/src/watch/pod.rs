//! What the watch keeps of a Pod object: names, kinds of containers, what the kubelet's managers give them,
//! what the pod asks for, and the kubelet's refusal.
//!
//! Invariants: text and numbers are within the limits of a published state, and a pod beyond them is
//! refused with the reason. Of one with more containers than a state has entries, names and kinds are
//! kept: they say when all of them are known. The uid of a static pod is believed where a mirror pod has
//! it twice, as the kubelet writes it, and where no pod of the API can have it.

use std::sync::Arc;

use enforcer_core::cluster::{
    observed::{ApiContainer, ApiPod, ApiRejection},
    state::limits,
};
use jiff::Timestamp;
use numa_placement::PodRequest;

use crate::pod_object::PodFields;

/// Most bytes of names of devices of a pod: thousands of pods may be bound to the node.
const DEVICE_NAMES: usize = 8 << 10;

/// A pod, and the version of its object.
#[derive(Debug, PartialEq)]
pub(super) struct ReadPod {
    pub(super) pod: ApiPod,
    pub(super) node: String,
    pub(super) version: String,
    /// When the kubelet first wrote its status, in seconds since 1970; 0 if it has not.
    pub(super) started_at: i64,
}

/// Reads a Pod; a reason is why it cannot be one of the node's pods.
pub(super) fn read(text: &[u8]) -> Result<ReadPod, String> {
    let fields: PodFields = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    let PodFields { metadata, status, .. } = &fields;
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
    // A quantity that is not understood leaves the pod known, and what it asks for unknown. So does a
    // number of containers that no reader plans.
    let request = fields.request().ok().map(|read| read.request);
    let request = request.filter(|request| request.containers.len() <= limits::CONTAINERS);
    // Of one that has ended, no container is asked for.
    let containers = if is_finished { Vec::new() } else { containers(&fields, request.as_ref())? };
    let pod = ApiPod {
        config_hash: fields.static_uid().map(str::to_owned),
        is_finished,
        containers,
        // Why the node refused it follows from what it asked for.
        request: request.filter(|_| !is_finished || rejection.is_some()).map(Arc::new),
        rejection,
        uid: fields.metadata.uid,
        namespace: fields.metadata.namespace,
        name: fields.metadata.name,
    };
    let (node, version) = (fields.spec.node_name.unwrap_or_default(), fields.metadata.resource_version);
    Ok(ReadPod { pod, node, version, started_at: started_at.unwrap_or(0) })
}

/// Reasons of a pod that the kubelet did not admit for want of something that the node has to have
/// (Kubernetes: `pkg/kubelet/cm/admission`, `pkg/kubelet/lifecycle/predicate.go`).
fn is_refusal(reason: &str) -> bool {
    let of_managers =
        ["TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "EmptyPodSharedPoolError"];
    of_managers.contains(&reason) || reason.strip_prefix("OutOf").is_some_and(|resource| !resource.is_empty())
}

/// The containers; an error is that they have more devices than a state may have.
fn containers(fields: &PodFields, request: Option<&PodRequest>) -> Result<Vec<ApiContainer>, String> {
    let PodFields { spec, status, .. } = fields;
    let statuses = fields.statuses();
    let mut containers = Vec::new();
    for (at, (container, kind)) in fields.containers().enumerate() {
        let name = container.name.clone();
        if name.len() > limits::LABEL {
            return Err(format!("a container's name has {} characters", name.len()));
        }
        let asked = request.and_then(|request| request.containers.get(at));
        let exclusive_cpus = match status.qos_class.as_deref() {
            // The managers pass over a pod with resources of its own.
            _ if spec.resources.is_some() => None,
            Some("Guaranteed") => asked.map(|asked| asked.whole_cpus().unwrap_or(0)),
            Some("Burstable" | "BestEffort") => Some(0),
            _ => None,
        };
        let devices = asked.map(|asked| asked.devices.clone()).unwrap_or_default();
        if devices.len() > limits::CONTAINER_RESOURCES {
            let most = limits::CONTAINER_RESOURCES;
            return Err(format!("container {name} asks for more than {most} kinds of devices"));
        }
        // A container may have a policy of its own since Kubernetes 1.34.
        let own = container.restart_policy.as_deref().filter(|policy| !policy.is_empty());
        let of_container = statuses.get(name.as_str());
        let terminated = of_container.and_then(|one| one.state.terminated.as_ref());
        let has_ended = match (terminated, own.unwrap_or(&spec.restart_policy)) {
            (Some(_), "Never") => true,
            (Some(end), "OnFailure") => end.exit_code == 0,
            _ => false,
        };
        containers.push(ApiContainer { name, kind, exclusive_cpus, has_ended, devices });
    }
    let names = containers.iter().flat_map(|one| one.devices.keys());
    let bytes: usize = names.map(String::len).sum();
    if bytes > DEVICE_NAMES {
        return Err(format!("the names of its devices have {bytes} bytes, at most {DEVICE_NAMES} are kept"));
    }
    Ok(containers)
}

#[cfg(test)]
mod tests {
    use numa_placement::{ContainerKind, QosClass};
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
    fn pod_has_its_request_until_it_ends_and_a_refused_one_keeps_it() {
        let request = |phase: &str, reason: &str| {
            let mut pod = pod();
            pod["metadata"]["labels"] = json!({"app": "web"});
            (pod["status"]["phase"], pod["status"]["reason"]) = (json!(phase), json!(reason));
            read(pod.to_string().as_bytes()).unwrap().pod.request
        };
        let asked = request("Pending", "").unwrap();
        assert_eq!((asked.name.to_string(), asked.name.uid.as_str()), ("shop/web".into(), "u"));
        assert_eq!((asked.qos, asked.labels["app"].as_str()), (QosClass::Guaranteed, "web"));
        assert_eq!(
            (asked.containers[0].whole_cpus(), asked.containers[0].devices["v.com/gpu"]),
            (Some(2), 1)
        );
        assert_eq!(request("Failed", "TopologyAffinityError"), Some(asked));
        assert_eq!((request("Failed", "Evicted"), request("Succeeded", "")), (None, None));
        let odd = changed("/spec/containers/0/resources", json!({"limits": {"cpu": "2", "memory": "much"}}));
        let odd = odd.unwrap().pod;
        assert_eq!((odd.request, odd.containers[0].exclusive_cpus), (None, None));
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
            let mut annotations = json!({"kubernetes.io/config.hash": config});
            if let Some(mirror) = mirror {
                annotations["kubernetes.io/config.mirror"] = json!(mirror);
            }
            let read = changed("/metadata/annotations", annotations).unwrap();
            assert_eq!(read.pod.config_hash.is_some(), believed, "{config} {mirror:?}");
        }
    }

    #[test]
    fn pod_beyond_the_bounds_is_refused_by_name() {
        let many =
            |count: usize| json!((0..count).map(|n| json!({"name": n.to_string()})).collect::<Vec<_>>());
        let read = changed("/spec/containers", many(limits::CONTAINERS + 1)).unwrap().pod;
        assert!(read.containers.len() > limits::CONTAINERS, "each of them has to be announced");
        assert_eq!(read.request, None);
        assert!(changed("/spec/containers", many(1_001)).is_err());
        let gpus: Value = (0..17).map(|n| (format!("v.com/{n}"), json!("1"))).collect();
        assert!(changed("/spec/containers/0/resources", json!({"limits": gpus})).is_err());
        assert!(changed("/metadata/name", json!("x".repeat(254))).unwrap_err().contains("metadata.name"));
        assert!(changed("/metadata/uid", json!("")).is_err());
        assert!(changed("/spec/containers/0/name", json!("x".repeat(64))).is_err());
    }
}
