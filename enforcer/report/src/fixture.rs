//! Audits and turns that the tests of reports make: a small audit to read, and one as large as promised.

use std::collections::BTreeMap;

use enforcer_core::{
    audit::{
        AUDIT_SCHEMA_VERSION, Audit, AuditVerdict, AuditedHost, AuditedWorkload, NodeTraffic, ReportingTool,
        Summary, TrafficMap,
    },
    finding::{Evidence, Finding, Rule, Severity},
    model::{Activity, Traffic, TrafficSource},
    policy::Mode,
    rebalance::{Cpus, Figures, Move, REBALANCE_SCHEMA_VERSION, RebalanceReport, UnmovedWorkload},
    sample::{HostSettings, NodeBytes},
    turn::Decision,
    workload::{CgroupPath, Origin, QosClass},
};
use numa_topology::{
    Device, DeviceClass, MemoryKind, Topology, degraded::Degraded, id::NodeId, synth::Machine,
};

use super::tick::{TICK_SCHEMA_VERSION, TickReport, TickTotals};

/// An audit of these workloads and findings.
pub fn audit(topology: Topology, workloads: Vec<AuditedWorkload>, findings: Vec<Finding>) -> Audit {
    let count = |verdict| workloads.iter().filter(|workload| workload.verdict == verdict).count();
    Audit {
        schema_version: AUDIT_SCHEMA_VERSION,
        tool: ReportingTool { name: "numa-enforcer".into(), version: "0.1.0".into(), commit: None },
        taken_at: Some("2026-01-31T12:00:00Z".into()),
        host: AuditedHost {
            hostname: Some("db-7".into()),
            kernel: Some("6.12.107-cloud-amd64".into()),
            boot_id: None,
            cpu_model: Some("Xeon".into()),
            cgroup_version: Some("v2".into()),
        },
        degraded: vec![Degraded::new("bpf", "operation not permitted", "no migrations between nodes")],
        topology,
        settings: HostSettings { numa_balancing: Some(1), ..HostSettings::default() },
        summary: Summary {
            total: workloads.len(),
            aligned: count(AuditVerdict::Aligned),
            partial: count(AuditVerdict::Partial),
            misaligned: count(AuditVerdict::Misaligned),
            unknown: count(AuditVerdict::Unknown),
            unsampled: 0,
            known: 0,
            worst: findings.iter().map(|finding| finding.severity).max(),
            exit_code: u8::from(!findings.is_empty()),
        },
        workloads,
        traffic_map: None,
        findings,
    }
}

/// A turn that saw this and did nothing.
pub fn turn(audit: Audit) -> TickReport {
    TickReport {
        schema_version: TICK_SCHEMA_VERSION,
        mode: Mode::Enforce,
        paused: None,
        begun_ns: 0,
        audit,
        nodes: BTreeMap::new(),
        activity: Activity::default(),
        pods: BTreeMap::new(),
        events: None,
        counters: BTreeMap::new(),
        kernel_side: None,
        pressure: None,
        widening: None,
        other_page_moves: None,
        runtime: None,
        claims: None,
        interrupts: None,
        demotion: BTreeMap::new(),
        changes: None,
        entries: Vec::new(),
        decision: Decision::default(),
        rebalanced: None,
        outcomes: Vec::new(),
        totals: TickTotals::default(),
    }
}

/// A workload with its memory in MiB by node.
pub fn workload(name: &str, cpus: &str, nodes: &str, memory: &[(u32, u64)]) -> AuditedWorkload {
    let bytes = memory.iter().map(|(node, mebibytes)| {
        (NodeId(*node), NodeBytes { anon: mebibytes << 20, ..NodeBytes::default() })
    });
    AuditedWorkload {
        cgroup: CgroupPath::new(&format!("/system.slice/{name}")),
        name: name.into(),
        origin: Origin::Unit { unit: name.into() },
        owner: None,
        cpus: Some(cpus.parse().unwrap()),
        mems: None,
        numa_nodes: nodes.parse().unwrap(),
        tasks: Some(3),
        bytes_by_numa: Some(bytes.collect()),
        remote_residency: Some(0.0),
        traffic: None,
        verdict: AuditVerdict::Aligned,
        findings: Vec::new(),
    }
}

/// Adds a finding of this rule.
pub fn finding(workload: &mut AuditedWorkload, rule: Rule, severity: Severity) -> Finding {
    let id = format!("{rule}:{}", workload.cgroup.as_str());
    workload.findings.push(id.clone());
    workload.verdict = match severity {
        Severity::Critical => AuditVerdict::Misaligned,
        Severity::Warning => AuditVerdict::Partial,
        Severity::Info => workload.verdict,
    };
    let path = workload.cgroup.as_str().to_owned();
    Finding {
        id,
        rule,
        severity,
        object: workload.cgroup.clone(),
        summary: "99% of its memory is on node 0, its CPUs are on node 1".into(),
        evidence: vec![
            Evidence { source: format!("/sys/fs/cgroup{path}/cpuset.cpus.effective"), value: "4-7".into() },
            Evidence {
                source: format!("/sys/fs/cgroup{path}/memory.numa_stat"),
                value: "anon N0=3758096384".into(),
            },
        ],
        impact: "most accesses cross the interconnect (distance 21 instead of 10)".into(),
        remedy: Some(format!("echo 0 > /sys/fs/cgroup{path}/cpuset.mems")),
        obstacle: None,
    }
}

/// Two sockets and CXL memory; four workloads, of which one is misaligned and one unknown; traffic.
pub fn small() -> Audit {
    let mut machine = Machine::new()
        .sockets(2)
        .cores(4)
        .threads(1)
        .memory_gib(64)
        .memory_only(NodeId(2), 128, MemoryKind::Cxl, NodeId(1))
        .build();
    machine.nodes[0].mem_free_bytes = Some(16 << 30);
    machine.devices = vec![Device {
        address: "0000:3b:00.0".into(),
        class: DeviceClass::Network,
        names: vec!["eth0".into()],
        node: Some(NodeId(1)),
    }];
    let mut bad = AuditedWorkload {
        remote_residency: Some(0.991),
        traffic: Some(Traffic::new(0.973, TrafficSource::Placement, 812)),
        ..workload("db.service", "4-7", "1", &[(0, 3584), (1, 30)])
    };
    let critical = finding(&mut bad, Rule::RemoteResidency, Severity::Critical);
    let mut spread = workload("cache.service", "0-7", "0-1", &[(0, 10), (1, 20), (2, 5)]);
    let note = finding(&mut spread, Rule::ThreadAffinity, Severity::Info);
    let blind = AuditedWorkload {
        cpus: None,
        bytes_by_numa: None,
        remote_residency: None,
        verdict: AuditVerdict::Unknown,
        ..workload("odd.service", "", "", &[])
    };
    let good = workload("cron.service", "0-3", "0", &[(0, 12)]);
    let flow = |src, dst, cpus| NodeTraffic { src_numa: NodeId(src), dst_numa: NodeId(dst), cpus };
    let traffic_map = Some(TrafficMap {
        flows: vec![flow(0, 0, 0.5), flow(1, 0, 1.75), flow(1, 1, 0.004)],
        workloads: 3,
        left_out: 1,
    });
    Audit { traffic_map, ..audit(machine, vec![spread, good, bad, blind], vec![critical, note]) }
}

/// One move, and one workload that stays.
pub fn moves() -> RebalanceReport {
    let figures = |remote, lost| Figures { remote_ratio: Some(remote), lost };
    let on =
        |cpus: &str, nodes: &str| Cpus { exclusive: cpus.parse().unwrap(), nodes: nodes.parse().unwrap() };
    RebalanceReport {
        schema_version: REBALANCE_SCHEMA_VERSION,
        moves: vec![Move {
            group: 1,
            workload: CgroupPath::new("/system.slice/db.service"),
            qos: QosClass::Guaranteed,
            to: NodeId(0),
            cpus_from: on("4-5", "1"),
            cpus_to: Some(on("0-1", "0")),
            bytes_from: BTreeMap::from([(NodeId(1), 30 << 20)]),
            bytes: 30 << 20,
            seconds: 0.05,
            now: figures(0.973, 0.3),
            then: figures(0.0, 0.0),
            gain: 360.0,
            cost: 0.1,
            reason: "97% of its accesses are remote".into(),
        }],
        left: vec![UnmovedWorkload {
            workload: CgroupPath::new("/batch"),
            ailing: true,
            reason: "it is not declared".into(),
        }],
        bytes: 30 << 20,
        budget_bytes: 4 << 30,
        seconds: 0.05,
        gain: 360.0,
        cost: 0.1,
        degraded: Vec::new(),
    }
}

/// The largest page: 64 nodes and 2,000 containers, each with three findings and memory on every node.
pub fn large() -> Audit {
    let machine = Machine::new().sockets(16).nodes_per_socket(4).cores(4).build();
    let memory: Vec<(u32, u64)> = (0..64).map(|node| (node, 100 + u64::from(node))).collect();
    let (mut workloads, mut findings) = (Vec::new(), Vec::new());
    for number in 0..2000u32 {
        let node = number % 64;
        let cpus = format!("{}-{}", node * 8, node * 8 + 7);
        let mut one = workload("x", &cpus, &node.to_string(), &memory);
        let uid = format!("5f1c{number:04}_4a5b_4c1d_9e2f_0123456789ab");
        one.cgroup = CgroupPath::new(&format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{number:064x}.scope"
        ));
        one.name = format!("production-namespace/deployment-with-a-name-{number}/container");
        one.remote_residency = Some(0.98);
        one.traffic = Some(Traffic::new(0.97, TrafficSource::HintFaults, 4000));
        for rule in [Rule::CpusetMismatch, Rule::RemoteResidency, Rule::RemoteTraffic] {
            findings.push(finding(&mut one, rule, Severity::Critical));
        }
        workloads.push(one);
    }
    let flows = (0..64u32).flat_map(|src| {
        (0..64u32).map(move |dst| NodeTraffic {
            src_numa: NodeId(src),
            dst_numa: NodeId(dst),
            cpus: f64::from(src + dst + 1),
        })
    });
    let traffic_map = Some(TrafficMap { flows: flows.collect(), workloads: 2000, left_out: 0 });
    Audit { traffic_map, ..audit(machine, workloads, findings) }
}

/// Hostile names of workloads.
pub const HOSTILE: [&str; 12] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</style><style>*{display:none}</style>",
    "</title></head><body>",
    "--><!-- ]]>",
    "javascript:alert(1)",
    "&lt;script&gt;&#x3c;b&#x3e;",
    "{{constructor}}${7*7}",
    "\u{1b}[2J\n\r\t\u{0}row",
    "\u{202e}gpj.exe\u{2066}\u{feff}\u{fffe}",
    "größe-日本-\u{1f56f}",
];

/// The audit with this name wherever a name or a text comes from outside.
pub fn named(name: &str) -> (Audit, RebalanceReport) {
    let mut audit = small();
    let host = &mut audit.host;
    for text in [&mut host.hostname, &mut host.kernel, &mut host.cpu_model, &mut host.cgroup_version] {
        *text = Some(name.to_owned());
    }
    audit.settings.transparent_hugepage = Some(name.to_owned());
    audit.degraded = vec![Degraded::new(name, name, name)];
    name.clone_into(&mut audit.topology.devices[0].address);
    audit.topology.devices[0].names = vec![name.to_owned()];
    for (place, workload) in audit.workloads.iter_mut().enumerate() {
        workload.cgroup = CgroupPath::new(&format!("{name}/{place}"));
        name.clone_into(&mut workload.name);
        for known in &mut workload.findings {
            let Some(finding) = audit.findings.iter_mut().find(|finding| finding.id == *known) else {
                continue;
            };
            finding.id = format!("{}:{name}/{place}", finding.rule);
            finding.object = workload.cgroup.clone();
            known.clone_from(&finding.id);
            for text in [&mut finding.summary, &mut finding.impact] {
                name.clone_into(text);
            }
            finding.remedy = Some(name.to_owned());
            finding.evidence = vec![Evidence { source: name.to_owned(), value: name.to_owned() }];
        }
    }
    let mut moves = moves();
    moves.moves[0].workload = CgroupPath::new(name);
    name.clone_into(&mut moves.moves[0].reason);
    moves.left[0].workload = CgroupPath::new(name);
    name.clone_into(&mut moves.left[0].reason);
    (audit, moves)
}
