//! Why a pod has no node: what each node is short of, and which pods would make room if they left.
//!
//! Problem: a scheduler tells how many nodes refuse a pod for one of few reasons. The pod's owner wants to
//! know by how much, and what could be done. Idea: ask each node's [view](super::view) as a scheduler does,
//! keep its figures, and ask again as if some of its pods had left ([`room`]).
//!
//! Invariants: the reasons and their order are those of a [plan](super::plan): what a scheduler counts comes
//! first, then what the node's managers answer. Nothing is changed; equal input gives equal answers.
//!
//! Cost: one admission for each node, and at most [`ADMISSIONS`] for the searches of all nodes together,
//! beside three for each pod that holds something.

mod report;
mod room;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::Rejection;

pub use self::report::{
    EXPLANATION_OF_POD_SCHEMA_VERSION, ExplainedNode, FittingNode, NodeRoom, PodExplanation, ReasonGroup,
    RoomOutcome, RoomPod,
};
use self::room::RoomSearch;
pub use super::shortage::ResourceShortage;
use super::{
    plan::{Amounts, CPU, NodeRefusal, PlannedNode, PlannedPod},
    view::{Millis, Verdict},
};

/// Admissions of all searches together, if there are not very many nodes.
const ADMISSIONS: usize = 40_000;
/// Fewest and most admissions for one node.
const OF_NODE: (usize, usize) = (32, 4_096);

/// A pod that has a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostedPod {
    /// Namespace and name.
    pub name: String,
    /// Its uid in the kubelet.
    pub uid: String,
    /// Its priority.
    pub priority: i32,
    /// Whether it is a file of its node, so that no deletion ends it.
    pub is_static: bool,
    /// What a scheduler counts for it.
    pub amounts: Amounts,
}

/// A node and its pods.
#[derive(Debug, Clone)]
pub struct HostNode {
    /// The node with what its pods hold.
    pub node: PlannedNode,
    /// Those that have not ended.
    pub pods: Vec<HostedPod>,
}

/// Why a node takes a pod or not.
enum NodeReply<'a> {
    Fits(FittingNode),
    Refused(RefusingNode<'a>),
}

/// A node that does not take the pod.
struct RefusingNode<'a> {
    host: &'a HostNode,
    reason: String,
    detail: Option<String>,
    shortages: Vec<ResourceShortage>,
    /// Whether room could help at all.
    is_usable: bool,
}

/// Explains what each of these nodes says to a pod at a time of their clock.
pub fn explain(nodes: &[HostNode], pod: &PlannedPod, now: Millis) -> PodExplanation {
    let amounts = pod.amounts();
    let (mut fits, mut refusing) = (Vec::new(), Vec::new());
    for host in nodes {
        match reply(host, pod, &amounts, now) {
            NodeReply::Fits(node) => fits.push(node),
            NodeReply::Refused(node) => refusing.push(node),
        }
    }
    fits.sort_by(|one, other| one.node.cmp(&other.node));
    let searched = refusing.iter().filter(|node| node.is_usable).count();
    let trials = (ADMISSIONS / searched.max(1)).clamp(OF_NODE.0, OF_NODE.1);
    let mut groups = BTreeMap::<String, Vec<ExplainedNode>>::new();
    for RefusingNode { host, reason, detail, shortages, is_usable } in refusing {
        let room = if is_usable {
            RoomSearch::new(host, pod, &amounts, now, trials).run()
        } else {
            NodeRoom::of(RoomOutcome::Unusable)
        };
        let node = ExplainedNode { node: host.node.name.clone(), shortages, detail, room };
        groups.entry(reason).or_default().push(node);
    }
    PodExplanation {
        schema_version: EXPLANATION_OF_POD_SCHEMA_VERSION,
        pod: pod.request.name.to_string(),
        priority: pod.scheduling.priority,
        on_node: None,
        nodes: u64::try_from(nodes.len()).unwrap_or(u64::MAX),
        fits,
        refused: report::grouped(groups),
    }
}

impl PodExplanation {
    /// The explanation of a pod that has a node.
    pub fn placed(pod: &PlannedPod, node: &str, nodes: usize) -> Self {
        Self {
            schema_version: EXPLANATION_OF_POD_SCHEMA_VERSION,
            pod: pod.request.name.to_string(),
            priority: pod.scheduling.priority,
            on_node: Some(node.to_owned()),
            nodes: u64::try_from(nodes).unwrap_or(u64::MAX),
            fits: Vec::new(),
            refused: Vec::new(),
        }
    }
}

fn reply<'a>(host: &'a HostNode, pod: &PlannedPod, amounts: &Amounts, now: Millis) -> NodeReply<'a> {
    let HostNode { node, .. } = host;
    let refused = |reason: String, detail, shortages, is_usable| {
        NodeReply::Refused(RefusingNode { host, reason, detail, shortages, is_usable })
    };
    if let Some(NodeRefusal { reason, detail }) = node.turns_away(&pod.scheduling) {
        return refused(reason, detail, Vec::new(), false);
    }
    let mut shortages: Vec<ResourceShortage> = node.sums.shortages(amounts).collect();
    let reason = node.sums.too_full(amounts).map(|refusal| refusal.reason);
    match (reason, node.view.filter(&pod.request, now)) {
        (None, Verdict::NotConcerned) => NodeReply::Fits(FittingNode::new(&node.name, None)),
        (None, Verdict::Fits(place)) => NodeReply::Fits(FittingNode::new(&node.name, Some(place.nodes))),
        (Some(reason), Verdict::NotConcerned | Verdict::Fits(_)) => refused(reason, None, shortages, true),
        (reason, Verdict::Refused(group, rejection)) => {
            shortages.extend(of_rejection(&rejection));
            let reason = reason.unwrap_or_else(|| group.as_str().to_owned());
            refused(reason, Some(rejection.to_string()), shortages, true)
        }
        (reason, Verdict::Unknown(why)) => {
            let reason = reason.unwrap_or_else(|| why.as_group().to_owned());
            refused(reason, Some(why.to_string()), shortages, true)
        }
    }
}

/// What a node's managers are short of.
fn of_rejection(rejection: &Rejection) -> impl Iterator<Item = ResourceShortage> {
    let mut seen = BTreeSet::new();
    let short = rejection.shortages.iter().filter(|short| short.wanted > short.available);
    short.filter_map(move |short| {
        let scale = if short.resource == CPU { 1_000 } else { 1 };
        let found = ResourceShortage {
            resource: short.resource.clone(),
            container: rejection.container.clone(),
            numa_nodes: Some(short.nodes.clone()),
            wanted: short.wanted.saturating_mul(scale),
            free: short.available.saturating_mul(scale),
        };
        seen.insert((found.resource.clone(), short.nodes.clone())).then_some(found)
    })
}
