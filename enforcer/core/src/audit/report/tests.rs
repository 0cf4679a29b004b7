use insta::assert_json_snapshot;
use schemars::schema_for;

use super::*;
use crate::{hosted::Containers, scene::Scene};
use numa_topology::synth::Machine;

fn audit_with(scene: &Scene, fail_on: Severity, only_misaligned: bool) -> Audit {
    audit_after(scene, &Baseline::default(), fail_on, only_misaligned)
}

fn audit_after(scene: &Scene, baseline: &Baseline, fail_on: Severity, only_misaligned: bool) -> Audit {
    let inputs = AuditInputs {
        tool: ReportingTool { name: "numa-enforcer".into(), version: "0.0.0".into(), commit: None },
        taken_at: None,
        host: AuditedHost::default(),
        topology: scene.machine.clone(),
        workloads: &scene.workloads,
        sample: &scene.now,
        model: &scene.model(),
        owners: &scene.owners(&Containers::default()),
        findings: scene.findings(),
        degraded: vec![Degraded::new("hmat", "not there", "no latencies")],
        thresholds: &scene.policy.thresholds,
        fail_on,
        only_misaligned,
    };
    Audit::since(baseline, inputs)
}

fn audit(scene: &Scene) -> Audit {
    audit_with(scene, Severity::Warning, false)
}

/// CPUs 0-3 on node 0 and 4-7 on node 1.
fn host() -> Scene {
    Scene::new(Machine::new().sockets(2).threads(1).build())
}

/// A workload that may run everywhere; where it ran was not seen.
fn unpinned(scene: Scene) -> Scene {
    let mut scene = scene.workload("/unpinned", "0-7", "0-1").memory("/unpinned", &[(0, 70, 0), (1, 30, 0)]);
    scene.now_mut("/unpinned").run_time = None;
    scene
}

fn mixed() -> Scene {
    let scene = host()
        .workload("/z-good", "0-3", "0")
        .memory("/z-good", &[(0, 100, 0)])
        .workload("/bad", "4-7", "0")
        .memory("/bad", &[(0, 100, 0)])
        .workload("/partial", "0-3", "0")
        .memory("/partial", &[(0, 70, 0), (1, 30, 0)]);
    unpinned(scene)
}

fn verdicts(audit: &Audit) -> Vec<String> {
    audit.workloads.iter().map(|one| format!("{} {:?}", one.cgroup, one.verdict).to_lowercase()).collect()
}

fn verdict(scene: &Scene) -> AuditVerdict {
    audit(scene).workloads[0].verdict
}

#[test]
fn every_workload_has_its_verdict_and_its_findings() {
    let audit = audit(&mixed());
    assert_eq!(
        verdicts(&audit),
        ["/bad misaligned", "/partial partial", "/unpinned unknown", "/z-good aligned"]
    );
    assert_eq!(audit.workloads[0].findings, ["cpuset-mismatch:/bad", "remote-residency:/bad"]);
    assert_json_snapshot!(audit.summary);
}

#[test]
fn only_misaligned_hides_the_rest_but_counts_it() {
    let audit = audit_with(&mixed(), Severity::Warning, true);
    assert_eq!(verdicts(&audit), ["/bad misaligned", "/partial partial"]);
    assert_eq!((audit.summary.total, audit.summary.aligned, audit.summary.unknown), (4, 1, 1));
    let shown: Vec<_> = audit.findings.iter().map(|finding| finding.object.as_str()).collect();
    assert!(
        !shown.is_empty() && shown.iter().all(|object| ["/bad", "/partial"].contains(object)),
        "{shown:?}"
    );
}

#[test]
fn the_exit_code_depends_on_the_severity_asked_for() {
    let good = host().workload("/a", "0-3", "0").memory("/a", &[(0, 100, 0)]);
    let noted = host().workload("/a", "0-3", "0-1").memory("/a", &[(0, 100, 0)]);
    let warned = host().workload("/a", "0-3", "0").memory("/a", &[(0, 70, 0), (1, 30, 0)]);
    let critical = host().workload("/a", "0-3", "1").memory("/a", &[(1, 100, 0)]);
    for (scene, codes) in [(good, [0, 0, 0]), (noted, [1, 0, 0]), (warned, [1, 1, 0]), (critical, [1, 1, 1])]
    {
        let code = |fail_on| audit_with(&scene, fail_on, false).summary.exit_code;
        assert_eq!([Severity::Info, Severity::Warning, Severity::Critical].map(code), codes);
    }
}

#[test]
fn nothing_judged_is_not_a_pass() {
    assert_eq!(audit(&host()).summary.exit_code, 2, "no workload");
    let unpinned = unpinned(host());
    assert_eq!(audit(&unpinned).summary.exit_code, 2, "not sampled");
    assert_eq!(audit(&unpinned).summary.unsampled, 1, "which --sample would have told");
    let beside = unpinned.workload("/b", "0-3", "0").memory("/b", &[(0, 100, 0)]);
    assert_eq!(audit(&beside).summary.exit_code, 0, "another was judged");
}

#[test]
fn a_workload_that_spans_nodes_is_judged_by_traffic_size_or_idleness() {
    let spread = host().workload("/a", "0-7", "0-1").memory("/a", &[(0, 70, 0), (1, 30, 0)]);
    let mut unseen = spread.clone();
    unseen.now_mut("/a").run_time = None;
    assert_eq!(verdict(&unseen), AuditVerdict::Unknown);
    assert_eq!(
        verdict(&spread.clone().memory("/a", &[(0, 9, 0), (1, 3, 0)])),
        AuditVerdict::Aligned,
        "little memory"
    );
    let local = spread.clone().memory("/a", &[(0, 70, 0)]).ran("/a", &[(0, 900)]);
    assert_eq!(verdict(&local), AuditVerdict::Aligned);
    assert_eq!(verdict(&spread.ran("/a", &[(0, 500), (1, 500)])), AuditVerdict::Partial);
}

#[test]
fn an_unseen_cpuset_is_unknown_but_one_node_is_aligned() {
    let mut scene = host().workload("/a", "0-3", "0");
    scene.now.cgroups.clear();
    assert_eq!(verdict(&scene), AuditVerdict::Unknown);
    let mut one = Scene::new(Machine::new().build()).workload("/a", "0-7", "0");
    one.now.cgroups.clear();
    assert_eq!(verdict(&one), AuditVerdict::Aligned);
    assert_eq!(audit(&one).summary.exit_code, 0);
}

#[test]
fn degraded_sources_of_the_sample_are_part_of_the_report_once() {
    let mut scene = host();
    scene.now.degraded = vec![
        Degraded::new("hmat", "not there", "no latencies"),
        Degraded::new("bpf", "not built in", "no migrations"),
    ];
    let sources: Vec<_> = audit(&scene).degraded.into_iter().map(|entry| entry.source).collect();
    assert_eq!(sources, ["bpf", "hmat"]);
}

#[test]
fn processes_of_one_cgroup_keep_their_findings_apart() {
    let mut scene = host().thread("/", 7, "0-3", 0, (0, 10)).thread("/", 8, "0-7", 0, (0, 10));
    for pid in [8, 7] {
        scene.workloads.push(Workload {
            cgroup: crate::workload::CgroupPath::root(),
            cgroup_id: None,
            name: "worker".into(),
            origin: Origin::Process { pid, command: "worker".into() },
        });
    }
    let pids: Vec<_> = audit(&scene).workloads.iter().map(|one| pid(&one.origin)).collect();
    assert_eq!(pids, [Some(7), Some(8)]);
}

#[test]
fn equal_input_gives_equal_bytes_in_any_order() {
    let scene = mixed();
    let mut turned = scene.clone();
    turned.workloads.reverse();
    let text = |scene| serde_json::to_string(&audit(scene)).unwrap();
    assert_eq!(text(&scene), text(&turned));
    let back: Audit = serde_json::from_str(&text(&scene)).unwrap();
    assert_eq!(back, audit(&scene));
}

#[test]
fn the_schema_has_the_version_and_the_findings() {
    let schema = serde_json::to_value(schema_for!(Audit)).unwrap();
    let properties = schema["properties"].as_object().unwrap();
    for key in [
        "schemaVersion",
        "tool",
        "host",
        "degraded",
        "topology",
        "settings",
        "workloads",
        "findings",
        "summary",
    ] {
        assert!(properties.contains_key(key), "{key}");
    }
}

#[test]
fn what_an_earlier_audit_has_is_left_out_and_does_not_fail_again() {
    let scene = mixed();
    let before = audit(&scene);
    let json = serde_json::to_string(&before).unwrap();
    let baseline: Baseline = serde_json::from_str(&json).unwrap();
    let after = audit_after(&scene, &baseline, Severity::Info, false);
    assert_eq!((after.findings.len(), after.summary.known), (0, before.findings.len()));
    assert_eq!((after.summary.worst, after.summary.exit_code), (None, EXIT_ALIGNED));
    assert_eq!(verdicts(&after), verdicts(&before), "what was wrong still is");
    assert!(after.workloads.iter().all(|workload| workload.findings.is_empty()));

    let one = before.findings.first().unwrap();
    let baseline: Baseline = [(one.id.clone(), Severity::Info)].into_iter().collect();
    let after = audit_after(&scene, &baseline, Severity::Warning, false);
    assert_eq!(
        (after.findings.len(), after.summary.exit_code),
        (before.findings.len(), EXIT_FINDINGS),
        "it got worse"
    );
}

#[test]
fn a_baseline_of_another_version_is_refused() {
    let error =
        serde_json::from_str::<Baseline>(r#"{"schemaVersion": 99, "findings": []}"#).unwrap_err().to_string();
    assert!(error.contains("schemaVersion is 99, not 1"), "{error}");
    assert!(serde_json::from_str::<Baseline>("[]").is_err());
}

#[test]
fn traffic_between_nodes_is_that_of_the_model() {
    let scene = host().workload("/a", "4-7", "0").memory("/a", &[(0, 100, 0)]).ran("/a", &[(1, 5000)]);
    let map = audit(&scene).traffic_map.unwrap();
    assert_eq!(map.flows.len(), 1);
    assert_eq!((map.flows[0].src_numa.0, map.flows[0].dst_numa.0), (1, 0));
    assert!((map.flows[0].cpus - 0.5).abs() < 1e-9, "{map:?}");
}
