//! Bindings of pods, with the conditions of a real server (`pkg/registry/core/pod/storage`).

use serde_json::{Value, json};

use super::{request::Target, store::Store};

/// The pod of a path that ends with the subresource.
pub(super) fn pod_of(path: &str) -> Option<&str> {
    path.strip_suffix("/binding")
}

/// Why a pod is not bound: HTTP status, reason, words.
pub(super) type Unbound = (u16, &'static str, &'static str);

/// Binds a pod: sets its node, and merges the annotations of the binding. Returns the node.
pub(super) fn bind(store: &mut Store, pod: &Target, binding: &Value) -> Result<String, Unbound> {
    let Some(mut object) = store.get(pod).cloned() else { return Err((404, "NotFound", "pod not found")) };
    let asked = binding.pointer("/metadata/uid").filter(|uid| **uid != json!(""));
    if asked.is_some_and(|uid| object.pointer("/metadata/uid") != Some(uid)) {
        return Err((409, "Conflict", "Precondition failed: UID in precondition"));
    }
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return Err((409, "Conflict", "pod is being deleted, cannot be assigned to a host"));
    }
    if object.pointer("/spec/nodeName").is_some_and(|node| *node != json!("")) {
        return Err((409, "Conflict", "pod is already assigned to a node"));
    }
    object["spec"]["nodeName"] = binding["target"]["name"].clone();
    for (name, value) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
        object["metadata"]["annotations"][name] = value.clone();
    }
    let node = object["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    store.put(pod, object);
    store.count_write();
    Ok(node)
}
