//! Most memory accesses go to another node than that of the CPU that makes them.
//!
//! Needs two samples. An estimate from placement alone is never critical for a workload that may run
//! on several nodes: its threads may each keep to their own memory, which the estimate cannot see. And
//! where such a workload hardly runs, the estimate is a note: there is nothing to gain.

use super::{
    Evidence, Finding, Rule, Severity,
    subject::{FindingWords, Subject},
};
use crate::{
    model::{Silent, Traffic, TrafficSource},
    words::percent,
};

/// CPUs kept busy below which an estimate is not worth a warning.
const HARDLY_RUNS_CPUS: f64 = 0.05;

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    let thresholds = &subject.policy.thresholds;
    let traffic = subject.figures.traffic.as_ref()?;
    let too_little = traffic.samples < thresholds.min_samples || !subject.has_memory();
    if traffic.remote_ratio < thresholds.remote_traffic_warning || too_little {
        return None;
    }
    let spans = subject.figures.cpu_nodes.len() > 1;
    let guess = spans && traffic.source == TrafficSource::Placement;
    let hardly_runs = subject.figures.cpus_used.is_some_and(|cpus| cpus < HARDLY_RUNS_CPUS);
    let severity = match (guess, traffic.remote_ratio >= thresholds.remote_traffic_critical) {
        (true, _) if hardly_runs => Severity::Info,
        (false, true) => Severity::Critical,
        _ => Severity::Warning,
    };
    let busy = subject.figures.cpus_used.map_or(String::new(), |cpus| format!(" of {cpus:.1} busy CPUs"));
    let (severity, remedy) = subject.judge_by_memory(severity);
    let words = FindingWords {
        summary: format!("{} of its memory accesses are remote", percent(traffic.remote_ratio)),
        impact: format!("{} of the accesses{busy} cross nodes", percent(traffic.remote_ratio)),
        remedy,
    };
    let mut evidence = vec![measured(traffic)];
    evidence.extend(silent(subject, traffic));
    evidence.extend(ran_on(subject));
    evidence.extend(subject.residency_evidence());
    Some(subject.finding(Rule::RemoteTraffic, severity, words, evidence))
}

fn measured(traffic: &Traffic) -> Evidence {
    let of = match traffic.source {
        TrafficSource::Placement => "clock ticks",
        TrafficSource::HintFaults => "pages",
        TrafficSource::Hardware => "samples",
    };
    let value = format!("{} remote of {} {of}", percent(traffic.remote_ratio), traffic.samples);
    Evidence { source: title(traffic.source).into(), value }
}

const fn title(source: TrafficSource) -> &'static str {
    match source {
        TrafficSource::Placement => "run time per node and memory.numa_stat",
        TrafficSource::HintFaults => "NUMA hinting faults",
        TrafficSource::Hardware => "hardware counters",
    }
}

/// Reasons why sources that are trusted more have no figure. Newer kernels take no hinting faults for some
/// workloads, which no setting shows.
fn silent(subject: &Subject<'_>, traffic: &Traffic) -> Vec<Evidence> {
    let one_node = subject.figures.mems.as_ref().filter(|mems| mems.len() == 1);
    let evidence = |silent: &Silent| {
        let why = match (silent.source, one_node) {
            (TrafficSource::HintFaults, Some(node)) => {
                format!("; from Linux 6.17 on a task with memory on node {node} alone takes none")
            }
            _ => String::new(),
        };
        Evidence {
            source: title(silent.source).into(),
            value: format!("none to go by: {}{why}", silent.reason),
        }
    };
    traffic.silent.iter().map(evidence).collect()
}

fn ran_on(subject: &Subject<'_>) -> Option<Evidence> {
    let shares = subject.figures.run_share.as_ref()?;
    let parts = shares.iter().map(|(node, share)| format!("N{node} {}", percent(*share)));
    Some(Evidence { source: "run time".into(), value: parts.collect::<Vec<_>>().join(", ") })
}
