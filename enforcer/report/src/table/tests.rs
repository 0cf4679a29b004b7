//! The table of synthetic machines, in full.

use std::collections::BTreeMap;

use enforcer_core::{
    audit::{AuditVerdict, AuditedHost, AuditedWorkload, Summary},
    finding::{Evidence, Finding, Rule, Severity},
    model::{Traffic, TrafficSource},
    owner::{Owner, Ownership},
    sample::{HostSettings, NodeBytes},
    workload::{CgroupPath, Origin, QosClass},
};
use numa_topology::{MemoryKind, Topology, degraded::Degraded, id::NodeId, synth::Machine};

use super::*;
use crate::fixture;

fn table(audit: &Audit, width: usize) -> String {
    let table = render(audit, Style { width, colour: false });
    // A path that is too long for a line is whole, so that it can be copied.
    let is_path = |line: &str| {
        let indent = text::width(line) - text::width(line.trim_start());
        let word = line.trim_start().split(' ').next().unwrap_or_default();
        word.contains('/') && indent + text::width(word) == text::width(line)
    };
    let fits = |line: &str| line.starts_with("    remedy") || text::width(line) <= width || is_path(line);
    assert!(table.lines().all(fits), "{table}");
    assert!(!table.contains('\u{1b}'), "{table}");
    table
}

fn audit(topology: Topology, workloads: Vec<AuditedWorkload>, findings: Vec<Finding>) -> Audit {
    let plain = fixture::audit(topology, workloads, findings);
    Audit {
        host: AuditedHost {
            cpu_model: Some("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz".into()),
            ..plain.host.clone()
        },
        degraded: vec![Degraded::new(
            "bpf",
            "attaching sched_migrate_task: operation not permitted (needs CAP_BPF and CAP_PERFMON)",
            "no remote traffic, no migrations between nodes",
        )],
        settings: HostSettings {
            numa_balancing: Some(1),
            transparent_hugepage: Some("madvise".into()),
            zone_reclaim_mode: Some(0),
            ..HostSettings::default()
        },
        summary: Summary { unsampled: plain.summary.unknown, exit_code: 0, ..plain.summary.clone() },
        ..plain
    }
}

#[test]
fn what_is_beside_an_earlier_audit_is_called_new() {
    let of = |worst, known| {
        host_view::summary(&Summary {
            total: 3,
            misaligned: 1,
            aligned: 2,
            worst,
            known,
            ..Summary::default()
        })
    };
    assert_eq!(of(None, 0), "3 workloads: 1 misaligned, 2 aligned; no findings");
    assert_eq!(of(None, 2), "3 workloads: 1 misaligned, 2 aligned; no new findings");
    let worse = of(Some(Severity::Critical), 2);
    assert_eq!(worse, "3 workloads: 1 misaligned, 2 aligned; worst new finding critical");
}

fn workload(name: &str, cpus: &str, nodes: &str, verdict: AuditVerdict) -> AuditedWorkload {
    AuditedWorkload { verdict, ..fixture::workload(name, cpus, nodes, &[(0, 3 << 10)]) }
}

#[test]
fn wide_table_has_owners_if_a_cpuset_has_one() {
    let plain = workload("cron.service", "0-7", "0-1", AuditVerdict::Aligned);
    let owner =
        Some(Ownership::of(Owner::KubeletCpuManager, "cpu_manager_state: CPUs 0-3 for container main"));
    let owned = AuditedWorkload { owner, ..workload("pod", "0-3", "0", AuditVerdict::Aligned) };
    let shown = |workloads, width| {
        let machine = Machine::new().sockets(2).threads(1).build();
        table(&audit(machine, workloads, Vec::new()), width)
    };
    let wide = shown(vec![plain.clone(), owned.clone()], 140);
    assert!(wide.contains("kubelet-cpu-manager") && wide.contains("nobody"), "{wide}");
    for without in [shown(vec![plain.clone(), owned], 72), shown(vec![plain], 140)] {
        assert!(!without.contains("nobody"), "{without}");
    }
}

#[test]
fn two_of_one_name_are_told_apart_below_it() {
    let one = |path: &str| AuditedWorkload {
        cgroup: CgroupPath::new(path),
        origin: Origin::Cgroup,
        ..workload("server", "0-7", "0", AuditVerdict::Aligned)
    };
    let machine = Machine::new().sockets(2).threads(1).build();
    let shown = |workloads| table(&audit(machine.clone(), workloads, Vec::new()), 80);
    let two = shown(vec![one("/a/server"), one("/b/server")]);
    for behind in ["\n  (a)\n", "\n  (b)\n"] {
        assert!(two.contains(behind), "{behind} is missing in\n{two}");
    }
    assert!(!shown(vec![one("/a/server")]).contains("(a)"), "it is the only one");
}

fn bytes(anon: &[(u32, u64)]) -> BTreeMap<NodeId, NodeBytes> {
    anon.iter()
        .map(|(node, anon)| (NodeId(*node), NodeBytes { anon: *anon, ..NodeBytes::default() }))
        .collect()
}

fn misaligned() -> (AuditedWorkload, Finding) {
    let id = "remote-residency:/kubepods.slice/kubepods-pod5f1c.slice/cri-containerd-2f9a.scope";
    let cgroup = CgroupPath::new("/kubepods.slice/kubepods-pod5f1c.slice/cri-containerd-2f9a.scope");
    let workload = AuditedWorkload {
        cgroup: cgroup.clone(),
        name: "payments-database-primary-0/postgres".into(),
        origin: Origin::Pod {
            pod_uid: "5f1c".into(),
            qos: QosClass::Guaranteed,
            container_id: Some("2f9a".into()),
            runtime: None,
        },
        bytes_by_numa: Some(bytes(&[(0, 7 << 29), (1, 30 << 20)])),
        remote_residency: Some(0.991),
        traffic: Some(Traffic::new(0.973, TrafficSource::Placement, 812)),
        findings: vec![id.into()],
        ..workload("x", "16-19,48-51", "1", AuditVerdict::Misaligned)
    };
    let finding = Finding {
        id: id.into(),
        rule: Rule::RemoteResidency,
        severity: Severity::Critical,
        object: cgroup,
        summary: "99% of its memory is on node 0, its CPUs are on node 1".into(),
        evidence: vec![
            Evidence { source: "cpuset.cpus.effective".into(), value: "16-19,48-51".into() },
            Evidence { source: "memory.numa_stat".into(), value: "anon N0=3758096384 N1=31457280".into() },
        ],
        impact: "most accesses cross the interconnect (distance 21 instead of 10)".into(),
        remedy: Some(
            "echo 1 > /sys/fs/cgroup/kubepods.slice/kubepods-pod5f1c.slice/cri-containerd-2f9a.scope/cpuset.mems"
                .into(),
        ),
        obstacle: None,
    };
    (workload, finding)
}

fn server() -> Audit {
    let (bad, finding) = misaligned();
    let hostile = AuditedWorkload {
        name: "evil\u{1b}[2J\nrow\u{202e}".into(),
        cpus: None,
        bytes_by_numa: None,
        remote_residency: None,
        ..workload("y", "", "", AuditVerdict::Unknown)
    };
    let mut workloads = vec![hostile, workload("cron.service", "0-63", "0-1", AuditVerdict::Aligned), bad];
    workloads.push(AuditedWorkload {
        remote_residency: Some(0.2),
        ..workload("cache.service", "0-3,8-11,16-19,24-27", "0", AuditVerdict::Partial)
    });
    workloads.extend(
        (0..37).map(|i| workload(&format!("worker-{i}.service"), "0-15", "0", AuditVerdict::Aligned)),
    );
    let topology = Machine::new()
        .sockets(2)
        .cores(16)
        .memory_gib(64)
        .memory_only(NodeId(2), 128, MemoryKind::Cxl, NodeId(1))
        .build();
    audit(topology, workloads, vec![finding])
}

#[test]
fn a_server_at_80_and_120_columns() {
    insta::assert_snapshot!("server_80", table(&server(), 80));
    insta::assert_snapshot!("server_120", table(&server(), 120));
}

#[test]
fn sixty_four_nodes_fit() {
    let topology = Machine::new().sockets(16).nodes_per_socket(4).cores(4).build();
    let spread = AuditedWorkload {
        bytes_by_numa: Some(bytes(&(0..64).map(|node| (node, u64::from(node) << 20)).collect::<Vec<_>>())),
        ..workload("spread.service", "0-511", "0,2,4,6,8-63", AuditVerdict::Partial)
    };
    insta::assert_snapshot!("nodes_64_80", table(&audit(topology, vec![spread], Vec::new()), 80));
}

#[test]
fn nothing_known_is_said_and_not_invented() {
    let mut audit = audit(Machine::new().build(), Vec::new(), Vec::new());
    audit.host = AuditedHost::default();
    audit.settings = HostSettings::default();
    audit.topology.nodes[0].mem_total_bytes = None;
    insta::assert_snapshot!("unknown_80", table(&audit, 80));
}

#[test]
fn every_width_holds() {
    let audit = server();
    for width in 60..200 {
        table(&audit, width);
    }
}

#[test]
fn colour_is_only_added() {
    let audit = server();
    let plain = table(&audit, 100);
    let coloured = render(&audit, Style { width: 100, colour: true });
    assert!(coloured.contains("\u{1b}[1;31mmisaligned\u{1b}[0m"), "{coloured}");
    assert!(coloured.contains("\u{1b}[1;31mcritical\u{1b}[0m"), "{coloured}");
    let mut stripped = coloured;
    for sgr in ["1;31", "33", "32", "1", "0"] {
        stripped = stripped.replace(&format!("\u{1b}[{sgr}m"), "");
    }
    assert_eq!(stripped, plain);
}

#[test]
fn captured_machine_is_named_as_one_and_no_sample_is_advised() {
    let live = audit(Machine::new().sockets(2).build(), Vec::new(), Vec::new());
    let live = Audit { summary: Summary { unsampled: 1, ..live.summary.clone() }, ..live };
    let captured = Audit { taken_at: None, ..live.clone() };
    assert!(host_view::remarks(&live).concat().ends_with("can tell: --sample 10s"));
    assert!(!host_view::remarks(&captured).concat().contains("--sample"));
    let unnamed = |audit: &Audit| Audit { host: AuditedHost::default(), ..audit.clone() };
    assert_eq!(host_view::name(&unnamed(&live)), "this host");
    assert_eq!(host_view::name(&unnamed(&captured)), "a captured machine");
}
