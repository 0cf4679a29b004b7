//! `NodeResourceTopologyMatch` of scheduler-plugins, from its documented rules.
//!
//! The filter acts for the policy `single-numa-node`: in container scope each container takes the first NUMA
//! node that fits and is subtracted there. The score `LeastAllocated` is the lowest score but 0 of the NUMA
//! nodes, and the mean of the containers. The cache `OverReserve` subtracts a reserved pod from every NUMA
//! node, because it does not know which one the kubelet takes; a node that was filtered out is read again at
//! the next resync, if the pods of its object are those that the scheduler knows as running there.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    cache::BEST,
    kubelet::ZoneAmounts,
    workload::{GIB_PER_CPU, PodShape},
};

/// What a node has published.
#[derive(Debug, Clone, Default)]
pub struct PublishedZones {
    /// `available` of each NUMA node.
    pub zones: Vec<ZoneAmounts>,
    /// The pods of the fingerprint.
    pub pods: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct NrtNode {
    /// The newest object.
    published: PublishedZones,
    /// What the cache shows of it; without a cache the newest.
    shown: Vec<ZoneAmounts>,
    /// Reserved pods.
    reserved: BTreeMap<String, PodShape>,
    is_dirty: bool,
}

/// The plugin's view of all nodes.
#[derive(Debug)]
pub struct NrtPlugin {
    nodes: Vec<NrtNode>,
    has_cache: bool,
    /// Whether the policy of the nodes is `single-numa-node`.
    acts: bool,
}

fn containers(pod: &PodShape) -> impl Iterator<Item = ZoneAmounts> {
    pod.containers.iter().map(|cpus| ZoneAmounts { cpus: *cpus, memory: (cpus * GIB_PER_CPU) << 30 })
}

const fn fits(zone: ZoneAmounts, wanted: ZoneAmounts) -> bool {
    zone.cpus >= wanted.cpus && zone.memory >= wanted.memory
}

const fn subtract(zone: &mut ZoneAmounts, wanted: ZoneAmounts) {
    zone.cpus = zone.cpus.saturating_sub(wanted.cpus);
    zone.memory = zone.memory.saturating_sub(wanted.memory);
}

impl NrtPlugin {
    /// A view of nodes that have published this.
    pub fn new(published: &PublishedZones, nodes: usize, has_cache: bool, acts: bool) -> Self {
        let node =
            || NrtNode { published: published.clone(), shown: published.zones.clone(), ..NrtNode::default() };
        Self { nodes: std::iter::repeat_with(node).take(nodes).collect(), has_cache, acts }
    }

    /// Takes what a node has published.
    pub fn observe(&mut self, node: usize, published: PublishedZones) {
        let known = &mut self.nodes[node];
        if !self.has_cache {
            known.shown.clone_from(&published.zones);
        }
        known.published = published;
    }

    /// The zones as the filter sees them.
    fn zones(&self, node: usize) -> Vec<ZoneAmounts> {
        let known = &self.nodes[node];
        let mut zones = known.shown.clone();
        for wanted in known.reserved.values().flat_map(containers) {
            for zone in &mut zones {
                subtract(zone, wanted);
            }
        }
        zones
    }

    /// Does the pod pass on this node?
    pub fn filter(&mut self, node: usize, pod: &PodShape) -> bool {
        if !self.acts {
            return true;
        }
        let mut zones = self.zones(node);
        let is_placed = containers(pod).all(|wanted| {
            let zone = zones.iter_mut().find(|zone| fits(**zone, wanted));
            zone.map(|zone| subtract(zone, wanted)).is_some()
        });
        self.nodes[node].is_dirty |= !is_placed;
        is_placed
    }

    /// `LeastAllocated` of a node, 0 to 100.
    pub fn score(&self, node: usize, pod: &PodShape) -> u64 {
        if !self.acts {
            return 0;
        }
        let zones = self.zones(node);
        let all: Vec<u64> = containers(pod)
            .map(|wanted| {
                let scores = zones.iter().map(|zone| score(*zone, wanted)).filter(|score| *score > 0);
                scores.min().unwrap_or(0)
            })
            .collect();
        all.iter().sum::<u64>() / (all.len() as u64).max(1)
    }

    /// Notes that a pod was reserved on a node.
    pub fn reserve(&mut self, node: usize, uid: &str, pod: &PodShape) {
        if self.has_cache {
            self.nodes[node].reserved.insert(uid.to_owned(), pod.clone());
        }
    }

    /// Takes that back: the pod was not bound.
    pub fn unreserve(&mut self, node: usize, uid: &str) {
        self.nodes[node].reserved.remove(uid);
    }

    /// Reads nodes again that were filtered out, if what they published is of the pods that run there.
    pub fn resync(&mut self, running: &[BTreeSet<String>]) {
        for (node, running) in self.nodes.iter_mut().zip(running) {
            if node.is_dirty && node.published.pods == *running {
                node.shown.clone_from(&node.published.zones);
                node.reserved.clear();
                node.is_dirty = false;
            }
        }
    }
}

/// Mean of what is left of each amount, in hundredths of what is there; 0 where it does not fit.
fn score(zone: ZoneAmounts, wanted: ZoneAmounts) -> u64 {
    if !fits(zone, wanted) {
        return 0;
    }
    let left = |all: u64, wanted: u64| (all - wanted) * BEST / all.max(1);
    u64::midpoint(left(zone.cpus, wanted.cpus), left(zone.memory, wanted.memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn zones(cpus: &[u64]) -> PublishedZones {
        let zones = cpus.iter().map(|cpus| ZoneAmounts { cpus: *cpus, memory: 64 * GIB });
        PublishedZones { zones: zones.collect(), pods: BTreeSet::new() }
    }

    fn pod(containers: &[u64]) -> PodShape {
        PodShape { containers: containers.to_vec() }
    }

    #[test]
    fn scores_are_those_of_the_documented_example() {
        let wanted = ZoneAmounts { cpus: 2, memory: 20 * MIB };
        for (cpus, mib, expected) in [(4, 500, 73), (2, 50, 30), (6, 60, 66)] {
            assert_eq!(score(ZoneAmounts { cpus, memory: mib * MIB }, wanted), expected);
        }
        assert_eq!(score(ZoneAmounts { cpus: 1, memory: GIB }, wanted), 0);
    }

    #[test]
    fn each_container_takes_the_first_numa_node_that_fits() {
        let mut plugin = NrtPlugin::new(&zones(&[4, 8]), 1, false, true);
        for (containers, passes) in [
            (&[8][..], true),
            (&[9], false),
            (&[4, 8], true),
            (&[8, 8], false),
            (&[4, 4, 4], true),
            (&[2, 4, 6], false),
        ] {
            assert_eq!(plugin.filter(0, &pod(containers)), passes, "{containers:?}");
        }
        let mut silent = NrtPlugin::new(&zones(&[4, 8]), 1, false, false);
        assert!(silent.filter(0, &pod(&[9])), "it acts for one policy alone");
    }

    #[test]
    fn without_a_cache_pods_on_their_way_are_not_seen() {
        let mut plugin = NrtPlugin::new(&zones(&[8, 8]), 1, false, true);
        for uid in ["a", "b", "c"] {
            assert!(plugin.filter(0, &pod(&[8])));
            plugin.reserve(0, uid, &pod(&[8]));
        }
        plugin.observe(0, zones(&[0, 0]));
        assert!(!plugin.filter(0, &pod(&[8])));
    }

    #[test]
    fn cache_charges_a_pod_to_every_numa_node_until_what_runs_is_published() {
        let mut plugin = NrtPlugin::new(&zones(&[8, 8]), 1, true, true);
        plugin.reserve(0, "a", &pod(&[8]));
        assert!(!plugin.filter(0, &pod(&[8])), "NUMA node 1 is free, and looks full");
        let published = PublishedZones { pods: BTreeSet::from(["a".to_owned()]), ..zones(&[0, 8]) };
        plugin.observe(0, published);
        assert!(!plugin.filter(0, &pod(&[8])), "until the resync");
        plugin.resync(&[BTreeSet::new()]);
        assert!(!plugin.filter(0, &pod(&[8])), "the pod does not run yet");
        plugin.resync(&[BTreeSet::from(["a".to_owned()])]);
        assert!(plugin.filter(0, &pod(&[8])));
        plugin.reserve(0, "b", &pod(&[8]));
        plugin.unreserve(0, "b");
        assert!(plugin.filter(0, &pod(&[8])));
    }
}
