//! Assembles the report.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AUDIT_SCHEMA_VERSION, Audit, AuditVerdict, AuditedHost, AuditedWorkload, Baseline, ReportingTool,
    Summary, TrafficMap, verdict,
};
use crate::{
    finding::{Finding, Severity},
    model::Model,
    owner::Ownership,
    owners::Owners,
    policy::Thresholds,
    sample::Sample,
    workload::{Origin, Workload},
};
use numa_topology::{Topology, degraded::Degraded};

/// Exit code of an audit without findings at or above the asked severity.
const EXIT_ALIGNED: u8 = 0;
/// Exit code of an audit with such findings.
const EXIT_FINDINGS: u8 = 1;
/// Exit code of an audit that could judge nothing.
const EXIT_UNKNOWN: u8 = 2;

/// Input of a report.
#[derive(Debug, Clone)]
pub struct AuditInputs<'a> {
    /// Program that writes the report.
    pub tool: ReportingTool,
    /// Time of the sample, by RFC 3339 in UTC, if known.
    pub taken_at: Option<String>,
    /// Host of the report.
    pub host: AuditedHost,
    /// The machine.
    pub topology: Topology,
    /// Audited workloads.
    pub workloads: &'a [Workload],
    /// The latest sample; its degraded entries are part of the report.
    pub sample: &'a Sample,
    /// Figures of the workloads.
    pub model: &'a Model,
    /// Owners of the cpusets.
    pub owners: &'a Owners,
    /// Findings.
    pub findings: Vec<Finding>,
    /// Further missing sources.
    pub degraded: Vec<Degraded>,
    /// Thresholds of the findings.
    pub thresholds: &'a Thresholds,
    /// Least severity of findings that make the exit code 1; `warning` by default.
    pub fail_on: Severity,
    /// Leave out workloads that are aligned or unknown; the summary still counts them.
    pub only_misaligned: bool,
}

impl Audit {
    /// The report. Workloads are in order of cgroup, findings worst first.
    pub fn new(inputs: AuditInputs<'_>) -> Self {
        Self::since(&Baseline::default(), inputs)
    }

    /// The report without findings of an earlier audit; verdicts still count them.
    pub fn since(baseline: &Baseline, inputs: AuditInputs<'_>) -> Self {
        let AuditInputs {
            tool,
            taken_at,
            host,
            topology,
            workloads,
            sample,
            model,
            owners,
            mut findings,
            mut degraded,
            ..
        } = inputs;
        findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.id.cmp(&b.id)));
        degraded.extend(sample.degraded.iter().cloned());
        degraded.sort();
        degraded.dedup();

        let cpu_nodes = topology.cpu_nodes().len();
        let by_object = by_object(&findings);
        let mut audited: Vec<AuditedWorkload> = workloads
            .iter()
            .map(|workload| {
                let found = by_object.get(&workload.object()).map_or(&[][..], Vec::as_slice);
                let owner = owners.of(workload).cloned();
                audited(workload, owner, model, found, cpu_nodes, inputs.thresholds)
            })
            .collect();
        audited
            .sort_by(|a, b| (&a.cgroup, &a.name, pid(&a.origin)).cmp(&(&b.cgroup, &b.name, pid(&b.origin))));
        let found = findings.len();
        findings.retain(|finding| !baseline.knows(finding));
        let known = found - findings.len();
        if known > 0 {
            let new: BTreeSet<&String> = findings.iter().map(|finding| &finding.id).collect();
            for workload in &mut audited {
                workload.findings.retain(|id| new.contains(id));
            }
        }
        let summary = Summary { known, ..summarize(&audited, &findings, inputs.fail_on) };
        if inputs.only_misaligned {
            audited.retain(|workload| {
                matches!(workload.verdict, AuditVerdict::Misaligned | AuditVerdict::Partial)
            });
            let shown: BTreeSet<&String> = audited.iter().flat_map(|workload| &workload.findings).collect();
            findings.retain(|finding| shown.contains(&finding.id));
        }
        Self {
            schema_version: AUDIT_SCHEMA_VERSION,
            tool,
            taken_at,
            host,
            degraded,
            topology,
            settings: sample.settings.clone(),
            workloads: audited,
            traffic_map: TrafficMap::of(model),
            findings,
            summary,
        }
    }
}

fn pid(origin: &Origin) -> Option<u32> {
    match origin {
        Origin::Process { pid, .. } => Some(*pid),
        _ => None,
    }
}

fn by_object(findings: &[Finding]) -> BTreeMap<String, Vec<&Finding>> {
    let mut by_object: BTreeMap<String, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        let (_, object) = finding.id.split_once(':').unwrap_or(("", &finding.id));
        by_object.entry(object.to_owned()).or_default().push(finding);
    }
    by_object
}

fn audited(
    workload: &Workload,
    owner: Option<Ownership>,
    model: &Model,
    findings: &[&Finding],
    cpu_nodes: usize,
    thresholds: &Thresholds,
) -> AuditedWorkload {
    let figures = model.of(workload);
    let worst = findings.iter().map(|finding| finding.severity).max();
    AuditedWorkload {
        cgroup: workload.cgroup.clone(),
        name: workload.name.clone(),
        origin: workload.origin.clone(),
        owner,
        cpus: figures.and_then(|figures| figures.cpus.clone()),
        mems: figures.and_then(|figures| figures.mems.clone()),
        numa_nodes: figures.map(|figures| figures.cpu_nodes.clone()).unwrap_or_default(),
        tasks: figures.and_then(|figures| figures.tasks),
        bytes_by_numa: figures.and_then(|figures| figures.bytes_by_node.clone()),
        remote_residency: figures.and_then(|figures| figures.remote_residency),
        traffic: figures.and_then(|figures| figures.traffic.clone()),
        verdict: verdict::judge(cpu_nodes, figures, worst, thresholds),
        findings: findings.iter().map(|finding| finding.id.clone()).collect(),
    }
}

/// Is its verdict unknown only because its traffic was not measured?
fn lacks_only_traffic(workload: &AuditedWorkload) -> bool {
    workload.verdict == AuditVerdict::Unknown && workload.numa_nodes.len() > 1 && workload.traffic.is_none()
}

fn summarize(workloads: &[AuditedWorkload], findings: &[Finding], fail_on: Severity) -> Summary {
    let count = |verdict| workloads.iter().filter(|workload| workload.verdict == verdict).count();
    let worst = findings.iter().map(|finding| finding.severity).max();
    let unknown = count(AuditVerdict::Unknown);
    let exit_code = if worst.is_some_and(|worst| worst >= fail_on) {
        EXIT_FINDINGS
    } else if unknown == workloads.len() {
        EXIT_UNKNOWN
    } else {
        EXIT_ALIGNED
    };
    Summary {
        total: workloads.len(),
        aligned: count(AuditVerdict::Aligned),
        partial: count(AuditVerdict::Partial),
        misaligned: count(AuditVerdict::Misaligned),
        unknown,
        known: 0,
        unsampled: workloads.iter().filter(|workload| lacks_only_traffic(workload)).count(),
        worst,
        exit_code,
    }
}

#[cfg(test)]
mod tests;
