//! Texts of the protocol between kube-scheduler and its extenders.
//!
//! Its types have no names for JSON, so a request has the names of their fields with a capital letter (Go:
//! `staging/src/k8s.io/kube-scheduler/extender/v1/types.go`). kube-scheduler reads answers without regard to
//! case. A request has names of nodes where the extender is `nodeCacheCapable`, and whole nodes otherwise;
//! the reply has the same form.
//!
//! Invariants: fields that are not known are passed over. The number of nodes and the length of a request are
//! bounded. A pod has a uid: two without one would be one pod, with one place. A node without a place is in
//! `FailedAndUnresolvableNodes`: a preemption that only looks at sums would evict pods for nothing.

use std::borrow::Cow;

use enforcer_core::cluster::{extender::FilterAnswer, objects::PodObject, state::limits};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::objects::read_pod;

/// Longest name of an object of the API.
const LONGEST_NAME: usize = 253;
/// Most nodes of a call; the largest clusters have 15,000.
const NODES: usize = 50_000;

/// Why a request cannot be answered.
#[derive(Debug, Error)]
pub enum ProtocolError {
    /// It is not a request of the protocol.
    #[error("no request of kube-scheduler: {0}")]
    Json(#[from] serde_json::Error),
    /// Its pod cannot be read.
    #[error("pod: {0}")]
    Pod(String),
    /// A name in it is none of the API.
    #[error("no name of an object: {0:?}")]
    Name(String),
    /// It names neither nodes nor their names, or too many.
    #[error("{0} nodes, 0 to {NODES} are expected in Nodes or NodeNames")]
    Nodes(usize),
}

/// A call of the verbs filter and prioritize.
#[derive(Debug)]
pub struct ExtenderRequest<'a> {
    /// The pod.
    pub pod: PodObject,
    /// Names of the nodes in question.
    pub nodes: Vec<NodeName<'a>>,
    /// The nodes themselves, where the request has them.
    objects: Option<Vec<&'a RawValue>>,
}

/// A call of the verb bind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BindRequest {
    /// Name of the pod.
    pub pod_name: String,
    /// Its namespace.
    pub pod_namespace: String,
    /// Its uid.
    #[serde(rename = "PodUID")]
    pub pod_uid: String,
    /// The node.
    pub node: String,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(rename = "Pod", borrow)]
    pod: &'a RawValue,
    #[serde(rename = "Nodes", borrow, default)]
    nodes: Option<NodeList<'a>>,
    #[serde(rename = "NodeNames", borrow, default)]
    names: Option<Vec<NodeName<'a>>>,
}

#[derive(Serialize, Deserialize)]
struct NodeList<'a> {
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

/// A name in the text of a request, without a copy wherever it has no escapes.
#[derive(Debug, Deserialize)]
pub struct NodeName<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    metadata: NamedMetadata<'a>,
}

#[derive(Deserialize)]
struct NamedMetadata<'a> {
    #[serde(borrow)]
    name: NodeName<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FilterReply<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<NodeList<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_names: Option<Vec<&'a str>>,
    failed_and_unresolvable_nodes: Refusals<'a>,
    error: &'static str,
}

/// Names of nodes with the reason of each, as an object.
struct Refusals<'a>(Vec<(&'a str, &'a str)>);

impl Serialize for Refusals<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct HostPriority<'a> {
    host: &'a str,
    score: i64,
}

impl<'a> ExtenderRequest<'a> {
    /// Reads the arguments of a filter or prioritize call.
    ///
    /// # Errors
    /// If they are not those of the protocol.
    pub fn read(text: &'a [u8]) -> Result<Self, ProtocolError> {
        let Arguments { pod, nodes, names } = serde_json::from_slice(text)?;
        let pod = read_pod(pod.get()).map_err(ProtocolError::Pod)?;
        check_containers(&pod)?;
        check_uid(&pod.uid)?;
        check_names([&pod.request.name.namespace, &pod.request.name.name])?;
        let (nodes, objects) = match (names, nodes) {
            (Some(names), _) => (names, None),
            (None, Some(NodeList { items })) => {
                let items = items.unwrap_or_default();
                let names: Result<Vec<NodeName<'_>>, serde_json::Error> = items
                    .iter()
                    .map(|item| {
                        serde_json::from_slice(item.get().as_bytes()).map(|Named { metadata }| metadata.name)
                    })
                    .collect();
                (names?, Some(items))
            }
            (None, None) => (Vec::new(), None),
        };
        if nodes.len() > NODES {
            return Err(ProtocolError::Nodes(nodes.len()));
        }
        Ok(Self { pod, nodes, objects })
    }

    /// Names of the nodes in question, in the order of the request.
    pub(super) fn names(&self) -> Vec<&str> {
        self.nodes.iter().map(|NodeName(name)| &**name).collect()
    }

    /// The reply to a filter call.
    pub(super) fn filter_reply(&self, answer: &FilterAnswer) -> String {
        let name = |at: &usize| self.nodes.get(*at).map(|NodeName(name)| &**name);
        let refused = answer.refused.iter();
        let reply = FilterReply {
            nodes: self.objects.as_ref().map(|objects| {
                let items = answer.passed.iter().filter_map(|at| objects.get(*at).copied()).collect();
                NodeList { items: Some(items) }
            }),
            node_names: match self.objects {
                Some(_) => None,
                None => Some(answer.passed.iter().filter_map(name).collect()),
            },
            failed_and_unresolvable_nodes: Refusals(
                refused.filter_map(|(at, group)| Some((name(at)?, group.as_text()))).collect(),
            ),
            error: "",
        };
        text_of(&reply)
    }

    /// The reply to a prioritize call.
    pub(super) fn priorities(&self, scores: &[i64]) -> String {
        let hosts =
            self.nodes.iter().zip(scores).map(|(NodeName(host), score)| HostPriority { host, score: *score });
        text_of(&hosts.collect::<Vec<_>>())
    }
}

impl BindRequest {
    /// Reads the arguments of a bind call.
    ///
    /// # Errors
    /// If they are not those of the protocol.
    pub fn read(text: &[u8]) -> Result<Self, ProtocolError> {
        let request: Self = serde_json::from_slice(text)?;
        check_uid(&request.pod_uid)?;
        check_names([&request.pod_namespace, &request.pod_name, &request.node])?;
        Ok(request)
    }
}

/// A state has no room for a pod with more containers, and admitting one costs by their square.
pub(super) fn check_containers(pod: &PodObject) -> Result<(), ProtocolError> {
    let number = pod.request.containers.len();
    if number > limits::CONTAINERS {
        return Err(ProtocolError::Pod(format!(
            "{number} containers, at most {} are expected",
            limits::CONTAINERS
        )));
    }
    Ok(())
}

/// Places are held by uid.
fn check_uid(uid: &str) -> Result<(), ProtocolError> {
    if uid.is_empty() { Err(ProtocolError::Pod("it has no uid".to_owned())) } else { Ok(()) }
}

/// Names become parts of paths.
fn check_names<const N: usize>(names: [&String; N]) -> Result<(), ProtocolError> {
    let is_part =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let is_name = |name: &str| (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_part);
    match names.into_iter().find(|name| !is_name(name)) {
        None => Ok(()),
        Some(name) => Err(ProtocolError::Name(name.chars().take(LONGEST_NAME).collect())),
    }
}

/// The reply to a bind call; a pod without an error is bound.
pub fn bind_reply(error: &str) -> String {
    #[derive(Serialize)]
    struct BindReply<'a> {
        #[serde(rename = "Error")]
        error: &'a str,
    }
    text_of(&BindReply { error })
}

fn text_of(reply: &impl Serialize) -> String {
    serde_json::to_string(reply).unwrap_or_default()
}
