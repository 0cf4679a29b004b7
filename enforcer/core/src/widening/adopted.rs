//! Memory nodes that an earlier daemon process had added.
//!
//! No record says which nodes are home and which were added: a widening does not wait for a disk. The nodes
//! of a workload's CPUs tell instead. The engine `pools` may grant several kinds of memory from the
//! beginning, so its grants are not taken for added.

use crate::{model::WorkloadModel, policy::placement::PlacementEngine};
use numa_topology::{Topology, set::NodeSet};

/// Nodes that were added to a workload placed by `engine`: those without its CPUs, if it has all nodes of its
/// CPUs.
pub fn added_before(machine: &Topology, engine: PlacementEngine, figures: &WorkloadModel) -> Option<NodeSet> {
    if engine == PlacementEngine::Pools {
        return None;
    }
    let (cpus, mems) = figures.cpus.as_ref().zip(figures.mems.as_ref())?;
    let home = machine.nodes_of(cpus);
    let added = mems.difference(&home).difference(&machine.gpu_memory_nodes());
    (home.is_subset(mems) && !home.is_empty() && !added.is_empty()).then_some(added)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numa_topology::synth::Machine;

    #[test]
    fn what_is_beside_the_nodes_of_its_cpus_was_added_unless_pools_gave_it() {
        let machine = Machine::new().sockets(2).cores(4).threads(1).build();
        let (hints, pools) = (PlacementEngine::Hints, PlacementEngine::Pools);
        for (engine, cpus, mems, expected) in [
            (hints, "0-1", "0-1", Some("1")),
            (hints, "4-7", "0-1", Some("0")),
            (hints, "0-1", "0", None),
            (hints, "0-7", "0-1", None),
            (hints, "0-1", "1", None),
            (hints, "", "0-1", None),
            (pools, "0-1", "0-1", None),
        ] {
            let figures = WorkloadModel {
                cpus: cpus.parse().ok(),
                mems: mems.parse().ok(),
                ..WorkloadModel::default()
            };
            let added = added_before(&machine, engine, &figures).map(|added| added.to_string());
            assert_eq!(added.as_deref(), expected, "{cpus}/{mems}");
        }
        assert_eq!(added_before(&machine, hints, &WorkloadModel::default()), None);
    }
}
