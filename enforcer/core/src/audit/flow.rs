//! Estimated traffic between nodes: CPUs of one node that access memory of another, for all workloads
//! together.
//!
//! Problem: a share of remote accesses shows that traffic crosses the machine, but not its source and
//! destination. Idea: a thread touches its workload's memory in proportion to its place, so the traffic from
//! node s to node d is the sum over workloads of `cpus_used * run_share[s] * share of memory on d`. Its unit
//! is CPUs: CPU time per time that CPUs of s spend with memory of d. It is an estimate like
//! [`crate::model::TrafficSource::Placement`], even for workloads with a measured ratio: measurements have no
//! destination.
//!
//! A workload with an unknown factor is left out, and counted. Cost: workloads x nodes that each uses,
//! squared.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{Model, WorkloadModel, accessed_bytes};
use numa_topology::id::NodeId;

/// Estimated traffic between nodes over the time of the sample.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficMap {
    /// Pairs of nodes with traffic, in ascending order of source, then destination.
    pub flows: Vec<NodeTraffic>,
    /// Workloads that are included.
    pub workloads: usize,
    /// Workloads that ran, or may have, but have unknown run time or memory by node.
    pub left_out: usize,
}

/// Traffic from the CPUs of one node to the memory of one node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Flow")]
pub struct NodeTraffic {
    /// Node of the CPUs.
    pub src_numa: NodeId,
    /// Node of the memory.
    pub dst_numa: NodeId,
    /// CPUs of the source that are busy with memory of the destination; more than 0.
    pub cpus: f64,
}

impl TrafficMap {
    /// The traffic of all workloads; `None` with only one sample.
    pub(super) fn of(model: &Model) -> Option<Self> {
        model.interval_ns?;
        let mut between: BTreeMap<(NodeId, NodeId), f64> = BTreeMap::new();
        let mut map = Self::default();
        for figures in model.workloads.values().chain(model.processes.values()) {
            match parts(figures) {
                Some(parts) => {
                    map.workloads += 1;
                    for (pair, cpus) in parts {
                        *between.entry(pair).or_default() += cpus;
                    }
                }
                None => map.left_out += 1,
            }
        }
        let flows = between.into_iter().filter(|(_, cpus)| cpus.is_finite() && *cpus > 0.0);
        map.flows =
            flows.map(|((src_numa, dst_numa), cpus)| NodeTraffic { src_numa, dst_numa, cpus }).collect();
        Some(map)
    }
}

/// Contribution of one workload; empty if it did not run.
#[expect(clippy::cast_precision_loss, reason = "a share of bytes")]
fn parts(figures: &WorkloadModel) -> Option<Vec<((NodeId, NodeId), f64)>> {
    let used = figures.cpus_used?;
    if used <= 0.0 {
        return Some(Vec::new());
    }
    let (ran, memory) = (figures.run_share.as_ref()?, figures.bytes_by_node.as_ref()?);
    let total = figures.accessed_bytes().filter(|bytes| *bytes > 0)? as f64;
    let to = |share: f64| {
        memory.iter().map(move |(node, bytes)| (*node, used * share * accessed_bytes(bytes) as f64 / total))
    };
    Some(ran.iter().flat_map(|(src, share)| to(*share).map(move |(dst, cpus)| ((*src, dst), cpus))).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{sample::NodeBytes, workload::CgroupPath};

    fn figures(cpus: f64, ran: &[(u32, f64)], bytes: &[(u32, u64)]) -> WorkloadModel {
        WorkloadModel {
            cpus_used: Some(cpus),
            run_share: Some(ran.iter().map(|(node, share)| (NodeId(*node), *share)).collect()),
            bytes_by_node: Some(
                bytes
                    .iter()
                    .map(|(node, anon)| (NodeId(*node), NodeBytes { anon: *anon, ..NodeBytes::default() }))
                    .collect(),
            ),
            ..WorkloadModel::default()
        }
    }

    fn model(workloads: Vec<WorkloadModel>) -> Model {
        let named = workloads.into_iter().enumerate();
        Model {
            interval_ns: Some(1),
            workloads: named.map(|(n, one)| (CgroupPath::new(&format!("/{n}")), one)).collect(),
            processes: BTreeMap::new(),
        }
    }

    fn shown(map: &TrafficMap) -> Vec<String> {
        map.flows.iter().map(|flow| format!("{}>{} {:.2}", flow.src_numa, flow.dst_numa, flow.cpus)).collect()
    }

    #[test]
    fn time_on_nodes_goes_to_where_the_memory_is() {
        let spread = figures(2.0, &[(0, 0.5), (1, 0.5)], &[(0, 75), (1, 25)]);
        let far = figures(1.0, &[(1, 1.0)], &[(0, 10)]);
        let idle = figures(0.0, &[], &[(1, 10)]);
        let unknown = WorkloadModel { cpus_used: Some(3.0), ..WorkloadModel::default() };
        let map = TrafficMap::of(&model(vec![spread, far, idle, unknown])).unwrap();
        assert_eq!(shown(&map), ["0>0 0.75", "0>1 0.25", "1>0 1.75", "1>1 0.25"]);
        assert_eq!((map.workloads, map.left_out), (3, 1));
    }

    #[test]
    fn a_single_look_has_no_traffic() {
        let single = Model { interval_ns: None, ..model(vec![figures(1.0, &[(0, 1.0)], &[(0, 1)])]) };
        assert_eq!(TrafficMap::of(&single), None);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_made(
            cpus in 0.01f64..64.0, share in 0.0f64..=1.0, bytes in prop::collection::vec(0u64..1 << 40, 1..6),
        ) {
            let bytes: Vec<(u32, u64)> = (0..).zip(bytes).collect();
            let one = figures(cpus, &[(0, share), (3, 1.0 - share)], &bytes);
            let map = TrafficMap::of(&model(vec![one])).unwrap();
            let total: f64 = map.flows.iter().map(|flow| flow.cpus).sum();
            let expected = if bytes.iter().any(|(_, bytes)| *bytes > 0) { cpus } else { 0.0 };
            prop_assert!((total - expected).abs() < 1e-6, "{total} {expected}");
            prop_assert!(map.flows.iter().all(|flow| flow.cpus > 0.0));
        }
    }
}
