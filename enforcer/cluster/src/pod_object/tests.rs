use enforcer_core::cluster::{
    gate::{GATE, NotComputed, PlacedMark, PodGates},
    required_nodes::{AffinityTerms, NodeRequirement, NodeTerm, RequiredNodes},
};
use numa_placement::Undescribed;
use serde_json::{Value, json};

use super::*;

fn read(spec: &Value) -> Result<PodFields, serde_json::Error> {
    serde_json::from_value(json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": spec}))
}

#[test]
fn lists_and_amounts_are_bounded_and_may_be_null() {
    let many = |count: usize| -> Vec<Value> { (0..count).map(|n| json!({"name": n.to_string()})).collect() };
    assert!(read(&json!({"containers": many(CONTAINERS)})).is_ok());
    assert!(read(&json!({"containers": many(CONTAINERS + 1)})).is_err());
    assert!(read(&json!({"containers": [], "tolerations": vec![json!({}); TOLERATIONS + 1]})).is_err());
    let amounts =
        |count: usize| -> Value { (0..count).map(|n| (format!("v.com/{n}"), json!("1"))).collect() };
    let of = |limits: Value| json!({"containers": [{"name": "c", "resources": {"limits": limits}}]});
    assert_eq!(
        read(&of(amounts(AMOUNTS))).unwrap().request().unwrap().request.containers[0].devices.len(),
        AMOUNTS
    );
    assert!(read(&of(amounts(AMOUNTS + 1))).is_err());
    let empty = read(&json!({"initContainers": null, "containers": null, "tolerations": null}));
    assert_eq!(empty.unwrap().containers().count(), 0);
    assert!(read(&of(Value::Null)).is_ok());
}

#[test]
fn what_containers_do_not_describe_is_named() {
    let of = |spec: Value| read(&spec).unwrap().request().unwrap().request.undescribed;
    for (spec, expected) in [
        (json!({}), None),
        (json!({"priorityClassName": "system-cluster-critical"}), None),
        (json!({"priorityClassName": "system-node-critical"}), Some(Undescribed::NodeCritical)),
        (json!({"resources": {}}), None),
        (json!({"resources": {"requests": {"cpu": "1"}}}), Some(Undescribed::PodResources)),
        (json!({"resourceClaims": []}), None),
        (json!({"resourceClaims": [{"name": "nic"}]}), Some(Undescribed::ResourceClaims)),
    ] {
        assert_eq!(of(spec.clone()), expected, "{spec}");
    }
}

fn read_placing(spec: &Value) -> (RequiredNodes, PodGates) {
    let pod = json!({"metadata": {"annotations": {"numa-enforcer.io/placed-on": "{\"node\":\"a\",\"at\":7}"}},
        "spec": spec});
    let pod: PodFields = serde_json::from_str(&pod.to_string()).unwrap();
    required_and_gates(&pod)
}

#[test]
fn gates_terms_and_marks_are_those_of_the_object() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let term = json!({
        "matchExpressions": [{"key": "zone", "operator": "Exists"}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}],
    });
    let (nodes, gates) = read_placing(&json!({
        "nodeSelector": {"disk": "ssd"},
        "schedulingGates": [{"name": "x"}, {"name": GATE}],
        "affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [term, {}]}}},
    }));
    let zone = NodeRequirement { key: "zone".into(), operator: "Exists".into(), values: Vec::new() };
    let first = NodeTerm { labels: vec![zone], fields: vec![NodeRequirement::of_name("a")] };
    assert_eq!(nodes.affinity, AffinityTerms::Terms(vec![first, NodeTerm::default()]));
    assert_eq!(nodes.selector["disk"], "ssd");
    assert!(gates.has_ours() && gates.has_annotations && gates.not_computed.is_none());
    assert_eq!(gates.ours, [1]);
    assert_eq!(gates.placed, Some(PlacedMark { node: "a".into(), at: 7 }));
    let mut many: Vec<Value> = (0..1_000).map(|at| json!({"name": format!("example.org/{at}")})).collect();
    many.push(json!({"name": GATE}));
    let (_, gates) = read_placing(&json!({"schedulingGates": many}));
    assert_eq!((gates.ours, gates.not_computed), (vec![1_000], None), "a long list is read, too");
    for (affinity, expected) in [
        (json!(null), AffinityTerms::NoAffinity),
        (json!({}), AffinityTerms::NoNodeAffinity),
        (json!({"podAffinity": {}}), AffinityTerms::NoNodeAffinity),
        (json!({"nodeAffinity": {}}), AffinityTerms::NoRequirement),
        (json!({"nodeAffinity": {required: {"nodeSelectorTerms": null}}}), AffinityTerms::Terms(Vec::new())),
    ] {
        assert_eq!(read_placing(&json!({"affinity": affinity})).0.affinity, expected);
    }
    let bound = read_placing(&json!({"nodeName": "a", "schedulingGates": [{"name": GATE}]}));
    assert_eq!(bound, Default::default(), "a pod with a node has none of it");
}

#[test]
fn what_is_not_computed_or_too_large_is_named_and_the_pod_is_read() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms =
        |terms: Value| json!({"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}});
    let many = |number| vec![json!({"key": "k", "operator": "In", "values": ["v"]}); number];
    let port = |port: Value| json!({"containers": [{"name": "c", "ports": [{}, {"hostPort": port}]}]});
    let spread = |when| json!({"topologySpreadConstraints": [{"whenUnsatisfiable": when}]});
    for (spec, expected) in [
        (json!({}), None),
        (json!({"affinity": {"podAffinity": {required: [{}]}}}), Some(NotComputed::PodAffinity)),
        (json!({"affinity": {"podAntiAffinity": {required: [{}]}}}), Some(NotComputed::PodAffinity)),
        (json!({"affinity": {"podAntiAffinity": {"preferred": [{}]}}}), None),
        (spread("DoNotSchedule"), Some(NotComputed::TopologySpread)),
        (spread("ScheduleAnyway"), None),
        (port(json!(80)), Some(NotComputed::HostPorts)),
        (port(json!(0)), None),
        (json!({"volumes": [{"persistentVolumeClaim": {}}]}), Some(NotComputed::Volumes)),
        (json!({"volumes": [{"emptyDir": {}}]}), None),
        (json!({"resourceClaims": [{}]}), Some(NotComputed::DeviceClaims)),
        (terms(json!(vec![json!({}); 64])), None),
        (terms(json!(vec![json!({}); 65])), Some(NotComputed::TooLarge)),
        (terms(json!([{"matchExpressions": many(65)}])), Some(NotComputed::TooLarge)),
        (terms(json!([{"matchFields": [{"values": vec!["v"; 2_000]}]}])), Some(NotComputed::TooLarge)),
        (terms(json!("none")), Some(NotComputed::TooLarge)),
        (json!({"affinity": 7}), Some(NotComputed::TooLarge)),
        (json!({"schedulingGates": vec![json!({"name": "x"}); 65]}), None),
        (json!({"schedulingGates": "x"}), Some(NotComputed::TooLarge)),
    ] {
        let shown = spec.to_string();
        assert_eq!(read_placing(&spec).1.not_computed, expected, "{}", &shown[..shown.len().min(200)]);
    }
}

#[test]
fn scheduler_counts_the_pod_as_a_whole_and_its_overhead() {
    let counted = |further: Value| {
        let mut spec =
            json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Ki"}}}]});
        for (key, value) in further.as_object().unwrap() {
            spec[key] = value.clone();
        }
        read(&spec).unwrap().request().unwrap().counted
    };
    assert_eq!(counted(json!({})), None, "the request says it");
    let of = |cpu: u64, memory: u64| {
        let amounts = [("cpu", cpu), ("memory", memory), ("pods", 1)];
        Some(amounts.map(|(resource, amount)| (resource.to_owned(), amount)).into())
    };
    assert_eq!(counted(json!({"overhead": {"cpu": "250m", "memory": "1Ki"}})), of(2_250, 2_048));
    let whole = json!({"limits": {"cpu": "8", "memory": "4Ki"}, "requests": {"cpu": "4"}});
    assert_eq!(counted(json!({"resources": whole})), of(4_000, 4_096));
}
