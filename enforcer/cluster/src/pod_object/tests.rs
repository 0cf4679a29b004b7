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
