//! Advice that sends pages to several nodes: each goes to a node with room, because the kernel gives the
//! pages of a node one target and tries no other.

use super::{
    remedy_tests::{carried_out, mems, with_available, worst},
    *,
};
use crate::{
    sample::{CgroupSample, NodeBytes},
    scene::Scene,
    workload::{Origin, Workload},
};
use numa_topology::{MemoryKind, id::NodeId, synth::Machine};

/// CPUs 0-3 on node 0 and 4-7 on node 1; memory-only nodes 2 and 3 are beside node 0. Nodes 0, 2 and 3
/// can give so many MiB, node 1 nothing. CPUs 4-7 are those of /other.
fn beside(free: [u64; 3]) -> Scene {
    let slow = |machine: Machine, node| machine.memory_only(NodeId(node), 64, MemoryKind::Cxl, NodeId(0));
    let machine = slow(slow(Machine::new().sockets(2).threads(1), 2), 3).build();
    let scene = [(0, free[0]), (1, 0), (2, free[1]), (3, free[2])]
        .into_iter()
        .fold(Scene::new(machine), |scene, (node, mebibytes)| with_available(scene, node, mebibytes));
    scene.workload("/other", "4-7", "1")
}

/// What has each process of a cgroup bring its pages.
fn swept(path: &str, from: &str, to: &str) -> String {
    format!(
        "find /sys/fs/cgroup{path} -name cgroup.procs -exec cat {{}} + | xargs -rI{{}} sh -c 'migratepages {{}} {from} {to} || true'"
    )
}

#[test]
fn pages_are_sent_to_the_node_beside_the_cpus_that_has_room_for_them() {
    for (free, now, expected) in [
        // By its position the kernel sends node 1 to node 0, which has no room; a larger set before it sends
        // it to node 2, which has enough room.
        ([3000, 20_000, 0], "1", vec![mems("/db", "0-2"), mems("/db", "0,2")]),
        // Node 0 has room: the write alone.
        ([20_000, 3000, 3000], "1", vec![mems("/db", "0")]),
        // No set sends it to node 3.
        ([3000, 3000, 20_000], "1", vec![swept("/db", "1", "3"), mems("/db", "0,2-3")]),
        // Two of the nodes have room for all of it together, and none of these for what one node holds.
        ([7000, 7000, 13_000], "1", vec![]),
        // Its memory nodes are right, and its pages stayed behind.
        ([3000, 3000, 20_000], "0,2-3", vec![]),
        ([3000, 12_000, 3000], "0,2-3", vec![]),
    ] {
        let scene = beside(free).workload("/db", "0-3", now).memory("/db", &[(1, 12_000, 0)]);
        let finding = worst(&scene, "/db");
        if !expected.is_empty() {
            assert_eq!(finding.remedy, Some(expected.join(" && ")));
        }
        let after = carried_out(&scene, &finding);
        let left = after.findings().into_iter().filter(|one| one.object.as_str() == "/db");
        assert_eq!(left.collect::<Vec<_>>(), [], "{finding:?}");
    }
}

#[test]
fn pages_that_no_write_sends_to_the_node_with_room_are_brought_by_their_processes() {
    // CPUs 4-7 are on node 1, which is nearly full, and node 2 beside it has room. Whatever is written
    // before, the kernel sends node 0 to node 1.
    let machine = Machine::new().sockets(2).threads(1).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1));
    let scene = with_available(with_available(Scene::new(machine.build()), 0, 0), 1, 3000);
    let scene = with_available(scene, 2, 20_000).workload("/other", "0-3", "0");
    let scene = scene.workload("/db", "4-7", "0").memory("/db", &[(0, 12_000, 0)]);
    let finding = worst(&scene, "/db");
    assert_eq!(finding.remedy, Some(format!("{} && {}", swept("/db", "0", "2"), mems("/db", "1-2"))));
    let after = carried_out(&scene, &finding);
    assert!(after.findings().iter().all(|one| one.object.as_str() != "/db"));
    let (_, writes) = scene.findings_and_writes();
    assert_eq!(writes[&CgroupPath::new("/db")].moves, [("0".parse().unwrap(), NodeId(2))]);
}

#[test]
fn pages_that_no_node_beside_the_cpus_can_take_whole_are_an_obstacle_that_names_the_nodes() {
    // 12 GiB would fit on the nodes together, and on none of them.
    let scene = beside([5000, 8000, 4000]).workload("/db", "0-3", "1").memory("/db", &[(1, 12_000, 0)]);
    let finding = worst(&scene, "/db");
    assert_eq!(finding.remedy, None, "{finding:?}");
    let obstacle = finding.obstacle.unwrap();
    for part in ["nodes 0,2-3", "the pages of a node go to one other node", "node 2 can give 8000 MiB"] {
        assert!(obstacle.contains(part), "{part}: {obstacle}");
    }
    // What comes from several nodes goes to several.
    let scene = beside([2000, 8000, 4000]).workload("/db", "0-3", "0-3");
    let scene = with_available(scene, 1, 0).memory("/db", &[(1, 7000, 0), (0, 500, 0)]);
    let finding = worst(&scene, "/db");
    let after = carried_out(&scene, &finding);
    assert!(after.findings().iter().all(|one| one.object.as_str() != "/db"), "{finding:?}");
}

#[test]
fn a_later_remedy_reckons_with_the_one_node_that_pages_of_an_earlier_one_go_to() {
    // Each needs one of nodes 2 and 3 for itself.
    let scene = beside([100, 10_000, 10_000]).workload("/a", "0-1", "1").workload("/b", "2-3", "1");
    let scene = scene.memory("/a", &[(1, 9000, 0)]).memory("/b", &[(1, 9000, 0)]);
    let after =
        ["/a", "/b"].iter().fold(scene.clone(), |after, path| carried_out(&after, &worst(&scene, path)));
    let far =
        |path: &str| after.now.cgroups[&CgroupPath::new(path)].memory_by_node.as_ref().unwrap()[&NodeId(1)];
    assert_eq!((far("/a").anon, far("/b").anon), (0, 0), "{:?}", scene.findings());
}

#[test]
fn too_little_for_a_finding_keeps_no_remedy_away() {
    // Node 1 is full, and what /a has of node 0 is less than is judged: that it may use node 1 costs nothing.
    let scene = with_available(Scene::new(Machine::new().sockets(2).threads(1).build()), 1, 0);
    let scene = scene.workload("/pinned", "6", "1").workload("/other", "0-3", "0");
    let scene = scene.workload("/a", "4-5", "0").memory("/a", &[(0, 1, 0)]);
    assert_eq!(worst(&scene, "/a").remedy, Some(mems("/a", "1")));
    // The control: with more there is no room for it.
    let full = worst(&scene.memory("/a", &[(0, 600, 0)]), "/a");
    assert_eq!(full.remedy, None);
    let obstacle = full.obstacle.unwrap();
    assert!(!obstacle.contains("/pinned"), "its CPU is in the way of nothing: {obstacle}");
    assert_eq!(obstacle.matches("/other").count(), 1, "{obstacle}");
}

#[test]
fn cgroup_below_with_memory_nodes_of_its_own_is_named() {
    // By its own position the kernel sends pages of /db/w to node 0, which has no room; those of /db go to 2.
    let scene = beside([3000, 20_000, 0]).workload("/db", "0-3", "0-1").memory("/db", &[(1, 12_000, 0)]);
    let below = |own: &str, in_force: &str| {
        let mut scene = scene.clone();
        let seen = CgroupSample {
            mems: own.parse().ok(),
            mems_effective: in_force.parse().ok(),
            ..CgroupSample::default()
        };
        scene.now.cgroups.insert(CgroupPath::new("/db/w"), seen);
        worst(&scene, "/db")
    };
    let finding = below("1", "1");
    assert_eq!(finding.remedy, None);
    let obstacle = finding.obstacle.unwrap();
    assert!(obstacle.contains("/db/w below it has memory nodes 1 of its own"), "{obstacle}");
    // The controls: it has those of /db, or keeps what it has.
    assert_eq!(below("", "0-1").remedy, Some(mems("/db", "0,2")));
    assert_eq!(below("0", "0").remedy, Some(mems("/db", "0,2")));
}

#[test]
fn process_that_is_beside_its_memory_has_nothing_to_carry_out() {
    for (held, has_remedy) in [(0, false), (1, true)] {
        let mut scene = Scene::new(Machine::new().sockets(2).threads(1).build());
        let cgroup = CgroupSample {
            cpus_effective: "0-3".parse().ok(),
            mems_effective: "0-1".parse().ok(),
            ..CgroupSample::default()
        };
        scene.now.cgroups.insert(CgroupPath::new("/x"), cgroup.clone());
        scene.before.cgroups.insert(CgroupPath::new("/x"), cgroup);
        scene = scene.thread("/x", 77, "0-3", 1, (0, 9000));
        scene.workloads.push(Workload {
            cgroup: CgroupPath::new("/x"),
            cgroup_id: None,
            name: "worker".into(),
            origin: Origin::Process { pid: 77, command: "worker".into() },
        });
        let bytes = NodeBytes { anon: 1 << 30, ..NodeBytes::default() };
        scene.now.memory_by_process.entry(77).or_default().insert(NodeId(held), bytes);
        let remedies: Vec<_> = scene.findings().into_iter().filter_map(|one| one.remedy).collect();
        assert!(remedies.iter().all(|remedy| !remedy.is_empty()), "{remedies:?}");
        assert_eq!(!remedies.is_empty(), has_remedy, "on node {held}: {remedies:?}");
    }
}

#[test]
fn pages_that_are_right_already_stay() {
    // Sets of one size that overlap: the kernel sends node 1 to node 2, and node 0 to node 1.
    let machine = Machine::new().sockets(2).threads(1).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1));
    let scene = with_available(with_available(Scene::new(machine.build()), 0, 0), 1, 3000);
    let scene = with_available(scene, 2, 12_000).workload("/other", "0-3", "0");
    let scene = scene.workload("/db", "4-7", "0-1").memory("/db", &[(0, 5000, 0), (1, 5000, 0)]);
    let finding = worst(&scene, "/db");
    let after = carried_out(&scene, &finding);
    let held = after.now.cgroups[&CgroupPath::new("/db")].memory_by_node.as_ref().unwrap();
    let held = [0, 1, 2].map(|node| held.get(&NodeId(node)).map_or(0, |bytes| bytes.anon >> 20));
    assert_eq!(held, [0, 5000, 5000], "{finding:?}");
}

/// Memory of /db, all of it on node 1.
fn holding(scene: Scene, bytes: NodeBytes) -> Scene {
    let mut scene = scene.workload("/db", "0-3", "0-1");
    scene.now_mut("/db").memory_by_node = Some([(NodeId(1), bytes)].into());
    scene
}

#[test]
fn no_command_is_advised_for_files_that_no_process_maps() {
    let file = 8000 << 20;
    let shared = |mapped| {
        let bytes = NodeBytes { file, shmem: Some(file), file_mapped: Some(mapped), ..NodeBytes::default() };
        worst(&holding(beside([20_000, 0, 0]), bytes), "/db")
    };
    let left = shared(0);
    let remedy = left.remedy.as_deref().unwrap_or_default();
    assert!(!remedy.contains("cpuset.mems"), "{left:?}");
    let obstacle = left.obstacle.unwrap();
    assert!(obstacle.contains("8000 MiB of it are files of tmpfs that no process maps"), "{obstacle}");
    // The control: the same, mapped.
    assert_eq!(shared(file).remedy, Some(mems("/db", "0")));
}

#[test]
fn room_is_asked_for_mapped_page_cache() {
    let with = |free, file_mapped| {
        let (anon, file) = (20_000 << 20, 2000 << 20);
        let bytes = NodeBytes { anon, file, shmem: Some(0), file_mapped, kernel: None };
        worst(&holding(beside([free, 0, 0]), bytes), "/db")
    };
    let all = Some(2000 << 20);
    for (free, mapped, is_advised) in [
        (23_000, all, true),
        (21_000, all, false),
        (21_000, Some(0), true),
        // Where it is not told what is mapped, all of it may be.
        (23_000, None, true),
        (21_000, None, false),
    ] {
        let found = with(free, mapped);
        assert_eq!(found.remedy.is_some(), is_advised, "{free} {mapped:?}: {found:?}");
    }
}

#[test]
fn a_node_of_which_nothing_is_known_has_no_room_in_advice() {
    let mut scene = beside([3000, 0, 3000]).workload("/db", "0-3", "1").memory("/db", &[(1, 12_000, 0)]);
    scene.now.nodes.remove(&NodeId(2));
    let finding = worst(&scene, "/db");
    assert_eq!(finding.remedy, None);
    let obstacle = finding.obstacle.unwrap();
    assert!(obstacle.contains("node 2 can give an unknown amount"), "{obstacle}");
}
