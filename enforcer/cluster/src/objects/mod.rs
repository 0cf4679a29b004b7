//! Objects of a cluster as `kubectl get numanodestates,nodes,pods -A -o json` prints them, and as an API
//! server lists them.
//!
//! Invariants: only what plans and checks need is kept, so that thousands of objects fit into little memory.
//! An object that cannot be understood is named and left out; it never ends the reading of the others. Kinds
//! that have no part are passed over. An object that is listed twice counts once, and is named.

mod clock;
mod lease;
mod list;
mod node;
mod pod;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use enforcer_core::cluster::{
    device_claims::DeviceObjects,
    objects::{LeaseObject, NodeObject, PodObject, StateObject},
    state::{HeldPod, KIND},
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use thiserror::Error;

use self::clock::TimesWithin;
pub(crate) use self::{
    lease::{COMPONENT, read as read_lease},
    node::read as read_node,
    pod::read as read_pod,
    state::read as read_state,
};
pub use self::{
    lease::{LEASE_NAMESPACE, LEASE_PREFIX},
    list::{ListError, list_devices, list_objects},
    state::BOOT_ID,
};

/// Most objects of one list.
const OBJECTS: usize = 400_000;
/// Most objects that are named as not understood.
const NAMED: usize = 16;

/// Group of claims for devices, and its kinds.
const DEVICE_GROUP: &str = "resource.k8s.io";
const DEVICE_KINDS: [&str; 4] = ["ResourceSlice", "DeviceClass", "ResourceClaimTemplate", "ResourceClaim"];

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
    /// Slices, classes, templates and claims of `resource.k8s.io`.
    pub devices: DeviceObjects,
    /// Whether `leases` has those of all daemons.
    pub has_all_leases: bool,
    /// When the objects were listed, in seconds since 1970: the API server's time, else the newest in them.
    pub now: i64,
    /// Objects that were left out, and why.
    pub left_out: Vec<String>,
    /// Times in the objects.
    times: TimesWithin,
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
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
    #[serde(default)]
    metadata: ObjectMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectMetadata {
    name: String,
    uid: String,
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
        let list: List<'_> = serde_json::from_slice(text.as_bytes())?;
        let mut objects = Self::default();
        for item in &list.items {
            objects.add(item.get(), None)?;
        }
        objects.finish();
        Ok(objects)
    }

    /// The objects of nodes that no list has, and why others were left out.
    pub fn of_nodes(
        nodes: Vec<(NodeObject, StateObject)>,
        pods: Vec<PodObject>,
        left_out: Vec<String>,
    ) -> Self {
        let mut objects = Self { pods, ..Self::default() };
        for why in left_out {
            objects.leave_out(why);
        }
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
            self.leave_out(why);
        }
        Ok(())
    }

    fn add_one(&mut self, text: &str, kind: Option<&str>) -> Result<(), String> {
        let object: AnyObject =
            serde_json::from_slice(text.as_bytes()).map_err(|fault| format!("an object: {fault}"))?;
        let name = object.metadata.name;
        let kind = object.kind.as_deref().or(kind).unwrap_or_default();
        let faulty = |fault: String| format!("{kind} {name}: {fault}");
        match kind {
            KIND => {
                let (state, written_at) = state::read(text).map_err(faulty)?;
                self.times.of_server(written_at);
                self.add_state(state)?;
            }
            "Node" => {
                let (node, reported_at) = node::read(text).map_err(faulty)?;
                self.times.of_node(&node.name, reported_at);
                self.nodes.push(node);
            }
            "Pod" => {
                let pod = pod::read(text).map_err(faulty)?;
                self.times.of_server(Some(pod.arrival.at));
                self.times.of_node(pod.node.as_deref().unwrap_or_default(), pod.ended_at);
                self.pods.push(pod);
            }
            "Lease" => {
                let Some(lease) = lease::read(text).map_err(faulty)? else { return Ok(()) };
                match lease.written_at {
                    Some(at) => self.times.of_server(Some(at)),
                    None => self.times.of_node(&lease.node, lease.renewed_at),
                }
                self.leases.extend(lease.of_daemon);
            }
            _ if DEVICE_KINDS.contains(&kind) => {
                let group = object.api_version.as_deref().and_then(|version| version.split('/').next());
                if group.is_none_or(|group| group == DEVICE_GROUP) {
                    let mut value: Value =
                        serde_json::from_str(text).map_err(|fault| faulty(fault.to_string()))?;
                    value["kind"] = kind.into();
                    self.devices.add(&value)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_state(&mut self, state: StateObject) -> Result<(), String> {
        match self.states.entry(state.name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(state);
                Ok(())
            }
            Entry::Occupied(_) => Err(twice(KIND, &state.name)),
        }
    }

    /// Adds all objects of another list.
    fn append(&mut self, other: Self) {
        let Self { nodes, states, pods, leases, devices, left_out, times, read, unnamed, .. } = other;
        self.read += read;
        self.unnamed += unnamed;
        self.times.append(times);
        self.nodes.extend(nodes);
        self.pods.extend(pods);
        self.leases.extend(leases);
        self.devices.append(devices);
        for why in left_out {
            self.leave_out(why);
        }
        for state in states.into_values() {
            if let Err(why) = self.add_state(state) {
                self.leave_out(why);
            }
        }
    }

    fn leave_out(&mut self, why: String) {
        if self.left_out.len() < NAMED { self.left_out.push(why) } else { self.unnamed += 1 }
    }

    /// Puts everything into its order, and leaves out what is there twice.
    fn finish(&mut self) {
        self.now = self.times.latest();
        let mut twice_there = Vec::new();
        self.nodes.sort_by(|one, other| one.name.cmp(&other.name));
        self.nodes.dedup_by(|next, first| {
            let is_twice = next.name == first.name;
            if is_twice {
                twice_there.push(twice("Node", &next.name));
            }
            is_twice
        });
        for pod in &mut self.pods {
            name_uid(pod, &self.states);
        }
        let mut uids = BTreeSet::new();
        let is_first: Vec<bool> = self.pods.iter().map(|pod| uids.insert(pod.uid.as_str())).collect();
        let mut is_first = is_first.into_iter();
        self.pods.retain(|pod| {
            let stays = is_first.next().unwrap_or(true);
            if !stays {
                twice_there.push(twice("Pod", &pod.request.name.to_string()));
            }
            stays
        });
        self.pods.sort_by(|one, other| one.order().cmp(&other.order()));
        self.leases.sort_by(|one, other| one.node.cmp(&other.node));
        for why in twice_there {
            self.leave_out(why);
        }
        if self.unnamed > 0 {
            self.left_out.push(format!("{} further objects", self.unnamed));
        }
    }
}

fn twice(kind: &str, name: &str) -> String {
    format!("{kind} {name}: it is listed twice, and the first one counts")
}

/// Gives a pod without a uid that of the pod of its name in the state of its node. If the state has none,
/// its name is as good as a uid.
fn name_uid(pod: &mut PodObject, states: &BTreeMap<String, StateObject>) {
    if !pod.uid.is_empty() {
        return;
    }
    let state = pod.node.as_ref().and_then(|node| states.get(node)?.state.as_ref().ok());
    let name = &mut pod.request.name;
    let is_it = |held: &&HeldPod| held.namespace == name.namespace && held.name == name.name;
    let held = state.and_then(|state| state.pods.iter().find(is_it));
    let uid = held.map_or_else(|| format!("{}/{}", name.namespace, name.name), |held| held.uid.clone());
    name.uid.clone_from(&uid);
    pod.uid = uid;
}
