//! Volcano's NUMA policy: which nodes a pod may go to, and which of them is best.
//!
//! Problem: clusters that come from Volcano choose nodes by a policy that a pod names itself
//! (`volcano.sh/numa-topology-policy`), and expect the same nodes. Idea: its documented rules as a pure
//! function beside the exact prediction, so that both can be compared for one pod.
//!
//! - Filter: a pod with a policy goes only to nodes with the same policy of the topology manager and a static
//!   CPU manager. A pod without one goes anywhere, and where a policy is set, its capacity rule holds too.
//! - Capacity, for CPUs alone and each container in turn: `best-effort` always; `restricted` if some set of m
//!   NUMA nodes has the CPUs free, where m is the smallest number of nodes whose CPUs would be enough;
//!   `single-numa-node` if one NUMA node has them free.
//! - Score: the fewest NUMA nodes first.
//! - Pods of other `QoS` classes than Guaranteed, and amounts that are not whole CPUs, pass.
//!
//! Cost: a sort of the NUMA nodes for each container.

use numa_placement::{ContainerKind, ContainerRequest, PodRequest, QosClass};

/// Policy of a pod, or of a node's topology manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolcanoPolicy {
    /// None, or not set.
    #[default]
    None,
    /// One NUMA node if possible.
    BestEffort,
    /// As few NUMA nodes as an empty machine needs.
    Restricted,
    /// One NUMA node.
    SingleNumaNode,
}

impl VolcanoPolicy {
    /// The policy of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "" | "none" => Some(Self::None),
            "best-effort" => Some(Self::BestEffort),
            "restricted" => Some(Self::Restricted),
            "single-numa-node" => Some(Self::SingleNumaNode),
            _ => None,
        }
    }
}

/// CPUs of one NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumaCpus {
    /// Number of all CPUs.
    pub total: u64,
    /// Number of CPUs that no container has exclusively.
    pub free: u64,
}

/// A node as Volcano sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolcanoNode {
    /// Policy of its topology manager.
    pub policy: VolcanoPolicy,
    /// Whether its CPU manager gives exclusive CPUs.
    pub is_static: bool,
    /// Its NUMA nodes.
    pub numa: Vec<NumaCpus>,
}

/// Why a node does not take a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VolcanoRefusal {
    /// The pod has a policy, and the CPU manager gives no exclusive CPUs.
    #[error("Volcano: the CPU manager of the node is not static")]
    NotStatic,
    /// The pod has another policy than the node.
    #[error("Volcano: the node has another topology policy")]
    OtherPolicy,
    /// The free CPUs do not satisfy the policy.
    #[error("Volcano: the free CPUs of the node do not satisfy its topology policy")]
    TooFewCpus,
}

/// The number of NUMA nodes that the pod's containers would use, or why the node does not take it.
///
/// # Errors
/// If the node does not take the pod.
pub fn filter(node: &VolcanoNode, policy: VolcanoPolicy, pod: &PodRequest) -> Result<usize, VolcanoRefusal> {
    if pod.qos != QosClass::Guaranteed {
        return Ok(0);
    }
    if policy != VolcanoPolicy::None {
        if !node.is_static {
            return Err(VolcanoRefusal::NotStatic);
        }
        if policy != node.policy {
            return Err(VolcanoRefusal::OtherPolicy);
        }
    }
    if !node.is_static || node.policy == VolcanoPolicy::None {
        return Ok(0);
    }
    let mut numa = node.numa.clone();
    let mut used = vec![false; numa.len()];
    let apps = pod.containers.iter().filter(|container| container.kind == ContainerKind::App);
    for cpus in apps.filter_map(ContainerRequest::whole_cpus).filter(|cpus| *cpus > 0) {
        let nodes = fitting_nodes(&numa, node.policy, cpus).ok_or(VolcanoRefusal::TooFewCpus)?;
        let mut left = cpus;
        for at in nodes {
            let taken = left.min(numa[at].free);
            numa[at].free -= taken;
            left -= taken;
            used[at] |= taken > 0;
        }
    }
    Ok(used.into_iter().filter(|used| *used).count())
}

/// Positions of the NUMA nodes for so many CPUs: the fewest, of these the ones with the lowest position that
/// leave the least over.
fn fitting_nodes(numa: &[NumaCpus], policy: VolcanoPolicy, cpus: u64) -> Option<Vec<usize>> {
    let mut by_free: Vec<usize> = (0..numa.len()).collect();
    by_free.sort_by_key(|at| (std::cmp::Reverse(numa[*at].free), *at));
    let one = (0..numa.len()).filter(|at| numa[*at].free >= cpus).min_by_key(|at| (numa[*at].free, *at));
    let now = count_until(cpus, by_free.iter().map(|at| numa[*at].free));
    let chosen = |count: usize| by_free.iter().copied().take(count).collect::<Vec<_>>();
    match policy {
        VolcanoPolicy::SingleNumaNode => one.map(|at| vec![at]),
        VolcanoPolicy::Restricted => {
            let mut totals: Vec<u64> = numa.iter().map(|node| node.total).collect();
            totals.sort_unstable_by(|one, other| other.cmp(one));
            let fewest = count_until(cpus, totals.into_iter())?;
            let now = now.filter(|now| *now <= fewest)?;
            Some(one.filter(|_| now == 1).map_or_else(|| chosen(now), |at| vec![at]))
        }
        VolcanoPolicy::BestEffort | VolcanoPolicy::None => {
            // Too few CPUs reject nothing here: other rules of a scheduler count sums.
            let count = now.unwrap_or(numa.len());
            Some(one.map_or_else(|| chosen(count), |at| vec![at]))
        }
    }
}

/// How many of these amounts, in their order, are enough.
fn count_until(enough: u64, mut amounts: impl Iterator<Item = u64>) -> Option<usize> {
    let mut sum = 0u64;
    let at = amounts.position(|amount| {
        sum = sum.saturating_add(amount);
        sum >= enough
    });
    at.map(|at| at + 1)
}

/// Scores from 0 to 100 for nodes that would use so many NUMA nodes: fewer are better.
pub fn scores(numa_nodes: &[usize]) -> Vec<u64> {
    let most = numa_nodes.iter().copied().max().unwrap_or(0);
    let score = |count: &usize| match most {
        0 => 100,
        most => 100 - u64::try_from(100 * count / most).unwrap_or(100),
    };
    numa_nodes.iter().map(score).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numa_placement::PodName;

    fn pod(cpus: u64) -> PodRequest {
        let container = ContainerRequest::guaranteed("main", cpus * 1000, 1 << 30);
        PodRequest::new(PodName::new("default", "p"), vec![container])
    }

    fn node(policy: VolcanoPolicy, free: [u64; 2]) -> VolcanoNode {
        let numa = free.map(|free| NumaCpus { total: 16, free });
        VolcanoNode { policy, is_static: true, numa: numa.to_vec() }
    }

    #[test]
    fn a_policy_of_the_pod_must_be_that_of_the_node() {
        use VolcanoPolicy::{BestEffort, None, Restricted, SingleNumaNode};
        let all = [None, BestEffort, Restricted, SingleNumaNode];
        for (policy, expected) in [
            (None, [true, true, true, true]),
            (BestEffort, [false, true, false, false]),
            (Restricted, [false, false, true, false]),
            (SingleNumaNode, [false, false, false, true]),
        ] {
            let fits = all.map(|of_node| filter(&node(of_node, [16, 16]), policy, &pod(2)).is_ok());
            assert_eq!(fits, expected, "{policy:?}");
        }
        let mut plain = node(Restricted, [16, 16]);
        plain.is_static = false;
        assert_eq!(filter(&plain, Restricted, &pod(2)), Err(VolcanoRefusal::NotStatic));
        assert_eq!(filter(&plain, None, &pod(2)), Ok(0));
    }

    #[test]
    fn capacity_follows_the_policy_of_the_node() {
        use VolcanoPolicy::{BestEffort, None, Restricted, SingleNumaNode};
        let nodes = [
            node(BestEffort, [7, 7]),
            node(Restricted, [7, 7]),
            node(Restricted, [7, 10]),
            node(SingleNumaNode, [7, 10]),
        ];
        for (cpus, policy, fits) in [
            (9, BestEffort, [true, false, false, false]),
            (11, Restricted, [false, false, false, false]),
            (16, Restricted, [false, false, false, false]),
            (17, Restricted, [false, false, true, false]),
            (18, Restricted, [false, false, false, false]),
            (17, SingleNumaNode, [false, false, false, false]),
            (10, SingleNumaNode, [false, false, false, true]),
            // Without a policy of its own the rule of the node still holds.
            (9, None, [true, false, true, true]),
        ] {
            let found = [0, 1, 2, 3].map(|at| filter(&nodes[at], policy, &pod(cpus)).is_ok());
            assert_eq!(found, fits, "{cpus} CPUs, {policy:?}");
        }
        assert_eq!(filter(&nodes[0], BestEffort, &pod(9)), Ok(2));
        assert_eq!(filter(&nodes[2], Restricted, &pod(9)), Ok(1));
    }

    #[test]
    fn containers_take_their_cpus_one_after_another() {
        let node = node(VolcanoPolicy::SingleNumaNode, [4, 6]);
        let mut two = pod(4);
        two.containers.push(ContainerRequest::guaranteed("side", 6_000, 1 << 30));
        assert_eq!(filter(&node, VolcanoPolicy::SingleNumaNode, &two), Ok(2));
        two.containers.push(ContainerRequest::guaranteed("more", 1_000, 1 << 30));
        assert_eq!(filter(&node, VolcanoPolicy::SingleNumaNode, &two), Err(VolcanoRefusal::TooFewCpus));
        two.containers[2].requests.milli_cpus = Some(500);
        assert!(filter(&node, VolcanoPolicy::SingleNumaNode, &two).is_ok(), "a fraction passes");
        let mut burstable = pod(100);
        burstable.qos = QosClass::Burstable;
        assert_eq!(filter(&node, VolcanoPolicy::SingleNumaNode, &burstable), Ok(0));
    }

    #[test]
    fn fewer_numa_nodes_have_a_higher_score() {
        assert_eq!(scores(&[1, 2, 4]), [75, 50, 0]);
        assert_eq!(scores(&[1, 2]), [50, 0]);
        assert_eq!(scores(&[0, 0]), [100, 100]);
        assert!(scores(&[]).is_empty());
    }
}
