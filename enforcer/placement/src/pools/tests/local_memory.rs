//! Memory is on the nodes of the CPUs, as long as it is available there.

use proptest::prelude::*;

use super::*;
use crate::{MemoryResource, any_machine::any_machine};
use numa_topology::MemoryKind;

/// A pod that is created, deleted or changed, derived from numbers.
#[derive(Debug, Clone, Copy)]
struct Step {
    action: u8,
    pod: u8,
    kind: u8,
    milli: u64,
    memory: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..6, 0u8..12, 0u8..5, 1u64..6000, 1u64..4000);
    let step = step.prop_map(|(action, pod, kind, milli, memory)| Step { action, pod, kind, milli, memory });
    proptest::collection::vec(step, 1..24)
}

impl Step {
    fn pod(self) -> PodRequest {
        let memory = self.memory * MB;
        let (whole, pod) = ((self.milli / 1000).max(1) * 1000, Pod::new(&format!("p{}", self.pod)));
        let pod = match self.kind {
            0 => pod.best_effort(),
            1 => pod.burstable(self.milli, None, memory),
            2 => pod.container(amounts(Some(self.milli), Some(memory)), Resources::default()),
            3 => pod.guaranteed(whole, memory),
            _ => pod.guaranteed(self.milli, memory),
        };
        pod.build()
    }
}

impl Node {
    fn take(&mut self, step: Step) {
        let pod = step.pod();
        let there = self.allocations.of_pod(&pod.name).next().is_some();
        match (step.action, there) {
            (0, true) => drop(remove(&mut self.allocations, &pod.name)),
            (1, true) => drop(self.resize(&pod)),
            (_, true) => {}
            (_, false) => drop(self.create(&pod)),
        }
    }

    /// The memory nodes of every container include all ordinary memory on the nodes of its CPUs.
    fn memory_is_near(&self) -> Result<(), TestCaseError> {
        let taken = self.allocations.exclusive_cpus();
        let ordinary = self
            .inventory
            .nodes
            .iter()
            .filter(|node| node.kind == MemoryKind::Dram && node.allocatable(MemoryResource::Memory) > 0);
        let ordinary: NodeSet = ordinary.map(|node| node.id).collect();
        for (holder, grant) in self.allocations.iter() {
            let near = self.inventory.machine.nodes_of(&grant.cpus(&taken)).intersection(&ordinary);
            let (pool, mems) = (&grant.pool, &grant.mems);
            prop_assert!(near.is_subset(mems), "{holder} in {pool:?}: CPUs on {near}, memory on {mems}");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn memory_nodes_include_those_of_the_cpus_after_every_step(machine in any_machine(), steps in steps()) {
        let mut node = Node::new(machine, "");
        for step in steps {
            node.take(step);
            node.memory_is_near()?;
        }
    }
}
