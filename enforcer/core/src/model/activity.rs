//! Figures of a turn that are kept beside the audit: rates of workloads, and the remote traffic of each node.
//!
//! Problem: sources measure traffic by workload, and administrators ask by node. Idea: the accesses of a
//! node's CPUs are those of the workloads that ran there, so its remote ratio is the mean of theirs, weighted
//! by the CPU time of each on the node.
//!
//! An estimate from placement is computed for this node alone. A measured figure counts for all nodes of the
//! workload together, since a few faults or samples do not tell nodes apart. Workloads with unknown traffic
//! are in neither side of the ratio. Cost: linear in workloads and nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Model, TrafficSource, WorkloadModel, residency};
use crate::workload::{CgroupPath, Origin};
use numa_topology::{Locality, Topology, id::NodeId, set::NodeSet};

/// Rates between two samples; empty for the first one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// By cgroup, without workloads that have no known rate.
    pub workloads: BTreeMap<CgroupPath, Rates>,
    /// By process id, for workloads that are one process.
    pub processes: BTreeMap<u32, Rates>,
    /// Share of the memory accesses of each node's CPUs that go to another node, 0 to 1.
    pub remote_by_node: BTreeMap<NodeId, f64>,
}

/// Rates of one workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rates {
    /// Moves of its tasks to another node, per second.
    pub migrations_per_second: Option<f64>,
    /// CPU time per second, in CPUs.
    pub cpus_used: Option<f64>,
    /// Share of its run time on nodes that it should not use, 0 to 1.
    pub misplaced_time: Option<f64>,
}

impl Activity {
    /// The rates of a model.
    pub fn new(machine: &Topology, model: &Model) -> Self {
        let workloads =
            model.workloads.iter().filter_map(|(path, figures)| Some((path.clone(), rates(figures)?)));
        let processes = model.processes.iter().filter_map(|(pid, figures)| Some((*pid, rates(figures)?)));
        Self {
            workloads: workloads.collect(),
            processes: processes.collect(),
            remote_by_node: remote_by_node(machine, model),
        }
    }

    /// The rates of a workload.
    pub fn of(&self, cgroup: &CgroupPath, origin: &Origin) -> Option<&Rates> {
        match origin {
            Origin::Process { pid, .. } => self.processes.get(pid),
            _ => self.workloads.get(cgroup),
        }
    }
}

fn rates(figures: &WorkloadModel) -> Option<Rates> {
    let WorkloadModel { migrations_per_second, cpus_used, misplaced_time, .. } = *figures;
    let rates = Rates { migrations_per_second, cpus_used, misplaced_time };
    (rates != Rates::default()).then_some(rates)
}

fn remote_by_node(machine: &Topology, model: &Model) -> BTreeMap<NodeId, f64> {
    let locality = Locality::new(machine);
    let mut sums: BTreeMap<NodeId, (f64, f64)> = BTreeMap::new();
    for figures in model.workloads.values().chain(model.processes.values()) {
        let (Some(traffic), Some(used), Some(shares)) =
            (&figures.traffic, figures.cpus_used, &figures.run_share)
        else {
            continue;
        };
        for (node, share) in shares {
            let remote = match traffic.source {
                TrafficSource::Placement => away_from(*node, &locality, figures),
                TrafficSource::HintFaults | TrafficSource::Hardware => Some(traffic.remote_ratio),
            };
            let (Some(remote), time) = (remote, used * share) else { continue };
            let (remote_time, all_time) = sums.entry(*node).or_default();
            *remote_time += remote * time;
            *all_time += time;
        }
    }
    let known = sums.into_iter().filter(|(_, (_, all))| *all > 0.0);
    known.map(|(node, (remote, all))| (node, (remote / all).clamp(0.0, 1.0))).collect()
}

/// Share of its memory that is not local to CPUs of the node.
fn away_from(node: NodeId, locality: &Locality, figures: &WorkloadModel) -> Option<f64> {
    residency::remote_share(locality, figures.bytes_by_node.as_ref()?, &NodeSet::from_iter([node]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Traffic, sample::NodeBytes};
    use numa_topology::synth::Machine;

    const MIB: u64 = 1 << 20;

    /// A workload with CPU time on these nodes and MiB of memory on those.
    fn busy(source: TrafficSource, ratio: f64, ran: &[(u32, f64)], memory: &[(u32, u64)]) -> WorkloadModel {
        let bytes = |mib: u64| NodeBytes { anon: mib * MIB, ..NodeBytes::default() };
        WorkloadModel {
            cpus_used: Some(ran.iter().map(|(_, cpus)| cpus).sum()),
            run_share: Some(
                ran.iter()
                    .map(|(node, cpus)| (NodeId(*node), cpus / ran.iter().map(|(_, cpus)| cpus).sum::<f64>()))
                    .collect(),
            ),
            bytes_by_node: Some(memory.iter().map(|(node, mib)| (NodeId(*node), bytes(*mib))).collect()),
            traffic: Some(Traffic::new(ratio, source, 500)),
            ..WorkloadModel::default()
        }
    }

    fn activity(workloads: Vec<WorkloadModel>) -> Activity {
        let machine = Machine::new().sockets(2).build();
        let named = workloads.into_iter().zip(0..).map(|(one, n)| (CgroupPath::new(&format!("/{n}")), one));
        Activity::new(&machine, &Model { workloads: named.collect(), ..Model::default() })
    }

    fn percent(activity: &Activity) -> Vec<(u32, String)> {
        let each = activity.remote_by_node.iter();
        each.map(|(node, ratio)| (node.0, format!("{:.0}", ratio * 100.0))).collect()
    }

    #[test]
    fn a_node_is_as_remote_as_those_that_run_there() {
        let placement = TrafficSource::Placement;
        // All memory on node 0: a thread there is local, one on node 1 is not.
        let spread = busy(placement, 0.5, &[(0, 1.0), (1, 1.0)], &[(0, 64)]);
        assert_eq!(percent(&activity(vec![spread.clone()])), [(0, "0".into()), (1, "100".into())]);
        // Three CPUs that are all local beside one that is not.
        let local = busy(placement, 0.0, &[(1, 3.0)], &[(1, 64)]);
        assert_eq!(percent(&activity(vec![spread.clone(), local])), [(0, "0".into()), (1, "25".into())]);
        // A measured ratio is reported for the whole workload.
        let measured = busy(TrafficSource::HintFaults, 0.5, &[(0, 1.0), (1, 1.0)], &[(0, 64)]);
        assert_eq!(percent(&activity(vec![measured])), [(0, "50".into()), (1, "50".into())]);
        // An unknown or idle workload contributes nothing.
        let unknown = WorkloadModel { traffic: None, ..spread.clone() };
        let idle = WorkloadModel { cpus_used: Some(0.0), ..spread };
        assert_eq!(percent(&activity(vec![unknown, idle])), []);
    }

    #[test]
    fn rates_are_found_by_cgroup_or_process_and_none_is_kept_for_nothing() {
        let figures = WorkloadModel { migrations_per_second: Some(2.0), ..WorkloadModel::default() };
        let path = CgroupPath::new("/a");
        let model = Model {
            workloads: BTreeMap::from([
                (path.clone(), figures.clone()),
                (CgroupPath::new("/b"), WorkloadModel::default()),
            ]),
            processes: BTreeMap::from([(7, figures)]),
            ..Model::default()
        };
        let activity = Activity::new(&Machine::new().build(), &model);
        assert_eq!(activity.workloads.len(), 1);
        let process = |pid| Origin::Process { pid, command: "x".into() };
        let moves =
            |origin: &Origin| activity.of(&path, origin).and_then(|rates| rates.migrations_per_second);
        assert_eq!(moves(&Origin::Cgroup), Some(2.0));
        assert_eq!((moves(&process(7)), moves(&process(8))), (Some(2.0), None));
    }
}
