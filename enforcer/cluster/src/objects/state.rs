//! A `NumaNodeState` object: whose it is, which managers wrote its content, and what of it is not known.
//!
//! Problem: a newer daemon may say something that changes the meaning of the fields that this program knows,
//! at any depth of the content. A reader that passed it over would call a prediction exact that is not.
//! Idea: what was read is written again, and each field that is then missing is named.
//!
//! Invariant: a content that cannot be read does not hide whose it is.

use std::collections::BTreeMap;

use enforcer_core::cluster::{
    objects::{StateObject, StateOrigin},
    state::{FIELD_MANAGER, NodeState},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{NAMED, lease::LEASE_NAMESPACE, seconds};

/// Annotation of a published object: the boot of the machine on which its daemon runs.
pub const BOOT_ID: &str = "numa-enforcer.io/boot-id";
/// Members of an object beside its content.
const BESIDE: [&str; 4] = ["apiVersion", "kind", "metadata", "state"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    #[serde(default)]
    api_version: String,
    metadata: StateMetadata,
}

/// The content, apart: what cannot be read of it does not hide whose it is.
#[derive(Deserialize)]
struct StateContent {
    state: NodeState,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StateMetadata {
    name: String,
    annotations: BTreeMap<String, String>,
    owner_references: Vec<OwnerReference>,
    managed_fields: Vec<ManagedFields>,
}

#[derive(Deserialize)]
struct OwnerReference {
    kind: String,
    uid: String,
}

/// Fields that one manager of an object owns.
#[derive(Deserialize)]
pub(super) struct ManagedFields {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    time: Option<String>,
    #[serde(rename = "fieldsV1", default)]
    fields: Option<Value>,
}

impl ManagedFields {
    /// Does it own what the object says, or whose the object is: its node, or the lease of its daemon? Labels
    /// and the like say nothing of either. An entry without its fields is taken as an owner of them all.
    fn owns_content(&self) -> bool {
        let Some(fields) = self.fields.as_ref().and_then(Value::as_object) else { return true };
        let lease = format!("f:{LEASE_NAMESPACE}");
        fields.iter().any(|(field, below)| match field.as_str() {
            "f:metadata" => {
                let annotations = below.get("f:annotations");
                below.get("f:ownerReferences").is_some()
                    || annotations.is_some_and(|annotations| annotations.get(&lease).is_some())
            }
            field => field.starts_with("f:"),
        })
    }
}

/// When the daemon wrote an object last, by the clock of the API server.
pub(super) fn written_at(entries: &[ManagedFields]) -> Option<i64> {
    let own = entries.iter().filter(|one| one.manager == FIELD_MANAGER);
    own.filter_map(|one| seconds(one.time.as_deref())).max()
}

/// Reads a state; returns when it was written, too, as far as the list shows that.
pub(crate) fn read(text: &str) -> Result<(StateObject, Option<i64>), String> {
    let State { api_version, metadata } =
        serde_json::from_slice(text.as_bytes()).map_err(|fault| fault.to_string())?;
    let content: Result<StateContent, _> = serde_json::from_slice(text.as_bytes());
    let state = content.map(|content| content.state).map_err(|fault| fault.to_string());
    let owner = metadata.owner_references.into_iter().find(|owner| owner.kind == "Node");
    let at = written_at(&metadata.managed_fields);
    let writers = metadata.managed_fields.into_iter().filter(ManagedFields::owns_content);
    let mut writers: Vec<String> = writers.map(|one| one.manager).collect();
    writers.sort();
    writers.dedup();
    let object = StateObject {
        name: metadata.name,
        api_version,
        origin: StateOrigin {
            owner_uid: owner.map(|owner| owner.uid),
            lease_namespace: metadata.annotations.get(LEASE_NAMESPACE).cloned(),
            boot_id: metadata.annotations.get(BOOT_ID).cloned(),
        },
        writers,
        unknown_fields: state.as_ref().map(|state| unknown_fields(text, state)).unwrap_or_default(),
        state,
    };
    Ok((object, at))
}

/// Paths of the fields that are not those of a known state.
fn unknown_fields(text: &str, state: &NodeState) -> Vec<String> {
    let mut unknown = Vec::new();
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(text.as_bytes()).unwrap_or_default();
    unknown.extend(members.keys().filter(|name| !BESIDE.contains(&name.as_str())).cloned());
    if let Some(content) = members.get("state")
        && let (Ok(said), Ok(known)) =
            (serde_json::from_slice(content.get().as_bytes()), serde_json::to_value(state))
    {
        add_unknown("", &said, &known, &mut unknown);
    }
    unknown.truncate(NAMED);
    unknown
}

/// Adds the paths in `said` that `known` does not have. A known field may be left out where it is empty, so
/// one that is empty says nothing.
fn add_unknown(path: &str, said: &Value, known: &Value, unknown: &mut Vec<String>) {
    match (said, known) {
        (Value::Object(said), Value::Object(known)) => {
            for (name, value) in said {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match known.get(name) {
                    Some(known) => add_unknown(&path, value, known, unknown),
                    None if is_empty(value) => {}
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(said), Value::Array(known)) => {
            for (said, known) in said.iter().zip(known) {
                add_unknown(path, said, known, unknown);
            }
        }
        (Value::Object(_) | Value::Array(_), _) => unknown.push(path.to_owned()),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state() -> Value {
        json!({
            "revision": {"epoch": 1, "counter": 2}, "hash": "h", "exact": true,
            "kubelet": {"version": "v1.36.2", "cpuPolicy": "static", "cpuOptions": {"full-pcpus-only": "true"}},
            "machine": {"hash": "m", "nodes": [{"id": 0, "cpus": "0-3", "kind": "dram"}], "distances": [[10]],
                "sockets": ["0-3"], "cores": ["0", "1", "2", "3"], "caches": ["0-3"]},
            "reservedCpus": "0", "sharedCpus": "0-1",
            "memory": [{"node": 0, "resource": "memory", "allocatable": 9, "free": 9, "assignments": 0, "cells": "0"}],
            "devices": [{"resource": "v.com/gpu", "byNodes": [{"nodes": "0", "total": 1, "healthy": 1, "free": 0}]}],
            "pods": [{"uid": "u", "containers": [{"name": "c", "kind": "app", "cpus": "2-3",
                "memory": [{"nodes": "0", "resource": "memory", "bytes": 0}], "devices": {"v.com/gpu": {"0": 1}}}]}],
            "rejected": [{"uid": "r", "reason": "x", "at": 1}],
            "covered": {"count": 1, "exclusiveCpus": 2, "fingerprint": "f"},
        })
    }

    fn read_with(change: impl FnOnce(&mut Value)) -> StateObject {
        let mut object = json!({"kind": "NumaNodeState", "metadata": {"name": "n"}, "state": state()});
        change(&mut object);
        let (read, _) = read(&object.to_string()).unwrap();
        assert!(read.state.is_ok(), "{read:?}");
        read
    }

    #[test]
    fn each_field_that_is_not_known_is_named_whatever_its_depth() {
        assert_eq!(read_with(|_| {}).unknown_fields, Vec::<String>::new());
        let empty = read_with(|object| {
            object["state"]["inexact"] = json!([]);
            object["state"]["kubelet"]["startedAt"] = Value::Null;
            object["state"]["pods"][0]["name"] = json!("");
        });
        assert_eq!(empty.unknown_fields, Vec::<String>::new());
        for (pointer, name, expected) in [
            ("/state", "cells", "cells"),
            ("/state/revision", "era", "revision.era"),
            ("/state/kubelet", "podLevel", "kubelet.podLevel"),
            ("/state/machine/nodes/0", "offline", "machine.nodes.offline"),
            ("/state/memory/0", "unit", "memory.unit"),
            ("/state/devices/0/byNodes/0", "lent", "devices.byNodes.lent"),
            ("/state/pods/0", "shared", "pods.shared"),
            ("/state/pods/0/containers/0/memory/0", "swap", "pods.containers.memory.swap"),
            ("/state/covered", "until", "covered.until"),
            ("", "status", "status"),
        ] {
            for value in [json!(0), json!(false), json!({"a": 1})] {
                let read = read_with(|object| object.pointer_mut(pointer).unwrap()[name] = value);
                assert_eq!(read.unknown_fields, [expected]);
            }
        }
    }

    #[test]
    fn managers_of_labels_have_not_written_the_state() {
        let writers = |fields: Value| {
            let own = json!({"manager": "numa-enforcer", "fieldsV1": {"f:state": {}}});
            let entries = json!([own, {"manager": "kubectl", "fieldsV1": fields}]);
            read_with(|object| object["metadata"]["managedFields"] = entries).writers
        };
        let labels =
            json!({"f:metadata": {"f:labels": {".": {}, "f:team": {}}, "f:annotations": {"f:a": {}}}});
        assert_eq!(writers(labels), ["numa-enforcer"]);
        for fields in [
            json!({"f:state": {"f:pods": {}}}),
            json!({"f:metadata": {"f:labels": {}}, "f:state": {}}),
            json!({"f:metadata": {"f:ownerReferences": {}}}),
            json!({"f:metadata": {"f:annotations": {".": {}, "f:numa-enforcer.io/lease-namespace": {}}}}),
            json!({"f:spec": {}}),
            Value::Null,
        ] {
            assert_eq!(writers(fields.clone()), ["kubectl", "numa-enforcer"], "{fields}");
        }
    }
}
