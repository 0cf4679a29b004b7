use super::*;
use enforcer_core::cluster::objects::{PodArrival, PodPhase, Toleration};
use numa_placement::QosClass;
use serde_json::json;

fn read(items: &serde_json::Value) -> ClusterObjects {
    ClusterObjects::read(&json!({"kind": "List", "items": items}).to_string()).unwrap()
}

#[test]
fn a_plan_needs_little_of_each_object() {
    let objects = read(&json!([
        {"kind": "Pod", "metadata": {"name": "late", "namespace": "d", "uid": "2",
            "creationTimestamp": "2026-11-27T10:00:01Z", "managedFields": [{"manager": "x"}]},
         "spec": {"nodeName": "b", "containers": [{"name": "main", "image": "x"}]},
         "status": {"phase": "Failed"}},
        {"kind": "Pod", "metadata": {"name": "early", "namespace": "d", "uid": "1",
            "creationTimestamp": "2026-11-27T10:00:00Z"},
         "spec": {"initContainers": [
             {"name": "first", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}},
             {"name": "beside", "restartPolicy": "Always", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}],
           "containers": [{"name": "main", "resources": {
             "limits": {"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi", "v.com/gpu": "1"}}}]}},
        {"kind": "Node", "metadata": {"name": "b"}, "spec": {"unschedulable": true},
         "status": {"allocatable": {"cpu": "3500m", "memory": "16Gi", "pods": "110"}}},
        {"kind": "Node", "metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {"kind": "Service", "metadata": {"name": "s"}},
    ]));
    assert_eq!(objects.left_out, Vec::<String>::new());
    let nodes: Vec<_> = objects.nodes.iter().map(|node| (node.name.as_str(), node.is_cordoned)).collect();
    assert_eq!(nodes, [("a", false), ("b", true)]);
    assert_eq!(objects.nodes[1].allocatable["cpu"], 3_500);
    let [early, late] = &objects.pods[..] else { panic!("{:?}", objects.pods) };
    assert_eq!((late.phase, late.node.as_deref()), (PodPhase::Ended, Some("b")));
    assert_eq!((early.phase, early.node.as_deref()), (PodPhase::Pending, None));
    let kinds: Vec<_> =
        early.request.containers.iter().map(|one| format!("{} {:?}", one.name, one.kind)).collect();
    assert_eq!(kinds, ["first Init", "beside Sidecar", "main App"]);
    assert_eq!(early.request.qos, QosClass::Guaranteed);
    let main = &early.request.containers[2];
    assert_eq!((main.requests.milli_cpus, main.devices["v.com/gpu"]), (Some(2_000), 1));
    assert_eq!(main.requests.hugepages[&(2 << 20)], 4 << 20);
}

#[test]
fn one_object_that_is_not_understood_leaves_the_others() {
    let objects = read(&json!([
        {"kind": "Pod", "metadata": {"name": "odd"}, "spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "many"}}}]}},
        {"kind": "NumaNodeState", "metadata": {"name": "n"}, "state": {"revision": 7, "cells": []}},
        {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "-"}}},
        {"kind": "Pod", "metadata": {"name": "good"}, "spec": {"containers": [{"name": "c"}]}},
    ]));
    assert_eq!(objects.pods.len(), 1);
    assert_eq!(objects.left_out.len(), 2, "{:?}", objects.left_out);
    assert_eq!(objects.left_out[0], "Pod odd: container c: cpu: no quantity: \"many\"");
    let state = &objects.states["n"];
    assert!(state.state.as_ref().unwrap_err().contains("invalid type: integer `7`"), "{state:?}");
    assert!(ClusterObjects::read("{}").is_err());
    assert!(ClusterObjects::read("[1, 2").is_err());
}

#[test]
fn resources_of_the_pod_as_a_whole_take_it_out_of_the_managers_hands() {
    let objects =
        read(&json!([{"kind": "Pod", "metadata": {"name": "p"}, "status": {"qosClass": "Guaranteed"},
        "spec": {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}, "containers": [{"name": "c"}]}}]));
    assert_eq!(objects.pods[0].request.qos, QosClass::Burstable);
    let objects =
        read(&json!([{"kind": "Pod", "metadata": {"name": "p"}, "status": {"qosClass": "Guaranteed"},
        "spec": {"resources": {}, "containers": [{"name": "c"}]}}]));
    assert_eq!(objects.pods[0].request.qos, QosClass::Guaranteed, "the kubelet passes over an empty block");
}

#[test]
fn only_a_mirror_has_the_uid_of_a_static_pod() {
    let uid = |annotations: &serde_json::Value| {
        let pod = json!({"kind": "Pod", "metadata": {"name": "p", "uid": "u", "annotations": annotations},
            "spec": {"containers": [{"name": "c"}]}});
        read(&json!([pod])).pods[0].kubelet_uid().to_owned()
    };
    let of_file = "0123456789abcdef0123456789abcdef";
    for (hash, mirror, expected) in [
        (of_file, Some(of_file), of_file),
        (of_file, None, "u"),
        (of_file, Some("another"), "u"),
        // The uid of another pod of the API.
        ("5c5f3c5e-0000-4000-8000-000000000001", Some("5c5f3c5e-0000-4000-8000-000000000001"), "u"),
        ("", Some(""), "u"),
    ] {
        let mut annotations = json!({"kubernetes.io/config.hash": hash});
        if let Some(mirror) = mirror {
            annotations["kubernetes.io/config.mirror"] = json!(mirror);
        }
        assert_eq!(uid(&annotations), expected, "{annotations}");
    }
}

#[test]
fn pods_of_one_second_come_in_the_order_of_their_versions() {
    let pod = |name: &str, version: &str, bound: Option<&str>| {
        let conditions =
            bound.map(|at| json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]));
        json!({"kind": "Pod",
            "metadata": {"name": name, "uid": name, "resourceVersion": version,
                "creationTimestamp": "2026-11-27T10:00:00Z"},
            "spec": {"nodeName": bound.map(|_| "n"), "containers": [{"name": "c"}]},
            "status": {"conditions": conditions.unwrap_or_else(|| json!([]))}})
    };
    let late = Some("2026-11-27T10:00:09Z");
    let items =
        vec![pod("a", "1000", None), pod("b", "999", None), pod("c", "7", late), pod("d", "odd", None)];
    let objects = read(&json!(items));
    assert_eq!(objects.left_out, Vec::<String>::new());
    let names: Vec<_> = objects.pods.iter().map(|pod| pod.uid.as_str()).collect();
    assert_eq!(names, ["d", "b", "a", "c"], "a bound pod comes when it was bound");
    assert_eq!(objects.pods[3].arrival, PodArrival { at: 1_795_773_609, version: 7 });
    assert_eq!(objects.now, 1_795_773_609);
}

#[test]
fn what_a_scheduler_and_a_check_look_at_is_read() {
    let objects = read(&json!([
        {"kind": "Pod", "metadata": {"name": "p", "uid": "u",
            "annotations": {"kubernetes.io/config.hash": "0123456789abcdef0123456789abcdef",
                "kubernetes.io/config.mirror": "0123456789abcdef0123456789abcdef"}},
         "spec": {"nodeName": "n", "priority": 1000, "tolerations": [{"key": "other", "operator": "Exists"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "c"}]},
         "status": {"phase": "Succeeded",
            "initContainerStatuses": [{"name": "i", "state": {"terminated": {"finishedAt": "1970-01-01T00:00:07Z"}}},
                {"name": "s", "state": {"terminated": {}}}],
            "containerStatuses": [{"name": "c", "state": {"terminated": {"finishedAt": "1970-01-01T00:00:09Z"}}}]}},
        {"kind": "Node", "metadata": {"name": "n", "uid": "nu"},
         "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
         "status": {"conditions": [{"type": "Ready", "status": "Unknown"}],
            "nodeInfo": {"kubeletVersion": "v1.36.2", "bootID": "b", "operatingSystem": "linux"}}},
        {"kind": "NumaNodeState", "apiVersion": "numa-enforcer.io/v2",
         "metadata": {"name": "n", "ownerReferences": [{"kind": "Node", "uid": "old"}],
            "managedFields": [{"manager": "numa-enforcer"}, {"manager": "kubectl"}, {"manager": "kubectl"}]}},
        {"kind": "Lease", "metadata": {"name": "numa-enforcer-n"},
         "spec": {"renewTime": "1970-01-01T00:00:40.500000Z", "leaseDurationSeconds": 60}},
        {"kind": "Lease", "metadata": {"name": "n"}},
        {"kind": "Pod", "metadata": {"name": "waiting", "uid": "w",
            "creationTimestamp": "1970-01-01T00:00:11Z",
            "annotations": {"volcano.sh/numa-topology-policy": "none", "kubectl.kubernetes.io/last-applied-configuration": "x"}},
         "spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}], "containers": [{"name": "c"}]}},
    ]));
    assert_eq!(objects.left_out, Vec::<String>::new());
    let pod = &objects.pods[0];
    let tolerated = Toleration { key: "gpu".into(), operator: "Exists".into(), ..Toleration::default() };
    assert_eq!(
        (pod.scheduling.priority, &pod.scheduling.tolerations[..]),
        (1_000, &[][..]),
        "it has its node"
    );
    let waiting = &objects.pods[1];
    assert_eq!(waiting.scheduling.tolerations, [tolerated]);
    assert_eq!(waiting.request.annotations.keys().collect::<Vec<_>>(), ["volcano.sh/numa-topology-policy"]);
    assert_eq!(
        (pod.kubelet_uid(), pod.ended_at, pod.phase),
        ("0123456789abcdef0123456789abcdef", Some(9), PodPhase::Ended)
    );
    assert_eq!(pod.ended_init, ["i"]);
    let node = &objects.nodes[0];
    assert!(!node.is_ready && !node.is_cordoned && !node.is_foreign_system, "{node:?}");
    assert_eq!(
        (node.uid.as_str(), node.boot_id.as_str(), node.kubelet_version.as_str()),
        ("nu", "b", "v1.36.2")
    );
    assert_eq!(waiting.scheduling.untolerated(&node.taints), None);
    let state = &objects.states["n"];
    assert_eq!(
        (state.origin.owner_uid.as_deref(), state.api_version.as_str()),
        (Some("old"), "numa-enforcer.io/v2")
    );
    assert_eq!(state.writers, ["kubectl", "numa-enforcer"]);
    assert_eq!((objects.leases.len(), objects.leases[0].renewed_at, objects.now), (1, Some(40), 40));
}

#[test]
fn resize_in_place_counts_as_far_as_the_node_has_allocated_it() {
    let read = |conditions: serde_json::Value, status: serde_json::Value| {
        let mut of_container = json!({"name": "c"});
        of_container.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
        let objects = read(&json!([{"kind": "Pod", "metadata": {"name": "p", "uid": "u"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {
                "limits": {"cpu": "6", "memory": "2Gi"}, "requests": {"cpu": "6", "memory": "2Gi"}}}]},
            "status": {"qosClass": "Guaranteed", "conditions": conditions, "containerStatuses": [of_container]}}]));
        assert_eq!(objects.left_out, Vec::<String>::new());
        let pod = &objects.pods[0];
        let main = &pod.request.containers[0];
        assert_eq!(main.requests, main.limits);
        (main.whole_cpus(), pod.amounts()["cpu"])
    };
    let pending = |reason: &str| json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    let in_progress = json!([{"type": "PodResizeInProgress", "status": "True"}]);
    let actual = json!({"resources": {"requests": {"cpu": "4", "memory": "2Gi"}}});
    let allocated = json!({"allocatedResources": {"cpu": "4"}, "resources": {"requests": {"cpu": "5"}}});
    for (conditions, status, expected) in [
        (json!([]), json!({}), (Some(6), 6_000)),
        (json!([]), actual.clone(), (Some(4), 6_000)),
        (pending("Deferred"), actual.clone(), (Some(4), 6_000)),
        (pending("Infeasible"), actual.clone(), (Some(4), 4_000)),
        (in_progress.clone(), actual, (Some(6), 6_000)),
        (in_progress, allocated.clone(), (Some(4), 6_000)),
        (pending("Infeasible"), allocated, (Some(4), 5_000)),
    ] {
        assert_eq!(read(conditions.clone(), status.clone()), expected, "{conditions} {status}");
    }
}

#[test]
fn objects_that_are_listed_twice_count_once_and_are_named() {
    let node = |cpu: &str| json!({"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": cpu}}});
    let pod = |name: &str, uid: &str| json!({"kind": "Pod", "metadata": {"name": name, "namespace": "d", "uid": uid}, "spec": {"containers": []}});
    let state = json!({"kind": "NumaNodeState", "metadata": {"name": "n"}, "state": {}});
    let objects =
        read(&json!([node("8"), state, pod("a", "1"), pod("b", "2"), node("9"), state, pod("a", "1")]));
    assert_eq!(objects.nodes.len(), 1);
    assert_eq!((objects.nodes[0].allocatable["cpu"], objects.pods.len()), (8_000, 2));
    let twice = |name: &str| format!("{name}: it is listed twice, and the first one counts");
    assert_eq!(objects.left_out, [twice("NumaNodeState n"), twice("Node n"), twice("Pod d/a")]);
}

#[test]
fn pods_without_uids_are_not_one_pod() {
    let pod = |name: &str| json!({"kind": "Pod", "metadata": {"name": name, "namespace": "d"}, "spec": {"nodeName": "n", "containers": []}});
    let state = json!({"revision": {"epoch": 1, "counter": 1}, "hash": "h", "exact": true, "kubelet": {},
        "machine": {"hash": "m", "nodes": [], "distances": [], "sockets": [], "cores": [], "caches": []},
        "pods": [{"uid": "held", "namespace": "d", "name": "b", "containers": []}]});
    let state = json!({"kind": "NumaNodeState", "metadata": {"name": "n"}, "state": state});
    let objects = read(&json!([pod("a"), pod("b"), pod("c"), state]));
    assert_eq!(objects.left_out, Vec::<String>::new());
    assert!(objects.states["n"].state.is_ok(), "{:?}", objects.states["n"]);
    let uids: Vec<_> =
        objects.pods.iter().map(|pod| (pod.uid.as_str(), pod.request.name.uid.as_str())).collect();
    assert_eq!(uids, [("d/a", "d/a"), ("held", "held"), ("d/c", "d/c")], "the state names one of them");
}

#[test]
fn time_of_a_file_is_not_that_of_one_fast_clock() {
    let lease = |node: &str, renewed: &str, managed: serde_json::Value| {
        json!({"kind": "Lease", "spec": {"renewTime": renewed, "leaseDurationSeconds": 60},
            "metadata": {"name": format!("numa-enforcer-{node}"), "namespace": "prod", "managedFields": managed}})
    };
    let none = json!([]);
    let objects = read(&json!([
        lease("a", "2026-11-28T08:00:00Z", none.clone()),
        lease("b", "2026-11-28T09:00:00Z", none.clone()),
        {"kind": "Node", "metadata": {"name": "c"}, "status": {"conditions": [
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-28T08:00:30Z"}]}},
    ]));
    assert_eq!(objects.now, 1_795_852_830, "the second newest of three nodes");
    assert_eq!(objects.leases[1].namespace, "prod");
    let managed = json!([{"manager": "kubectl", "time": "2026-11-28T10:00:00Z"},
        {"manager": "numa-enforcer", "time": "2026-11-28T08:00:20Z"}]);
    let objects = read(&json!([lease("b", "2026-11-28T09:00:00Z", managed)]));
    assert_eq!((objects.now, objects.leases[0].renewed_at), (1_795_852_820, Some(1_795_852_820)));
    let mut election = lease("gate", "2026-11-28T09:00:00Z", json!(null));
    election["metadata"]["labels"] = json!({"app.kubernetes.io/component": "election"});
    assert_eq!(read(&json!([election])).leases, [], "replicas take turns by it, whatever its name is");
    let kubelet = json!({"kind": "Lease", "metadata": {"name": "a", "namespace": "kube-node-lease"},
        "spec": {"renewTime": "2026-11-28T08:00:00Z"}});
    let objects = read(&json!([kubelet]));
    assert_eq!((objects.now, objects.leases.len()), (1_795_852_800, 0));
}

#[test]
fn containers_of_a_bound_pod_without_resources_of_its_own_are_kept() {
    let objects = read(&json!([{"kind": "Pod", "metadata": {"name": "p", "uid": "u"},
        "spec": {"nodeName": "n", "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}]}}]));
    let pod = &objects.pods[0];
    let names: Vec<&str> = pod.request.containers.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        (names, pod.request.undescribed),
        (vec!["i", "c"], None),
        "a node that numa-enforcer places gives them a scope"
    );
    assert_eq!((pod.amounts()["cpu"], pod.amounts()["memory"]), (2_000, 1 << 30));
}

#[test]
fn pod_that_is_deleted_before_it_has_a_node_has_ended() {
    let phase = |node: Option<&str>, deleted: Option<&str>| {
        let objects = read(&json!([{"kind": "Pod", "spec": {"nodeName": node},
            "metadata": {"name": "p", "uid": "u", "deletionTimestamp": deleted, "finalizers": ["x/y"]}}]));
        objects.pods[0].phase
    };
    assert_eq!(phase(None, None), PodPhase::Pending);
    assert_eq!(phase(None, Some("2026-11-28T08:00:00Z")), PodPhase::Ended);
    assert_eq!(phase(Some("n"), Some("2026-11-28T08:00:00Z")), PodPhase::Pending, "its containers may run");
}
