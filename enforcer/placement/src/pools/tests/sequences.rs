//! Properties after any sequence of pods.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{machines::*, *};
use crate::{CpuClass, MemoryResource};

/// A step of a sequence, derived from numbers.
#[derive(Debug, Clone, Copy)]
struct Step {
    action: u8,
    pod: u8,
    kind: u8,
    milli: u64,
    memory: u64,
}

fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..8, 0u8..24, 0u8..9, 1u64..9000, 1u64..1500);
    let step = step.prop_map(|(action, pod, kind, milli, memory)| Step { action, pod, kind, milli, memory });
    proptest::collection::vec(step, count)
}

impl Step {
    fn pod(self) -> PodRequest {
        let Self { kind, milli, memory, .. } = self;
        let pod = Pod::new(&format!("p{}", self.pod));
        let memory = memory * MB;
        let whole = (milli / 1000).max(1) * 1000;
        let annotated = |key: &str, value: &str, pod: Pod| {
            pod.annotated(&format!("{key}.resource-policy.nri.io/pod"), value)
        };
        let pod = match kind {
            0 => pod.best_effort(),
            1 => pod.burstable(milli, None, memory),
            2 => pod.burstable(milli, Some(milli * 2), memory).best_effort(),
            3 => pod.guaranteed(milli, memory),
            4 => annotated("prefer-shared-cpus", "false", pod).guaranteed(milli, memory),
            5 => annotated("require-isolated-cpus", "true", pod).guaranteed(whole, memory),
            6 => pod.namespace("kube-system").guaranteed(milli, memory),
            7 => {
                pod.guaranteed(whole, memory).last(|c| c.kind = ContainerKind::Init).guaranteed(whole, memory)
            }
            _ => {
                annotated("hide-hyperthreads", "true", pod).guaranteed(whole, memory).guaranteed(500, memory)
            }
        };
        pod.build()
    }
}

impl Node {
    fn step(&mut self, step: Step) {
        let pod = step.pod();
        let there = self.allocations.of_pod(&pod.name).next().is_some();
        let before = self.allocations.clone();
        match (step.action, there) {
            (0..=1, true) => drop(remove(&mut self.allocations, &pod.name)),
            (2, true) => {
                if self.resize(&pod).is_err() {
                    assert_eq!(self.allocations, before, "a failed resize left a trace");
                }
            }
            (_, true) => {}
            (_, false) => {
                if self.create(&pod).is_err() {
                    assert_eq!(self.allocations, before, "a failed pod left a trace");
                }
            }
        }
        // Init containers end before the others run.
        for init in pod.containers.iter().filter(|container| container.kind == ContainerKind::Init) {
            self.allocations.release(&Holder::new(pod.name.clone(), init.name.clone()));
        }
    }

    /// All invariants.
    fn check(&self) {
        let taken = self.allocations.exclusive_cpus();
        assert!(taken.is_subset(&self.inventory.allowed_cpus));
        assert!(taken.is_disjoint(&self.inventory.reserved_cpus), "reserved CPUs were given away");
        let mut seen = CpuSet::new();
        for (holder, grant) in self.allocations.iter() {
            assert!(seen.is_disjoint(&grant.exclusive), "{holder} has CPUs of others");
            seen.extend(&grant.exclusive);
        }
        let mut granted = 0;
        for (holder, grant) in self.allocations.iter() {
            assert!(!grant.cpus(&taken).is_empty(), "{holder} has no CPU to run on");
            assert!(!grant.mems.is_empty(), "{holder} has no memory node");
            if grant.class == CpuClass::Shared || grant.class == CpuClass::Mixed {
                granted += grant.shared.as_ref().map_or(0, |shared| shared.milli_cpus);
            }
            for claim in &grant.memory {
                assert_eq!(claim.by_node.values().sum::<u64>(), claim.bytes);
                assert!(claim.zone.is_subset(&grant.mems));
            }
        }
        let shared = self.inventory.allowed_cpus.difference(&self.inventory.reserved_cpus);
        let shared = shared.difference(&self.inventory.isolated_cpus).difference(&taken);
        assert!(granted <= 1000 * shared.len() as u64, "{granted}m on {shared}");
        let all: NodeSet = self.inventory.nodes.iter().map(|node| node.id).collect();
        for set in subsets(&all) {
            let claims = self.allocations.iter().flat_map(|(_, grant)| &grant.memory);
            let claims = claims.filter(|claim| claim.zone.is_subset(&set));
            let sum: u64 = claims.map(|claim| claim.bytes).sum();
            let held = self.inventory.nodes.iter().filter(|node| set.contains(node.id));
            let held: u64 = held.map(|node| node.allocatable(MemoryResource::Memory)).sum();
            assert!(sum <= held, "{sum} on nodes {set}");
        }
    }
}

fn subsets(all: &NodeSet) -> impl Iterator<Item = NodeSet> + '_ {
    (1u32..1 << all.len()).map(|set| {
        all.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, node)| node).collect()
    })
}

fn machine(kind: u8) -> Node {
    match kind {
        0 => Node::new(n4c16(), "[reserved]\ncpus = '750m'"),
        1 => Node::new(c4pmem4(), ""),
        2 => Node::new(n6(), "[reserved]\ncpus = '0'"),
        _ => Node::new(server(), "[reserved]\ncpus = '750m'"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn exclusive_resources_are_disjoint_and_every_container_has_cpus(kind in 0u8..4, steps in steps(40)) {
        let mut node = machine(kind);
        for step in steps {
            node.step(step);
            node.check();
        }
    }

    #[test]
    fn what_was_given_comes_back(kind in 0u8..4, steps in steps(12)) {
        let mut node = machine(kind);
        for step in &steps {
            node.step(*step);
        }
        let names: BTreeSet<PodName> = node.allocations.iter().map(|(h, _)| h.pod().clone()).collect();
        for name in names {
            remove(&mut node.allocations, &name);
        }
        assert_eq!(node.allocations, Allocations::default());
    }

    #[test]
    fn as_many_cpus_as_asked_for(kind in 0u8..4, milli in 1u64..9000) {
        let mut node = machine(kind);
        let pod = Pod::new("p").annotated("prefer-shared-cpus.numa-enforcer.io/pod", "false").guaranteed(milli, MB);
        if node.create(&pod.build()).is_ok() {
            let grant = node.grant("p/c0");
            let shared = grant.shared.as_ref().map_or(0, |shared| shared.milli_cpus);
            prop_assert_eq!(1000 * grant.exclusive.len() as u64 + shared, milli);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn a_thousand_steps_keep_every_invariant(kind in 0u8..3, steps in steps(1000)) {
        let mut node = machine(kind);
        for (number, step) in steps.into_iter().enumerate() {
            node.step(step);
            if number % 10 == 0 {
                node.check();
            }
        }
        node.check();
    }
}
