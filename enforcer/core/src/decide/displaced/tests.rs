//! Containers that are displaced by exclusive ones, turn after turn, with their pages.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    decide::History,
    finding::Severity,
    place::{Announced, ContainerRequest, Containers, Cpuset, Node, PodName, PodRequest, Resources},
    scene::Scene,
    topology::synth::Machine,
    workload::{CgroupPath, QosClass},
};

const MIB: u64 = 1 << 20;

/// A host of two nodes with four CPUs and 16 GiB each, and the containers that a runtime announced.
struct Host {
    scene: Scene,
    containers: Containers,
    allocations: Allocations,
}

impl Host {
    fn new() -> Self {
        let mut scene = Scene::new(Machine::new().sockets(2).threads(1).build());
        scene.policy.placement = toml::from_str("hints.policy = 'best-effort'").unwrap();
        Self { scene, containers: Containers::default(), allocations: Allocations::default() }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Containers, &mut Node<'_>) -> T) -> T {
        let (inventory, settings) = (self.scene.inventory(), &self.scene.policy.placement);
        act(
            &mut self.containers,
            &mut Node { inventory: &inventory, settings, allocations: &mut self.allocations },
        )
    }

    /// Creates a container, which allocates so much where it may.
    fn create(&mut self, id: &str, milli: u64, guaranteed: bool, mebibytes: u64) {
        let requests = Resources {
            milli_cpus: Some(milli).filter(|milli| *milli > 0),
            memory_bytes: Some(mebibytes * MIB).filter(|bytes| *bytes > 0),
            hugepages: BTreeMap::new(),
        };
        let limits = if guaranteed { requests.clone() } else { Resources::default() };
        let qos = if guaranteed { QosClass::Guaranteed } else { QosClass::Burstable };
        let container =
            ContainerRequest { name: "c".into(), requests, limits, ..ContainerRequest::default() };
        let path = format!("/kubepods/{id}");
        let new = Announced {
            id: id.into(),
            cgroup: Some(CgroupPath::new(&path)),
            pod: PodRequest {
                name: PodName::new("shop", id),
                qos,
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                documents: BTreeMap::new(),
                containers: vec![container],
                previous: BTreeMap::new(),
            },
            now: Cpuset::default(),
            shown: None,
            given: None,
            opts_out: false,
        };
        let settled = self.with(|containers, node| containers.create(node, &new));
        let cpus = settled.own.cpus.map_or_else(|| "0-7".to_owned(), |cpus| cpus.to_string());
        let mems = settled.own.mems.map_or_else(|| "0-1".to_owned(), |mems| mems.to_string());
        self.scene = self.scene.clone().workload(&path, &cpus, &mems);
        let first = mems.parse::<NodeSet>().unwrap().first().unwrap().0;
        self.scene = self.scene.clone().memory(&path, &[(first, mebibytes.max(100), 0)]);
    }

    fn end(&mut self, id: &str) {
        self.with(|containers, node| containers.end(node, id));
        let path = CgroupPath::new(&format!("/kubepods/{id}"));
        self.scene.workloads.retain(|one| one.cgroup != path);
        self.scene.now.cgroups.remove(&path);
        self.scene.before.cgroups.remove(&path);
    }

    /// Carries out what the daemon decides, turn after turn, and notes what is left of each node's memory.
    fn turns(&mut self) {
        for _ in 0..4 {
            for (id, node) in &mut self.scene.now.nodes {
                let used =
                    self.scene.now.cgroups.values().filter_map(|cgroup| cgroup.memory_by_node.as_ref());
                let used: u64 = used.filter_map(|bytes| bytes.get(id)).map(|bytes| bytes.anon).sum();
                node.mem_free_bytes = node.mem_total_bytes.map(|total| total.saturating_sub(used));
            }
            let decision =
                self.scene.decide_beside(&self.containers, &History::default(), &mut self.allocations);
            self.scene.carry_out(&decision.plan);
        }
    }

    fn bytes(&self, id: &str) -> String {
        let bytes =
            self.scene.now.cgroups[&CgroupPath::new(&format!("/kubepods/{id}"))].memory_by_node.clone();
        let bytes = bytes.unwrap().into_iter().filter(|(_, bytes)| bytes.anon > 0);
        bytes.map(|(node, bytes)| format!("{node}:{}", bytes.anon / MIB)).collect::<Vec<_>>().join(" ")
    }

    fn worst(&self) -> Option<(Severity, String)> {
        let owners = self.scene.owners(&self.containers);
        let findings = crate::finding::assess(
            &self.scene.inventory(),
            &self.scene.workloads,
            &self.scene.now,
            &self.scene.model(),
            &self.scene.policy,
            &owners,
            &self.scene.declarations(),
        );
        findings.into_iter().map(|one| (one.severity, format!("{}: {}", one.id, one.summary))).max()
    }
}

#[test]
fn pages_follow_a_displaced_container_as_far_as_promises_allow_and_return_with_it() {
    for (beside, follows) in [(1024, true), (15 * 1024, false)] {
        let mut host = Host::new();
        host.create("web", 500, false, 2048);
        host.create("far", 600, true, beside);
        host.turns();
        assert_eq!(host.bytes("web"), "0:2048", "at home");
        host.create("db", 4000, true, 1024);
        host.turns();
        let away = if follows { "1:2048" } else { "0:2048" };
        assert_eq!(host.bytes("web"), away, "beside {beside} MiB");
        assert!(host.worst().is_none_or(|(severity, _)| severity < Severity::Critical), "{:?}", host.worst());
        host.end("db");
        host.turns();
        assert_eq!(host.bytes("web"), "0:2048", "at home again");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_that_the_daemon_placed_is_critical(
        steps in proptest::collection::vec((0u64..9, any::<bool>(), 0u64..6, any::<prop::sample::Index>()), 1..12),
    ) {
        let mut host = Host::new();
        let mut there: Vec<String> = Vec::new();
        for (number, (halves, guaranteed, gib, which)) in steps.into_iter().enumerate() {
            if gib == 5 && !there.is_empty() {
                host.end(&there.remove(which.index(there.len())));
            } else {
                let id = format!("id{number}");
                host.create(&id, halves * 500, guaranteed && halves > 0 && gib > 0, gib * 1024);
                there.push(id);
            }
            host.turns();
            if let Some((severity, finding)) = host.worst() {
                prop_assert!(severity < Severity::Critical, "{finding}");
            }
        }
    }
}
