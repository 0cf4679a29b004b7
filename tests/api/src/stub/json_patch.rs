//! Patches by RFC 6902, as far as clients send them: `test`, `add`, `replace` and `remove`.

use serde_json::Value;

/// Applies a list of operations; an error if one of them cannot be done.
pub(super) fn apply(object: &mut Value, operations: &Value) -> Result<(), String> {
    operations.as_array().into_iter().flatten().try_for_each(|operation| one(object, operation))
}

fn one(object: &mut Value, operation: &Value) -> Result<(), String> {
    let text = |key: &str| operation[key].as_str().unwrap_or_default();
    let (op, path) = (text("op"), text("path"));
    let failed = || format!("{op} {path} cannot be done");
    let value = operation.get("value").cloned().unwrap_or_default();
    if op == "test" {
        return if object.pointer(path) == Some(&value) { Ok(()) } else { Err(failed()) };
    }
    let (parent, last) = path.rsplit_once('/').ok_or_else(failed)?;
    let last = last.replace("~1", "/").replace("~0", "~");
    match (op, object.pointer_mut(parent).ok_or_else(failed)?) {
        ("add", Value::Object(map)) => drop(map.insert(last, value)),
        ("replace", Value::Object(map)) => drop(map.insert(last, value).ok_or_else(failed)?),
        ("remove", Value::Object(map)) => drop(map.remove(&last).ok_or_else(failed)?),
        ("add", Value::Array(list)) if last == "-" => list.push(value),
        ("add" | "remove", Value::Array(list)) => {
            let at: usize = last.parse().map_err(|_no_number| failed())?;
            match op {
                "add" if at <= list.len() => list.insert(at, value),
                "remove" if at < list.len() => drop(list.remove(at)),
                _ => return Err(failed()),
            }
        }
        _ => return Err(failed()),
    }
    Ok(())
}

/// Why a pod may not be changed so (`ValidatePodUpdate` of Kubernetes): of a gated pod, gates may only go,
/// and terms of the required node affinity may only get more requirements.
pub(super) fn forbidden_change(old: &Value, new: &Value) -> Option<&'static str> {
    let list = |object: &Value, path: &str| {
        object.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let gates = |object: &Value| list(object, "/spec/schedulingGates");
    if gates(new).iter().any(|gate| !gates(old).contains(gate)) {
        return Some("spec.schedulingGates: only deletion is allowed");
    }
    let required = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let terms = |object: &Value| list(object, &format!("{required}/nodeSelectorTerms"));
    let (before, after) = (terms(old), terms(new));
    if before == after || old.pointer(required).is_none() && !gates(old).is_empty() {
        return None;
    }
    let holds = |term: &Value, old: &Value| {
        ["/matchExpressions", "/matchFields"].iter().all(|path| {
            let kept = list(term, path);
            list(old, path).iter().all(|requirement| kept.contains(requirement))
        })
    };
    let is_empty =
        |term: &Value| list(term, "/matchExpressions").is_empty() && list(term, "/matchFields").is_empty();
    let is_same = before.len() == after.len()
        && before.iter().zip(&after).all(|(old, term)| old == term || !is_empty(old) && holds(term, old));
    (gates(old).is_empty() || !is_same).then_some("spec.affinity: only additions are allowed")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_are_applied_in_their_order_or_fail() {
        let mut object = json!({"a": {"b/c": [1, 2, 3]}});
        let operations = json!([
            {"op": "test", "path": "/a/b~1c/1", "value": 2},
            {"op": "remove", "path": "/a/b~1c/0"},
            {"op": "add", "path": "/a/b~1c/-", "value": 4},
            {"op": "add", "path": "/d", "value": {}},
        ]);
        apply(&mut object, &operations).unwrap();
        assert_eq!(object, json!({"a": {"b/c": [2, 3, 4]}, "d": {}}));
        for operation in [
            json!([{"op": "test", "path": "/d", "value": 1}]),
            json!([{"op": "remove", "path": "/a/b~1c/9"}]),
            json!([{"op": "replace", "path": "/none", "value": 1}]),
            json!([{"op": "add", "path": "/none/x", "value": 1}]),
        ] {
            assert!(apply(&mut object, &operation).is_err(), "{operation}");
        }
    }

    #[test]
    fn terms_of_a_gated_pod_only_get_more_requirements() {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let pod = |terms: Value, gates: Value| {
            json!({"spec": {
                "schedulingGates": gates,
                "affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}},
            }})
        };
        let (gate, one) = (json!([{"name": "g"}]), json!({"matchFields": [1]}));
        let two = json!({"matchFields": [1, 2]});
        for (old, new, gates, is_allowed) in [
            (json!([one]), json!([two]), gate.clone(), true),
            (json!([two]), json!([one]), gate.clone(), false),
            (json!([one]), json!([one, one]), gate.clone(), false),
            (json!([{}]), json!([one]), gate.clone(), false),
            (json!([one]), json!([two]), json!([]), false),
        ] {
            let (old, new) = (pod(old, gates.clone()), pod(new, gates));
            assert_eq!(forbidden_change(&old, &new).is_none(), is_allowed, "{old} {new}");
        }
        let none = json!({"spec": {"schedulingGates": gate}});
        assert_eq!(forbidden_change(&none, &pod(json!([one]), json!([]))), None);
        assert!(forbidden_change(&pod(json!([one]), json!([])), &pod(json!([one]), gate)).is_some());
    }
}
