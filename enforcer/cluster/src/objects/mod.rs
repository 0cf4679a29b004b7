//! Objects of a cluster as `kubectl get numanodestates,nodes,pods -A -o json` prints them, for a plan.
//!
//! Invariants: only what a plan needs is kept, so that thousands of objects fit into little memory. An object
//! that cannot be understood is named and left out; it never ends the reading of the others. Kinds that have
//! no part in a plan are passed over.

mod node;
mod pod;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use enforcer_core::cluster::state::{KIND, NodeState};
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

pub use self::{
    node::NodeObject,
    pod::{PodObject, PodPhase},
};

/// Most objects that are read.
const OBJECTS: usize = 400_000;
/// Most objects that are named as not understood.
const NAMED: usize = 16;

/// What was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterObjects {
    /// Nodes in ascending order of name.
    pub nodes: Vec<NodeObject>,
    /// Published states by name of the node.
    pub states: BTreeMap<String, NodeState>,
    /// Pods in the order of their creation, then of their names.
    pub pods: Vec<PodObject>,
    /// Objects that were left out, and why.
    pub left_out: Vec<String>,
}

/// Why a text is no list of objects.
#[derive(Debug, Error)]
pub enum ObjectsError {
    /// It is not JSON, or has another shape.
    #[error("a List of objects as `kubectl get ... -o json` prints it is expected: {0}")]
    Json(#[from] serde_json::Error),
    /// It has too many objects.
    #[error("{0} objects, at most {OBJECTS} are read")]
    TooMany(usize),
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct AnyObject {
    kind: Option<String>,
    #[serde(default)]
    metadata: ObjectMetadata,
}

#[derive(Default, Deserialize)]
struct ObjectMetadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct StateObject {
    metadata: ObjectMetadata,
    state: NodeState,
}

impl ClusterObjects {
    /// Reads a list.
    ///
    /// # Errors
    /// If the text is no list of objects. A single object that is not understood is left out instead.
    pub fn read(text: &str) -> Result<Self, ObjectsError> {
        let list: List<'_> = serde_json::from_str(text)?;
        if list.items.len() > OBJECTS {
            return Err(ObjectsError::TooMany(list.items.len()));
        }
        let mut objects = Self::default();
        let mut unnamed = 0usize;
        for item in &list.items {
            if let Err(why) = objects.add(item.get()) {
                if objects.left_out.len() < NAMED { objects.left_out.push(why) } else { unnamed += 1 }
            }
        }
        if unnamed > 0 {
            objects.left_out.push(format!("{unnamed} further objects"));
        }
        objects.nodes.sort_by(|one, other| one.name.cmp(&other.name));
        objects.pods.sort_by(|one, other| one.order().cmp(&other.order()));
        Ok(objects)
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        let object: AnyObject = serde_json::from_str(text).map_err(|fault| format!("an object: {fault}"))?;
        let name = object.metadata.name;
        let kind = object.kind.unwrap_or_default();
        let faulty = |fault: &dyn std::fmt::Display| format!("{kind} {name}: {fault}");
        match kind.as_str() {
            KIND => {
                let StateObject { metadata, state } =
                    serde_json::from_str(text).map_err(|fault| faulty(&fault))?;
                self.states.insert(metadata.name, state);
            }
            "Node" => self.nodes.push(NodeObject::read(text).map_err(|fault| faulty(&fault))?),
            "Pod" => self.pods.push(PodObject::read(text).map_err(|fault| faulty(&fault))?),
            _ => {}
        }
        Ok(())
    }
}
