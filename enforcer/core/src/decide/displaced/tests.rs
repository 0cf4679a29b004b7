//! Containers that are displaced by exclusive ones, turn after turn, with their pages.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::{
    decide::parts::LEAST_PART,
    finding::Severity,
    hosted::{Announced, Containers, Cpuset, PlacementNode},
    plan::{Action, Step},
    sample::NodeBytes,
    scene::Scene,
    turn::History,
    workload::{CgroupPath, QosClass},
};
use numa_placement::{ContainerRequest, PodName, PodRequest, Resources};
use numa_topology::synth::Machine;

const MIB: u64 = 1 << 20;

/// A host of nodes with four CPUs and 16 GiB each, and the containers that a runtime announced.
struct Host {
    scene: Scene,
    containers: Containers,
    allocations: Allocations,
}

impl Host {
    fn of_nodes(nodes: u32) -> Self {
        let mut scene = Scene::new(Machine::new().sockets(nodes).threads(1).build());
        scene.policy.placement = toml::from_str("hints.policy = 'best-effort'").unwrap();
        Self { scene, containers: Containers::default(), allocations: Allocations::default() }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Containers, &mut PlacementNode<'_>) -> T) -> T {
        let (inventory, settings) = (self.scene.inventory(), &self.scene.policy.placement);
        act(
            &mut self.containers,
            &mut PlacementNode { inventory: &inventory, settings, allocations: &mut self.allocations },
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
                undescribed: None,
            },
            now: Cpuset::default(),
            shown: None,
            given: None,
            named_claims: BTreeSet::new(),
            claimed: None,
            opts_out: false,
        };
        let settled = self.with(|containers, node| containers.create(node, &new));
        let cpus = settled.own.cpus.unwrap_or_else(|| self.scene.machine.online_cpus()).to_string();
        let mems = settled.own.mems.unwrap_or_else(|| self.scene.machine.memory_nodes()).to_string();
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

    /// Has a container use so much of its memory, on the first node that it may use.
    fn uses(&mut self, id: &str, mebibytes: u64) {
        let path = format!("/kubepods/{id}");
        let mems = self.scene.now.cgroups[&CgroupPath::new(&path)].mems_effective.clone().unwrap();
        self.scene = self.scene.clone().memory(&path, &[(mems.first().unwrap().0, mebibytes, 0)]);
    }

    /// Containers with a promise of memory that run away from home, by cgroup.
    fn away(&self) -> Vec<(CgroupPath, Grant)> {
        let grants = self.containers.cgroups().filter_map(|(path, holder)| {
            let grant = self.allocations.get(holder)?.clone();
            let is_away = grant.shared.as_ref().is_some_and(|shared| shared.fallback_cpus.is_some());
            (is_away && !grant.memory.is_empty()).then(|| (path.clone(), grant))
        });
        grants.collect()
    }

    /// What is free on a node less what is promised there and not used, and what can be promised there.
    fn room(&self, node: NodeId) -> u64 {
        let used = |path: &CgroupPath| {
            let bytes = self.scene.now.cgroups[path].memory_by_node.clone().unwrap();
            bytes.get(&node).map_or(0, |bytes| bytes.anon)
        };
        let total = self.scene.machine.node(node).unwrap().mem_total_bytes.unwrap();
        let (mut free, mut promised_to_none) = (total, total);
        for (path, holder) in self.containers.cgroups() {
            let grant = self.allocations.get(holder).unwrap();
            let here = grant.memory.iter().filter(|claim| claim.zone.contains(node));
            let promised: u64 = here.map(|claim| claim.bytes).sum();
            free = free.saturating_sub(used(path).max(promised));
            let is_away = grant.shared.as_ref().is_some_and(|shared| shared.fallback_cpus.is_some());
            let takes = if is_away && promised == 0 { used(path) } else { promised };
            promised_to_none = promised_to_none.saturating_sub(takes);
        }
        free.min(promised_to_none)
    }

    /// Has each promise one node?
    fn promises_are_simple(&self) -> bool {
        self.allocations.iter().all(|(_, grant)| grant.memory.iter().all(|claim| claim.zone.len() == 1))
    }

    /// What a container is promised on a node and does not use yet.
    fn open_promise(&self, path: &CgroupPath, grant: &Grant, node: NodeId) -> u64 {
        let here = grant.memory.iter().filter(|claim| claim.zone.contains(node));
        let promised: u64 = here.map(|claim| claim.bytes).sum();
        let held = self.scene.now.cgroups[path].memory_by_node.as_ref().unwrap().get(&node);
        promised.saturating_sub(held.map_or(0, |bytes| bytes.anon))
    }

    /// Bytes that these moves send to each node beyond what is promised there to the containers that they
    /// belong to: pages that return home use a promise, and take no room of others.
    fn sent_beyond_promises(&self, steps: &[Step], away: &[(CgroupPath, Grant)]) -> BTreeMap<NodeId, u64> {
        let (mut sent, mut gone) = (BTreeMap::<(&CgroupPath, NodeId), u64>::new(), BTreeMap::new());
        for step in steps {
            let Action::MovePages { cgroup, from, to, most_bytes } = &step.action else { continue };
            if !away.iter().any(|(path, _)| path == cgroup) {
                continue;
            }
            let bytes = self.scene.now.cgroups[cgroup].memory_by_node.as_ref().unwrap();
            let held: u64 = bytes.iter().filter(|(node, _)| from.contains(**node)).map(|(_, b)| b.anon).sum();
            let gone = gone.entry((cgroup, from)).or_insert(0);
            let goes = most_bytes.unwrap_or(u64::MAX).min(held - *gone);
            *gone += goes;
            *sent.entry((cgroup, *to)).or_default() += goes;
        }
        let mut beyond = BTreeMap::<NodeId, u64>::new();
        for (path, grant) in away {
            for ((_, node), bytes) in sent.iter().filter(|((cgroup, _), _)| *cgroup == path) {
                let open = self.open_promise(path, grant, *node);
                *beyond.entry(*node).or_default() += bytes.saturating_sub(open);
            }
        }
        beyond
    }

    /// Carries out what the daemon decides, turn after turn, and notes what is left of each node's memory.
    /// No node is sent more by containers that are away than it has room for.
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
            if self.promises_are_simple() {
                for (node, bytes) in self.sent_beyond_promises(&decision.plan.steps, &self.away()) {
                    assert!(
                        bytes <= self.room(node),
                        "{bytes} to node {node} with room for {}",
                        self.room(node)
                    );
                }
            }
            self.scene.carry_out(&decision.plan);
        }
    }

    /// A node near the CPUs of a container that still has pages elsewhere, with room for them.
    fn room_unused(&self) -> Option<String> {
        let (taken, machine) = (self.allocations.exclusive_cpus(), &self.scene.machine);
        let least = self.scene.policy.thresholds.min_memory.0;
        self.away().into_iter().find_map(|(path, grant)| {
            let near = machine.near_memory_nodes(&machine.nodes_of(&grant.cpus(&taken)));
            let bytes = self.scene.now.cgroups[&path].memory_by_node.clone().unwrap();
            let far: u64 = bytes.iter().filter(|(node, _)| !near.contains(**node)).map(|(_, b)| b.anon).sum();
            let roomy = near.iter().find(|node| self.room(*node) >= LEAST_PART)?;
            (far >= least).then(|| format!("{path}: {far} bytes stay away from node {roomy}"))
        })
    }

    /// Has all memory of a container be this, on node 0.
    fn holds(&mut self, id: &str, bytes: NodeBytes) {
        let seen = self.scene.now.cgroups.get_mut(&CgroupPath::new(&format!("/kubepods/{id}"))).unwrap();
        seen.memory_by_node = Some([(NodeId(0), bytes)].into());
    }

    fn held(&self, id: &str) -> BTreeMap<NodeId, NodeBytes> {
        let path = CgroupPath::new(&format!("/kubepods/{id}"));
        self.scene.now.cgroups[&path].memory_by_node.clone().unwrap()
    }

    fn bytes(&self, id: &str) -> String {
        let bytes = self.held(id).into_iter().filter(|(_, bytes)| bytes.anon > 0);
        bytes.map(|(node, bytes)| format!("{node}:{}", bytes.anon / MIB)).collect::<Vec<_>>().join(" ")
    }

    fn worst(&self) -> Option<(Severity, String)> {
        let owners = self.scene.owners(&self.containers);
        let findings = crate::finding::assess(crate::finding::Judged {
            inventory: &self.scene.inventory(),
            workloads: &self.scene.workloads,
            sample: &self.scene.now,
            model: &self.scene.model(),
            policy: &self.scene.policy,
            owners: &owners,
            declarations: &self.scene.declarations(),
        });
        findings.into_iter().map(|one| (one.severity, format!("{}: {}", one.id, one.summary))).max()
    }
}

#[test]
fn pages_follow_a_displaced_container_as_far_as_promises_allow_and_return_with_it() {
    for (beside, away) in [(1024, "1:2048"), (15 * 1024, "0:1024 1:1024"), (16 * 1024, "0:2048")] {
        let mut host = Host::of_nodes(2);
        host.create("web", 500, false, 2048);
        host.create("far", 600, true, beside);
        host.turns();
        assert_eq!(host.bytes("web"), "0:2048", "at home");
        host.create("db", 4000, true, 1024);
        host.turns();
        assert_eq!(host.bytes("web"), away, "beside {beside} MiB");
        assert!(host.worst().is_none_or(|(severity, _)| severity < Severity::Critical), "{:?}", host.worst());
        host.end("db");
        host.turns();
        assert_eq!(host.bytes("web"), "0:2048", "at home again");
    }
}

#[test]
fn pages_follow_in_parts_and_to_several_nodes_within_the_room_of_each() {
    for (beside, uses, away) in [
        (10, 10, "1:6144 2:4096"),
        (15, 15, "0:8192 1:1024 2:1024"),
        // What is promised there is not used yet, and stays promised.
        (15, 1, "0:8192 1:1024 2:1024"),
        (9, 1, "1:7168 2:3072"),
    ] {
        let mut host = Host::of_nodes(3);
        host.create("web", 500, false, 10 * 1024);
        for far in ["far1", "far2"] {
            host.create(far, 600, true, beside * 1024);
            host.uses(far, uses * 1024);
        }
        host.turns();
        host.create("db", 4000, true, 1024);
        host.turns();
        assert_eq!(host.bytes("web"), away, "{beside} GiB promised and {uses} used beside");
        assert_eq!(host.room_unused(), None);
        host.end("db");
        host.turns();
        assert_eq!(host.bytes("web"), "0:10240", "at home again");
    }
}

/// As of a database: hardly anything is anonymous, and what its processes share is by far the most.
#[test]
fn container_makes_room_for_a_declared_workload_that_keeps_its_place_and_returns_after_it() {
    let mut host = Host::of_nodes(2);
    host.create("web", 500, false, 0);
    let cpus = |host: &Host| {
        let grant = host.allocations.get(host.containers.holder("web").unwrap()).unwrap();
        grant.cpus(&host.allocations.exclusive_cpus()).to_string()
    };
    assert_eq!(cpus(&host), "0-3");
    let scene = host.scene.clone().workload("/db", "0-3", "0").memory("/db", &[(0, 100, 0)]);
    host.scene = scene.declared("/db", 4, None);
    host.turns();
    assert_eq!((host.allocations.exclusive_cpus().to_string(), cpus(&host)), ("0-3".into(), "4-7".into()));
    host.scene.workloads.retain(|one| one.cgroup != CgroupPath::new("/db"));
    host.turns();
    assert_eq!(cpus(&host), "0-3");
}

#[test]
fn shared_memory_follows_a_displaced_container_and_page_cache_does_not() {
    const FILE: u64 = 8 * 1024 * MIB;
    for (shared, mapped, node) in [
        (true, Some(FILE), 1),
        // Files of tmpfs that no process maps.
        (true, Some(0), 0),
        (true, None, 1),
        (false, Some(0), 0),
        (false, None, 0),
    ] {
        let mut host = Host::of_nodes(2);
        host.create("web", 500, false, 10 * 1024);
        host.create("far", 600, true, 1024);
        host.holds(
            "web",
            NodeBytes {
                anon: 10 * MIB,
                file: FILE,
                shmem: Some(if shared { FILE } else { 0 }),
                file_mapped: mapped,
                kernel: None,
            },
        );
        host.create("db", 4000, true, 1024);
        host.turns();
        let held = host.held("web");
        let most = held.iter().max_by_key(|(_, bytes)| bytes.file).unwrap();
        assert_eq!((most.0.0, most.1.file), (node, FILE), "shared: {shared}, mapped: {mapped:?}");
        let worst = host.worst();
        assert!(node == 0 || worst.as_ref().is_none_or(|(worst, _)| *worst < Severity::Warning), "{worst:?}");
    }
}

#[test]
fn files_of_tmpfs_that_no_process_maps_take_no_room_and_begin_no_move() {
    for (mapped, web) in [(false, "1:4096"), (true, "0:1024 1:3072")] {
        let mut host = Host::of_nodes(2);
        host.create("cache", 500, false, 5 * 1024);
        host.create("far", 1500, true, 8 * 1024);
        host.create("web", 500, false, 4 * 1024);
        let file = 5 * 1024 * MIB;
        let file_mapped = Some(if mapped { file } else { 0 });
        host.holds("cache", NodeBytes { file, shmem: Some(file), file_mapped, ..NodeBytes::default() });
        host.create("db", 4000, true, 1024);
        // What it may still be sent to its CPUs is 8 GiB, in all turns together.
        host.turns();
        assert_eq!(host.bytes("web"), web, "mapped: {mapped}");
        let on_far = host.held("cache").get(&NodeId(1)).map_or(0, |bytes| bytes.file);
        assert_eq!(on_far, if mapped { file } else { 0 });
        let decision =
            host.scene.decide_beside(&host.containers, &History::default(), &mut host.allocations.clone());
        assert!(decision.in_place.contains(&CgroupPath::new("/kubepods/cache")), "{:?}", decision.plan.steps);
    }
}

#[test]
fn room_is_asked_for_mapped_page_cache_that_comes_along() {
    const GIB: u64 = 1024 * MIB;
    // Where it is not told what is mapped, all of it may be.
    for (file_mapped, most_bytes) in
        [(Some(0), None), (Some(2 * GIB), None), (Some(6 * GIB), Some(4 * GIB)), (None, Some(4 * GIB))]
    {
        let mut host = Host::of_nodes(2);
        host.create("web", 500, false, 2 * 1024);
        host.create("far", 600, true, 12 * 1024);
        let (anon, file) = (2 * GIB, 6 * GIB);
        host.holds("web", NodeBytes { anon, file, shmem: Some(0), file_mapped, kernel: None });
        host.create("db", 4000, true, 1024);
        let decision =
            host.scene.decide_beside(&host.containers, &History::default(), &mut host.allocations.clone());
        let moves = decision.plan.steps.iter().filter_map(|step| match &step.action {
            Action::MovePages { most_bytes, .. } => Some(*most_bytes),
            _ => None,
        });
        assert_eq!(moves.collect::<Vec<_>>(), [most_bytes], "{file_mapped:?}");
    }
}

#[test]
fn huge_pages_in_use_keep_no_promise_of_ordinary_memory() {
    for (huge, away) in [(false, "1:6144"), (true, "0:5120 1:1024")] {
        let mut host = Host::of_nodes(2);
        host.create("web", 500, false, 6 * 1024);
        host.create("far", 600, true, 10 * 1024);
        // What it uses is all that it was promised, or huge pages beside that.
        host.uses("far", 10 * 1024);
        if huge {
            let file = "hugetlb.2MB.numa_stat".to_owned();
            let seen = host.scene.now.cgroups.get_mut(&CgroupPath::new("/kubepods/far")).unwrap();
            seen.hugetlb_by_file = [(file, [(NodeId(1), 5 * 1024 * MIB)].into())].into();
        }
        host.create("db", 4000, true, 1024);
        host.turns();
        assert_eq!(host.bytes("web"), away, "huge: {huge}");
    }
}

/// The pages follow to node 2, whose CPUs become exclusive next: they leave for the CPUs on node 0 as far as
/// there is room, and return to the promise at home for the rest.
#[test]
fn pages_that_leave_a_second_time_use_room_near_the_cpus_and_then_the_promise_at_home() {
    for (beside, web) in [(11, "0:2304"), (12, "0:2048 1:256"), (14, "1:2304")] {
        let mut host = Host::of_nodes(3);
        for (id, milli, guaranteed, gib, uses) in [
            ("near0", 2500, false, 2, 512),
            ("web", 0, false, 9, 2304),
            ("near2", 2000, false, 0, 0),
            ("db1", 4000, true, 5, 3840),
            ("beside2", 500, true, 4, 4096),
            ("beside0", 1500, true, beside, 8448),
        ] {
            host.create(id, milli, guaranteed, gib * 1024);
            host.uses(id, uses);
            host.turns();
        }
        assert_eq!(host.bytes("web"), "2:2304", "away from node 1, which db1 has");
        host.create("db2", 4000, true, 8 * 1024);
        host.uses("db2", 8192);
        host.turns();
        assert_eq!(host.bytes("web"), web, "{beside} GiB promised on node 0");
    }
}

/// Each of them alone has room near its CPUs.
#[test]
fn pages_that_leave_and_pages_that_follow_share_the_room_of_a_node() {
    let mut host = Host::of_nodes(3);
    for (id, milli, guaranteed, gib, uses) in [
        ("idle", 0, false, 1, 256),
        ("web", 500, false, 10, 2560),
        ("cache", 0, false, 6, 6144),
        ("db1", 4000, true, 3, 3072),
        ("db2", 4000, true, 1, 256),
    ] {
        host.create(id, milli, guaranteed, gib * 1024);
        host.uses(id, uses);
        host.turns();
    }
    assert_eq!(["idle", "web", "cache"].map(|id| host.bytes(id)), ["1:256", "1:2560", "1:5888 2:256"]);
}

/// Two nodes can keep two promises together, and neither of them alone.
#[test]
fn what_several_promises_may_take_of_a_node_is_no_room() {
    for (promises, room) in [
        (&[][..], [10, 10]),
        (&[("0-1", 10)], [10, 10]),
        (&[("0-1", 10), ("0-1", 10)], [0, 0]),
        (&[("0-1", 10), ("0-1", 5)], [5, 5]),
        (&[("0", 4), ("0-1", 10)], [6, 6]),
    ] {
        let claims = promises.iter().map(|(zone, gib)| claim(zone.parse().unwrap(), *gib));
        let found = room_beside(&claims.collect::<Vec<_>>(), &[10, 10]);
        assert_eq!([0, 1].map(|node| found.on(NodeId(node)) >> 30), room, "{promises:?}");
    }
}

fn claim(zone: NodeSet, gib: u64) -> MemoryClaim {
    MemoryClaim { resource: MemoryResource::Memory, zone, bytes: gib << 30, by_node: BTreeMap::new() }
}

/// Beside open promises on nodes that have so many GiB left, where nothing else keeps anything from being
/// promised.
fn room_beside(open: &[MemoryClaim], gib: &[u64]) -> Room {
    let nodes = u32::try_from(gib.len()).unwrap();
    let inventory = Scene::new(Machine::new().sockets(nodes).threads(1).build()).inventory();
    let left = (0..).map(NodeId).zip(gib.iter().map(|gib| gib << 30)).collect();
    let open = [(Holder::cgroup(&CgroupPath::new("/all")), open.to_vec())].into();
    Room::beside(&inventory, ZoneAccount::of_claims(&inventory, []), open, left)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// By brute force: what is promised inside of each set of nodes must fit there.
    #[test]
    fn all_open_promises_can_be_kept_at_once_after_guests_took_their_room(
        gib in proptest::collection::vec(0u64..13, 1..4),
        promises in proptest::collection::vec((1u32..8, 0u64..9), 0..5),
        takes in proptest::collection::vec((0u32..3, 0u64..13), 1..6),
    ) {
        let nodes = u32::try_from(gib.len()).unwrap();
        let zone = |mask: u32| (0..nodes).filter(|node| mask >> node & 1 == 1).map(NodeId).collect::<NodeSet>();
        let all = (1 << nodes) - 1;
        let promises: Vec<_> =
            promises.into_iter().map(|(mask, gib)| (mask & all, gib)).filter(|(mask, _)| *mask > 0).collect();
        let mut left = gib.clone();
        // What a set of nodes has beside the promises that no other node can keep.
        let slack = |left: &[u64], set: u32| {
            let has: u64 = (0..nodes).filter(|node| set >> node & 1 == 1).map(|node| left[node as usize]).sum();
            let promised: u64 = promises.iter().filter(|(mask, _)| mask & !set == 0).map(|(_, gib)| gib).sum();
            has.checked_sub(promised)
        };
        prop_assume!((1..=all).all(|set| slack(&left, set).is_some()));
        let claims: Vec<_> = promises.iter().map(|(mask, gib)| claim(zone(*mask), *gib)).collect();
        let mut room = room_beside(&claims, &gib);
        for (node, most) in takes {
            let node = node % nodes;
            let expected = (1..=all).filter(|set| set >> node & 1 == 1).filter_map(|set| slack(&left, set)).min();
            prop_assert_eq!(Some(room.on(NodeId(node)) >> 30), expected);
            let takes = most.min(expected.unwrap_or(0));
            room.take(NodeId(node), takes << 30);
            left[node as usize] -= takes;
            prop_assert!((1..=all).all(|set| slack(&left, set).is_some()), "a promise cannot be kept");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pages_of_displaced_containers_use_the_room_near_their_cpus_and_no_more(
        steps in proptest::collection::vec(
            (0u64..9, any::<bool>(), 0u64..14, any::<prop::sample::Index>(), 1u64..5),
            1..12,
        ),
    ) {
        let mut host = Host::of_nodes(3);
        let mut there: Vec<String> = Vec::new();
        for (number, (halves, guaranteed, gib, which, used)) in steps.into_iter().enumerate() {
            if gib == 13 && !there.is_empty() {
                host.end(&there.remove(which.index(there.len())));
            } else {
                let id = format!("id{number}");
                host.create(&id, halves * 500, guaranteed && halves > 0 && gib > 0, gib * 1024);
                host.uses(&id, gib * 256 * used);
                there.push(id);
            }
            host.turns();
            if host.promises_are_simple() {
                prop_assert_eq!(host.room_unused(), None);
            }
        }
    }

    #[test]
    fn nothing_that_the_daemon_placed_is_critical(
        steps in proptest::collection::vec((0u64..9, any::<bool>(), 0u64..6, any::<prop::sample::Index>()), 1..12),
    ) {
        let mut host = Host::of_nodes(2);
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
