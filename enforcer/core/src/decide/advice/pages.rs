//! Effect of advice on the pages of a workload.
//!
//! Problem: a write of `cpuset.mems` moves mapped pages of nodes that are no longer allowed, and no others:
//! unmapped page cache and tmpfs stay ([`crate::model::movable_bytes`]), and so do pages on a node that stays
//! allowed for the kernel. CPUs that move without regard to that are farther from their memory than before.
//! Idea: count the pages that come and those that stay here, for all advice.
//!
//! Invariant: no advice moves CPUs so that a larger share of the memory is remote afterwards. CPUs of several
//! nodes have nothing remote and are not together either: for these a share below a finding is accepted.

use super::{Advice, Asked, Obstacle, ObstacleKind};
use crate::{
    model::{WorkloadModel, accessed_bytes, movable_bytes, room_bytes, staying_bytes, staying_shmem_bytes},
    words,
};
use numa_topology::{Topology, id::NodeId, set::NodeSet};

/// Says how much of what stays outside of these nodes is tmpfs; empty where that is nothing.
pub fn tmpfs_in_words(figures: &WorkloadModel, machine: &Topology, near: &NodeSet) -> String {
    match figures.ordinary_bytes_outside(machine, near, staying_shmem_bytes).1 {
        0 => String::new(),
        bytes => format!(
            "; {} of it are files of tmpfs that no process maps, which come anew where they are written",
            words::size(bytes)
        ),
    }
}

impl Asked<'_> {
    /// Nodes with ordinary memory near these, of the nodes that it may have.
    pub(super) fn near(&self, cpu_nodes: &NodeSet) -> NodeSet {
        self.locality.near_memory_of(&self.inputs.inventory.machine, cpu_nodes, &self.allowed)
    }

    /// Nodes outside of these with their movable bytes, without GPUs.
    pub(super) fn held_outside(&self, to: &NodeSet) -> (NodeSet, u64) {
        self.figures.ordinary_bytes_outside(&self.inputs.inventory.machine, to, movable_bytes)
    }

    /// Bytes outside of these nodes that may come along although that is unknown: a kernel that does not
    /// report mapped file pages may move all page cache.
    pub(super) fn may_come_along(&self, to: &NodeSet) -> u64 {
        let unknown = |bytes: &_| room_bytes(bytes).saturating_sub(movable_bytes(bytes));
        self.figures.ordinary_bytes_outside(&self.inputs.inventory.machine, to, unknown).1
    }

    pub(super) fn stays_as_it_is(&self) -> Obstacle {
        let near = self.near(&self.inputs.inventory.machine.nodes_of(self.cpus));
        let (nodes, bytes) = self.stays(&near);
        if bytes == 0 {
            return Obstacle::new(ObstacleKind::Machine, "no better place for it is known");
        }
        let reason = format!(
            "{} of page cache on {} stay there: page cache does not follow its readers, and comes anew where it is \
             read again{}",
            words::size(bytes),
            words::nodes(&nodes),
            self.of_it_tmpfs(&near)
        );
        Obstacle::new(ObstacleKind::Machine, reason)
    }

    /// Bytes of unmapped files outside of these nodes: page cache, tmpfs among it.
    pub(super) fn stays(&self, near: &NodeSet) -> (NodeSet, u64) {
        self.figures.ordinary_bytes_outside(&self.inputs.inventory.machine, near, staying_bytes)
    }

    fn of_it_tmpfs(&self, near: &NodeSet) -> String {
        tmpfs_in_words(self.figures, &self.inputs.inventory.machine, near)
    }

    /// Would so many bytes far from its CPUs be a finding?
    pub(super) fn is_judged_remote(&self, bytes: u64) -> bool {
        let total = self.figures.ordinary_bytes(&self.inputs.inventory.machine).unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = bytes as f64 / total.max(1) as f64;
        share >= self.inputs.policy.thresholds.remote_residency_warning
    }

    /// Are so many bytes far from its CPUs too few for a finding, and for a command?
    pub(super) fn is_negligible(&self, bytes: u64) -> bool {
        let least = self.inputs.policy.thresholds.min_memory.0;
        let total = self.figures.ordinary_bytes(&self.inputs.inventory.machine).unwrap_or(0);
        bytes == 0 || bytes < least && (total < least || !self.is_judged_remote(bytes))
    }

    /// May this many of its bytes be remote after its CPUs have changed?
    fn may_be_remote(&self, bytes: u64) -> bool {
        let nodes = self.inputs.inventory.machine.nodes_of(self.cpus);
        bytes <= self.remote_now(&nodes) || nodes.len() > 1 && !self.is_judged_remote(bytes)
    }

    /// Bytes that are remote to these CPU nodes, or to the CPUs that its threads keep to.
    fn remote_now(&self, nodes: &NodeSet) -> u64 {
        let machine = &self.inputs.inventory.machine;
        let outside = |near: &NodeSet| self.figures.ordinary_bytes_outside(machine, near, accessed_bytes).1;
        let remote_to = |nodes: &NodeSet| outside(&self.near(nodes));
        remote_to(nodes).max(remote_to(&self.figures.cpu_nodes))
    }

    /// Is more of its memory remote after this advice?
    pub(super) fn leaves_more_remote(&self, advice: &Advice) -> bool {
        let near = self.near(&self.inputs.inventory.machine.nodes_of(&advice.place.0));
        let come = advice.comes.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        let remote = advice.stays.1.saturating_add(if advice.to.is_disjoint(&near) { come } else { 0 });
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
        let tmpfs = self.of_it_tmpfs(&NodeSet::new());
        let also = other.map_or_else(String::new, |other| format!("; {other}"));
        let reason = format!(
            "{} of page cache on {} would stay where its CPUs are not: page cache does not follow its readers{tmpfs}{also}",
            words::size(bytes),
            words::nodes(&nodes)
        );
        Obstacle::new(other.map_or(ObstacleKind::NoRoom, |other| other.kind), reason)
    }
}
