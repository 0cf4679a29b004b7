//! The scheduler's cache: sums of each node, with the pods that were assumed there.
//!
//! `NodeResourcesFit` asks whether sums fit and scores by what is left (`LeastAllocated`);
//! `NodeResourcesBalancedAllocation` by how alike CPUs and memory are used. A large cluster is not searched
//! whole: see [`sample_size`].

use crate::{kubelet::ZoneAmounts, workload::PodShape};

/// Best score of a plugin.
pub const BEST: u64 = 100;
/// Fewest nodes that fit before a search may end.
const LEAST_SAMPLE: usize = 100;

/// What pods may get of a node, and what they have.
#[derive(Debug, Clone, Copy)]
pub struct NodeSums {
    allocatable: ZoneAmounts,
    taken: ZoneAmounts,
}

/// Sums of a pod.
pub fn sums_of(pod: &PodShape) -> ZoneAmounts {
    ZoneAmounts { cpus: pod.cpus(), memory: (pod.cpus() * crate::workload::GIB_PER_CPU) << 30 }
}

impl NodeSums {
    /// An empty node.
    pub const fn new(allocatable: ZoneAmounts) -> Self {
        Self { allocatable, taken: ZoneAmounts { cpus: 0, memory: 0 } }
    }

    /// Do the sums of a pod fit?
    pub const fn fits(&self, pod: ZoneAmounts) -> bool {
        self.taken.cpus + pod.cpus <= self.allocatable.cpus
            && self.taken.memory + pod.memory <= self.allocatable.memory
    }

    /// Counts a pod, which is assumed here.
    pub const fn take(&mut self, pod: ZoneAmounts) {
        self.taken.cpus += pod.cpus;
        self.taken.memory += pod.memory;
    }

    /// Counts a pod no more.
    pub const fn give_back(&mut self, pod: ZoneAmounts) {
        self.taken.cpus = self.taken.cpus.saturating_sub(pod.cpus);
        self.taken.memory = self.taken.memory.saturating_sub(pod.memory);
    }

    /// Sum of the two in-tree scores for a pod that fits, 0 to 200.
    pub fn score(&self, pod: ZoneAmounts) -> u64 {
        let cpus = self.taken.cpus + pod.cpus;
        let memory = self.taken.memory + pod.memory;
        let left = |taken: u64, all: u64| all.saturating_sub(taken) * BEST / all.max(1);
        let least = u64::midpoint(left(cpus, self.allocatable.cpus), left(memory, self.allocatable.memory));
        // The standard deviation of two fractions is half of what is between them.
        let thousandths = |taken: u64, all: u64| taken * 1_000 / all.max(1);
        let between =
            thousandths(cpus, self.allocatable.cpus).abs_diff(thousandths(memory, self.allocatable.memory));
        least + BEST.saturating_sub(between / 20)
    }
}

/// How many nodes that fit end a search (`numFeasibleNodesToFind` in `pkg/scheduler/schedule_one.go`);
/// `percent` is `percentageOfNodesToScore`, where 0 is adaptive.
pub fn sample_size(nodes: usize, percent: usize) -> usize {
    if nodes < LEAST_SAMPLE {
        return nodes;
    }
    let percent = if percent == 0 { 50_usize.saturating_sub(nodes / 125).max(5) } else { percent };
    if percent >= 100 { nodes } else { (nodes * percent / 100).max(LEAST_SAMPLE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn samples_are_those_of_kube_scheduler() {
        for (nodes, percent, expected) in [
            (20, 0, 20),
            (99, 10, 99),
            (100, 0, 100),
            (1_000, 0, 420),
            (5_000, 0, 500),
            (15_000, 0, 750),
            (5_000, 100, 5_000),
            (150, 10, 100),
        ] {
            assert_eq!(sample_size(nodes, percent), expected, "{nodes} {percent}");
        }
    }

    #[test]
    fn assumed_pods_count_until_they_are_given_back() {
        let mut node = NodeSums::new(ZoneAmounts { cpus: 10, memory: 10 * GIB });
        let pod = ZoneAmounts { cpus: 6, memory: 6 * GIB };
        assert!(node.fits(pod));
        let empty = node.score(pod);
        node.take(pod);
        assert!(!node.fits(pod));
        let small = ZoneAmounts { cpus: 2, memory: 2 * GIB };
        assert!(node.fits(small) && node.score(small) < empty);
        node.give_back(pod);
        assert_eq!(node.score(pod), empty);
    }

    #[test]
    fn an_even_use_is_better_than_an_uneven_one() {
        let node = NodeSums::new(ZoneAmounts { cpus: 10, memory: 10 * GIB });
        let even = node.score(ZoneAmounts { cpus: 4, memory: 4 * GIB });
        let uneven = node.score(ZoneAmounts { cpus: 8, memory: 0 });
        assert_eq!((even, uneven), (160, 120));
    }
}
