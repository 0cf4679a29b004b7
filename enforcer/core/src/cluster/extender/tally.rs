//! What an extender has decided, counted for metrics and for the log.
//!
//! Invariant: every label of a metric is a name of an enumeration here, so a cluster of any size has the same
//! few series.

use strum::{IntoStaticStr, VariantNames};

use super::FilterAnswer;
use crate::cluster::view::{RefusalGroup, UnknownNode};

/// What has happened since the last look at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtenderTally {
    /// Answers of nodes to filter calls.
    pub filtered: AnswerCounts,
    /// Answers of nodes to bind calls.
    pub bound: AnswerCounts,
    /// Pods that came to a node without a reservation or a claim, and hold something there.
    pub foreign: u64,
    /// Claimed pods that their node put where the claim says.
    pub as_predicted: u64,
    /// Claimed pods that their node put elsewhere or refused, where a pod that ended may explain it.
    pub unchecked: u64,
    /// Names of claimed pods that their node refused or put elsewhere, with the node.
    pub mispredicted: Vec<String>,
}

/// Answer of a node to a pod, without its details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum AnswerGroup {
    /// It has a place.
    Passed,
    /// Its managers have no say about the pod.
    NotConcerned,
    /// It has never published a state, and passes for that.
    Unpublished,
    /// It has no CPUs free together.
    Cpus,
    /// It has no whole cores.
    WholeCores,
    /// It lacks memory.
    Memory,
    /// It lacks devices.
    Devices,
    /// An earlier pod may take the place.
    Waiting,
    /// Its answer is unknown.
    Unknown,
}

/// Answers of nodes by group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerCounts([u64; AnswerGroup::VARIANTS.len()]);

/// End of a bind call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum BindCallEnd {
    /// The API server has the binding.
    Bound,
    /// The node has no place any more; nothing was sent.
    NoPlace,
    /// The API server refused the binding.
    Refused,
    /// The pod is gone, or bound to another node.
    NotThere,
    /// There was no reply: the binding may have landed, or land later.
    NoReply,
    /// Nothing was sent for another reason: another binding of the pod is on its way, or kube-scheduler has
    /// given up the call.
    NotSent,
}

/// Nodes by what their published state is worth now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Their answers are exact.
    pub exact: usize,
    /// They have published a state that cannot be used now.
    pub unknown: usize,
    /// They have never published a state.
    pub unpublished: usize,
    /// Of the unknown ones, those that have been unknown for ten minutes.
    pub long_unknown: usize,
}

impl BindCallEnd {
    /// Names of all ends, in their order.
    pub const NAMES: &'static [&'static str] = Self::VARIANTS;
}

impl AnswerGroup {
    /// The text for a scheduler, which counts nodes with equal texts.
    pub const fn as_text(self) -> &'static str {
        match self {
            Self::Passed => "NUMA: it has a place",
            Self::NotConcerned => "NUMA: its managers have no say about the pod",
            Self::Unpublished => "NUMA: it has published no state",
            Self::Cpus => RefusalGroup::Cpus.as_str(),
            Self::WholeCores => RefusalGroup::WholeCores.as_str(),
            Self::Memory => RefusalGroup::Memory.as_str(),
            Self::Devices => RefusalGroup::Devices.as_str(),
            Self::Waiting => UnknownNode::WAITING,
            Self::Unknown => UnknownNode::NoState.as_group(),
        }
    }
}

impl From<RefusalGroup> for AnswerGroup {
    fn from(group: RefusalGroup) -> Self {
        match group {
            RefusalGroup::Cpus => Self::Cpus,
            RefusalGroup::WholeCores => Self::WholeCores,
            RefusalGroup::Memory => Self::Memory,
            RefusalGroup::Devices => Self::Devices,
        }
    }
}

impl From<&UnknownNode> for AnswerGroup {
    fn from(why: &UnknownNode) -> Self {
        if why.is_for_earlier_pod() { Self::Waiting } else { Self::Unknown }
    }
}

impl AnswerCounts {
    /// Adds answers.
    pub(super) fn add(&mut self, group: AnswerGroup, number: usize) {
        if let Some(count) = self.0.get_mut(group as usize) {
            *count = count.saturating_add(number as u64);
        }
    }

    /// Adds the refusals of a filter answer.
    pub(super) fn add_refusals(&mut self, answer: &FilterAnswer) {
        for (_, group) in &answer.refused {
            self.add(*group, 1);
        }
    }

    /// Adds other counts.
    pub fn add_all(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }

    /// Number of answers of each group, with its name.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        AnswerGroup::VARIANTS.iter().copied().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_of_a_refusal_has_its_text_and_its_count() {
        use RefusalGroup::{Cpus, Devices, Memory, WholeCores};
        let refused = [Cpus, WholeCores, Memory, Devices].map(|group| (group.into(), group.as_str()));
        let unknown = [UnknownNode::Waiting, UnknownNode::UnseenEnd, UnknownNode::OneAtATime];
        let unknown = unknown.map(|why| why("p".into())).into_iter().chain([UnknownNode::Stale]);
        let unknown = unknown.map(|why| (AnswerGroup::from(&why), why.as_group()));
        for (group, text) in refused.into_iter().chain(unknown) {
            assert_eq!(AnswerGroup::as_text(group), text);
            let mut counts = AnswerCounts::default();
            counts.add_refusals(&FilterAnswer { passed: vec![0], refused: vec![(1, group)] });
            let told: Vec<_> = counts.by_name().filter(|(_, count)| *count > 0).collect();
            assert_eq!(told, [(<&str>::from(group), 1)], "{text}");
        }
    }
}
