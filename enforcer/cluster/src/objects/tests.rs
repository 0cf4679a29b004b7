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
    assert_eq!(state.unknown_fields, ["cells"]);
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
    assert_eq!(uid(&json!({"kubernetes.io/config.hash": "h", "kubernetes.io/config.mirror": "h"})), "h");
    assert_eq!(uid(&json!({"kubernetes.io/config.hash": "h"})), "u");
    assert_eq!(uid(&json!({"kubernetes.io/config.hash": "", "kubernetes.io/config.mirror": ""})), "u");
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
    assert_eq!(objects.latest, 1_795_773_609);
}

#[test]
fn what_a_scheduler_and_a_check_look_at_is_read() {
    let objects = read(&json!([
        {"kind": "Pod", "metadata": {"name": "p", "uid": "u",
            "annotations": {"kubernetes.io/config.hash": "h", "kubernetes.io/config.mirror": "h"}},
         "spec": {"nodeName": "n", "priority": 1000, "tolerations": [{"key": "gpu", "operator": "Exists"}],
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
    ]));
    assert_eq!(objects.left_out, Vec::<String>::new());
    let pod = &objects.pods[0];
    let tolerated = Toleration { key: "gpu".into(), operator: "Exists".into(), ..Toleration::default() };
    assert_eq!((pod.scheduling.priority, &pod.scheduling.tolerations[0]), (1_000, &tolerated));
    assert_eq!((pod.kubelet_uid(), pod.ended_at, pod.phase), ("h", Some(9), PodPhase::Ended));
    assert_eq!(pod.ended_init, ["i"]);
    let node = &objects.nodes[0];
    assert!(!node.is_ready && !node.is_cordoned && !node.is_foreign_system, "{node:?}");
    assert_eq!(
        (node.uid.as_str(), node.boot_id.as_str(), node.kubelet_version.as_str()),
        ("nu", "b", "v1.36.2")
    );
    assert_eq!(pod.scheduling.untolerated(&node.taints), None);
    let state = &objects.states["n"];
    assert_eq!(
        (state.owner_uid.as_deref(), state.api_version.as_str()),
        (Some("old"), "numa-enforcer.io/v2")
    );
    assert_eq!(state.writers, ["kubectl", "numa-enforcer"]);
    assert_eq!((objects.leases.len(), objects.leases[0].renewed_at, objects.latest), (1, Some(40), 40));
}
