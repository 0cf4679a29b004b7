//! The one change of a pod: its node is required by name, and the gate is gone.
//!
//! Idea: a list of operations (RFC 6902) that only adds to the affinity, so what this program does not know
//! of a term stays as it is. It names the version of the pod, so positions in lists are true.
//!
//! Invariants: a term that has a requirement gets one more, an empty one stays (no server lets it change, and
//! it holds nowhere). No gate but [`GATE`] is removed.

use serde::Serialize;
use serde_json::{Value, json};

use super::{GATE, GateDecision, PlacedMark};
use crate::cluster::{
    objects::PodObject,
    required_nodes::{AffinityTerms, NodeRequirement, NodeTerm},
};

const AFFINITY: &str = "/spec/affinity";
const GATES: &str = "/spec/schedulingGates";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Operations on a pod, as RFC 6902 has them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct PodPatch(pub Vec<PatchOperation>);

/// One operation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PatchOperation {
    /// `test`, `add`, `replace` or `remove`.
    pub op: &'static str,
    /// Where.
    pub path: String,
    /// What; without one for `remove`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

impl PodPatch {
    /// The patch of a decision at a time in seconds since 1970; `None` if nothing changes.
    pub fn new(pod: &PodObject, decision: &GateDecision, at: i64) -> Option<Self> {
        let node = match decision {
            GateDecision::Wait(_) => return None,
            GateDecision::Release(_) => None,
            GateDecision::Place { node } => Some(node.as_str()),
        };
        let mut patch = Self(Vec::new());
        patch.add("test", "/metadata/uid", json!(pod.uid));
        patch.add("replace", "/metadata/resourceVersion", json!(pod.arrival.version.to_string()));
        if let Some(node) = node {
            patch.mark(pod, node, at);
            patch.require(&pod.scheduling.required.affinity, node);
        }
        for at in pod.scheduling.gates.ours.iter().rev() {
            patch.add("test", &format!("{GATES}/{at}/name"), json!(GATE));
            patch.0.push(PatchOperation { op: "remove", path: format!("{GATES}/{at}"), value: None });
        }
        Some(patch)
    }

    /// The patch as a server reads it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn mark(&mut self, pod: &PodObject, node: &str, at: i64) {
        let mark = PlacedMark { node: node.to_owned(), at };
        let text = json!(serde_json::to_string(&mark).unwrap_or_default());
        if pod.scheduling.gates.has_annotations {
            let key = PlacedMark::ANNOTATION.replace('/', "~1");
            self.add("add", &format!("/metadata/annotations/{key}"), text);
        } else {
            self.add("add", "/metadata/annotations", json!({PlacedMark::ANNOTATION: text}));
        }
    }

    fn require(&mut self, affinity: &AffinityTerms, node: &str) {
        let requirement = requirement_of(node);
        let required = json!({"nodeSelectorTerms": [{"matchFields": [requirement]}]});
        match affinity {
            AffinityTerms::NoAffinity => {
                self.add("add", AFFINITY, json!({"nodeAffinity": {REQUIRED: required}}));
            }
            AffinityTerms::NoNodeAffinity => {
                self.add("add", &format!("{AFFINITY}/nodeAffinity"), json!({REQUIRED: required}));
            }
            AffinityTerms::NoRequirement => {
                self.add("add", &format!("{AFFINITY}/nodeAffinity/{REQUIRED}"), required);
            }
            AffinityTerms::Terms(terms) => {
                let open = |term: &NodeTerm| !term.is_empty() && !term.names(node);
                for (at, term) in terms.iter().enumerate().filter(|(_, term)| open(term)) {
                    let fields =
                        format!("{AFFINITY}/nodeAffinity/{REQUIRED}/nodeSelectorTerms/{at}/matchFields");
                    if term.fields.is_empty() {
                        self.add("add", &fields, json!([requirement]));
                    } else {
                        self.add("add", &format!("{fields}/-"), requirement.clone());
                    }
                }
            }
        }
    }

    fn add(&mut self, op: &'static str, path: &str, value: Value) {
        self.0.push(PatchOperation { op, path: path.to_owned(), value: Some(value) });
    }
}

fn requirement_of(node: &str) -> Value {
    let NodeRequirement { key, operator, values } = NodeRequirement::of_name(node);
    json!({"key": key, "operator": operator, "values": values})
}
