//! Whether a scheduler uses a node for a pod at all, whatever is free there.
//!
//! Invariant: the questions and their order are those of kube-scheduler's filters of the node alone: cordon,
//! readiness, taints, node selector and required node affinity.

use std::collections::BTreeMap;

use super::NodeRefusal;
use crate::cluster::objects::{NodeObject, PodScheduling, Taint};

/// What of a node does not depend on its pods.
#[derive(Debug, Clone, Copy)]
pub(in crate::cluster) struct NodeEntry<'a> {
    pub(in crate::cluster) name: &'a str,
    pub(in crate::cluster) is_cordoned: bool,
    pub(in crate::cluster) is_ready: bool,
    pub(in crate::cluster) taints: &'a [Taint],
    pub(in crate::cluster) labels: &'a BTreeMap<String, String>,
}

impl<'a> From<&'a NodeObject> for NodeEntry<'a> {
    fn from(node: &'a NodeObject) -> Self {
        let NodeObject { name, is_cordoned, is_ready, taints, labels, .. } = node;
        Self { name, is_cordoned: *is_cordoned, is_ready: *is_ready, taints, labels }
    }
}

impl NodeEntry<'_> {
    /// Why no scheduler puts the pod on the node.
    pub(in crate::cluster) fn turns_away(&self, scheduling: &PodScheduling) -> Option<NodeRefusal> {
        let tolerates_cordon = || scheduling.untolerated(&[Taint::unschedulable()]).is_none();
        if self.is_cordoned && !tolerates_cordon() {
            return Some(NodeRefusal::plain("node(s) were unschedulable"));
        }
        if !self.is_ready {
            return Some(NodeRefusal::plain("node(s) were not ready"));
        }
        if let Some(Taint { key, value, .. }) = scheduling.untolerated(self.taints) {
            return Some(NodeRefusal::plain(&format!("node(s) had untolerated taint {{{key}: {value}}}")));
        }
        let is_wanted = scheduling.required.allow(self.name, self.labels);
        (!is_wanted).then(|| NodeRefusal::plain("node(s) didn't match Pod's node affinity/selector"))
    }
}
