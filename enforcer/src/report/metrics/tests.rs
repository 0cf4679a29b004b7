//! Scrapes of reports that the tests make.

use std::{collections::BTreeMap, sync::Mutex};

use enforcer_core::{
    audit::{AUDIT_SCHEMA_VERSION, Audit, AuditedWorkload, Host, Summary, Tool, Verdict},
    decide::Decision,
    degraded::Degraded,
    id::NodeId,
    model::{Traffic, TrafficSource},
    policy::Mode,
    sample::{EventCounts, HintFaults, HostSettings, KernelSide, NodeBytes, NodeSample, Placements, RunTime},
    set::NodeSet,
    topology::synth::Machine,
    workload::{CgroupPath, Origin},
};

use super::*;
use crate::report::tick::{Counters, TICK_SCHEMA_VERSION, Totals};

fn workload(path: &str, verdict: Verdict) -> AuditedWorkload {
    AuditedWorkload {
        cgroup: CgroupPath::new(path),
        name: path.trim_start_matches('/').to_owned(),
        origin: Origin::Cgroup,
        cpus: None,
        mems: None,
        numa_nodes: NodeSet::new(),
        tasks: None,
        bytes_by_numa: None,
        remote_residency: None,
        traffic: None,
        verdict,
        findings: Vec::new(),
    }
}

fn report(workloads: Vec<AuditedWorkload>) -> TickReport {
    let audit = Audit {
        schema_version: AUDIT_SCHEMA_VERSION,
        tool: Tool { name: "numa-enforcer".into(), version: "1.2.3".into() },
        host: Host::default(),
        degraded: ["cgroup:/a", "cgroup:/b", "bpf"].map(|source| Degraded::new(source, "", "")).into(),
        topology: Machine::new().sockets(2).build(),
        settings: HostSettings::default(),
        workloads,
        findings: Vec::new(),
        summary: Summary::default(),
    };
    let node = NodeSample { mem_total_bytes: Some(1 << 30), ..NodeSample::default() };
    TickReport {
        schema_version: TICK_SCHEMA_VERSION,
        mode: Mode::Enforce,
        audit,
        nodes: BTreeMap::from([(NodeId(33), node)]),
        events: Some(EventCounts { told: 5, ring_full: 2, ..EventCounts::default() }),
        counters: BTreeMap::new(),
        kernel_side: None,
        pressure: None,
        decision: Decision::default(),
        outcomes: Vec::new(),
        totals: Totals {
            ticks: 7,
            actions: BTreeMap::from([("set-cpus", BTreeMap::from([("applied", 2)]))]),
            ..Totals::default()
        },
    }
}

fn render(report: TickReport) -> String {
    let report = Arc::new(report);
    Metrics::of(move || Some(Arc::clone(&report))).unwrap().render().unwrap()
}

fn series(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn values_have_their_series_and_missing_ones_have_none() {
    let mut seen = workload("/db", Verdict::Misaligned);
    let bytes = NodeBytes { anon: 3, file: 4, kernel: Some(5), ..NodeBytes::default() };
    seen.bytes_by_numa = Some(BTreeMap::from([(NodeId(33), bytes)]));
    seen.remote_residency = Some(0.25);
    seen.traffic = Some(Traffic::new(0.5, TrafficSource::HintFaults, 9));
    let text = render(report(vec![seen, workload("/idle", Verdict::Unknown)]));
    // The encoder sorts labels by name.
    let db = "cgroup=\"/db\",workload=\"db\"";
    for line in [
        "numa_enforcer_build_info{version=\"1.2.3\"} 1",
        "numa_enforcer_enforcing 1",
        "numa_enforcer_numa_distance{dst_numa=\"1\",src_numa=\"0\"} 21",
        "numa_enforcer_numa_node_memory_total_bytes{numa_node=\"33\"} 1073741824",
        "numa_enforcer_workload_memory_bytes{cgroup=\"/db\",numa_node=\"33\",workload=\"db\"} 12",
        &format!("numa_enforcer_workload_remote_residency_ratio{{{db}}} 0.25"),
        "numa_enforcer_workload_remote_traffic_ratio{cgroup=\"/db\",source=\"hint-faults\",workload=\"db\"} 0.5",
        &format!("numa_enforcer_workload_aligned{{{db}}} 0"),
        "numa_enforcer_kernel_events_total{result=\"told\"} 5",
        "numa_enforcer_kernel_events_total{result=\"ring-full\"} 2",
        "numa_enforcer_kernel_events_total{result=\"limited\"} 0",
        "numa_enforcer_degraded{feature=\"cgroup\"} 2",
        "numa_enforcer_actions_total{action=\"set-cpus\",result=\"applied\"} 2",
        "numa_enforcer_ticks_total 7",
    ] {
        assert!(series(&text).contains(&line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("memory_free_bytes") && !text.contains("idle"), "{text}");
    assert!(text.contains("# TYPE numa_enforcer_ticks_total counter"), "{text}");
}

#[test]
fn what_the_kernel_side_counted_is_told_by_workload_and_node() {
    let placements = |src: u32, dst: u32| Placements {
        src_numa: NodeId(src),
        dst_numa: NodeId(dst),
        migrated: 3,
        started: 2,
        misplaced: 1,
    };
    let counters = Counters {
        run_time: Some(
            [(NodeId(1), RunTime { ns: 2_500_000_000, misplaced_ns: 500_000_000, samples: 9 })].into(),
        ),
        placements: Some(vec![placements(0, 1), placements(1, 1)]),
        hint_faults: Some([(NodeId(0), HintFaults { local: 5, remote: 6, ..HintFaults::default() })].into()),
    };
    let state = KernelSide { lost: [("map-full".into(), 4)].into(), cgroups_watched: 2, cgroups_room: 64 };
    let report = TickReport {
        counters: [(CgroupPath::new("/db"), counters.clone()), (CgroupPath::new("/gone"), counters)].into(),
        kernel_side: Some(state),
        ..report(vec![workload("/db", Verdict::Aligned)])
    };
    let text = render(report);
    for line in [
        "task_moves_total{cgroup=\"/db\",dst_numa=\"1\",src_numa=\"0\",workload=\"db\"} 3",
        "task_starts_total{cgroup=\"/db\",dst_numa=\"1\",src_numa=\"1\",workload=\"db\"} 2",
        "misplaced_tasks_total{cgroup=\"/db\",dst_numa=\"1\",src_numa=\"0\",workload=\"db\"} 1",
        "run_time_seconds_total{cgroup=\"/db\",numa_node=\"1\",workload=\"db\"} 2.5",
        "misplaced_run_time_seconds_total{cgroup=\"/db\",numa_node=\"1\",workload=\"db\"} 0.5",
        "numa_hint_fault_pages_total{cgroup=\"/db\",memory=\"remote\",numa_node=\"0\",workload=\"db\"} 6",
    ] {
        let line = format!("numa_enforcer_workload_{line}");
        assert!(series(&text).contains(&line.as_str()), "{line} is missing in\n{text}");
    }
    assert!(text.contains("numa_enforcer_kernel_side_lost_total{reason=\"map-full\"} 4\n"), "{text}");
    assert!(text.contains("numa_enforcer_kernel_side_cgroups_watched 2\n"), "{text}");
    let inside = "moves_total{cgroup=\"/db\",dst_numa=\"1\",src_numa=\"1\"";
    assert!(!text.contains(inside) && !text.contains("/gone"), "{text}");
}

#[test]
fn hostile_names_stay_inside_their_quotes() {
    let name = "/a\"} 1\nnuma_enforcer_ticks_total 99\\";
    let text = render(report(vec![workload(name, Verdict::Aligned)]));
    let ticks: Vec<_> =
        series(&text).into_iter().filter(|line| line.starts_with("numa_enforcer_ticks_total")).collect();
    assert_eq!(ticks, ["numa_enforcer_ticks_total 7"]);
    assert!(text.contains(r#"cgroup="/a\"} 1\nnuma_enforcer_ticks_total 99\\""#), "{text}");
}

#[test]
fn no_series_appears_twice_and_processes_have_none() {
    let mut process = workload("/", Verdict::Misaligned);
    process.origin = Origin::Process { pid: 7, command: "x".into() };
    let twice = [workload("/a", Verdict::Aligned), workload("/a", Verdict::Aligned), process];
    let text = render(report(twice.into()));
    let mut lines = series(&text);
    lines.sort_unstable();
    let count = lines.len();
    lines.dedup();
    assert_eq!(lines.len(), count, "{text}");
    assert!(lines.contains(&"numa_enforcer_workloads_omitted 2"), "{text}");
}

#[test]
fn above_the_limit_the_worst_are_kept() {
    let mut many: Vec<_> =
        (0..MAX_WORKLOADS).map(|n| workload(&format!("/ok{n}"), Verdict::Aligned)).collect();
    many.push(workload("/bad", Verdict::Misaligned));
    let text = render(report(many));
    let aligned: Vec<_> =
        series(&text).into_iter().filter(|line| line.contains("workload_aligned")).collect();
    assert_eq!(aligned.len(), MAX_WORKLOADS);
    assert!(aligned[0].contains("/bad"), "{}", aligned[0]);
    assert!(text.contains("numa_enforcer_workloads_omitted 1\n"));
}

#[test]
fn a_workload_that_is_gone_leaves_no_series_and_nothing_is_shared_between_registries() {
    let latest = Arc::new(Mutex::new(None));
    let source = Arc::clone(&latest);
    let metrics = Metrics::of(move || source.lock().unwrap().clone()).unwrap();
    assert_eq!(metrics.render().unwrap(), "", "before the first turn");
    let set = |workloads| *latest.lock().unwrap() = Some(Arc::new(report(workloads)));
    set(vec![workload("/old", Verdict::Aligned), workload("/new", Verdict::Aligned)]);
    assert!(metrics.render().unwrap().contains("/old"));
    set(vec![workload("/new", Verdict::Aligned)]);
    let text = metrics.render().unwrap();
    assert!(!text.contains("/old") && text.contains("/new"), "{text}");
    assert_eq!(metrics.render().unwrap(), text, "a scrape changes nothing");
    assert!(!render(report(Vec::new())).contains("/new"));
}

#[test]
fn every_series_has_a_family_that_was_announced() {
    let text = render(report(vec![workload("/db", Verdict::Aligned)]));
    let announced: Vec<_> = series::all().map(|family| family.describe().unwrap().fq_name).collect();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE numa_enforcer_")) {
        let name = line.split(' ').next().unwrap();
        assert!(announced.iter().any(|family| family == name), "{name}");
    }
}
