//! What happens to the pages of a workload when advice for it is carried out.
//!
//! Problem: a write of `cpuset.mems` moves anonymous pages of nodes that are no longer allowed, and no
//! others: page cache stays, and so does what is on a node that stays allowed for the kernel. CPUs that are
//! sent elsewhere without regard to that are farther from their memory than before. Idea: the pages that come
//! and those that stay are counted here, for all advice.
//!
//! Invariant: CPUs go nowhere where a larger share of the memory is remote afterwards. CPUs of several nodes
//! have nothing remote and are not together either: for these a share that is no finding is accepted.

use super::{Advice, Asked, Obstacle, ObstacleKind, bounds};
use crate::{id::NodeId, model::accessed_bytes, sample::NodeBytes, set::NodeSet, words};

impl Asked<'_> {
    /// Nodes with ordinary memory that is near these, of what it may have.
    pub(super) fn near(&self, cpu_nodes: &NodeSet) -> NodeSet {
        self.inputs.inventory.machine.near_memory_of(cpu_nodes, &self.allowed)
    }

    /// Pages that can move on nodes outside of these, without those on GPUs: bytes by node.
    pub(super) fn held_outside(&self, to: &NodeSet) -> Vec<(NodeId, u64)> {
        let bytes = self.figures.bytes_by_node.iter().flatten();
        let outside = bytes.filter(|(node, _)| !to.contains(**node) && !self.locality.is_gpu(**node));
        outside.map(|(node, bytes)| (*node, movable(bytes))).filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Could what is outside of the nodes `to` be had on them?
    pub(super) fn has_room(&self, to: &NodeSet) -> Result<(), Obstacle> {
        let to = to.intersection(&self.inputs.inventory.machine.ordinary_memory_nodes());
        let comes =
            self.held_outside(&to).into_iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(bytes));
        let known: Option<Vec<u64>> =
            to.iter().map(|node| self.inputs.sample.nodes.get(&node)?.available_bytes()).collect();
        // What is not known is judged by nothing.
        let has = known.map_or(u64::MAX, |known| known.into_iter().fold(0u64, u64::saturating_add));
        let has = has.saturating_sub(self.earlier.coming_to(&to));
        if comes <= has {
            return Ok(());
        }
        let reason = format!(
            "{} would have to come to {}, which can give {}{}",
            words::size(comes),
            words::nodes(&to),
            words::size(has),
            self.earlier.in_words(&to).map_or_else(String::new, |earlier| format!(" beside {earlier}"))
        );
        Err(Obstacle::new(ObstacleKind::NoRoom, reason))
    }

    pub(super) fn stays_as_it_is(&self) -> Obstacle {
        let (nodes, bytes) = self.stays(&self.near(&self.inputs.inventory.machine.nodes_of(self.cpus)));
        if bytes == 0 {
            return Obstacle::new(ObstacleKind::Machine, "no better place for it is known");
        }
        let reason = format!(
            "{} of page cache on {} stay there: page cache does not follow its readers, and comes anew where it is \
             read again",
            words::size(bytes),
            words::nodes(&nodes)
        );
        Obstacle::new(ObstacleKind::Machine, reason)
    }

    /// Page cache outside of these nodes.
    pub(super) fn stays(&self, near: &NodeSet) -> (NodeSet, u64) {
        let bytes = self.figures.bytes_by_node.iter().flatten();
        let far = bytes.filter(|(node, bytes)| {
            !near.contains(**node) && !self.locality.is_gpu(**node) && fixed(bytes) > 0
        });
        far.fold((NodeSet::new(), 0u64), |(mut nodes, total), (node, bytes)| {
            nodes.insert(*node);
            (nodes, total.saturating_add(fixed(bytes)))
        })
    }

    /// Would so many bytes far from its CPUs be a finding?
    pub(super) fn is_judged_remote(&self, bytes: u64) -> bool {
        let total = self.figures.ordinary_bytes(&self.inputs.inventory.machine).unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = bytes as f64 / total.max(1) as f64;
        share >= self.inputs.policy.thresholds.remote_residency_warning
    }

    /// May this many of its bytes be remote after its CPUs have changed?
    fn may_be_remote(&self, bytes: u64) -> bool {
        let nodes = self.inputs.inventory.machine.nodes_of(self.cpus);
        bytes <= self.remote_now(&nodes) || nodes.len() > 1 && !self.is_judged_remote(bytes)
    }

    /// Bytes that are remote to these CPU nodes, or to the CPUs that its threads keep to.
    fn remote_now(&self, nodes: &NodeSet) -> u64 {
        let remote_to = |nodes: &NodeSet| {
            let near = self.near(nodes);
            let bytes = self.figures.bytes_by_node.iter().flatten();
            let far = bytes.filter(|(node, _)| !near.contains(**node) && !self.locality.is_gpu(**node));
            far.map(|(_, bytes)| accessed_bytes(bytes)).fold(0, u64::saturating_add)
        };
        remote_to(nodes).max(remote_to(&self.figures.cpu_nodes))
    }

    /// Is more of its memory remote once this is carried out?
    pub(super) fn leaves_more_remote(&self, advice: &Advice) -> bool {
        let near = self.near(&self.inputs.inventory.machine.nodes_of(&advice.place.0));
        let come = if advice.to.is_disjoint(&near) { advice.comes } else { 0 };
        let to = advice.to.union(&advice.swept).union(&near);
        let stay = self.held_outside(&to).into_iter().filter(|(node, _)| advice.place.1.contains(*node));
        let remote =
            stay.fold(advice.stays.1.saturating_add(come), |sum, (_, bytes)| sum.saturating_add(bytes));
        !self.may_be_remote(remote)
    }

    /// The nodes that its CPUs may go to without leaving its page cache behind; all when absent. None is an
    /// obstacle.
    pub(super) fn open_to_its_cache(&self) -> Result<Option<NodeSet>, Obstacle> {
        let all = self.inputs.inventory.cpu_nodes();
        let near = |node: NodeId| self.near(&NodeSet::from_iter([node]));
        let open: NodeSet =
            all.iter().filter(|node| self.may_be_remote(self.stays(&near(*node)).1)).collect();
        if open.is_empty() {
            return Err(self.cache_stays(None));
        }
        let with_memory = open.iter().fold(open.clone(), |nodes, node| nodes.union(&near(node)));
        Ok((open.len() < all.len()).then_some(with_memory))
    }

    /// Says that its page cache keeps its CPUs, and what else does.
    pub(super) fn cache_stays(&self, other: Option<&Obstacle>) -> Obstacle {
        let (nodes, bytes) = self.stays(&NodeSet::new());
        let also = other.map_or_else(String::new, |other| format!("; {other}"));
        let reason = format!(
            "{} of page cache on {} would stay where its CPUs are not: page cache does not follow its readers{also}",
            words::size(bytes),
            words::nodes(&nodes)
        );
        Obstacle::new(other.map_or(ObstacleKind::NoRoom, |other| other.kind), reason)
    }

    /// How pages on the nodes `from` follow that a write of `mems` leaves behind: the kernel moves what is on
    /// nodes that are in force before a write and not after it (`update_nodemasks_hier`,
    /// kernel/cgroup/cpuset.c). Returns the nodes to allow first, and the nodes to sweep where allowing them
    /// has no effect, because a cgroup above does not have them or the kernel moves no pages.
    /// Pages on nodes that are there for the kernel alone stay allowed, and a write brings others there.
    pub(super) fn behind(
        &self,
        mems: &NodeSet,
        from: &NodeSet,
        for_kernel: &NodeSet,
    ) -> (Option<NodeSet>, NodeSet) {
        let sample = self.inputs.sample;
        if self.is_process() || !sample.moves_pages_by_cpuset() {
            return (None, from.clone());
        }
        let behind = if mems == self.mems { from.clone() } else { from.difference(self.mems) };
        let behind = behind.difference(mems);
        let swept = if from.is_empty() { NodeSet::new() } else { for_kernel.clone() };
        let above = bounds(self.inputs, self.workload).and_then(|bounds| bounds.mems);
        if behind.is_empty() || above.is_none_or(|above| !behind.is_subset(&above)) {
            return (None, behind.union(&swept));
        }
        (Some(mems.union(self.mems).union(&behind)), swept)
    }
}

/// Bytes that a new set of memory nodes takes along: anonymous ones and shared memory.
pub(in crate::decide) fn movable(bytes: &NodeBytes) -> u64 {
    bytes.anon.saturating_add(bytes.shmem.unwrap_or(0))
}

/// Bytes that stay: page cache of files.
fn fixed(bytes: &NodeBytes) -> u64 {
    bytes.file.saturating_sub(bytes.shmem.unwrap_or(0))
}
