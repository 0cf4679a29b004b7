//! Advice equals action: what a finding advises could be carried out, and the daemon would do the same.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{page_migration::NodePages, sample::CgroupSample, scene::Scene};
use numa_topology::{MemoryKind, id::NodeId, set::NodeSet, synth::Machine};

const MIB: u64 = 1 << 20;

/// CPUs 0-3 on node 0, 4-7 on node 1, each with 16 GiB.
fn two() -> Scene {
    Scene::new(Machine::new().sockets(2).threads(1).build())
}

/// Nodes 0 and 1 with two cores of two threads each: 0,4 1,5 and 2,6 3,7.
fn threaded() -> Scene {
    Scene::new("sockets:2 cores:2 threads:2".parse::<Machine>().unwrap().build())
}

pub(super) fn with_available(mut scene: Scene, node: u32, mebibytes: u64) -> Scene {
    let node = scene.now.nodes.get_mut(&NodeId(node)).unwrap();
    node.mem_free_bytes = Some(mebibytes * MIB);
    scene
}

/// A cgroup that is no workload, with these sets in force.
fn above(mut scene: Scene, path: &str, cpus: &str, mems: &str) -> Scene {
    let cgroup = CgroupSample {
        cpus_effective: cpus.parse().ok(),
        mems_effective: mems.parse().ok(),
        ..CgroupSample::default()
    };
    scene.now.cgroups.insert(CgroupPath::new(path), cgroup);
    scene
}

/// The worst finding about a cgroup.
pub(super) fn worst(scene: &Scene, path: &str) -> Finding {
    let mut findings = scene.findings();
    findings.retain(|finding| finding.object.as_str() == path);
    assert!(!findings.is_empty(), "nothing about {path}");
    findings.swap_remove(0)
}

pub(super) fn mems(path: &str, nodes: &str) -> String {
    format!("echo {nodes} > /sys/fs/cgroup{path}/cpuset.mems")
}

#[test]
fn cpus_that_are_right_already_are_left() {
    // The CPUs of two cores of node 0, whatever their numbers are.
    let machine = threaded().machine;
    let first: Vec<_> = machine.nodes[0].cpus.iter().collect();
    let two_cores =
        machine.cpus.iter().filter(|cpu| first.contains(&cpu.id) && cpu.siblings.first() == Some(cpu.id));
    let cpus = two_cores.map(|cpu| cpu.id).collect::<numa_topology::set::CpuSet>().to_string();
    let scene = threaded().workload("/a", &cpus, "0-1").memory("/a", &[(0, 100, 0)]);
    let finding = worst(&scene, "/a");
    assert_eq!(finding.remedy, Some(mems("/a", "0")), "CPUs {cpus}");
}

#[test]
fn cpus_stay_where_no_memory_is_known_to_be_far() {
    // On CPUs of node 1, with its memory there, with none yet, and with memory that is not known.
    let on = |cpus: &str| two().workload("/a", cpus, "0-1");
    let scenes = [on("4-7").memory("/a", &[(1, 100, 0)]), on("6-7").memory("/a", &[]), on("4-7")];
    for (at, scene) in scenes.iter().enumerate() {
        for finding in scene.findings() {
            let remedy = finding.remedy.unwrap_or_else(|| mems("/a", "1"));
            assert_eq!(remedy, mems("/a", "1"), "{at}: {}", finding.rule);
        }
    }
    // Its memory is far: the CPUs go to it.
    let finding = worst(&on("4-5").memory("/a", &[(0, 4096, 0)]), "/a");
    assert!(finding.remedy.unwrap().contains("echo 0 > "));
}

#[test]
fn a_remedy_stays_within_the_cgroups_above() {
    // The cgroup above leaves it CPUs of node 0 alone: its memory has to come.
    let scene = above(two(), "/box", "0-1", "0-1").workload("/box/db", "0-1", "0-1");
    let finding = worst(&scene.memory("/box/db", &[(1, 256, 0)]), "/box/db");
    assert_eq!((finding.severity, finding.remedy), (Severity::Critical, Some(mems("/box/db", "0"))));

    // The one above leaves it no memory there either: that one has to be changed.
    let scene = above(two(), "/box", "0-1", "1").workload("/box/db", "0-1", "1");
    let finding = worst(&scene.memory("/box/db", &[(1, 256, 0)]), "/box/db");
    assert_eq!(finding.remedy, None);
    let obstacle = finding.obstacle.unwrap();
    assert!(obstacle.contains("/box") && obstacle.contains("memory"), "{obstacle}");
}

/// What has each process of a cgroup bring its pages from node 1 to node 0.
fn swept(path: &str) -> String {
    format!(
        "find /sys/fs/cgroup{path} -name cgroup.procs -exec cat {{}} + | xargs -rI{{}} sh -c 'migratepages {{}} 1 0 || true'"
    )
}

#[test]
fn pages_that_no_write_moves_are_brought_by_their_processes() {
    let narrow = || {
        let scene = above(two(), "/box", "0-7", "0").workload("/box/db", "0-1", "0");
        Box::new(scene.memory("/box/db", &[(1, 8192, 0)]))
    };
    let older = |mut scene: Box<Scene>| {
        scene.now.settings.cpuset_moves_pages = Some(false);
        scene
    };
    let wide = |mems: &str| {
        let scene = two().workload("/other", "4-7", "1").workload("/a", "0-1", mems);
        Box::new(scene.memory("/a", &[(1, 8192, 0)]))
    };
    let v1 = |mut scene: Box<Scene>| {
        scene.now.cpuset_v1 = true;
        scene
    };
    let migrate = "echo 1 > /sys/fs/cgroup/a/cpuset.memory_migrate";
    let (set, allow) = (mems("/a", "0"), mems("/a", "0-1"));
    for (scene, path, remedy) in [
        // A cgroup above has no other node, so that allowing one changes nothing on v2 and is refused on v1.
        (narrow(), "/box/db", swept("/box/db")),
        (v1(narrow()), "/box/db", swept("/box/db")),
        (older(narrow()), "/box/db", swept("/box/db")),
        (wide("0"), "/a", format!("{allow} && {set}")),
        (v1(wide("0")), "/a", format!("{migrate} && {allow} && {migrate} && {set}")),
        (wide("1"), "/a", set.clone()),
        // Linux before 5.15 leaves pages where they are.
        (older(wide("0")), "/a", swept("/a")),
        (older(wide("1")), "/a", format!("{set} && {}", swept("/a"))),
    ] {
        assert_eq!(worst(&scene, path).remedy, Some(remedy), "{path}");
    }
    let (_, writes) = narrow().findings_and_writes();
    let writes = &writes[&CgroupPath::new("/box/db")];
    assert_eq!((&writes.mems[..], &writes.moves[..]), (&[][..], &[("1".parse().unwrap(), NodeId(0))][..]));
}

#[test]
fn cpus_without_memory_near_them_because_of_a_cgroup_above_name_it() {
    // /box has CPUs of both nodes and memory of node 1; some pages are on node 0 from before, near CPUs 2-3.
    let scene = above(two(), "/box", "0-5", "1").workload("/box/a", "2-4", "1");
    for held in [&[][..], &[(0, 100, 0)], &[(0, 100, 0), (1, 300, 0)]] {
        let finding = worst(&scene.clone().memory("/box/a", held), "/box/a");
        assert_eq!((finding.rule, &finding.remedy), (Rule::CpusetMismatch, &None), "{held:?}");
        assert!(finding.obstacle.as_ref().unwrap().contains("/box above it allows only"), "{finding:?}");
    }
}

#[test]
fn a_cgroup_of_v1_keeps_what_those_below_it_have() {
    let scene = |below: &str| {
        let mut scene = two().workload("/other", "4-7", "1").workload("/a", "0-1", "0-1");
        scene = above(scene.memory("/a", &[(1, 8192, 0)]), "/a/below", "0", below);
        scene.now.cpuset_v1 = true;
        worst(&scene, "/a")
    };
    assert!(scene("0").remedy.unwrap().ends_with(&mems("/a", "0")));
    let held = scene("0-1");
    let says = "/a/below below it has memory nodes 0-1 in cpuset.mems, which cgroup v1 keeps for it: change that first";
    assert_eq!((held.remedy, held.obstacle.as_deref()), (None, Some(says)));
}

#[test]
fn pages_on_a_node_that_was_not_allowed_before_a_write_are_not_left_behind() {
    // Allowed are nodes 1 and 2; pages are on node 3 from before.
    let machine = Machine::new().sockets(4).threads(1).build();
    let scene = |above_mems: &str| {
        let scene = above(Scene::new(machine.clone()), "/box", "0-15", above_mems);
        let scene = scene.workload("/other", "0-3,8-15", "0,2-3").workload("/box/a", "4-7", "1-2");
        scene.memory("/box/a", &[(1, 10, 0), (3, 4096, 0)])
    };
    let remedy = worst(&scene("0-3"), "/box/a").remedy;
    let all = format!("{} && {}", mems("/box/a", "1-3"), mems("/box/a", "1"));
    assert_eq!(remedy, Some(all));
    let remedy = worst(&scene("1-2"), "/box/a").remedy;
    let sweep = swept("/box/a").replace("{} 1 0", "{} 3 1");
    assert_eq!(remedy, Some(format!("{} && {sweep}", mems("/box/a", "1"))));
}

#[test]
fn a_node_that_is_full_or_of_others_is_not_advised() {
    let scene = |free: u64| {
        let scene = with_available(two(), 1, free).workload("/other", "4-7", "1");
        scene.workload("/a", "2-4", "0-1").memory("/a", &[(0, 600, 0), (1, 300, 0)])
    };
    for free in [100, 16_000] {
        let finding = worst(&scene(free), "/a");
        let remedy = finding.remedy.unwrap();
        assert!(remedy.contains("echo 0 > "), "node 1 belongs to /other: {remedy}");
        assert!(!finding.impact.contains("node 1 alone"), "{}", finding.impact);
    }
    // Node 0 is full as well, so that nothing can be advised.
    let full = with_available(scene(100), 0, 100).memory("/a", &[(0, 100, 0), (1, 1000, 0)]);
    let full = full.workload("/b", "0-1", "1").memory("/b", &[(1, 4096, 0)]);
    let finding = worst(&full, "/b");
    assert_eq!(finding.remedy, None);
    assert!(finding.severity < Severity::Critical);
    assert!(finding.obstacle.as_ref().unwrap().contains("0.09 GiB of 4 GiB memory on node 0"), "{finding:?}");
}

#[test]
fn shared_memory_leaves_no_room_and_page_cache_does() {
    let with_cache = |file_lists: u64| {
        let mut scene =
            with_available(two(), 0, 100).workload("/a", "0-3", "1").memory("/a", &[(1, 1024, 0)]);
        scene = scene.workload("/b", "4-7", "1");
        let node = scene.now.nodes.get_mut(&NodeId(0)).unwrap();
        // FilePages counts tmpfs, the lists of files do not.
        (node.file_bytes, node.lru_file_bytes) = (Some(8 << 30), Some(file_lists));
        worst(&scene, "/a")
    };
    assert_eq!(with_cache(8 << 30).remedy, Some(mems("/a", "0")));
    let full = with_cache(0);
    assert!(full.remedy.is_none() && full.severity == Severity::Warning, "{full:?}");
}

fn remedies(scene: &Scene) -> Vec<String> {
    let mut findings = scene.findings();
    findings.sort_by(|one, other| one.object.cmp(&other.object));
    let mut remedies: Vec<String> = findings.into_iter().filter_map(|finding| finding.remedy).collect();
    remedies.dedup();
    remedies
}

#[test]
fn remedies_of_one_audit_take_nothing_from_each_other() {
    let cpus = |path: &str, cpus: &str| format!("echo {cpus} > /sys/fs/cgroup{path}/cpuset.cpus");
    let with = |a: &str, b: &str, bytes: &[(u32, u64, u64)]| {
        let scene = two().workload("/a", a, "0-1").memory("/a", bytes);
        scene.workload("/b", b, "0-1").memory("/b", bytes)
    };
    // Both are to go to node 1, where their memory is.
    let scene = with_available(with("0-1", "2-3", &[(1, 8 << 10, 0)]), 0, 4096);
    let found = remedies(&scene).join("; ");
    assert!(found.contains(&cpus("/a", "4-5")) && found.contains(&cpus("/b", "6-7")), "{found}");
    // Each spans both nodes.
    let found = remedies(&with("0,4", "1,5", &[(0, 1024, 0), (1, 1024, 0)])).join("; ");
    let sets = [("/a", "0,2"), ("/b", "1,3")].map(|(path, set)| cpus(path, set));
    assert!(sets.iter().all(|set| found.contains(set)), "{found}");
    // Node 0 has room for the memory of one of them, and the CPUs of node 1 are those of another.
    let scene = with("0-1", "2-3", &[(1, 8 << 10, 0)]).workload("/c", "4-7", "1");
    let scene = with_available(scene, 0, 10 << 10);
    assert_eq!(remedies(&scene), [mems("/a", "0")]);
    let obstacle = worst(&scene, "/b").obstacle.unwrap();
    assert!(obstacle.contains("2 GiB of 8 GiB memory on node 0"), "{obstacle}");
}

#[test]
fn of_cgroups_in_one_another_one_has_a_remedy() {
    let scene = two().workload("/box", "0-1", "1").memory("/box", &[(1, 512, 0)]);
    let scene = scene.workload("/box/in", "0-1", "1").memory("/box/in", &[(1, 512, 0)]);
    let objects: std::collections::BTreeSet<_> = scene
        .findings()
        .into_iter()
        .filter(|finding| finding.remedy.is_some())
        .map(|finding| finding.object)
        .collect();
    assert_eq!(objects, [CgroupPath::new("/box")].into());
    let obstacle = worst(&scene, "/box/in").obstacle.unwrap();
    assert!(obstacle.contains("the remedy of /box changes what it may use"), "{obstacle}");
}

#[test]
fn memory_of_a_gpu_is_no_room_for_what_has_to_come() {
    let machine = Machine::new().sockets(2).threads(1).memory_only(NodeId(2), 90, MemoryKind::Gpu, NodeId(0));
    let scene = |free: u64| {
        let scene = Scene::new(machine.clone().build()).workload("/db", "0-1", "0-2");
        let scene = with_available(scene.workload("/other", "4-7", "1"), 0, free);
        scene.memory("/db", &[(1, 4096, 0), (2, 512, 0)])
    };
    let full = worst(&scene(100), "/db");
    assert_eq!(full.remedy, None, "{full:?}");
    let obstacle = full.obstacle.unwrap();
    assert!(obstacle.contains("of 4 GiB memory on node 0"), "{obstacle}");
    // By its position the kernel would bring what is on node 1 to the GPU.
    let remedy = worst(&scene(8192), "/db").remedy;
    assert_eq!(remedy, Some(format!("{} && {}", swept("/db"), mems("/db", "0,2"))));
}

#[test]
fn memory_of_gpus_alone_is_one_finding_with_a_remedy_that_adds_memory_near_the_cpus() {
    let machine = Machine::new().sockets(2).threads(1).memory_only(NodeId(2), 90, MemoryKind::Gpu, NodeId(1));
    for (cpus, expected) in [("0-1", "0,2"), ("4-5", "1-2"), ("0-7", "0-2")] {
        let scene = Scene::new(machine.clone().build()).workload("/h", cpus, "2");
        let scene = scene.memory("/h", &[(2, 20_000, 0)]);
        let findings = scene.findings();
        let [one] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!((one.rule, one.severity), (Rule::CpusetMismatch, Severity::Critical));
        assert_eq!(one.remedy, Some(mems("/h", expected)), "{cpus}");
        assert!(
            !carried_out(&scene, one).findings().iter().any(|one| one.severity > Severity::Info),
            "{cpus}"
        );
    }
}

#[test]
fn cpus_beside_a_gpu_that_is_used_stay_there() {
    let machine = Machine::new().sockets(2).threads(1).memory_only(NodeId(2), 90, MemoryKind::Gpu, NodeId(1));
    for (mems_now, held, expected) in [
        ("0,2", &[(0, 10_000, 0), (2, 20_000, 0)][..], "1-2"),
        ("0-2", &[(0, 10_000, 0), (1, 100, 0), (2, 20_000, 0)], "1-2"),
    ] {
        let scene = Scene::new(machine.clone().build()).workload("/i", "4-5", mems_now).memory("/i", held);
        assert_eq!(worst(&scene, "/i").remedy, Some(mems("/i", expected)));
        // The control: with nothing on the GPU its CPUs go to its memory.
        let scene = scene.memory("/i", &held[..1]);
        assert!(worst(&scene, "/i").remedy.unwrap().contains("cpuset.cpus"));
    }
}

#[test]
fn a_remedy_leaves_memory_for_the_kernel() {
    let mut scene = two().workload("/a", "0-1", "1").memory("/a", &[(1, 512, 0)]).workload("/b", "4-7", "1");
    for (node, normal) in scene.machine.nodes.iter_mut().zip([false, true]) {
        node.normal_memory = Some(normal);
    }
    // Its pages stay allowed where they are, so that each process brings them.
    assert_eq!(worst(&scene, "/a").remedy, Some(format!("{} && {}", mems("/a", "0-1"), swept("/a"))));
    let after = carried_out(&scene, &worst(&scene, "/a"));
    let of_a = after.findings().into_iter().filter(|finding| finding.object.as_str() == "/a");
    assert_eq!(of_a.collect::<Vec<_>>(), [], "the node for the kernel is no mismatch");
}

#[test]
fn cpus_without_memory_are_beside_the_nearest_that_they_may_have() {
    // CPUs 4-7 of node 1 have no memory of their own, and that of either other node is as near.
    for mems_now in ["0", "2", "0,2"] {
        let scene = Scene::new(Shape::NearestIsATie.machine()).workload("/b", "5", mems_now);
        let scene = scene.workload("/full", "0-3,8-11", "0,2").memory("/b", &[(0, 1, 0), (2, 600, 0)]);
        let mut findings = scene.findings();
        findings.retain(|one| one.object.as_str() == "/b");
        assert_eq!(findings, [], "{mems_now}");
    }
    // Node 0 is nearer than node 2: without a cgroup above it is the remedy, and with one that has node 2
    // alone nothing is to be had that is nearer.
    let nearer = || Scene::new(Shape::NearestIsNode0.machine());
    let scene = nearer().workload("/b", "5", "2").workload("/full", "0-3,8-11", "0,2");
    let scene = scene.memory("/b", &[(0, 600, 0)]);
    let finding = worst(&scene, "/b");
    assert_eq!((finding.rule, finding.remedy), (Rule::CpusetMismatch, Some(mems("/b", "0"))));
    let scene = above(nearer(), "/box", "4-7", "2").workload("/box/b", "5", "2");
    for finding in scene.memory("/box/b", &[(2, 600, 0)]).findings() {
        assert!(finding.severity < Severity::Critical && finding.remedy.is_none(), "{finding:?}");
    }
}

#[test]
fn cpus_are_not_sent_away_from_page_cache() {
    // CPUs of node 0 are taken, so that it has room on node 1 alone, and 2 GiB of page cache stay on node 0.
    let scene = |cache: u64| {
        let scene = two().workload("/other", "1-3", "0").workload("/b", "0,7", "0-1");
        scene.memory("/b", &[(0, 1, cache), (1, 1, 0)])
    };
    let of_b = |scene: Scene| {
        let mut findings = scene.findings();
        findings.retain(|one| one.object.as_str() == "/b");
        findings
    };
    assert_eq!(of_b(scene(2048)), []);
    let [spans] = &of_b(scene(0))[..] else { panic!("with nothing that stays it is advised") };
    assert!(spans.rule == Rule::SpansNodes && spans.remedy.as_ref().unwrap().contains("cpuset.cpus"));
}

#[test]
fn memory_of_cpus_on_nodes_without_memory_is_not_critical() {
    let mut machine = Machine::new().sockets(2).cores(4).threads(1);
    machine = machine.memory_only(NodeId(2), 64, MemoryKind::Dram, NodeId(0));
    let mut machine = machine.build();
    for node in &mut machine.nodes {
        // As far from either socket, so that it is near to none.
        node.closest_cpu_node = None;
        if node.id.0 < 2 {
            node.mem_total_bytes = Some(0);
        }
    }
    let known = |row: [u32; 3]| row.map(Some).to_vec();
    machine.distances = [[10, 21, 40], [21, 10, 40], [40, 40, 10]].map(known).to_vec();
    let scene = Scene::new(machine).workload("/a", "0-7", "2").memory("/a", &[(2, 4096, 0)]);
    for finding in scene.findings() {
        assert_eq!(finding.remedy, None, "{finding:?}");
        assert!(finding.severity < Severity::Warning && finding.obstacle.is_some(), "{finding:?}");
    }
}

#[test]
fn a_partition_that_took_the_cpus_is_named() {
    // `/part` has CPUs 4-7, which the root no longer has; /a wants to be beside its memory on node 1.
    let scene = above(two(), "/", "0-3", "0-1").workload("/part", "4-7", "0-1");
    let scene = scene.workload("/a", "0-1", "1").memory("/a", &[(1, 512, 0)]);
    let full = with_available(scene, 0, 10);
    let finding = worst(&full, "/a");
    assert_eq!(finding.remedy, None);
    let obstacle = finding.obstacle.unwrap();
    assert!(obstacle.contains("CPUs 4-7 of the partition /part"), "{obstacle}");
}

#[test]
fn cpus_that_a_cgroup_has_from_the_one_above_it_are_its_own() {
    // `/box` has CPUs 4-7, and so has all that is in it: for others they are not free, for itself they are.
    let scene = above(above(two(), "/", "0-7", "0-1"), "/box", "4-7", "0-1");
    let scene = scene.workload("/box/a", "4-7", "1").memory("/box/a", &[(1, 64, 0)]);
    let scene = scene.workload("/b", "0", "1").memory("/b", &[(1, 256, 0)]);
    assert_eq!(worst(&scene, "/b").remedy, Some(mems("/b", "0")));
    let full = with_available(scene.clone(), 0, 10);
    let finding = worst(&full, "/b");
    assert_eq!(finding.remedy, None);
    let obstacle = finding.obstacle.as_ref().unwrap();
    assert!(obstacle.contains("CPUs 4-7 of the pinned cgroup /box"), "{obstacle}");
    assert_eq!(obstacle.matches("/box").count(), 1, "{obstacle}");
    assert!(!obstacle.contains("Error: "), "{obstacle}");
    let inside = scene.workload("/box/c", "4-7", "0").memory("/box/c", &[(0, 256, 0)]);
    assert_eq!(worst(&inside, "/box/c").remedy, Some(mems("/box/c", "1")));
}

#[test]
fn what_the_daemon_refuses_has_no_command() {
    let too_large = two().workload("/a", "0-3", "0").declared("/a", 5, None);
    let finding = worst(&too_large, "/a");
    assert_eq!((finding.rule, finding.severity, &finding.remedy), (Rule::Drift, Severity::Info, &None));
    assert!(finding.obstacle.unwrap().contains("4 of 5 cpu"));
    let fits = two().workload("/a", "0-7", "0-1").declared("/a", 2, None);
    assert!(worst(&fits, "/a").remedy.unwrap().contains("run --mode enforce"));
}

#[test]
fn page_cache_that_stays_is_no_promise() {
    // All of it is page cache on node 1, and the CPUs of node 1 belong to a neighbour.
    let scene = two().workload("/other", "4-7", "1").workload("/a", "0-1", "0").memory("/a", &[(1, 0, 4096)]);
    let finding = worst(&scene, "/a");
    assert_eq!(finding.remedy, None, "{finding:?}");
    assert!(finding.obstacle.unwrap().contains("page cache"));
    assert!(finding.severity < Severity::Critical);
}

#[test]
fn evidence_names_the_files_of_huge_pages() {
    let mut scene = two().workload("/a", "0-3", "0").memory("/a", &[(0, 64, 0), (1, 320, 0)]);
    scene.now_mut("/a").hugetlb_by_file =
        [("hugetlb.2MB.numa_stat".to_owned(), [(NodeId(1), 256 * MIB)].into())].into();
    let finding = worst(&scene, "/a");
    let of =
        |file: &str| finding.evidence.iter().find(|one| one.source.ends_with(file)).unwrap().value.clone();
    assert_eq!(
        of("/a/memory.numa_stat"),
        format!("N0 anon={} file=0, N1 anon={} file=0", 64 * MIB, 64 * MIB)
    );
    assert_eq!(of("/a/hugetlb.2MB.numa_stat"), format!("N1={}", 256 * MIB));
}

#[test]
fn memory_that_is_interleaved_on_purpose_is_a_note_with_its_policy() {
    let mut scene = two().workload("/a", "0-3", "0-1").memory("/a", &[(0, 512, 0), (1, 512, 0)]);
    scene = scene.thread("/a", 10, "0-3", 0, (0, 0));
    let extent = crate::sample::PolicyExtent {
        policy: crate::memory_policy::MemoryPolicy::parse_start("interleave:0-1").unwrap(),
        mappings: 2,
        bytes: 1 << 30,
        shared_bytes: 0,
        huge_bytes: 0,
    };
    scene.now.policies_by_process = [(10, vec![extent])].into();
    let finding = worst(&scene, "/a");
    assert_eq!((finding.severity, &finding.remedy), (Severity::Info, &None), "{finding:?}");
    let residency = scene.findings().into_iter().find(|one| one.rule == Rule::RemoteResidency).unwrap();
    assert!(residency.obstacle.unwrap().contains("interleave:0-1"));
    assert!(residency.evidence.iter().any(|one| one.value.starts_with("interleave:0-1")));
}

#[test]
fn a_remedy_that_would_take_a_policy_from_a_process_says_so_instead() {
    let scene = two().workload("/a", "0-3", "0-1").memory("/a", &[(1, 512, 0)]);
    let scene = scene.workload("/b", "4-7", "0-1").memory("/b", &[(0, 512, 0)]);
    let (mut findings, writes) = scene.findings_and_writes();
    let of = |path: &str| writes[&CgroupPath::new(path)].clone();
    let remedies = findings.clone();
    for path in ["/a", "/b"] {
        // What the commands write is what is asked about.
        let last = of(path).mems.last().cloned();
        let command = worst(&scene, path).remedy.unwrap();
        assert!(last.is_none_or(|mems| command.contains(&format!("echo {mems} > "))), "{command}");
        assert_ne!(of(path), CpusetWrites::default());
    }
    let hindrances = [(CgroupPath::new("/a"), "process 7 has a memory policy of its own, bind:1".to_owned())];
    without_hindered(&mut findings, &hindrances.into());
    for (finding, before) in findings.iter().zip(&remedies) {
        if let Some(remedy) = before.remedy.as_ref().filter(|_| finding.object.as_str() == "/a") {
            let obstacle = finding.obstacle.as_ref().unwrap();
            assert!(finding.remedy.is_none() && obstacle.starts_with("process 7"), "{obstacle}");
            assert!(obstacle.ends_with(remedy), "{obstacle}");
        } else {
            assert_eq!(finding, before);
        }
    }
}

/// Small machines on which advice has been wrong.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Two,
    /// Memory of this node cannot be used by the kernel.
    Movable(usize),
    /// Node 1 has no memory, and that of nodes 0 and 2 is as near.
    NearestIsATie,
    /// Node 1 has no memory, and that of node 0 is nearer than that of node 2.
    NearestIsNode0,
    /// A memory-only node beside node 1.
    Slow,
    /// A memory-only node beside each socket.
    SlowBeside,
    /// Memory of a GPU beside node 0, which a workload may use as well.
    Gpu,
}

impl Shape {
    const ALL: [Self; 8] = [
        Self::Two,
        Self::Movable(0),
        Self::Movable(1),
        Self::NearestIsATie,
        Self::NearestIsNode0,
        Self::Slow,
        Self::SlowBeside,
        Self::Gpu,
    ];

    fn machine(self) -> numa_topology::Topology {
        let two = Machine::new().sockets(2).threads(1);
        let without = |far: u32| {
            let mut machine = Machine::new().sockets(3).threads(1).build();
            machine.nodes[1].mem_total_bytes = Some(0);
            machine.nodes[1].mem_free_bytes = Some(0);
            let known = |row: [u32; 3]| row.map(Some).to_vec();
            machine.distances = [[10, 20, 30], [20, 10, far], [30, far, 10]].map(known).to_vec();
            machine
        };
        match self {
            Self::Two => two.build(),
            Self::Movable(movable) => {
                let mut machine = two.build();
                for (at, node) in machine.nodes.iter_mut().enumerate() {
                    node.normal_memory = Some(at != movable);
                }
                machine
            }
            Self::NearestIsATie => without(20),
            Self::NearestIsNode0 => without(30),
            Self::Slow => two.memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1)).build(),
            Self::SlowBeside => {
                let slow = |machine: Machine, node, beside| {
                    machine.memory_only(NodeId(node), 64, MemoryKind::Cxl, NodeId(beside))
                };
                slow(slow(two, 2, 0), 3, 1).build()
            }
            Self::Gpu => two.memory_only(NodeId(2), 90, MemoryKind::Gpu, NodeId(0)).build(),
        }
    }
}

/// Carries a finding's advice out as a kernel would, on a copy of the host: a write of `cpuset.mems` moves
/// pages of nodes that were in force before and are not after it, each node's to one node, as far as that has
/// room.
pub(super) fn carried_out(scene: &Scene, finding: &Finding) -> Scene {
    let mut after = scene.clone();
    for command in finding.remedy.as_deref().unwrap_or_default().split(" && ") {
        if let Some((_, nodes)) = command.split_once("'migratepages {} ") {
            let mut nodes = nodes.split(' ');
            let (from, to) = (nodes.next().unwrap(), nodes.next().unwrap());
            migrate(&mut after, &finding.object, &from.parse().unwrap(), &to.parse().unwrap());
        }
        let Some((value, file)) = command.strip_prefix("echo ").and_then(|rest| rest.split_once(" > "))
        else {
            continue;
        };
        if file.ends_with("cpuset.cpus") {
            after.now_mut(finding.object.as_str()).cpus_effective = value.parse().ok();
        } else {
            let above = finding.object.ancestors().filter_map(|path| after.now.cgroups.get(&path));
            let above = above.filter_map(|cgroup| cgroup.mems_effective.clone());
            let asked: NodeSet = value.parse().unwrap();
            let now = above.fold(asked, |now, above| now.intersection(&above));
            let before = after.now_mut(finding.object.as_str()).mems_effective.replace(now.clone()).unwrap();
            migrate(&mut after, &finding.object, &before, &now);
        }
    }
    after
}

/// Moves anonymous pages of a cgroup when the nodes `from` become `to`.
fn migrate(scene: &mut Scene, cgroup: &CgroupPath, from: &NodeSet, to: &NodeSet) {
    let free = |scene: &Scene| {
        let free = scene.now.nodes.iter().filter_map(|(node, seen)| Some((*node, seen.available_bytes()?)));
        free.collect::<BTreeMap<_, _>>()
    };
    let before = free(scene);
    let held = scene.now_mut(cgroup.as_str()).memory_by_node.get_or_insert_default();
    let anon = held.iter().map(|(node, bytes)| (*node, bytes.anon)).collect();
    let mut pages = NodePages { held: anon, room: before.clone(), ..NodePages::default() };
    pages.migrate(from, to);
    for (node, bytes) in pages.held {
        held.entry(node).or_default().anon = bytes;
    }
    for (node, now) in pages.room {
        let free = scene.now.nodes.get_mut(&node).and_then(|node| node.mem_free_bytes.as_mut());
        if let Some(free) = free {
            *free = (*free + now).saturating_sub(before[&node]);
        }
    }
}

proptest! {
    /// Carried out, the finding is gone, no other is worse, and no more of the memory is remote.
    #[test]
    fn a_remedy_that_is_carried_out_mends_its_finding(
        shape in prop::sample::select(Shape::ALL.to_vec()),
        workloads in prop::collection::vec(
            (
                prop::option::weighted(0.85, (0u32..12, 1u32..5)),
                1usize..16,
                prop::collection::vec(0u64..2000, 4),
                prop::collection::vec(prop::sample::select(vec![0u64, 0, 0, 100, 300, 3000]), 4),
                0u64..9000,
            ),
            1..4,
        ),
        free in prop::collection::vec(0u64..8000, 4),
        boxed in prop::option::of(1usize..16),
    ) {
        let machine = shape.machine();
        let with_memory: Vec<NodeId> = machine.memory_nodes().iter().collect();
        // The nodes at the bits of a number; all of them where it has none.
        let chosen = |bits: usize| {
            let at = |(at, node): (usize, &NodeId)| (bits & (1 << at) != 0).then_some(*node);
            let some: NodeSet = with_memory.iter().enumerate().filter_map(at).collect();
            if some.is_empty() { with_memory.iter().copied().collect() } else { some }
        };
        let last_cpu = machine.online_cpus().iter().last().unwrap().0;
        let mut scene = Scene::new(machine.clone());
        for (node, mebibytes) in with_memory.iter().zip(&free) {
            scene = with_available(scene, node.0, *mebibytes);
        }
        let last_cpu = if boxed.is_some() { last_cpu - 2 } else { last_cpu };
        if let Some(bits) = boxed {
            scene = above(scene, "/box", &format!("0-{last_cpu}"), &chosen(bits).to_string());
        }
        for (number, (cpus, bits, memory, cache, ms)) in workloads.iter().enumerate() {
            let path = if boxed.is_some() { format!("/box/w{number}") } else { format!("/w{number}") };
            let (first, last) = cpus.map_or((0, last_cpu), |(first, count)| {
                let last = (first + count - 1).min(last_cpu);
                (first.min(last), last)
            });
            // What it asks for, as far as the cgroup above has it.
            let has = boxed.map_or_else(|| chosen(15), &chosen);
            let mems = Some(chosen(*bits).intersection(&has)).filter(|mems| !mems.is_empty()).unwrap_or(has);
            let held = with_memory.iter().zip(memory).zip(cache);
            let held: Vec<_> = held.map(|((node, mib), cache)| (node.0, *mib, *cache)).collect();
            scene = scene.workload(&path, &format!("{first}-{last}"), &mems.to_string()).memory(&path, &held);
            scene = scene.ran(&path, &[(first / 4, *ms)]);
        }
        let before = scene.findings();
        for finding in before.iter().filter(|finding| finding.remedy.is_some()) {
            let carried_out = carried_out(&scene, finding);
            let remote = |scene: &Scene| {
                let model = scene.model();
                let figures = &model.workloads[&finding.object];
                (figures.remote_residency.unwrap_or(0.0), figures.cpu_nodes.len())
            };
            let (was_remote, nodes) = remote(&scene);
            let (is_remote, _) = remote(&carried_out);
            let is_no_more = is_remote <= was_remote || nodes > 1 && is_remote < 0.2;
            prop_assert!(is_no_more, "{was_remote} became {is_remote} by {finding:?}");
            if finding.rule == Rule::RemoteTraffic {
                // Run time of the interval before says nothing of the one after.
                continue;
            }
            let after = carried_out.findings();
            prop_assert!(!after.iter().any(|one| one.id == finding.id), "{finding:?} became {after:?}");
            for one in after.iter().filter(|one| one.rule != Rule::RemoteTraffic) {
                let was = before.iter().find(|was| was.id == one.id);
                // A finding that had an obstacle and can be mended now may get its full severity.
                let is_mendable_now = |was: &&Finding| was.obstacle.is_some() && one.remedy.is_some();
                // Room that one workload leaves lets another one come together.
                let has_room_now = one.rule == Rule::SpansNodes;
                // What fits on one node may leave little room there for more.
                let has_fewer_nodes_now = one.rule == Rule::ShortNodes;
                // A fault of the machine becomes one of room, and stays without a remedy.
                let has_other_obstacle = was.is_some_and(|was| {
                    was.obstacle.is_some() && one.obstacle.is_some() && was.obstacle != one.obstacle
                });
                let is_no_worse = has_room_now
                    || has_fewer_nodes_now
                    || has_other_obstacle
                    || was.is_some_and(|was| was.severity >= one.severity || is_mendable_now(&was));
                prop_assert!(is_no_worse, "{one:?} was {was:?}, after {finding:?}");
            }
        }
    }

    /// Carried out one after the other, the remedies of an audit put no two workloads on one CPU that were
    /// apart before, and bring no node more memory than it could give.
    #[test]
    fn remedies_can_be_carried_out_one_after_the_other(
        workloads in prop::collection::vec(
            (0u32..8, 1u32..4, "0|1|0-1", prop::collection::vec(0u64..3000, 2)),
            2..5,
        ),
        free in prop::collection::vec(0u64..6000, 2),
    ) {
        let mut scene = two();
        for (node, mebibytes) in free.iter().enumerate() {
            scene = with_available(scene, u32::try_from(node).unwrap(), *mebibytes);
        }
        for (number, (first, count, mems, memory)) in workloads.iter().enumerate() {
            let path = format!("/w{number}");
            let last = (first + count - 1).min(7);
            let held: Vec<_> = (0u32..).zip(memory).map(|(node, mib)| (node, *mib, 0)).collect();
            scene = scene.workload(&path, &format!("{first}-{last}"), mems).memory(&path, &held);
        }
        let after = scene.findings().iter().fold(scene.clone(), |scene, finding| carried_out(&scene, finding));
        let has = |scene: &Scene, number: usize| {
            let seen = &scene.now.cgroups[&CgroupPath::new(&format!("/w{number}"))];
            (seen.cpus_effective.clone().unwrap(), seen.memory_by_node.clone().unwrap())
        };
        for one in 0..workloads.len() {
            for other in 0..one {
                let are_apart = |scene| has(scene, one).0.is_disjoint(&has(scene, other).0);
                prop_assert!(!are_apart(&scene) || are_apart(&after), "{one} and {other}");
            }
        }
        for (node, mebibytes) in (0..).map(NodeId).zip(&free) {
            let on = |scene: &Scene, number: usize| has(scene, number).1.get(&node).map_or(0, |bytes| bytes.anon);
            let comes = (0..workloads.len()).map(|number| on(&after, number).saturating_sub(on(&scene, number)));
            // What is too little for a finding needs no room.
            let most = mebibytes * MIB + scene.policy.thresholds.min_memory.0 * workloads.len() as u64;
            prop_assert!(comes.sum::<u64>() <= most, "node {node}");
        }
    }

    /// What the daemon places, or leaves as in place, is no critical finding of its own audit.
    #[test]
    fn a_placed_workload_is_no_critical_finding(
        workloads in prop::collection::vec(
            (0u32..8, 1u32..4, "0|1|0-1", prop::collection::vec(0u64..2000, 2), 0u64..2000, 0u64..9000),
            1..5,
        ),
        free in prop::collection::vec(0u64..8000, 2),
    ) {
        let mut scene = two().declares("cgroup = '/w*'\ncpus = 2");
        for (node, mebibytes) in free.iter().enumerate() {
            scene = with_available(scene, u32::try_from(node).unwrap(), *mebibytes);
        }
        for (number, (first, count, mems, memory, cache, ms)) in workloads.iter().enumerate() {
            let path = format!("/w{number}");
            let last = (first + count - 1).min(7);
            let held: Vec<_> = (0u32..).zip(memory).map(|(node, mib)| (node, *mib, *cache)).collect();
            scene = scene.workload(&path, &format!("{first}-{last}"), mems).memory(&path, &held);
            scene = scene.ran(&path, &[(first / 4, *ms)]);
        }
        let decision = scene.decide();
        let placed: Vec<_> = decision.targets.keys().cloned().collect();
        scene.carry_out(&decision.plan);
        for finding in scene.findings() {
            let critical = finding.severity == Severity::Critical && placed.contains(&finding.object);
            prop_assert!(!critical, "{finding:?}");
        }
    }
}
