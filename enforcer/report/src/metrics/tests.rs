//! Scrapes of reports that the tests make.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use enforcer_core::{
    audit::{
        AUDIT_SCHEMA_VERSION, Audit, AuditVerdict, AuditedHost, AuditedWorkload, ReportingTool, Summary,
    },
    call_times::CallTimes,
    memory_policy::PolicyMode,
    model::{Traffic, TrafficSource},
    rebalance::RebalanceReport,
    sample::{
        BalancerSteps, CpusetFile, EventCounts, HardwareAccesses, HintFaults, HostSettings, KernelSide,
        NodeBytes, NodeSample, OtherPageMoves, PageMoveReason, PageMoves, PageMovesByReason, Placements,
        PolicyCounts, PressureDelay, PressureEvents, PressureKind, PressureTotal, ProgramCost, RunTime,
        ScanSkips,
    },
    widening::{OomCandidates, PressureLevel, ReclaimSource, WideningRefusal},
    workload::{CgroupPath, Origin, QosClass},
};
use numa_topology::{degraded::Degraded, id::NodeId, set::NodeSet, synth::Machine};

use super::*;
use crate::{
    claims::{ClaimCallTotals, ClaimedNodeReport, ClaimsReport},
    counters::Counters,
    demotion::{LatestRound, TierMoves},
    fixture,
    interrupts::{InterruptReport, InterruptTotals},
    runtime::{AnswerTimes, RuntimeLink, RuntimeReport},
    tick::{ClusterEventTotals, ClusterPredictionTotals, ContainerNames, Rebalanced, TickTotals},
    widening::{BrakeUse, WideningReport},
};

fn workload(path: &str, verdict: AuditVerdict) -> AuditedWorkload {
    AuditedWorkload {
        cgroup: CgroupPath::new(path),
        name: path.trim_start_matches('/').to_owned(),
        origin: Origin::Cgroup,
        owner: None,
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
        tool: ReportingTool { name: "numa-enforcer".into(), version: "1.2.3".into(), commit: None },
        taken_at: None,
        host: AuditedHost::default(),
        degraded: ["cgroup:/a", "cgroup:/b", "bpf"].map(|source| Degraded::new(source, "", "")).into(),
        topology: Machine::new().sockets(2).build(),
        settings: HostSettings::default(),
        workloads,
        traffic_map: None,
        findings: Vec::new(),
        summary: Summary::default(),
    };
    let node = NodeSample { mem_total_bytes: Some(1 << 30), ..NodeSample::default() };
    TickReport {
        nodes: BTreeMap::from([(NodeId(33), node)]),
        events: Some(EventCounts { told: 5, ring_full: 2, ..EventCounts::default() }),
        totals: TickTotals {
            ticks: 7,
            actions: BTreeMap::from([("set-cpus", BTreeMap::from([("applied", 2)]))]),
            cluster_events: Some(ClusterEventTotals { written: 3, dropped: 1 }),
            cluster_predictions: Some(ClusterPredictionTotals { right: 8, wrong: 1, unchecked: 2 }),
            ..TickTotals::default()
        },
        ..fixture::turn(audit)
    }
}

fn render(report: TickReport) -> String {
    let report = Arc::new(report);
    Metrics::of(move || Some(Arc::clone(&report)), true).unwrap().render().unwrap()
}

fn series(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn values_have_their_series_and_missing_ones_have_none() {
    let mut seen = workload("/db", AuditVerdict::Misaligned);
    let bytes = NodeBytes { anon: 3, file: 4, kernel: Some(5), ..NodeBytes::default() };
    seen.bytes_by_numa = Some(BTreeMap::from([(NodeId(33), bytes), (NodeId(34), NodeBytes::default())]));
    seen.remote_residency = Some(0.25);
    seen.traffic = Some(Traffic::new(0.5, TrafficSource::HintFaults, 9));
    let text = render(report(vec![seen, workload("/idle", AuditVerdict::Unknown)]));
    // The encoder sorts labels by name.
    let db = "workload=\"db\"";
    for line in [
        "numa_enforcer_build_info{commit=\"\",version=\"1.2.3\"} 1",
        "numa_enforcer_enforcing 1",
        "numa_enforcer_numa_distance{dst_numa=\"1\",src_numa=\"0\"} 21",
        "numa_enforcer_numa_node_memory_total_bytes{numa_node=\"33\"} 1073741824",
        "numa_enforcer_workload_memory_bytes{numa_node=\"33\",workload=\"db\"} 12",
        &format!("numa_enforcer_workload_remote_residency_ratio{{{db}}} 0.25"),
        "numa_enforcer_workload_remote_traffic_ratio{source=\"hint-faults\",workload=\"db\"} 0.5",
        &format!("numa_enforcer_workload_aligned{{{db}}} 0"),
        "numa_enforcer_kernel_events_total{result=\"told\"} 5",
        "numa_enforcer_kernel_events_total{result=\"ring-full\"} 2",
        "numa_enforcer_kernel_events_total{result=\"limited\"} 0",
        "numa_enforcer_cluster_events_total{result=\"written\"} 3",
        "numa_enforcer_cluster_events_total{result=\"dropped\"} 1",
        "numa_enforcer_cluster_predictions_total{outcome=\"right\"} 8",
        "numa_enforcer_cluster_predictions_total{outcome=\"wrong\"} 1",
        "numa_enforcer_cluster_predictions_total{outcome=\"unchecked\"} 2",
        "numa_enforcer_degraded{feature=\"cgroup\"} 2",
        "numa_enforcer_actions_total{action=\"set-cpus\",result=\"applied\"} 2",
        "numa_enforcer_ticks_total 7",
    ] {
        assert!(series(&text).contains(&line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("memory_free_bytes"), "{text}");
    assert!(!text.contains("numa_node=\"34\""), "it has nothing there\n{text}");
    let idle: Vec<_> = series(&text).into_iter().filter(|line| line.contains("idle")).collect();
    assert!(idle.len() == 1 && idle[0].starts_with("numa_enforcer_workload_info{"), "{idle:?}");
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
    let pages = |reason, moved| PageMovesByReason::from([(reason, PageMoves { moved, failed: 1 })]);
    let counters = Counters {
        run_time: Some(
            [(NodeId(1), RunTime { ns: 2_500_000_000, misplaced_ns: 500_000_000, samples: 9 })].into(),
        ),
        placements: Some(vec![placements(0, 1), placements(1, 1)]),
        hint_faults: Some([(NodeId(0), HintFaults { local: 5, remote: 6, ..HintFaults::default() })].into()),
        hardware: Some([(NodeId(1), HardwareAccesses { local: 70, remote: 80, samples: 9 })].into()),
        page_moves: Some(pages(PageMoveReason::Balancing, 7)),
        balancer: Some(BalancerSteps { moved: 8, swapped: 9, stuck: 10 }),
        cpuset_writes: Some([(CpusetFile::Mems, 14)].into()),
        policies: Some([(PolicyMode::Bind, PolicyCounts { tasks: 15, ranges: 16 })].into()),
        scan_skips: Some(ScanSkips { one_node: Some(11), ..ScanSkips::default() }),
    };
    let state = KernelSide {
        lost: [("map-full".into(), 4)].into(),
        cgroups_watched: 2,
        cgroups_room: 64,
        ..KernelSide::default()
    };
    let mut report = TickReport {
        counters: [(CgroupPath::new("/db"), counters.clone()), (CgroupPath::new("/gone"), counters.clone())]
            .into(),
        kernel_side: Some(state),
        other_page_moves: Some(OtherPageMoves {
            own: pages(PageMoveReason::Syscall, 12),
            elsewhere: pages(PageMoveReason::Demotion, 13),
        }),
        ..report(vec![workload("/db", AuditVerdict::Aligned)])
    };
    report.totals.counters = counters;
    let text = render(report.clone());
    for line in [
        "task_moves_total{dst_numa=\"1\",src_numa=\"0\",workload=\"db\"} 3",
        "task_starts_total{dst_numa=\"1\",src_numa=\"1\",workload=\"db\"} 2",
        "misplaced_tasks_total{dst_numa=\"1\",src_numa=\"0\",workload=\"db\"} 1",
        "run_time_seconds_total{numa_node=\"1\",workload=\"db\"} 2.5",
        "misplaced_run_time_seconds_total{numa_node=\"1\",workload=\"db\"} 0.5",
        "numa_hint_fault_pages_total{memory=\"remote\",numa_node=\"0\",workload=\"db\"} 6",
        "memory_accesses_total{memory=\"local\",numa_node=\"1\",workload=\"db\"} 70",
        "memory_accesses_total{memory=\"remote\",numa_node=\"1\",workload=\"db\"} 80",
        "memory_access_samples_total{numa_node=\"1\",workload=\"db\"} 9",
        "page_moves_total{cause=\"balancing\",result=\"moved\",workload=\"db\"} 7",
        "page_moves_total{cause=\"balancing\",result=\"failed\",workload=\"db\"} 1",
        "balancer_tasks_total{step=\"swapped\",workload=\"db\"} 9",
        "scan_skips_total{cause=\"one-node\",workload=\"db\"} 11",
        "cpuset_writes_total{file=\"mems\",workload=\"db\"} 14",
        "memory_policies_total{mode=\"bind\",scope=\"range\",workload=\"db\"} 16",
    ] {
        let of_all = line.replace(",workload=\"db\"", "");
        for line in [format!("numa_enforcer_workload_{line}"), format!("numa_enforcer_{of_all}")] {
            assert!(series(&text).contains(&line.as_str()), "{line} is missing in\n{text}");
        }
    }
    let report = Arc::new(report);
    let unasked = Metrics::of(move || Some(Arc::clone(&report)), false).unwrap().render().unwrap();
    let counters =
        series(&unasked).into_iter().filter(|line| line.contains("workload=") && line.contains("_total{"));
    assert_eq!(
        counters.collect::<Vec<_>>(),
        <[&str; 0]>::default(),
        "counters of each workload are not configured"
    );
    assert!(unasked.contains("numa_enforcer_task_moves_total{"), "{unasked}");
    assert!(text.contains("numa_enforcer_kernel_side_lost_total{reason=\"map-full\"} 4\n"), "{text}");
    assert!(text.contains("numa_enforcer_kernel_side_cgroups_watched 2\n"), "{text}");
    for (by, cause, pages) in [("own", "syscall", 12), ("elsewhere", "demotion", 13)] {
        let labels = format!("by=\"{by}\",cause=\"{cause}\",result=\"moved\"");
        let line = format!("numa_enforcer_other_page_moves_total{{{labels}}} {pages}\n");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("cause=\"unsuitable\""), "what is not told is not 0: {text}");
    let inside = "moves_total{dst_numa=\"1\",src_numa=\"1\"";
    assert!(!text.contains(inside) && !text.contains("gone"), "{text}");
}

#[test]
fn whose_a_workload_is_and_what_it_was_placed_with_are_labels_of_one_series() {
    let mut container = workload("/kubepods/x", AuditVerdict::Aligned);
    container.name = "shop/db-0/main".into();
    let qos = QosClass::Guaranteed;
    container.origin =
        Origin::Pod { pod_uid: "u".into(), qos, container_id: Some("x".into()), runtime: None };
    let mut report = report(vec![container, workload("/db", AuditVerdict::Aligned)]);
    let [namespace, pod, container] = ["shop", "db-0", "main"].map(str::to_owned);
    report.pods = [(CgroupPath::new("/kubepods/x"), ContainerNames { namespace, pod, container })].into();
    let text = render(report);
    for line in [
        "{cgroup=\"/kubepods/x\",container=\"main\",namespace=\"shop\",owner=\"\",pod=\"db-0\",policy=\"\",\
         qos=\"guaranteed\",workload=\"shop/db-0/main\"} 1",
        "{cgroup=\"/db\",container=\"\",namespace=\"\",owner=\"\",pod=\"\",policy=\"\",qos=\"\",workload=\"db\"} 1",
    ] {
        let line = format!("numa_enforcer_workload_info{line}");
        assert!(series(&text).contains(&line.as_str()), "{line} is missing in\n{text}");
    }
}

#[test]
fn calls_that_move_pages_are_a_histogram() {
    let mut times = CallTimes::default();
    for took in [1, 30, 2_000] {
        times.note(Duration::from_millis(took));
    }
    let mut report = report(Vec::new());
    report.totals.page_move_calls = Some(times);
    let text = render(report);
    for line in [
        "_bucket{le=\"0.0005\"} 0",
        "_bucket{le=\"0.001\"} 1",
        "_bucket{le=\"0.05\"} 2",
        "_bucket{le=\"0.5\"} 2",
        "_bucket{le=\"+Inf\"} 3",
        "_sum 2.031",
        "_count 3",
    ] {
        let line = format!("numa_enforcer_page_move_call_duration_seconds{line}");
        assert!(series(&text).contains(&line.as_str()), "{line} is missing in\n{text}");
    }
}

#[test]
fn a_single_look_tells_nothing_of_a_daemon() {
    let report = report(vec![workload("/db", AuditVerdict::Misaligned)]);
    let text = of_audit(&report.audit, &report.nodes).unwrap();
    for line in [
        "numa_enforcer_workload_aligned{workload=\"db\"} 0",
        "numa_enforcer_workload_info{cgroup=\"/db\",container=\"\",namespace=\"\",owner=\"\",pod=\"\",policy=\"\",qos=\"\",workload=\"db\"} 1",
        "numa_enforcer_numa_node_memory_total_bytes{numa_node=\"33\"} 1073741824",
        "numa_enforcer_findings{severity=\"critical\"} 0",
        "numa_enforcer_build_info{commit=\"\",version=\"1.2.3\"} 1",
        "numa_enforcer_degraded{feature=\"cgroup\"} 2",
    ] {
        assert!(series(&text).contains(&line), "{line} is missing in\n{text}");
    }
    for of_a_daemon in ["ticks", "enforcing", "reload", "actions", "drift"] {
        assert!(!text.contains(of_a_daemon), "{of_a_daemon}: {text}");
    }
}

#[test]
fn hostile_names_stay_inside_their_quotes() {
    let name = "/a\"} 1\nnuma_enforcer_ticks_total 99\\";
    let text = render(report(vec![workload(name, AuditVerdict::Aligned)]));
    let ticks: Vec<_> =
        series(&text).into_iter().filter(|line| line.starts_with("numa_enforcer_ticks_total")).collect();
    assert_eq!(ticks, ["numa_enforcer_ticks_total 7"]);
    assert!(text.contains(r#"cgroup="/a\"} 1\\nnuma_enforcer_ticks_total 99\\""#), "{text}");
}

#[test]
fn no_series_appears_twice_and_processes_have_none() {
    let mut process = workload("/", AuditVerdict::Misaligned);
    process.origin = Origin::Process { pid: 7, command: "x".into() };
    let twice = [workload("/a", AuditVerdict::Aligned), workload("/a", AuditVerdict::Aligned), process];
    let text = render(report(twice.into()));
    let mut lines = series(&text);
    lines.sort_unstable();
    let count = lines.len();
    lines.dedup();
    assert_eq!(lines.len(), count, "{text}");
    assert!(lines.contains(&"numa_enforcer_workloads_omitted 2"), "{text}");
}

#[test]
fn of_two_with_one_name_each_has_its_own_label() {
    let named = |path: &str| AuditedWorkload { name: "db".into(), ..workload(path, AuditVerdict::Aligned) };
    let text = render(report(vec![named("/a/db"), named("/b/db"), workload("/c", AuditVerdict::Aligned)]));
    let aligned: Vec<_> =
        series(&text).into_iter().filter(|line| line.contains("workload_aligned")).collect();
    assert_eq!(aligned.len(), 3, "{text}");
    assert_eq!(aligned.iter().filter(|line| line.contains("workload=\"db~")).count(), 2, "{aligned:?}");
    let info = text.lines().find(|line| line.contains("cgroup=\"/b/db\"")).unwrap();
    let label = info.split("workload=").nth(1).unwrap();
    assert!(aligned.iter().any(|line| line.contains(label.trim_end_matches(" 1"))), "{info} {aligned:?}");
}

#[test]
fn counters_of_single_workloads_are_bounded_and_the_worst_come_first() {
    let nodes = || (0..64).map(NodeId);
    let counters = Counters {
        run_time: Some(nodes().map(|node| (node, RunTime::default())).collect()),
        ..Counters::default()
    };
    let many: Vec<_> = (0..100)
        .map(|n| {
            workload(
                &format!("/w{n}"),
                if n == 99 { AuditVerdict::Misaligned } else { AuditVerdict::Aligned },
            )
        })
        .collect();
    let mut report = report(many);
    report.counters =
        report.audit.workloads.iter().map(|one| (one.cgroup.clone(), counters.clone())).collect();
    let text = render(report);
    let counted = text.lines().filter(|line| line.contains("run_time_seconds_total{")).count();
    assert!((workloads::MAX_COUNTERS..workloads::MAX_COUNTERS + 128).contains(&counted), "{counted}");
    assert!(text.contains("run_time_seconds_total{numa_node=\"63\",workload=\"w99\"}"), "the worst is there");
    assert!(text.contains("numa_enforcer_workload_counters_omitted 21\n"), "{}", 100 - counted / 128);
}

#[test]
fn above_the_limit_the_worst_are_kept() {
    let mut many: Vec<_> =
        (0..MAX_WORKLOADS).map(|n| workload(&format!("/ok{n}"), AuditVerdict::Aligned)).collect();
    many.push(workload("/bad", AuditVerdict::Misaligned));
    let text = render(report(many));
    let aligned: Vec<_> =
        series(&text).into_iter().filter(|line| line.contains("workload_aligned")).collect();
    assert_eq!(aligned.len(), MAX_WORKLOADS);
    assert!(aligned[0].contains("\"bad\""), "{}", aligned[0]);
    assert!(text.contains("numa_enforcer_workloads_omitted 1\n"));
}

#[test]
fn a_workload_that_is_gone_leaves_no_series_and_nothing_is_shared_between_registries() {
    let latest = Arc::new(Mutex::new(None));
    let source = Arc::clone(&latest);
    let metrics = Metrics::of(move || source.lock().unwrap().clone(), false).unwrap();
    assert_eq!(metrics.render().unwrap(), "", "before the first turn");
    let set = |workloads| *latest.lock().unwrap() = Some(Arc::new(report(workloads)));
    set(vec![workload("/old", AuditVerdict::Aligned), workload("/new", AuditVerdict::Aligned)]);
    assert!(metrics.render().unwrap().contains("\"old\""));
    set(vec![workload("/new", AuditVerdict::Aligned)]);
    let text = metrics.render().unwrap();
    assert!(!text.contains("\"old\"") && text.contains("\"new\""), "{text}");
    assert_eq!(metrics.render().unwrap(), text, "a scrape changes nothing");
    assert!(!render(report(Vec::new())).contains("\"new\""));
}

#[test]
fn what_programs_cost_is_told_where_the_kernel_counts_it() {
    let with = |cost| {
        let state = KernelSide { programs: [("sched_switch".into(), cost)].into(), ..KernelSide::default() };
        render(TickReport { kernel_side: Some(state), ..report(Vec::new()) })
    };
    let text = with(ProgramCost {
        runs: Some(4),
        run_ns: Some(500),
        verified_instructions: Some(91),
        recursion_misses: Some(2),
    });
    for line in [
        "runs_total{P} 4\n",
        "run_time_seconds_total{P} 0.0000005\n",
        "recursion_misses_total{P} 2\n",
        "verified_instructions{P} 91\n",
    ] {
        let line = line.replace('P', "program=\"sched_switch\"");
        assert!(text.contains(&format!("numa_enforcer_kernel_side_program_{line}")), "{line}: {text}");
    }
    assert!(!with(ProgramCost::default()).contains("kernel_side_program"), "not known is not 0");
}

#[test]
fn pressure_is_told_by_node_and_kind_with_its_delay() {
    let total = |node, kind, events| PressureTotal { numa_node: NodeId(node), kind, events };
    let told = PressureEvents {
        counts: EventCounts { told: 6, limited: 3, ..EventCounts::default() },
        totals: vec![total(1, PressureKind::KswapdWoken, 5), total(0, PressureKind::OomVictim, 1)],
        delay: PressureDelay { sum_ns: 3_000_000, longest_ns: Some(2_000_000) },
        ..PressureEvents::default()
    };
    let with = |pressure| render(TickReport { pressure, ..report(Vec::new()) });
    let text = with(Some(told.clone()));
    for line in [
        "events_total{kind=\"kswapd-woken\",numa_node=\"1\"} 5",
        "events_total{kind=\"oom-victim\",numa_node=\"0\"} 1",
        "kernel_events_total{result=\"told\"} 6",
        "kernel_events_total{result=\"limited\"} 3",
        "delay_seconds_total 0.003",
        "delay_longest_seconds 0.002",
    ] {
        let line = format!("numa_enforcer_memory_pressure_{line}");
        assert!(series(&text).contains(&line.as_str()), "{line} is missing in\n{text}");
    }
    let quiet = PressureDelay { longest_ns: None, ..told.delay };
    assert!(!with(Some(PressureEvents { delay: quiet, ..told })).contains("longest"), "no event, no time");
    assert!(!with(None).contains("pressure"), "nothing tells");
}

#[test]
fn names_that_are_too_long_are_cut_and_stay_apart() {
    let long = |last: &str| workload(&format!("/{}{last}", "x".repeat(4_000)), AuditVerdict::Aligned);
    let text = render(report(vec![long("1"), long("2")]));
    let aligned: Vec<_> =
        series(&text).into_iter().filter(|line| line.contains("workload_aligned")).collect();
    assert_eq!(aligned.len(), 2, "{text}");
    assert!(aligned.iter().all(|line| line.len() < label::LONGEST + 100), "{aligned:?}");
}

#[test]
fn what_was_done_about_memory_that_ran_out_is_told_by_stage_and_result() {
    let text = render(full());
    for line in [
        "widenings_total{result=\"applied\",stage=\"widen\"} 1",
        "widenings_total{result=\"failed\",stage=\"emergency\"} 0",
        "widening_refusals_total{reason=\"strict\"} 1",
        "oom_kills_total{cause=\"memory-limit\"} 1",
        "widened_workloads 0",
        "relieved_bytes_total{cause=\"bound\"} 4096",
        "exposed_processes 3",
        "brakes_total{result=\"applied\"} 2",
        "brakes_total{result=\"failed\"} 0",
        "brake_seconds_total 0.5",
        "brake_watched 1",
    ] {
        assert!(text.contains(&format!("\nnuma_enforcer_memory_{line}\n")), "{line} in {text}");
    }
    assert!(!render(report(Vec::new())).contains("widen"), "widening is off");
}

/// A report in which there is something of everything.
fn full() -> TickReport {
    let mut seen = workload("/db", AuditVerdict::Misaligned);
    let bytes = NodeBytes { anon: 1, ..NodeBytes::default() };
    seen.bytes_by_numa = Some(BTreeMap::from([(NodeId(0), bytes)]));
    seen.remote_residency = Some(0.0);
    seen.traffic = Some(Traffic::new(0.5, TrafficSource::Hardware, 9));
    let mut report = report(vec![seen]);
    let moved =
        Placements { src_numa: NodeId(0), dst_numa: NodeId(1), migrated: 1, started: 1, misplaced: 1 };
    let counters = Counters {
        run_time: Some([(NodeId(0), RunTime::default())].into()),
        placements: Some(vec![moved]),
        hint_faults: Some([(NodeId(0), HintFaults::default())].into()),
        hardware: Some([(NodeId(0), HardwareAccesses::default())].into()),
        page_moves: Some([(PageMoveReason::Other, PageMoves::default())].into()),
        balancer: Some(BalancerSteps::default()),
        cpuset_writes: Some([(CpusetFile::Cpus, 0)].into()),
        policies: Some([(PolicyMode::Bind, PolicyCounts::default())].into()),
        scan_skips: Some(ScanSkips { one_node: Some(0), unsuitable: Some(0), passed: Some(0) }),
    };
    let moves = PageMovesByReason::from([(PageMoveReason::Other, PageMoves::default())]);
    report.other_page_moves = Some(OtherPageMoves { own: moves.clone(), elsewhere: moves });
    report.counters = [(CgroupPath::new("/db"), counters.clone())].into();
    report.totals.counters = counters;
    let cost = ProgramCost {
        runs: Some(0),
        run_ns: Some(0),
        verified_instructions: Some(0),
        recursion_misses: Some(0),
    };
    report.kernel_side = Some(KernelSide {
        lost: [("map-full".into(), 0)].into(),
        programs: [("p".into(), cost)].into(),
        ..KernelSide::default()
    });
    let total = PressureTotal { numa_node: NodeId(0), kind: PressureKind::DirectReclaim, events: 0 };
    report.pressure = Some(PressureEvents {
        totals: vec![total],
        delay: PressureDelay { sum_ns: 0, longest_ns: Some(0) },
        ..PressureEvents::default()
    });
    let node = NodeSample {
        mem_total_bytes: Some(0),
        mem_free_bytes: Some(0),
        counters: [("numa_hit".into(), 1)].into(),
        ..NodeSample::default()
    };
    report.nodes = BTreeMap::from([(NodeId(0), node)]);
    report.totals.last_tick_seconds = Some(0.1);
    report.totals.page_move_calls = Some(CallTimes::default());
    let mut widening = WideningReport::default();
    widening.widened_at(PressureLevel::Widen, true, 2_000_000);
    widening.refused(WideningRefusal::Strict);
    widening.killed(true);
    widening.relieved(ReclaimSource::Bound, 4096);
    let (applied, slowed_ns) = (2, 500_000_000);
    widening.brake = Some(BrakeUse { watchdog: Some(7), applied, slowed_ns, ..BrakeUse::default() });
    let exposed = |because_of: &str| OomCandidates {
        cgroup: CgroupPath::new("/a"),
        because_of: CgroupPath::new(because_of),
        nodes: NodeSet::new(),
        processes: 3,
        pids: vec![7],
    };
    widening.exposed = ["/a", "/b"].map(exposed).to_vec();
    report.widening = Some(widening);
    report.rebalanced = Some(Rebalanced { begun: true, report: RebalanceReport::default() });
    let latest = LatestRound {
        source: "damon",
        cold_bytes: 3 << 20,
        hot_bytes: 1 << 20,
        estimate_bytes: Some(4 << 20),
        bound: None,
        backend: "reclaim",
        backend_refused: None,
        halvings: 1,
        unwatched: None,
    };
    let moves = TierMoves {
        down_bytes: [("damon", 2 << 20)].into(),
        up_bytes: [("damon", 1 << 20)].into(),
        by_backend: [("move-pages", 1 << 20), ("reclaim", 1 << 20)].into(),
        latest: Some(latest),
    };
    report.demotion = [(CgroupPath::new("/a"), moves)].into();
    report.runtime = Some(runtime());
    report.claims = Some(claims());
    report.interrupts = Some(interrupts());
    report
}

/// Three claims, of which one has two CPUs of node 1.
fn claims() -> ClaimsReport {
    let node = ClaimedNodeReport {
        exclusive_capacity: 6,
        exclusive_cpus: 2,
        shared_cpus: 5,
        memory_capacity: 1 << 30,
        memory_promised: 1 << 20,
    };
    ClaimsReport {
        claims: 3,
        containers: 2,
        spoofed: 1,
        nodes: BTreeMap::from([(NodeId(1), node)]),
        calls: ClaimCallTotals {
            is_registered: true,
            prepared: 4,
            refused: 1,
            prepare_seconds: 0.5,
            given_up: 1,
            kept: 0,
            slice_writes: 2,
        },
    }
}

/// A runtime that is connected, with calls of which one was late.
fn runtime() -> RuntimeReport {
    RuntimeReport {
        link: RuntimeLink::Up { name: "containerd".into(), version: "2".into() },
        containers: 3,
        unplaced: [("id".into(), "no room".into())].into(),
        calls: [("create", 4)].into(),
        late: 1,
        deciding: AnswerTimes {
            sum: Duration::from_millis(1500),
            longest: Some(Duration::from_secs(1)),
            creations: {
                let mut creations = CallTimes::default();
                for ms in [3, 30] {
                    creations.note(Duration::from_millis(ms));
                }
                creations
            },
        },
    }
}

#[test]
fn a_runtime_is_told_of_where_one_was_looked_for() {
    let text = render(full());
    for line in [
        "nri_up 1",
        "nri_containers 3",
        "nri_containers_unplaced 1",
        "nri_calls_total{call=\"create\"} 4",
        "nri_late_answers_total 1",
        "nri_deciding_seconds_total 1.5",
        "nri_deciding_longest_seconds 1",
        "nri_create_duration_seconds_bucket{le=\"0.005\"} 1",
        "nri_create_duration_seconds_count 2",
    ] {
        assert!(text.contains(&format!("\nnuma_enforcer_{line}\n")), "{line} in {text}");
    }
    let mut down = full();
    down.runtime =
        Some(RuntimeReport { link: RuntimeLink::Down { reason: "gone".into() }, ..RuntimeReport::default() });
    assert!(render(down).contains("numa_enforcer_nri_up 0"));
    assert!(!render(report(Vec::new())).contains("nri_"));
}

fn interrupts() -> InterruptReport {
    let totals = InterruptTotals {
        by_node: BTreeMap::from([(NodeId(0), 70), (NodeId(1), 9)]),
        on_exclusive: BTreeMap::from([(NodeId(0), 0), (NodeId(1), 9)]),
        set: 3,
        refused: 1,
    };
    InterruptReport { irqbalance: Some(7), set: 2, totals, ..InterruptReport::default() }
}

#[test]
fn interrupts_are_told_by_node_and_writes_by_their_ends() {
    let text = render(full());
    for line in [
        "interrupts_total{numa_node=\"0\"} 70",
        "exclusive_cpu_interrupts_total{numa_node=\"0\"} 0",
        "exclusive_cpu_interrupts_total{numa_node=\"1\"} 9",
        "interrupts_set 2",
        "interrupt_writes_total{result=\"applied\"} 3",
        "interrupt_writes_total{result=\"failed\"} 1",
        "irqbalance_running 1",
    ] {
        assert!(text.contains(&format!("\nnuma_enforcer_{line}\n")), "{line} in {text}");
    }
    assert!(!render(report(Vec::new())).contains("numa_enforcer_interrupt"));
}

#[test]
fn claims_are_told_by_node_and_calls_by_their_ends() {
    let text = render(full());
    for line in [
        "dra_claims 3",
        "dra_containers 2",
        "dra_cpus{numa_node=\"1\",state=\"capacity\"} 6",
        "dra_cpus{numa_node=\"1\",state=\"exclusive\"} 2",
        "dra_cpus{numa_node=\"1\",state=\"shared\"} 5",
        "dra_memory_bytes{numa_node=\"1\",state=\"promised\"} 1048576",
        "dra_kubelet_registered 1",
        "dra_prepare_total{result=\"ok\"} 4",
        "dra_prepare_total{result=\"error\"} 1",
        "dra_prepare_seconds_total 0.5",
        "dra_unprepare_total{result=\"ok\"} 1",
        "dra_slice_writes_total 2",
        "dra_spoofed_total 1",
    ] {
        assert!(text.contains(&format!("\nnuma_enforcer_{line}\n")), "{line} in {text}");
    }
    assert!(!render(report(Vec::new())).contains("numa_enforcer_dra_"));
}

#[test]
fn every_family_is_announced_and_every_announced_one_has_series() {
    let text = render(full());
    let mut announced: Vec<_> = sections::all().map(|family| family.name.to_owned()).collect();
    let mut once = series(&text);
    once.sort_unstable();
    assert!(once.windows(2).all(|two| two[0] != two[1]), "{text}");
    let served = text.lines().filter_map(|line| line.strip_prefix("# TYPE numa_enforcer_"));
    let mut served: Vec<_> = served.map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    announced.sort();
    served.sort();
    assert_eq!(served, announced);
}
