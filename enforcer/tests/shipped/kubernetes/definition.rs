//! The definition of the kind for an API server, made from its types.
//!
//! Problem: the server prunes what its schema does not name and refuses what exceeds it. A definition that a
//! person writes would differ from the types one day.
//!
//! Idea: the file that the chart installs is generated from the types here, in a test, and the test fails as
//! long as the file differs. A schema of the server is a subset of JSON Schema ("structural"): each type is
//! written out where it is used, a choice of words is one list, and no value has a default, because an absent
//! value means unknown.
//!
//! Rules of the server (CEL) are few and cheap: the server computes their worst cost from the limits.

use std::{env, fs, mem, path::Path};

use enforcer_core::cluster::state::{GROUP, KIND, NodeState, PLURAL, VERSION};
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

const FILE: &str = "../deploy/helm/numa-enforcer/files/node-state-definition.yaml";

const HEADER: &str = "# Generated from the types of enforcer/core/src/cluster/state; regenerate it with\n\
                      #     UPDATE_SCHEMAS=1 cargo test -p enforcer --test shipped definition\n";

/// Formats of numbers that a server knows.
const KNOWN_FORMATS: [&str; 2] = ["int32", "int64"];

fn definition() -> Value {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    let schema = settings.into_generator().into_root_schema_for::<NodeState>();
    let mut state = structural(schema.to_value());
    state["x-kubernetes-validations"] = json!([
        {
            "rule": "self.revision.epoch > oldSelf.revision.epoch || (self.revision.epoch == oldSelf.revision.epoch \
                     && self.revision.counter >= oldSelf.revision.counter)",
            "message": "the revision is older than that of the state which is there",
            "fieldPath": ".revision",
        },
        {
            "rule": "self.exact == (!has(self.inexact) || size(self.inexact) == 0)",
            "message": "an exact state has no inexact source, and an inexact one names its sources",
            "fieldPath": ".exact",
        },
    ]);
    let column = |name: &str, kind: &str, path: &str, description: &str| json!({"name": name, "type": kind, "jsonPath": path, "description": description});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        // Helm leaves it when the release goes: with it the API server would delete all states, also
        // those of daemons that another release runs.
        "metadata": {
            "name": format!("{PLURAL}.{GROUP}"),
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": KIND, "listKind": format!("{KIND}List"), "plural": PLURAL,
                "singular": KIND.to_lowercase(), "shortNames": ["nns"], "categories": ["numa"],
            },
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "selectableFields": [{"jsonPath": ".state.exact"}],
                "additionalPrinterColumns": [
                    column("Policy", "string", ".state.kubelet.topologyPolicy", "Topology policy of the kubelet"),
                    column("Scope", "string", ".state.kubelet.topologyScope", "Scope of that policy"),
                    column("Exact", "boolean", ".state.exact", "Whether the node's decisions can be predicted"),
                    column("Pods", "integer", ".state.covered.count", "Pods that hold something of their own"),
                    column("Exclusive", "integer", ".state.covered.exclusiveCpus", "CPUs that containers have exclusively"),
                    column("Age", "date", ".metadata.creationTimestamp", "Time since the object was made"),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "What a node has for pods of their own CPUs, memory and devices, and which pods hold it. \
                                    The object has the name of the node, and its daemon alone writes it.",
                    "required": ["state"],
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "state": state,
                    },
                }},
            }],
        },
    })
}

/// The same schema as a server takes it.
fn structural(schema: Value) -> Value {
    let Value::Object(mut schema) = schema else { return schema };
    for unwanted in ["$schema", "title", "default", "nullable"] {
        schema.remove(unwanted);
    }
    if schema.get("format").is_some_and(|format| !KNOWN_FORMATS.iter().any(|known| format == known)) {
        schema.remove("format");
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    // A value that may be absent: the first choice is its type, the second is null.
    if let Some(Value::Array(mut choices)) = schema.remove("anyOf") {
        assert_eq!((choices.len(), &choices[1]["nullable"]), (2, &json!(true)), "{choices:?}");
        let Value::Object(inner) = structural(choices.swap_remove(0)) else {
            panic!("no schema: {choices:?}")
        };
        let outer = mem::replace(&mut schema, inner);
        schema.extend(outer);
    }
    if let Some(Value::Array(choices)) = schema.remove("oneOf") {
        let words: Vec<_> = choices.iter().map(|choice| choice["enum"][0].clone()).collect();
        assert!(words.iter().all(Value::is_string), "a choice of something else than words: {choices:?}");
        schema.extend([("type".into(), json!("string")), ("enum".into(), words.into())]);
    }
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        *fields = mem::take(fields).into_iter().map(|(name, field)| (name, structural(field))).collect();
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(inner) {
            *inner = structural(inner.take());
        }
    }
    schema.into()
}

/// Calls `check` with each schema and its path.
fn walk(schema: &Value, path: &str, check: &mut impl FnMut(&str, &Value)) {
    check(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        walk(field, &format!("{path}.{name}"), check);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            walk(&schema[inner], &format!("{path}[]"), check);
        }
    }
}

#[test]
fn shipped_definition_is_that_of_the_types() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let generated = HEADER.to_owned() + &serde_saphyr::to_string(&definition()).unwrap();
    let shipped = fs::read_to_string(&file).unwrap_or_default();
    if generated != shipped && env::var_os("UPDATE_SCHEMAS").is_some() {
        fs::write(&file, &generated).unwrap();
    }
    assert!(generated == shipped, "{FILE} was not the definition of the types; {HEADER}");
}

#[test]
fn text_that_was_written_is_the_definition() {
    let text = serde_saphyr::to_string(&definition()).unwrap();
    assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), definition());
}

/// Without limits the server cannot bound the cost of rules, and a broken daemon could fill its store.
#[test]
fn each_value_has_a_type_and_a_limit() {
    let definition = definition();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["state"];
    let mut seen = 0;
    walk(schema, "state", &mut |path, schema| {
        seen += 1;
        let has = |limit: &str| schema[limit].is_u64();
        let limited = match schema["type"].as_str() {
            Some("string") => has("maxLength") || schema["enum"].is_array(),
            Some("array") => has("maxItems"),
            Some("integer") => schema["minimum"] == json!(0),
            Some("boolean") => true,
            Some("object") => schema["properties"].is_object() || has("maxProperties"),
            _ => false,
        };
        assert!(limited, "{path}: {schema}");
    });
    assert!(seen > 80, "{seen}");
}
