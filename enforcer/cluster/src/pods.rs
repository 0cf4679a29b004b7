//! Pods and nodes as `kubectl get` prints them: what the plugin needs of them, and nothing else.

use serde::Deserialize;

/// Name of the port that serves reports, in the pods of the chart.
const REPORTS: &str = "reports";
/// Most containers of a pod that are looked at.
const MOST_CONTAINERS: usize = 64;

/// A pod that runs a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its node; `None` before it is scheduled.
    pub node: Option<String>,
    /// Loopback port for reports; `None` where the pod serves none.
    pub reports_port: Option<u16>,
    /// Whether its containers run and are ready.
    pub ready: bool,
    /// Its phase, or why it is not ready.
    pub state: String,
}

/// A pod whose containers are explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its node; `None` before it is scheduled.
    pub node: Option<String>,
    /// Its containers, in the order of the pod.
    pub containers: Vec<PodContainer>,
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodContainer {
    /// Its name.
    pub name: String,
    /// Its id without the name of the runtime; `None` before it was created.
    pub id: Option<String>,
}

#[derive(Deserialize)]
struct PodList {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    containers: Vec<Container>,
    #[serde(default)]
    init_containers: Vec<Container>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    #[serde(default)]
    ports: Vec<ContainerPort>,
    restart_policy: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    name: Option<String>,
    container_port: u16,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Deserialize)]
struct ContainerStatus {
    name: String,
    #[serde(rename = "containerID")]
    container_id: Option<String>,
    #[serde(default)]
    state: ContainerState,
}

#[derive(Default, Deserialize)]
struct ContainerState {
    waiting: Option<Waiting>,
}

#[derive(Deserialize)]
struct Waiting {
    reason: Option<String>,
}

/// The pods in `kubectl get pods --output=json`.
pub(crate) fn daemon_pods(text: &[u8]) -> serde_json::Result<Vec<DaemonPod>> {
    let list: PodList = serde_json::from_slice(text)?;
    Ok(list.items.into_iter().map(daemon_pod).collect())
}

fn daemon_pod(pod: Pod) -> DaemonPod {
    let ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
    let mut reports =
        ports.filter(|port| port.name.as_deref() == Some(REPORTS)).map(|port| port.container_port);
    let reports_port = reports.find(|port| *port > 0);
    let ends = pod.metadata.deletion_timestamp.is_some();
    let is_ready = |one: &Condition| one.kind == "Ready" && one.status == "True";
    let waiting =
        pod.status.container_statuses.iter().find_map(|one| one.state.waiting.as_ref()?.reason.clone());
    let state = match () {
        () if ends => "Terminating".to_owned(),
        () => waiting.unwrap_or_else(|| pod.status.phase.clone()),
    };
    DaemonPod {
        namespace: pod.metadata.namespace,
        name: pod.metadata.name,
        node: pod.spec.node_name,
        reports_port,
        ready: !ends && pod.status.conditions.iter().any(is_ready),
        state,
    }
}

/// The pod in `kubectl get pods/NAME --output=json`. Init containers that go on beside the others (sidecars)
/// come first, as they start first; the other ones have ended.
pub(crate) fn workload_pod(text: &[u8]) -> serde_json::Result<WorkloadPod> {
    let pod: Pod = serde_json::from_slice(text)?;
    let goes_on = |one: &&Container| one.restart_policy.as_deref() == Some("Always");
    let sidecars = pod.spec.init_containers.iter().filter(goes_on);
    let statuses = || pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let id_of = |name: &str| {
        let status = statuses().find(|status| status.name == name)?;
        let (_runtime, id) = status.container_id.as_deref()?.split_once("://")?;
        Some(id.to_owned()).filter(|id| !id.is_empty())
    };
    let containers = sidecars.chain(&pod.spec.containers).take(MOST_CONTAINERS);
    let containers =
        containers.map(|one| PodContainer { name: one.name.clone(), id: id_of(&one.name) }).collect();
    Ok(WorkloadPod {
        namespace: pod.metadata.namespace,
        name: pod.metadata.name,
        node: pod.spec.node_name,
        containers,
    })
}

/// The names in `kubectl get nodes --output=name`.
pub(crate) fn node_names(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    text.lines().filter_map(|line| line.trim().strip_prefix("node/")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn list(pod: &serde_json::Value) -> Vec<DaemonPod> {
        daemon_pods(&serde_json::to_vec(&json!({"kind": "List", "items": [pod]})).unwrap()).unwrap()
    }

    #[test]
    fn state_of_a_daemons_pod_is_told() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let unready = json!([{"type": "Ready", "status": "False"}]);
        let pulls = json!([{"name": "d", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
        for (status, deleted, expected) in [
            (json!({"phase": "Running", "conditions": ready}), false, (true, "Running")),
            (json!({"phase": "Running", "conditions": unready}), false, (false, "Running")),
            (json!({"phase": "Running", "conditions": ready}), true, (false, "Terminating")),
            (json!({"phase": "Pending", "containerStatuses": pulls}), false, (false, "ImagePullBackOff")),
            (json!({}), false, (false, "")),
        ] {
            let mut metadata = json!({"name": "p", "namespace": "n"});
            if deleted {
                metadata["deletionTimestamp"] = json!("2026-11-27T12:00:00Z");
            }
            let spec = json!({"nodeName": "a", "containers": [{"name": "d"}]});
            let pods = list(&json!({"metadata": metadata, "spec": spec, "status": status}));
            assert_eq!((pods[0].ready, pods[0].state.as_str()), expected, "{status}");
        }
    }

    #[test]
    fn port_for_reports_is_found_by_its_name() {
        for (ports, expected) in [
            (
                json!([{"name": "metrics", "containerPort": 9477}, {"name": "reports", "containerPort": 9479}]),
                Some(9479),
            ),
            (json!([{"name": "metrics", "containerPort": 9477}]), None),
            (json!([{"containerPort": 9479}]), None),
            (json!([{"name": "reports", "containerPort": 0}]), None),
            (json!([]), None),
        ] {
            let spec = json!({"containers": [{"name": "proxy"}, {"name": "d", "ports": ports}]});
            let pods = list(&json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec}));
            assert_eq!((pods[0].reports_port, &pods[0].node), (expected, &None), "{ports}");
        }
    }

    #[test]
    fn containers_that_run_have_the_id_that_the_runtime_gave() {
        let pod = json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "nodeName": "a",
                "initContainers": [{"name": "once"}, {"name": "proxy", "restartPolicy": "Always"}],
                "containers": [{"name": "main"}, {"name": "slow"}, {"name": "odd"}],
            },
            "status": {
                "initContainerStatuses": [{"name": "proxy", "containerID": "containerd://aa11"}],
                "containerStatuses": [
                    {"name": "odd", "containerID": "bb22"},
                    {"name": "main", "containerID": "cri-o://cc33"},
                    {"name": "slow", "containerID": ""},
                ],
            },
        });
        let pod = workload_pod(&serde_json::to_vec(&pod).unwrap()).unwrap();
        let containers: Vec<_> =
            pod.containers.iter().map(|one| (one.name.as_str(), one.id.as_deref())).collect();
        assert_eq!(
            containers,
            [("proxy", Some("aa11")), ("main", Some("cc33")), ("slow", None), ("odd", None)]
        );
        assert_eq!((pod.namespace.as_str(), pod.node.as_deref()), ("shop", Some("a")));
    }

    #[test]
    fn nodes_are_lines() {
        assert_eq!(node_names(b"node/a\nnode/b\n\nWarning: x\n"), ["a", "b"]);
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (daemon_pods(&text), workload_pod(&text), node_names(&text));
        }
    }
}
