//! Plan over many nodes: which node, NUMA nodes and CPUs each pod gets, or why no node takes it.
//!
//! Problem: before pods are created, their owner wants to know whether the cluster has a place for each, and
//! which. Idea: place them one after another on the views of the nodes, with the sums that every scheduler
//! counts and one of two rules for NUMA nodes: the exact prediction, or Volcano's policy.
//!
//! Terminology: under the exact rule the best node is the one that takes the pod on the fewest NUMA nodes,
//! then with the least CPUs left over on them, then the first by name. A pod that the managers of the nodes
//! have no say about goes where the most CPU time is free.
//!
//! Cost: one admission for each node and kind of pod; a node is asked again only after a pod was put on it.

mod entry;
mod report;
mod sums;
#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BTreeMap};

use numa_placement::{PodRequest, foreign::VOLCANO_POLICY};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::report::RefusalGroups;
pub(super) use self::{entry::NodeEntry, sums::too_full};
pub use self::{
    report::{CLUSTER_PLAN_SCHEMA_VERSION, ClusterPlanReport, PodPlan, RefusedNodes},
    sums::{Amounts, CPU, NodeSums, PODS, amounts_of},
};
use super::{
    answers::{NodeAnswer, PodKind},
    device_claims::{ClaimBook, ClaimNode, ClaimPlace},
    objects::{PodScheduling, Taint},
    view::{Millis, NodeView, PredictedPlace, Verdict},
    volcano::{self, NumaCpus, VolcanoNode, VolcanoPolicy},
};

/// Rule by which nodes are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeRule {
    /// The answer of each node's own managers.
    #[default]
    Exact,
    /// Volcano's policy.
    Volcano,
}

/// A pod of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedPod {
    /// Its request.
    pub request: PodRequest,
    /// What a scheduler looks at beside amounts.
    pub scheduling: PodScheduling,
    /// What a scheduler counts, if that is not the request.
    pub counted: Option<Amounts>,
}

impl PlannedPod {
    /// What a scheduler counts for it.
    pub(super) fn amounts(&self) -> Amounts {
        self.counted.clone().unwrap_or_else(|| amounts_of(&self.request))
    }
}

impl From<PodRequest> for PlannedPod {
    fn from(request: PodRequest) -> Self {
        Self { request, scheduling: PodScheduling::default(), counted: None }
    }
}

/// A node of a plan.
#[derive(Debug, Clone)]
pub struct PlannedNode {
    /// Its name.
    pub name: String,
    /// Whether it is cordoned.
    pub is_cordoned: bool,
    /// Whether it is ready.
    pub is_ready: bool,
    /// Taints that keep pods away which do not tolerate them.
    pub taints: Vec<Taint>,
    /// Labels, by which pods choose it.
    pub labels: BTreeMap<String, String>,
    /// What a scheduler counts.
    pub sums: NodeSums,
    /// Its state and the pods bound since.
    pub view: NodeView,
}

impl PlannedNode {
    /// A node that a scheduler may use, without taints.
    pub const fn new(name: String, sums: NodeSums, view: NodeView) -> Self {
        Self {
            name,
            is_cordoned: false,
            is_ready: true,
            taints: Vec::new(),
            labels: BTreeMap::new(),
            sums,
            view,
        }
    }

    fn as_claim_node(&self) -> ClaimNode<'_> {
        ClaimNode {
            name: &self.name,
            version: self.view.version(),
            inventory: self.view.model().map(|model| &*model.inventory),
            allocations: self.view.allocations(),
        }
    }

    /// Why no scheduler puts the pod on the node, whatever is free there.
    pub(super) fn turns_away(&self, scheduling: &PodScheduling) -> Option<NodeRefusal> {
        let Self { name, is_cordoned, is_ready, taints, labels, .. } = self;
        let entry = NodeEntry { name, is_cordoned: *is_cordoned, is_ready: *is_ready, taints, labels };
        entry.turns_away(scheduling)
    }
}

/// A cluster on which pods are placed one after another.
#[derive(Debug)]
pub struct ClusterPlan {
    /// In ascending order of name.
    nodes: Vec<PlannedNode>,
    rule: NodeRule,
    explain: bool,
    now: Millis,
    /// Answers by kind of pod, then by position of the node.
    answers: BTreeMap<PodKind, Vec<Option<NodeAnswer>>>,
    /// Devices for claims; without it claims are passed over.
    claims: Option<Box<ClaimBook>>,
}

/// Most kinds of pods with remembered answers.
const KINDS: usize = 64;

impl ClusterPlan {
    /// A cluster of these nodes at a time of their clock; `explain` adds what the refusing nodes lack.
    pub fn new(mut nodes: Vec<PlannedNode>, rule: NodeRule, explain: bool, now: Millis) -> Self {
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        Self { nodes, rule, explain, now, answers: BTreeMap::new(), claims: None }
    }

    /// The same cluster with devices for the claims of pods.
    #[must_use]
    pub fn with_claims(mut self, claims: ClaimBook) -> Self {
        self.claims = Some(Box::new(claims));
        self
    }

    /// Places these pods in their order.
    pub fn place_all(mut self, pods: &[PlannedPod]) -> ClusterPlanReport {
        let pods: Vec<PodPlan> = pods.iter().map(|pod| self.place(pod)).collect();
        self.report(pods)
    }

    /// Places copies of a pod until no node takes another, at most `limit`. The last entry of the report is
    /// the one without a node, if there is one.
    pub fn fill(mut self, pod: &PlannedPod, limit: usize) -> ClusterPlanReport {
        let mut pods = Vec::new();
        for number in 0..limit {
            let mut copy = pod.clone();
            copy.request.name.name = format!("{}-{number}", pod.request.name.name);
            // A copy is another pod; by the uid of the first it would count once.
            copy.request.name.uid.clear();
            let plan = self.place(&copy);
            let is_full = plan.node.is_none();
            pods.push(plan);
            if is_full {
                break;
            }
        }
        self.report(pods)
    }

    fn report(&self, pods: Vec<PodPlan>) -> ClusterPlanReport {
        let count = |placed: bool| {
            let pods = pods.iter().filter(|pod| pod.node.is_some() == placed).count();
            u64::try_from(pods).unwrap_or(u64::MAX)
        };
        ClusterPlanReport {
            schema_version: CLUSTER_PLAN_SCHEMA_VERSION,
            rule: self.rule,
            nodes: u64::try_from(self.nodes.len()).unwrap_or(u64::MAX),
            placed: count(true),
            pending: count(false),
            pods,
        }
    }

    /// Places one pod.
    pub fn place(&mut self, pod: &PlannedPod) -> PodPlan {
        let amounts = pod.amounts();
        let PlannedPod { request: pod, scheduling, counted: _ } = pod;
        let mut plan = PodPlan { pod: pod.name.to_string(), ..PodPlan::default() };
        let mut refused = RefusalGroups::default();
        let mut best: Option<(NodeRank, usize, Option<ClaimPlace>)> = None;
        let mut book = self.claims.take();
        let wanted = match &book {
            Some(book) if !scheduling.claims.is_empty() => Some(book.resolve(&pod.name, &scheduling.claims)),
            _ => None,
        };
        let kind = PodKind::of(pod);
        let mut answers = self.answers.remove(&kind).unwrap_or_default();
        answers.resize(self.nodes.len(), None);
        for (at, (node, answer)) in self.nodes.iter().zip(&mut answers).enumerate() {
            let ranked = match node.turns_away(scheduling).or_else(|| node.sums.too_full(&amounts)) {
                Some(refusal) => Err(refusal),
                None => match (&wanted, &mut book) {
                    (Some(Ok(claims)), Some(book)) => book
                        .find(&node.as_claim_node(), claims)
                        .map(Some)
                        .map_err(|reason| NodeRefusal::plain(&reason)),
                    (Some(Err(reason)), _) => Err(NodeRefusal::plain(reason)),
                    _ => Ok(None),
                }
                .and_then(|place| Ok((self.rank(node, answer, pod)?, place))),
            };
            match ranked {
                Ok((rank, devices)) => {
                    if best.as_ref().is_none_or(|(least, ..)| rank < *least) {
                        best = Some((rank, at, devices));
                    }
                }
                Err(NodeRefusal { reason, detail }) => {
                    refused.add(&node.name, &reason, detail);
                }
            }
        }
        plan.refused = refused.into_refused();
        if let Some((_, at, devices)) = best
            && let Some(node) = self.nodes.get_mut(at)
        {
            let place = match answers.get(at).and_then(Option::as_ref).map(|answer| &*answer.verdict) {
                Some(Verdict::Fits(place)) => place.clone(),
                _ => PredictedPlace::default(),
            };
            plan.put(&node.name, &place);
            node.sums.add(&amounts);
            // A planned pod has no uid yet; its name is as unique here.
            let uid = if pod.name.uid.is_empty() { pod.name.to_string() } else { pod.name.uid.clone() };
            let mut bound = pod.clone();
            bound.name.uid.clone_from(&uid);
            node.view.observe_bound(&uid, &bound);
            if let (Some(devices), Some(book)) = (devices, &mut book) {
                plan.claims = book.give(&uid, devices);
            }
        }
        self.claims = book;
        if self.answers.len() >= KINDS {
            self.answers.clear();
        }
        self.answers.insert(kind, answers);
        plan
    }

    /// How good a node is for a pod; its answer is asked anew if the node has changed since.
    fn rank(
        &self,
        node: &PlannedNode,
        answer: &mut Option<NodeAnswer>,
        pod: &PodRequest,
    ) -> Result<NodeRank, NodeRefusal> {
        if self.rule == NodeRule::Volcano {
            return by_volcano(node, pod);
        }
        let (view, asked) = (&node.view, (pod, self.now));
        let known = NodeAnswer::of(answer.take(), view, asked, |view| view.filter(pod, self.now));
        exactly(node, answer.insert(known), self.explain)
    }
}

/// Why a node does not take a pod.
pub(super) struct NodeRefusal {
    pub(super) reason: String,
    pub(super) detail: Option<String>,
}

impl NodeRefusal {
    pub(super) fn plain(reason: &str) -> Self {
        Self { reason: reason.to_owned(), detail: None }
    }
}

/// How good a node is for a pod: less is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NodeRank {
    numa_nodes: usize,
    left_over: usize,
    free: Reverse<u64>,
}

fn exactly(node: &PlannedNode, answer: &NodeAnswer, explain: bool) -> Result<NodeRank, NodeRefusal> {
    match &*answer.verdict {
        Verdict::NotConcerned => {
            let free = Reverse(node.sums.free_milli_cpus());
            Ok(NodeRank { numa_nodes: 0, left_over: 0, free })
        }
        Verdict::Fits(place) => {
            let numa_nodes = place.nodes.len();
            Ok(NodeRank { numa_nodes, left_over: answer.left_over, free: Reverse(0) })
        }
        Verdict::Refused(group, rejection) => Err(NodeRefusal {
            reason: group.as_str().to_owned(),
            detail: explain.then(|| rejection.to_string()),
        }),
        Verdict::Unknown(why) => {
            Err(NodeRefusal { reason: why.as_group().to_owned(), detail: explain.then(|| why.to_string()) })
        }
    }
}

fn by_volcano(node: &PlannedNode, pod: &PodRequest) -> Result<NodeRank, NodeRefusal> {
    let policy = pod.annotations.get(VOLCANO_POLICY).map_or("", String::as_str);
    let Some(policy) = VolcanoPolicy::of_name(policy) else {
        return Err(NodeRefusal::plain("Volcano: the policy of the pod is not known"));
    };
    let seen = volcano_node(node);
    let used = match seen {
        None if policy != VolcanoPolicy::None => {
            return Err(NodeRefusal::plain("Volcano: the node publishes no topology"));
        }
        None => 0,
        Some(seen) => {
            volcano::filter(&seen, policy, pod).map_err(|refusal| NodeRefusal::plain(&refusal.to_string()))?
        }
    };
    let free = Reverse(node.sums.free_milli_cpus());
    Ok(NodeRank { numa_nodes: used, left_over: 0, free })
}

fn volcano_node(node: &PlannedNode) -> Option<VolcanoNode> {
    let model = node.view.model()?;
    let numa = model.inventory.nodes.iter().filter(|numa| !numa.cpus.is_empty()).map(|numa| NumaCpus {
        total: u64::try_from(numa.cpus.len()).unwrap_or(u64::MAX),
        free: u64::try_from(node.view.free_cpus_on(&[numa.id].into_iter().collect())).unwrap_or(u64::MAX),
    });
    let policy = VolcanoPolicy::of_name(model.settings.hints.policy.as_str()).unwrap_or_default();
    Some(VolcanoNode { policy, is_static: model.gives_cpus(), numa: numa.collect() })
}
