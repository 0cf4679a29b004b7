//! The latest turn as Prometheus metrics.
//!
//! Every scrape is computed from the latest report and from nothing else, so a workload that is gone
//! leaves no stale series behind. (That is what a custom collector is for; with a single one, the
//! registry around it would have nothing to do.)
//!
//! Names: one prefix, base units, `numa_node` for NUMA nodes because `node` is a machine in
//! Kubernetes. Label values are cgroup names, which containers choose: the encoder escapes them. No
//! process ids as labels, and at most [`MAX_WORKLOADS`] workloads: the worst ones, and a metric says
//! how many were left out.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    audit::{AuditedWorkload, Verdict},
    finding::Severity,
    model::TrafficSource,
    policy::Mode,
    workload::Origin,
};
use prometheus::{
    TextEncoder,
    proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType},
};

use super::tick::TickReport;

/// Workloads with series of their own.
pub const MAX_WORKLOADS: usize = 1_000;

/// Media type of [`render`]'s text.
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// The metrics in the text exposition format.
pub fn render(report: &TickReport) -> Result<String, prometheus::Error> {
    TextEncoder::new().encode_to_string(&families(report))
}

fn families(report: &TickReport) -> Vec<MetricFamily> {
    let mut families = Families::default();
    machine(report, &mut families);
    workloads(report, &mut families);
    daemon(report, &mut families);
    families.0.into_iter().map(|(name, family)| family.finish(name)).collect()
}

fn machine(report: &TickReport, families: &mut Families) {
    for (node, sample) in &report.nodes {
        let labels = [("numa_node", node.to_string())];
        for (name, help, value) in [
            ("numa_node_memory_total_bytes", "Memory of the NUMA node.", sample.mem_total_bytes),
            ("numa_node_memory_free_bytes", "Free memory of the NUMA node.", sample.mem_free_bytes),
        ] {
            families.gauge(name, help, &labels, value.map(to_f64));
        }
    }
}

fn workloads(report: &TickReport, families: &mut Families) {
    let (shown, omitted) = shown(&report.audit.workloads);
    let help = "Workloads without series of their own: lone processes, and those above the limit.";
    families.gauge("workloads_omitted", help, &[], Some(to_f64(omitted as u64)));
    for workload in shown {
        let labels = [("workload", workload.name.clone()), ("cgroup", workload.cgroup.as_str().to_owned())];
        for (node, bytes) in workload.bytes_by_numa.iter().flatten() {
            let total = bytes.anon.saturating_add(bytes.file).saturating_add(bytes.kernel.unwrap_or(0));
            families.gauge(
                "workload_memory_bytes",
                "Memory of the workload on the NUMA node.",
                &with(&labels, "numa_node", node.to_string()),
                Some(to_f64(total)),
            );
        }
        families.gauge(
            "workload_remote_residency_ratio",
            "Share of the workload's memory on other NUMA nodes than its CPUs, 0 to 1.",
            &labels,
            workload.remote_residency,
        );
        if let Some(traffic) = &workload.traffic {
            families.gauge(
                "workload_remote_traffic_ratio",
                "Share of the workload's memory accesses that go to another NUMA node, 0 to 1.",
                &with(&labels, "source", source_name(traffic.source).to_owned()),
                Some(traffic.remote_ratio),
            );
        }
        let aligned = match workload.verdict {
            Verdict::Aligned => Some(1.0),
            Verdict::Partial | Verdict::Misaligned => Some(0.0),
            Verdict::Unknown => None,
        };
        let help = "1 when the workload's CPUs and memory are on the same NUMA nodes.";
        families.gauge("workload_aligned", help, &labels, aligned);
    }
}

/// The workloads with series, worst first, and how many have none. No two have the same labels.
fn shown(workloads: &[AuditedWorkload]) -> (Vec<&AuditedWorkload>, usize) {
    let mut names = BTreeSet::new();
    let mut shown: Vec<_> = workloads
        .iter()
        .filter(|workload| !matches!(workload.origin, Origin::Process { .. }))
        .filter(|workload| names.insert((&workload.cgroup, &workload.name)))
        .collect();
    let badness = |workload: &AuditedWorkload| match workload.verdict {
        Verdict::Misaligned => 0,
        Verdict::Partial => 1,
        Verdict::Aligned => 2,
        Verdict::Unknown => 3,
    };
    shown.sort_by_key(|workload| badness(workload));
    shown.truncate(MAX_WORKLOADS);
    let omitted = workloads.len() - shown.len();
    (shown, omitted)
}

fn daemon(report: &TickReport, families: &mut Families) {
    let version = [("version", report.audit.tool.version.clone())];
    families.gauge("build_info", "Version of numa-enforcer.", &version, Some(1.0));
    let enforcing = f64::from(u8::from(report.mode == Mode::Enforce));
    families.gauge("enforcing", "1 when the daemon may write.", &[], Some(enforcing));
    for (severity, name) in
        [(Severity::Info, "info"), (Severity::Warning, "warning"), (Severity::Critical, "critical")]
    {
        let count = report.audit.findings.iter().filter(|finding| finding.severity == severity).count();
        let labels = [("severity", name.to_owned())];
        families.gauge("findings", "Findings of the latest turn.", &labels, Some(to_f64(count as u64)));
    }
    let mut degraded: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in &report.audit.degraded {
        // `cgroup:/a/b` counts as `cgroup`: the objects are for the report, not for labels.
        let feature = entry.source.split_once(':').map_or(entry.source.as_str(), |(kind, _)| kind);
        *degraded.entry(feature).or_default() += 1;
    }
    for (feature, count) in degraded {
        let labels = [("feature", feature.to_owned())];
        families.gauge("degraded", "Sources that are missing.", &labels, Some(to_f64(count)));
    }
    let refused = Some(to_f64(report.decision.refused.len() as u64));
    families.gauge("workloads_refused", "Declared workloads that are left where they are.", &[], refused);
    for (action, results) in &report.totals.actions {
        for (result, count) in results {
            let labels = [("action", (*action).to_owned()), ("result", (*result).to_owned())];
            families.counter("actions_total", "Steps of plans by result.", &labels, *count);
        }
    }
    families.counter("ticks_total", "Turns that were completed.", &[], report.totals.ticks);
    families.counter("tick_errors_total", "Turns that failed.", &[], report.totals.failed_ticks);
    let duration = report.totals.last_tick_seconds;
    families.gauge("tick_duration_seconds", "Duration of the latest completed turn.", &[], duration);
    let good = f64::from(u8::from(report.totals.config_good));
    families.gauge("config_last_reload_successful", "1 when the configuration was good.", &[], Some(good));
}

type Label = (&'static str, String);

fn with(labels: &[Label], name: &'static str, value: String) -> Vec<Label> {
    labels.iter().cloned().chain([(name, value)]).collect()
}

fn source_name(source: TrafficSource) -> &'static str {
    match source {
        TrafficSource::Placement => "placement",
        TrafficSource::HintFaults => "hint-faults",
        TrafficSource::Hardware => "hardware",
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has doubles only")]
fn to_f64(value: u64) -> f64 {
    value as f64
}

/// Metrics by name without the prefix. A missing value makes no series, and no family without one.
#[derive(Default)]
struct Families(BTreeMap<&'static str, Family>);

struct Family {
    help: &'static str,
    kind: MetricType,
    metrics: Vec<Metric>,
}

impl Families {
    fn gauge(&mut self, name: &'static str, help: &'static str, labels: &[Label], value: Option<f64>) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut metric = Metric::default();
        metric.set_gauge(gauge);
        self.add(name, help, MetricType::GAUGE, labels, metric);
    }

    fn counter(&mut self, name: &'static str, help: &'static str, labels: &[Label], value: u64) {
        let mut counter = Counter::default();
        counter.set_value(to_f64(value));
        let mut metric = Metric::default();
        metric.set_counter(counter);
        self.add(name, help, MetricType::COUNTER, labels, metric);
    }

    fn add(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: MetricType,
        labels: &[Label],
        mut metric: Metric,
    ) {
        let pairs = labels.iter().map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value.clone());
            pair
        });
        metric.set_label(pairs.collect());
        self.0.entry(name).or_insert_with(|| Family { help, kind, metrics: Vec::new() }).metrics.push(metric);
    }
}

impl Family {
    fn finish(self, name: &str) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(format!("numa_enforcer_{name}"));
        family.set_help(self.help.to_owned());
        family.set_field_type(self.kind);
        family.set_metric(self.metrics);
        family
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use enforcer_core::{
        audit::{AUDIT_SCHEMA_VERSION, Audit, Host, Summary, Tool},
        decide::Decision,
        degraded::Degraded,
        id::NodeId,
        model::Traffic,
        sample::{HostSettings, NodeBytes, NodeSample},
        set::NodeSet,
        topology::Topology,
        workload::CgroupPath,
    };

    use super::*;
    use crate::report::tick::{TICK_SCHEMA_VERSION, Totals};

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
            topology: Topology::default(),
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
            decision: Decision::default(),
            outcomes: Vec::new(),
            totals: Totals {
                ticks: 7,
                actions: BTreeMap::from([("set-cpus", BTreeMap::from([("applied", 2)]))]),
                ..Totals::default()
            },
        }
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
        seen.traffic = Some(Traffic { remote_ratio: 0.5, source: TrafficSource::HintFaults, samples: 9 });
        let text = render(&report(vec![seen, workload("/idle", Verdict::Unknown)])).unwrap();
        let db = "workload=\"db\",cgroup=\"/db\"";
        for line in [
            "numa_enforcer_build_info{version=\"1.2.3\"} 1",
            "numa_enforcer_enforcing 1",
            "numa_enforcer_numa_node_memory_total_bytes{numa_node=\"33\"} 1073741824",
            &format!("numa_enforcer_workload_memory_bytes{{{db},numa_node=\"33\"}} 12"),
            &format!("numa_enforcer_workload_remote_residency_ratio{{{db}}} 0.25"),
            &format!("numa_enforcer_workload_remote_traffic_ratio{{{db},source=\"hint-faults\"}} 0.5"),
            &format!("numa_enforcer_workload_aligned{{{db}}} 0"),
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
    fn hostile_names_stay_inside_their_quotes() {
        let name = "/a\"} 1\nnuma_enforcer_ticks_total 99\\";
        let text = render(&report(vec![workload(name, Verdict::Aligned)])).unwrap();
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
        let text = render(&report(twice.into())).unwrap();
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
        let text = render(&report(many)).unwrap();
        let aligned: Vec<_> =
            series(&text).into_iter().filter(|line| line.contains("workload_aligned")).collect();
        assert_eq!(aligned.len(), MAX_WORKLOADS);
        assert!(aligned[0].contains("/bad"), "{}", aligned[0]);
        assert!(text.contains("numa_enforcer_workloads_omitted 1\n"));
    }
}
