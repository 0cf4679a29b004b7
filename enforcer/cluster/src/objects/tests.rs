use super::*;
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
    let nodes: Vec<_> = objects.nodes.iter().map(|node| (node.name.as_str(), node.is_schedulable)).collect();
    assert_eq!(nodes, [("a", true), ("b", false)]);
    assert_eq!(objects.nodes[1].allocatable["cpu"], 3_500);
    let [early, late] = &objects.pods[..] else { panic!("{:?}", objects.pods) };
    assert_eq!((late.phase, late.node.as_deref()), (PodPhase::Ended, Some("b")));
    assert_eq!((early.phase, early.node.as_deref()), (PodPhase::Active, None));
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
        {"kind": "NumaNodeState", "metadata": {"name": "n"}, "state": {"revision": 7}},
        {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "-"}}},
        {"kind": "Pod", "metadata": {"name": "good"}, "spec": {"containers": [{"name": "c"}]}},
    ]));
    assert_eq!(objects.pods.len(), 1);
    assert_eq!(objects.left_out.len(), 3, "{:?}", objects.left_out);
    assert_eq!(objects.left_out[0], "Pod odd: container c: cpu: no quantity: \"many\"");
    assert!(objects.left_out[1].starts_with("NumaNodeState n: "), "{:?}", objects.left_out);
    assert!(ClusterObjects::read("{}").is_err());
    assert!(ClusterObjects::read("[1, 2").is_err());
}

#[test]
fn resources_of_the_pod_as_a_whole_take_it_out_of_the_managers_hands() {
    let objects =
        read(&json!([{"kind": "Pod", "metadata": {"name": "p"}, "status": {"qosClass": "Guaranteed"},
        "spec": {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}, "containers": [{"name": "c"}]}}]));
    assert_eq!(objects.pods[0].request.qos, QosClass::Burstable);
}
