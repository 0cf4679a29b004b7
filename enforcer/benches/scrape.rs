//! What an answer with all metrics costs, and how long it is, with 1,000 containers on a machine of eight
//! nodes.
//!
//! Each container has memory on two nodes, ran on two and took faults on two. Twice: as the daemon answers by
//! default, and with the counters of each container. The text is made anew for each answer, as for a scrape.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use enforcer_core::{
    audit::{
        AUDIT_SCHEMA_VERSION, Audit, AuditVerdict, AuditedHost, AuditedWorkload, ReportingTool, Summary,
    },
    model::{Traffic, TrafficSource},
    sample::{HintFaults, HostSettings, NodeBytes, NodeSample, RunTime},
    workload::{CgroupPath, identify},
};
use enforcer_report::{
    counters::Counters,
    fixture,
    metrics::Metrics,
    tick::{ContainerNames, TickReport},
};
use numa_topology::{id::NodeId, set::NodeSet, synth::Machine};

const CONTAINERS: u32 = 1_000;
const NODES: u32 = 8;
const ANSWERS: usize = 200;

fn main() -> Result<()> {
    // cargo test runs benches too, to see that they start; it does not pass --bench.
    let answers = if std::env::args().any(|argument| argument == "--bench") { ANSWERS } else { 2 };
    let report = Arc::new(report());
    for (what, workload_counters) in [("", false), (" with counters of each", true)] {
        let report = Arc::clone(&report);
        let metrics = Metrics::of(move || Some(Arc::clone(&report)), workload_counters)?;
        measure(&format!("{CONTAINERS} containers{what}"), &metrics, answers)?;
    }
    Ok(())
}

fn measure(what: &str, metrics: &Metrics, answers: usize) -> Result<()> {
    let mut took = Vec::new();
    let mut bytes = 0;
    for _ in 0..answers {
        let begin = Instant::now();
        bytes = metrics.render()?.len();
        took.push(begin.elapsed());
    }
    took.sort_unstable();
    let at = |percent: usize| took.get((took.len() * percent / 100).min(took.len() - 1)).copied();
    let shown = |percent| at(percent).map(|took: Duration| format!("{:.1}", took.as_secs_f64() * 1e3));
    println!(
        "scrape: {what}, {bytes} bytes, middle {} ms, p99 {} ms",
        shown(50).context("no answer")?,
        shown(99).context("no answer")?
    );
    Ok(())
}

fn report() -> TickReport {
    let cgroups: Vec<CgroupPath> = (0..CONTAINERS)
        .map(|number| {
            let pod = format!("kubepods.slice/kubepods-pod6ad0c1f2_{number:04}.slice");
            CgroupPath::new(&format!("/{pod}/cri-containerd-{number:064x}.scope"))
        })
        .collect();
    let names = |number: usize| ContainerNames {
        namespace: "production".to_owned(),
        pod: format!("service-{number:04}-7c9d8f6b5-x2x4z"),
        container: "server".to_owned(),
    };
    let pods = cgroups.iter().enumerate().map(|(number, cgroup)| (cgroup.clone(), names(number))).collect();
    let on_two = |number: usize| {
        let first = u32::try_from(number).unwrap_or(0) % NODES;
        [NodeId(first), NodeId((first + 1) % NODES)]
    };
    let counters = |number| Counters {
        run_time: Some(on_two(number).map(|node| (node, RunTime::default())).into()),
        hint_faults: Some(on_two(number).map(|node| (node, HintFaults::default())).into()),
        ..Counters::default()
    };
    let counters = cgroups.iter().enumerate().map(|(number, cgroup)| (cgroup.clone(), counters(number)));
    let counters: BTreeMap<_, _> = counters.collect();
    let workloads = cgroups.iter().enumerate();
    let workloads = workloads.map(|(number, cgroup)| workload(cgroup.clone(), on_two(number))).collect();
    let node = NodeSample { mem_total_bytes: Some(1 << 38), ..NodeSample::default() };
    let audit = Audit {
        schema_version: AUDIT_SCHEMA_VERSION,
        tool: ReportingTool { name: "numa-enforcer".to_owned(), version: "0.0.0".to_owned(), commit: None },
        taken_at: None,
        host: AuditedHost::default(),
        degraded: Vec::new(),
        topology: Machine::new().sockets(8).build(),
        settings: HostSettings::default(),
        workloads,
        traffic_map: None,
        findings: Vec::new(),
        summary: Summary::default(),
    };
    TickReport {
        nodes: (0..NODES).map(|id| (NodeId(id), node.clone())).collect(),
        pods,
        counters,
        ..fixture::turn(audit)
    }
}

fn workload(cgroup: CgroupPath, nodes: [NodeId; 2]) -> AuditedWorkload {
    let identity = identify(&cgroup);
    let bytes = NodeBytes { anon: 123 << 20, file: 45 << 20, kernel: Some(1 << 20), ..NodeBytes::default() };
    AuditedWorkload {
        name: identity.name,
        cgroup,
        origin: identity.origin,
        owner: None,
        cpus: "0-3".parse().ok(),
        mems: Some(nodes.into_iter().collect()),
        numa_nodes: NodeSet::from_iter(nodes),
        tasks: Some(17),
        bytes_by_numa: Some(nodes.map(|node| (node, bytes)).into()),
        remote_residency: Some(0.25),
        traffic: Some(Traffic::new(0.5, TrafficSource::HintFaults, 900)),
        verdict: AuditVerdict::Partial,
        findings: Vec::new(),
    }
}
