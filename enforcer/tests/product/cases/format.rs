//! What a case looks like in a file.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A machine, a policy, and what happens on it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// Its name.
    #[serde(rename = "case")]
    pub(crate) name: String,
    /// What it shows.
    pub(crate) says: String,
    /// A line for `--synthetic`, or the name of a file of `machines/`.
    pub(crate) machine: String,
    /// The `[placement]` part of the configuration.
    #[serde(default)]
    pub(crate) config: Value,
    /// The devices of `--devices`.
    #[serde(default)]
    pub(crate) devices: Vec<Value>,
    /// What happens, in order.
    pub(crate) steps: Vec<Step>,
}

/// One step: exactly one of `create`, `resize` and `delete` names the pod.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    create: Option<String>,
    resize: Option<String>,
    warm: Option<String>,
    delete: Option<String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// `NAME [init|sidecar] [RESOURCE=AMOUNT...]`.
    #[serde(default)]
    containers: Vec<String>,
    /// What must be true afterwards.
    #[serde(default)]
    pub(crate) expect: Vec<String>,
    /// Texts of the reason, in any order; the step must be done when absent.
    pub(crate) rejected: Option<String>,
    /// Exactly these others are told of a change.
    pub(crate) updates: Option<String>,
}

impl Step {
    /// The step for `--steps`.
    pub(crate) fn manifest(&self) -> Result<Value, String> {
        let named = [
            ("create", &self.create),
            ("resize", &self.resize),
            ("warm", &self.warm),
            ("delete", &self.delete),
        ];
        let mut named = named.into_iter().filter_map(|(action, pod)| Some((action, pod.as_ref()?)));
        let (Some((action, pod)), None) = (named.next(), named.next()) else {
            return Err("a step creates, resizes, warms or deletes one pod".to_owned());
        };
        let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
        if action == "delete" || action == "warm" {
            return Ok(json!({action: format!("{namespace}/{name}")}));
        }
        let metadata = json!({
            "name": name, "namespace": namespace, "annotations": self.annotations, "labels": self.labels,
        });
        let (mut starting, mut running) = (Vec::new(), Vec::new());
        for text in &self.containers {
            let (container, is_init) = container(text)?;
            if is_init { starting.push(container) } else { running.push(container) }
        }
        let spec = json!({"initContainers": starting, "containers": running});
        Ok(json!({action: {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}}))
    }
}

/// A container from its text, and whether it is an init container or a sidecar.
fn container(text: &str) -> Result<(Value, bool), String> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or("a container without a name")?;
    let (mut requests, mut limits) = (Map::new(), Map::new());
    let mut container = json!({"name": name, "image": "any"});
    let mut is_init = false;
    for word in words {
        match word.split_once('=') {
            Some((resource, amounts)) => {
                let (request, limit) = amounts.split_once('/').unwrap_or((amounts, amounts));
                for (amount, side) in [(request, &mut requests), (limit, &mut limits)] {
                    if !amount.is_empty() {
                        side.insert(resource.to_owned(), amount.into());
                    }
                }
            }
            None if word == "init" => is_init = true,
            None if word == "sidecar" => {
                is_init = true;
                container["restartPolicy"] = "Always".into();
            }
            None => {
                return Err(format!("container `{text}`: `{word}` is neither init, sidecar nor an amount"));
            }
        }
    }
    container["resources"] = json!({"requests": requests, "limits": limits});
    Ok((container, is_init))
}
