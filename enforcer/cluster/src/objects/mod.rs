//! Objects of a cluster as `kubectl get numanodestates,nodes,pods -A -o json` prints them, and as an API
//! server lists them.
//!
//! Invariants: only what plans and checks need is kept, so that thousands of objects fit into little memory.
//! An object that cannot be understood is named and left out; it never ends the reading of the others. Kinds
//! that have no part are passed over.

mod lease;
mod list;
mod node;
mod pod;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use enforcer_core::cluster::{
    objects::{LeaseObject, NodeObject, PodObject, StateObject},
    state::{FIELDS, KIND, NodeState},
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

pub use self::{
    lease::LEASE_PREFIX,
    list::{ListError, list_objects},
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
    pub states: BTreeMap<String, StateObject>,
    /// Pods in the order in which they came, then of their names.
    pub pods: Vec<PodObject>,
    /// Signs of life of daemons.
    pub leases: Vec<LeaseObject>,
    /// The latest time in any object, in seconds since 1970: not before it was the list made.
    pub latest: i64,
    /// Objects that were left out, and why.
    pub left_out: Vec<String>,
    /// Number of objects that were read.
    read: usize,
    /// Number of objects that were left out and are not named.
    unnamed: usize,
}

/// Why a text is no list of objects.
#[derive(Debug, Error)]
pub enum ObjectsError {
    /// It is not JSON, or has another shape.
    #[error("a List of objects as `kubectl get ... -o json` prints it is expected: {0}")]
    Json(#[from] serde_json::Error),
    /// It has too many objects.
    #[error("more than {OBJECTS} objects")]
    TooMany,
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
#[serde(default, rename_all = "camelCase")]
struct ObjectMetadata {
    name: String,
    uid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    #[serde(default)]
    api_version: String,
    metadata: StateMetadata,
}

/// Names of the content's fields.
#[derive(Deserialize)]
struct StateFields<'a> {
    #[serde(borrow)]
    state: BTreeMap<String, &'a RawValue>,
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
    owner_references: Vec<OwnerReference>,
    managed_fields: Vec<ManagedFields>,
}

#[derive(Deserialize)]
struct OwnerReference {
    kind: String,
    uid: String,
}

#[derive(Deserialize)]
struct ManagedFields {
    #[serde(default)]
    manager: String,
}

fn read_state(text: &str) -> Result<StateObject, String> {
    let State { api_version, metadata } = serde_json::from_str(text).map_err(|fault| fault.to_string())?;
    let content: Result<StateContent, _> = serde_json::from_str(text);
    let fields: Option<StateFields<'_>> = serde_json::from_str(text).ok();
    let fields = fields.map(|fields| fields.state).unwrap_or_default();
    let unknown = fields.into_keys().filter(|field| !FIELDS.contains(&field.as_str()));
    let owner = metadata.owner_references.into_iter().find(|owner| owner.kind == "Node");
    let mut writers: Vec<String> = metadata.managed_fields.into_iter().map(|one| one.manager).collect();
    writers.sort();
    writers.dedup();
    Ok(StateObject {
        name: metadata.name,
        api_version,
        owner_uid: owner.map(|owner| owner.uid),
        writers,
        unknown_fields: unknown.take(NAMED).collect(),
        state: content.map(|content| content.state).map_err(|fault| fault.to_string()),
    })
}

/// A time of the API in seconds since 1970; `None` if there is none or it is no time.
fn seconds(text: Option<&str>) -> Option<i64> {
    Some(text?.parse::<Timestamp>().ok()?.as_second())
}

impl ClusterObjects {
    /// Reads a list.
    ///
    /// # Errors
    /// If the text is no list of objects. A single object that is not understood is left out instead.
    pub fn read(text: &str) -> Result<Self, ObjectsError> {
        let list: List<'_> = serde_json::from_str(text)?;
        let mut objects = Self::default();
        for item in &list.items {
            objects.add(item.get(), None)?;
        }
        objects.finish();
        Ok(objects)
    }

    /// The objects of nodes that no list has.
    pub fn of_nodes(nodes: Vec<(NodeObject, StateObject)>, pods: Vec<PodObject>) -> Self {
        let mut objects = Self { pods, ..Self::default() };
        for (node, state) in nodes {
            objects.nodes.push(node);
            objects.states.insert(state.name.clone(), state);
        }
        objects.finish();
        objects
    }

    /// Adds an object. One of a list of its kind does not name the kind itself.
    fn add(&mut self, text: &str, kind: Option<&str>) -> Result<(), ObjectsError> {
        self.read += 1;
        if self.read > OBJECTS {
            return Err(ObjectsError::TooMany);
        }
        if let Err(why) = self.add_one(text, kind) {
            if self.left_out.len() < NAMED { self.left_out.push(why) } else { self.unnamed += 1 }
        }
        Ok(())
    }

    fn add_one(&mut self, text: &str, kind: Option<&str>) -> Result<(), String> {
        let object: AnyObject = serde_json::from_str(text).map_err(|fault| format!("an object: {fault}"))?;
        let name = object.metadata.name;
        let kind = object.kind.as_deref().or(kind).unwrap_or_default();
        let faulty = |fault: String| format!("{kind} {name}: {fault}");
        match kind {
            KIND => {
                let state = read_state(text).map_err(faulty)?;
                self.states.insert(state.name.clone(), state);
            }
            "Node" => self.nodes.push(node::read(text).map_err(faulty)?),
            "Pod" => {
                let pod = pod::read(text).map_err(faulty)?;
                self.latest = self.latest.max(pod.arrival.at).max(pod.ended_at.unwrap_or(0));
                self.pods.push(pod);
            }
            "Lease" => {
                let lease = lease::read(text).map_err(faulty)?;
                let renewed_at = lease.as_ref().and_then(|lease| lease.renewed_at);
                self.latest = self.latest.max(renewed_at.unwrap_or(0));
                self.leases.extend(lease);
            }
            _ => {}
        }
        Ok(())
    }

    /// Puts everything into its order.
    fn finish(&mut self) {
        if self.unnamed > 0 {
            self.left_out.push(format!("{} further objects", self.unnamed));
        }
        self.nodes.sort_by(|one, other| one.name.cmp(&other.name));
        self.leases.sort_by(|one, other| one.node.cmp(&other.node));
        self.pods.sort_by(|one, other| one.order().cmp(&other.order()));
    }
}
