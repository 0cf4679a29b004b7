use insta::assert_json_snapshot;
use proptest::prelude::*;
use schemars::schema_for;

use super::*;
use crate::{
    memory_policy::MemoryPolicy,
    sample::{CgroupSample, PolicyExtent},
    scene::Scene,
    workload::Origin,
};
use numa_topology::{MemoryKind, id::NodeId, synth::Machine};

/// CPUs 0-3 on node 0, 4-7 on node 1, and a CXL node 2 beside node 1.
fn host() -> Scene {
    Scene::new(
        Machine::new().sockets(2).threads(1).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1)).build(),
    )
}

/// Severity and id of each finding.
fn short(scene: &Scene) -> Vec<String> {
    scene
        .findings()
        .iter()
        .map(|finding| format!("{:?} {}", finding.severity, finding.id).to_lowercase())
        .collect()
}

/// The command that mends it.
fn command(finding: &Finding) -> &str {
    finding.remedy.as_deref().unwrap_or_default()
}

/// A process with its memory on node 0, pinned to the CPUs of node 1.
fn misaligned() -> Scene {
    host()
        .workload("/bad.slice/worker", "4-7", "0")
        .memory("/bad.slice/worker", &[(0, 256, 2)])
        .ran("/bad.slice/worker", &[(1, 9000)])
}

#[test]
fn a_misaligned_workload_is_reported_by_every_rule_that_it_breaks() {
    assert_json_snapshot!(misaligned().findings());
}

#[test]
fn evidence_leaves_out_nodes_without_memory() {
    let scene = host().workload("/bad", "4-7", "1").memory("/bad", &[(0, 900, 1), (1, 0, 0), (2, 0, 0)]);
    let findings = scene.findings();
    let mut evidence = findings.iter().flat_map(|finding| &finding.evidence);
    let residency = evidence.find(|one| one.source.ends_with("/memory.numa_stat")).unwrap();
    assert!(residency.value.starts_with("N0 ") && !residency.value.contains("N1"), "{}", residency.value);
}

#[test]
fn its_aligned_twin_is_not_reported() {
    let twin =
        host().workload("/good", "4-7", "1").memory("/good", &[(1, 256, 2)]).ran("/good", &[(1, 9000)]);
    assert_eq!(short(&twin), [""; 0]);
    assert_eq!(
        short(&twin.memory("/good", &[(1, 56, 2), (2, 200, 0)])),
        [""; 0],
        "memory-only node next to it"
    );
}

#[test]
fn memory_of_a_gpu_is_no_finding_and_remedies_keep_it() {
    let machine = Machine::new().sockets(2).threads(1);
    let machine = machine.memory_only(NodeId(2), 96, MemoryKind::Gpu, NodeId(1)).build();
    let scene = |cpus: &str, mems: &str, bytes: &[(u32, u64, u64)]| {
        Scene::new(machine.clone()).workload("/a", cpus, mems).memory("/a", bytes).ran("/a", &[(0, 9000)])
    };
    for (cpus, mems, bytes) in
        [("0-3", "0,2", vec![(0, 300, 0), (2, 20_000, 0)]), ("0-3", "0,2", vec![(2, 20_000, 0)])]
    {
        assert_eq!(short(&scene(cpus, mems, &bytes)), [""; 0], "{cpus} {mems} {bytes:?}");
    }
    // Its ordinary memory is judged as if the GPU were not there.
    let findings = scene("0-3", "0-2", &[(1, 300, 0), (2, 20_000, 0)]).findings();
    let remote = findings.iter().find(|one| one.rule == Rule::RemoteResidency).unwrap();
    assert!(remote.summary.starts_with("100% of its memory is on node 1,"), "{}", remote.summary);
    for finding in &findings {
        let mems = finding
            .remedy
            .as_deref()
            .unwrap_or_default()
            .split("echo ")
            .find(|part| part.contains("cpuset.mems"));
        assert!(mems.is_none_or(|mems| mems.starts_with("0,2 ") || mems.starts_with("1-2 ")), "{finding:?}");
    }
}

#[test]
fn memory_of_a_socket_without_cpus_is_remote_to_all() {
    // Three sockets 21 apart; the CPUs of node 2 are offline.
    let mut machine = Machine::new().sockets(3).cores(2).threads(1).build();
    machine.nodes[2].cpus = "".parse().unwrap();
    machine.nodes[2].kind = MemoryKind::Unknown;
    machine.cpus.truncate(4);
    machine.packages.truncate(2);
    let remote = |cpus: &str, bytes: &[(u32, u64, u64)], on| {
        let scene = Scene::new(machine.clone())
            .workload("/a", cpus, "0-2")
            .memory("/a", bytes)
            .ran("/a", &[(on, 9000)]);
        scene.findings().iter().filter(|one| one.rule == Rule::RemoteResidency).count()
    };
    for (cpus, on) in [("0-1", 0), ("2-3", 1)] {
        assert_eq!(remote(cpus, &[(2, 900, 0)], on), 1, "{cpus}");
        assert_eq!(remote(cpus, &[(on, 900, 0)], on), 0, "{cpus}");
    }
}

#[test]
fn an_idle_system_and_a_one_node_machine_are_not_reported() {
    assert_eq!(short(&host()), [""; 0]);
    assert_eq!(short(&host().workload("/idle", "0-7", "0-2")), [""; 0]);
    let one = Scene::new(Machine::new().build())
        .workload("/a", "0-1", "0")
        .memory("/a", &[(0, 900, 0)])
        .ran("/a", &[(0, 9000)])
        .declared("/a", 4, None);
    assert_eq!(short(&one), [""; 0]);
}

#[test]
fn cpuset_mismatch_by_the_nodes_of_both_files() {
    for (cpus, mems, expected) in [
        ("0-3", "0", vec![]),
        ("0-3", "1", vec!["critical cpuset-mismatch:/a"]),
        ("0-3", "2", vec!["critical cpuset-mismatch:/a"]),
        ("4-7", "2", vec![]),
        ("4-7", "1-2", vec![]),
        ("0-7", "0", vec!["warning cpuset-mismatch:/a"]),
        ("0-7", "0-2", vec![]),
        ("0-3", "0-1", vec!["info cpuset-mismatch:/a"]),
    ] {
        assert_eq!(short(&host().workload("/a", cpus, mems)), expected, "cpus {cpus} mems {mems}");
    }
}

#[test]
fn a_node_without_memory_is_not_missed_in_the_memory_nodes() {
    let mut machine = Machine::new().sockets(2).threads(1).build();
    machine.nodes[1].mem_total_bytes = Some(0);
    assert_eq!(short(&Scene::new(machine).workload("/a", "0-7", "0")), [""; 0]);
}

#[test]
fn residency_counts_from_the_threshold_and_from_some_memory_on() {
    let remote =
        |local, away| short(&host().workload("/a", "0-3", "0").memory("/a", &[(0, local, 0), (1, away, 0)]));
    assert_eq!(remote(81, 19), [""; 0]);
    assert_eq!(remote(80, 20), ["warning remote-residency:/a"]);
    assert_eq!(remote(50, 50), ["critical remote-residency:/a"]);
    assert_eq!(remote(0, 15), [""; 0], "below min_memory");
}

#[test]
fn spread_memory_of_an_unpinned_workload_is_a_matter_of_traffic() {
    let unpinned = host().workload("/a", "0-7", "0-2").memory("/a", &[(0, 100, 0), (1, 100, 0)]);
    assert_eq!(short(&unpinned), [""; 0]);
    let busy = unpinned.clone().ran("/a", &[(0, 5000), (1, 5000)]);
    assert_eq!(
        short(&busy),
        ["warning remote-traffic:/a"],
        "an estimate from placement is not critical here"
    );
    let hardly = unpinned.clone().ran("/a", &[(0, 240), (1, 240)]);
    assert_eq!(short(&hardly), ["info remote-traffic:/a"], "0.048 CPUs");
    let measured = busy.faults("/a", &[(0, 100, 900)]);
    assert_eq!(short(&measured), ["critical remote-traffic:/a"]);
    let too_few = unpinned.ran("/a", &[(0, 190)]);
    assert_eq!(short(&too_few), [""; 0], "19 clock ticks");
}

#[test]
fn cpus_that_span_nodes_for_nothing() {
    let spanning = host().workload("/a", "3-4", "0-1").memory("/a", &[(0, 100, 0)]);
    assert_eq!(short(&spanning), ["warning spans-nodes:/a"]);
    let findings = spanning.findings();
    assert_eq!(
        command(&findings[0]),
        "echo 0 > /sys/fs/cgroup/a/cpuset.mems && echo 0-1 > /sys/fs/cgroup/a/cpuset.cpus"
    );
    assert_eq!(short(&host().workload("/a", "1-6", "0-1")), [""; 0], "no node has six CPUs");
}

#[test]
fn a_thread_kept_away_from_the_memory_of_its_workload() {
    let scene = host()
        .workload("/a", "0-7", "0-2")
        .memory("/a", &[(0, 900, 0), (1, 100, 0)])
        .thread("/a", 10, "0-7", 0, (0, 0))
        .thread("/a", 11, "4-5", 4, (0, 0));
    assert_eq!(short(&scene), ["info thread-affinity:/a"]);
    let finding = &scene.findings()[0];
    assert_eq!(command(finding), "taskset -pc 0-3 11");
    assert_eq!(finding.evidence[0].source, "/proc/11/task/11/status Cpus_allowed_list");
    assert_eq!(short(&scene.memory("/a", &[(0, 500, 0), (1, 500, 0)])), [""; 0], "no node is its own");
}

#[test]
fn memory_that_the_program_binds_itself_is_said_to_be() {
    let scene = |policy: &str| {
        let mut scene = misaligned().thread("/bad.slice/worker", 10, "4-7", 4, (0, 0));
        let extent = PolicyExtent {
            policy: MemoryPolicy::parse_start(policy).unwrap(),
            mappings: 2,
            bytes: 64 << 20,
            shared_bytes: 32 << 20,
            huge_bytes: 0,
        };
        scene.now.policies_by_process = [(10, vec![extent.clone()]), (99, vec![extent])].into();
        scene
    };
    let residency = |scene: &Scene| {
        let mut findings = scene.findings();
        findings.retain(|finding| finding.rule == Rule::RemoteResidency);
        findings.remove(0)
    };
    let bound = residency(&scene("bind:0"));
    assert!(bound.impact.contains("it binds 64 MiB to node 0 itself"), "{}", bound.impact);
    let evidence = bound.evidence.last().unwrap();
    assert_eq!(evidence.source, "/proc/10/numa_maps policy");
    assert_eq!(evidence.value, "bind:0 for 64 MiB in 2 mappings, 32 MiB shared");
    for other in ["prefer:0", "bind:0-1", "bind:1", "interleave:0-1"] {
        assert!(!residency(&scene(other)).impact.contains("binds"), "{other}");
    }
}

#[test]
fn a_thread_that_keeps_to_its_own_memory_is_not_away_from_it() {
    let scene = |faults: &[(u32, u64)]| {
        let mut scene = host()
            .workload("/a", "0-7", "0-2")
            .memory("/a", &[(0, 900, 0), (1, 100, 0)])
            .thread("/a", 10, "0-7", 0, (0, 0))
            .thread("/a", 11, "4-5", 4, (0, 0));
        scene.now.tasks[1].faults_by_node =
            Some(faults.iter().map(|(node, pages)| (NodeId(*node), *pages)).collect());
        scene.now.tasks[1].preferred_node = Some(NodeId(0));
        scene
    };
    assert_eq!(short(&scene(&[(0, 10), (1, 90)])), [""; 0]);
    for too_little in [&[(1, 19)][..], &[], &[(0, 30), (1, 70)]] {
        assert_eq!(short(&scene(too_little)), ["info thread-affinity:/a"], "{too_little:?}");
    }
    let finding = &scene(&[(0, 95), (1, 5)]).findings()[0];
    let evidence = &finding.evidence[1];
    assert_eq!(evidence.source, "/proc/11/task/11/sched numa_faults");
    assert_eq!(evidence.value, "N0=95 N1=5 prefers node 0");
}

#[test]
fn a_declared_workload_that_the_daemon_would_move_has_drifted() {
    let drifted =
        host().workload("/a", "0-7", "0-2").memory("/a", &[(0, 10, 0)]).declared("/a", 2, Some("1G"));
    assert_eq!(short(&drifted), ["warning drift:/a"]);
    assert_json_snapshot!(drifted.findings());
    let placed = host().workload("/a", "0-1", "0").memory("/a", &[(0, 100, 0)]).declared("/a", 2, Some("1G"));
    assert_eq!(short(&placed), [""; 0]);
    let too_large = host().workload("/a", "0-3", "0").declared("/a", 5, None);
    assert_eq!(short(&too_large), ["info drift:/a"]);
    assert!(too_large.findings()[0].summary.contains("4 of 5 cpu on node 0"));
}

#[test]
fn a_slice_is_not_reported_for_what_its_children_do() {
    let mut scene = misaligned();
    let child = scene.now.cgroups[&CgroupPath::new("/bad.slice/worker")].clone();
    scene.now.cgroups.insert(CgroupPath::new("/bad.slice"), child);
    assert!(scene.findings().iter().all(|finding| finding.object.as_str() == "/bad.slice/worker"));
}

#[test]
fn a_hostile_name_stays_one_word_of_the_remedy() {
    let path = "/x$(reboot)' ; \u{1b}[2J";
    let scene = host().workload(path, "0-3", "1");
    let findings = scene.findings();
    assert_eq!(command(&findings[0]), r"echo 0 > $'/sys/fs/cgroup/x$(reboot)\' ; \x1b[2J/cpuset.mems'");
}

#[test]
fn the_remedy_brings_cpus_and_memory_together() {
    for (cpus, mems, memory, remedy) in [
        // CPUs go where the memory is.
        ("4-7", "0", (256, 0), "echo 0-3 > /sys/fs/cgroup/a/cpuset.cpus"),
        // No node has six CPUs: the memory has to come.
        ("1-6", "2", (0, 0), "echo 0-1 > /sys/fs/cgroup/a/cpuset.mems"),
    ] {
        let scene = host().workload("/a", cpus, mems).memory("/a", &[(0, memory.0, 0), (1, memory.1, 0)]);
        assert_eq!(command(&scene.findings()[0]), remedy, "{cpus} {mems}");
    }
    let mut behind = host().workload("/a", "4-7", "1").memory("/a", &[(0, 100, 0), (1, 100, 0)]);
    behind.machine.nodes[0].mem_total_bytes = Some(64 << 20);
    let remedy = "echo 0-1 > /sys/fs/cgroup/a/cpuset.mems && echo 1 > /sys/fs/cgroup/a/cpuset.mems";
    assert_eq!(command(&behind.findings()[0]), remedy, "only a change moves pages");
}

#[test]
fn a_unit_is_put_where_it_belongs_by_systemd() {
    let unit = |name: &str| {
        let mut scene = host().workload("/system.slice/db.service", "0-3", "1");
        scene.workloads[0].origin = Origin::Unit { unit: name.into() };
        scene.findings()[0].remedy.clone().unwrap()
    };
    assert_eq!(unit("db.service"), "systemctl set-property --runtime db.service AllowedMemoryNodes=0");
    // A cgroup below that of its unit.
    assert!(unit("other.service").starts_with("echo 0 > /sys/fs/cgroup/system.slice/db.service/"));
}

#[test]
fn cgroup_v1_has_its_own_files_and_has_to_be_asked_to_move_pages() {
    let mut scene = host().workload("/a", "0-3", "1");
    scene.now.cpuset_v1 = true;
    scene.now.cgroup_mounts.cpuset = "/sys/fs/cgroup/cpuset".into();
    let finding = &scene.findings()[0];
    let sources: Vec<_> = finding.evidence.iter().map(|evidence| evidence.source.as_str()).collect();
    assert_eq!(
        sources,
        ["/sys/fs/cgroup/cpuset/a/cpuset.effective_cpus", "/sys/fs/cgroup/cpuset/a/cpuset.effective_mems"]
    );
    let commands: Vec<_> = command(finding).split(" && ").collect();
    assert_eq!(
        commands,
        [
            "echo 1 > /sys/fs/cgroup/cpuset/a/cpuset.memory_migrate",
            "echo 0 > /sys/fs/cgroup/cpuset/a/cpuset.mems"
        ]
    );
}

#[test]
fn a_lone_process_is_told_to_move_by_its_id() {
    let mut scene = host().thread("/", 77, "4-7", 5, (0, 9000));
    scene.workloads.push(Workload {
        cgroup: CgroupPath::root(),
        cgroup_id: None,
        name: "worker".into(),
        origin: crate::workload::Origin::Process { pid: 77, command: "worker".into() },
    });
    let bytes = crate::sample::NodeBytes { anon: 1 << 30, ..Default::default() };
    scene.now.memory_by_process.entry(77).or_default().insert(NodeId(0), bytes);
    assert_eq!(short(&scene), ["critical remote-residency:/#77", "critical remote-traffic:/#77"]);
    let finding = &scene.findings()[0];
    assert_eq!(command(finding), "taskset -apc 0-3 77");
    assert_eq!(finding.evidence[2].source, "/proc/77/numa_maps");
}

#[test]
fn the_worst_comes_first() {
    let severities: Vec<_> =
        misaligned().workload("/b", "0-3", "0-1").findings().iter().map(|f| f.severity).collect();
    assert!(severities.is_sorted_by(|a, b| a >= b), "{severities:?}");
    assert_eq!(severities.last(), Some(&Severity::Info));
}

#[test]
fn the_schema_names_every_rule_as_the_ids_do() {
    let schema = serde_json::to_value(schema_for!(Finding)).unwrap().to_string();
    for rule in [
        Rule::CpusetMismatch,
        Rule::RemoteResidency,
        Rule::RemoteTraffic,
        Rule::SpansNodes,
        Rule::Drift,
        Rule::ThreadAffinity,
    ] {
        assert_eq!(serde_json::to_string(&rule).unwrap(), format!("\"{rule}\""));
        assert!(schema.contains(&format!("\"{rule}\"")));
    }
}

proptest! {
    #[test]
    fn every_finding_has_evidence_words_and_an_id_of_its_own(
        workloads in prop::collection::vec(("[0-7]", "[0-2]", prop::collection::vec(0u64..500, 3), 0u64..9000), 0..4),
    ) {
        let mut scene = host().declared("/w0", 2, None);
        for (number, (cpu, mem, memory, ms)) in workloads.iter().enumerate() {
            let path = format!("/w{number}");
            let held: Vec<_> = (0u32..).zip(memory).map(|(node, mib)| (node, *mib, 0)).collect();
            let node = cpu.parse::<u32>().unwrap() / 4;
            scene = scene.workload(&path, cpu, mem).memory(&path, &held).ran(&path, &[(node, *ms)]);
        }
        let findings = scene.findings();
        let ids: std::collections::BTreeSet<_> = findings.iter().map(|finding| &finding.id).collect();
        prop_assert_eq!(ids.len(), findings.len());
        for finding in &findings {
            prop_assert!(!finding.evidence.is_empty(), "{finding:?}");
            prop_assert!(![&finding.summary, &finding.impact].iter().any(|text| text.is_empty()));
            prop_assert!(finding.remedy.is_some() != finding.obstacle.is_some(), "{finding:?}");
            prop_assert!(finding.id.ends_with(finding.object.as_str()));
        }
    }
}

/// Two full nodes' worth of figures: available and all memory of each node in GiB.
fn with_rooms(mut scene: Scene, gib: &[(u32, u64, u64)]) -> Scene {
    for (node, available, all) in gib {
        let node = scene.now.nodes.entry(NodeId(*node)).or_default();
        (node.mem_free_bytes, node.lru_file_bytes) = (Some(available << 30), Some(0));
        node.mem_total_bytes = Some(all << 30);
    }
    scene
}

fn short_nodes(scene: &Scene) -> Option<Finding> {
    scene.findings().into_iter().find(|finding| finding.rule == Rule::ShortNodes)
}

#[test]
fn a_workload_on_full_nodes_beside_others_with_room_is_told_with_what_helps() {
    let scene = host().workload("/app", "4-7", "1").memory("/app", &[(1, 8_000, 1)]);
    let rooms = [(0, 50, 64), (1, 1, 64), (2, 1, 64)];
    let finding = short_nodes(&with_rooms(scene, &rooms)).unwrap();
    assert_eq!(finding.severity, Severity::Warning);
    assert_eq!(
        finding.summary,
        "it may only use node 1, with 1024 MiB of 64 GiB available, and 50 GiB available on node 0"
    );
    let helps = finding.obstacle.unwrap();
    assert!(
        helps.starts_with("let it use more nodes: echo 0-1 > ") && helps.ends_with("/app/cpuset.mems"),
        "{helps}"
    );
    let sources: Vec<&str> = finding.evidence.iter().map(|one| one.source.as_str()).collect();
    assert!(sources.contains(&"/sys/devices/system/node/node1/meminfo"), "{sources:?}");

    // A neighbour that may go elsewhere is named first, and the workload itself may be bound to stay.
    let scene = host()
        .workload("/app", "4-7", "1")
        .memory("/app", &[(1, 8_000, 1)])
        .workload("/batch", "0-7", "0-1")
        .memory("/batch", &[(1, 20_480, 1)])
        .declares("cgroup = '/app'\ncpus = 4\nstrict_memory = true");
    let helps = short_nodes(&with_rooms(scene, &rooms)).unwrap().obstacle.unwrap();
    assert_eq!(
        helps,
        "it is declared to stay (strict_memory); batch holds 20 GiB of them and may use node 0: move it there"
    );
}

#[test]
fn short_nodes_are_widened_within_the_cgroup_above() {
    let scene = host().workload("/top/app", "4-7", "1").memory("/top/app", &[(1, 8_000, 1)]);
    let mut scene = with_rooms(scene, &[(0, 50, 64), (1, 1, 64), (2, 50, 64)]);
    for (above, said) in [
        ("0-2", "echo 0-2 > "),
        ("1-2", "echo 1-2 > "),
        ("1", "the cgroup /top above it allows node 1 alone"),
    ] {
        let seen = CgroupSample { mems_effective: Some(above.parse().unwrap()), ..CgroupSample::default() };
        scene.now.cgroups.insert(CgroupPath::new("/top"), seen);
        let helps = short_nodes(&scene).unwrap().obstacle.unwrap();
        assert!(helps.contains(said), "below {above}: {helps}");
    }
}

#[test]
fn nodes_with_room_or_that_are_full_together_are_no_finding() {
    let scene = |mems: &str| host().workload("/app", "4-7", mems).memory("/app", &[(1, 8_000, 1)]);
    for (what, mems, rooms) in [
        ("its node has room", "1", [(0, 50, 64), (1, 30, 64), (2, 1, 64)]),
        ("it may use a node with room", "0-1", [(0, 50, 64), (1, 1, 64), (2, 1, 64)]),
        ("no node has room", "1", [(0, 2, 64), (1, 1, 64), (2, 1, 64)]),
    ] {
        assert_eq!(short_nodes(&with_rooms(scene(mems), &rooms)), None, "{what}");
    }
    let beside_cxl = with_rooms(scene("1"), &[(0, 1, 64), (1, 1, 64), (2, 60, 64)]);
    assert!(short_nodes(&beside_cxl).unwrap().summary.ends_with("60 GiB available on node 2"));
    let unknown = with_rooms(scene("1"), &[(0, 50, 64)]);
    assert_eq!(short_nodes(&unknown), None, "nothing is known of its own node");
}

#[test]
fn reclaim_by_tasks_makes_short_nodes_critical() {
    use crate::sample::{OomConstraint, PressureEvent, PressureEvents, PressureKind};
    let scene = host().workload("/app", "4-7", "1").memory("/app", &[(1, 8_000, 1)]);
    let mut scene = with_rooms(scene, &[(0, 50, 64), (1, 1, 64)]);
    // Direct reclaim and a kill have the node of the CPU.
    for (kind, node, of, constraint, severity) in [
        (PressureKind::KswapdWoken, 1, Some("/app"), None, Severity::Warning),
        (PressureKind::DirectReclaim, 0, Some("/app"), None, Severity::Critical),
        (PressureKind::DirectReclaim, 1, Some("/batch"), None, Severity::Warning),
        (PressureKind::DirectReclaim, 1, None, None, Severity::Warning),
        (PressureKind::ReclaimRetry, 1, None, None, Severity::Critical),
        (PressureKind::ReclaimRetry, 0, Some("/app"), None, Severity::Warning),
        (PressureKind::OomVictim, 0, Some("/app"), Some(OomConstraint::Cpuset), Severity::Critical),
        (PressureKind::OomVictim, 1, Some("/app"), Some(OomConstraint::Memcg), Severity::Warning),
    ] {
        let event = PressureEvent {
            time_ns: 1,
            kind,
            numa_node: NodeId(node),
            order: 0,
            cgroup_id: 1,
            workload: of.map(CgroupPath::new),
            tid: 1,
            constraint,
        };
        scene.now.pressure_events = Some(PressureEvents { latest: vec![event], ..PressureEvents::default() });
        assert_eq!(short_nodes(&scene).unwrap().severity, severity, "{kind:?} on node {node}");
    }
}
