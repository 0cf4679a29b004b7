//! A plan over many nodes as text: for each pod its node, NUMA nodes and CPUs, or why no node takes it.
//!
//! Reasons of other nodes are shown only for pods without a node, unless all are asked for.

use std::io::{self, Write};

use enforcer_core::cluster::{
    device_claims::PlannedClaim,
    plan::{ClusterPlanReport, NodeRule, PodPlan},
    view::PredictedContainer,
};

use super::{
    style::{Style, Tone},
    text,
};

/// Writes the whole plan; `explain` adds the reasons of the nodes that did not take a placed pod.
pub fn render(
    report: &ClusterPlanReport,
    explain: bool,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    for pod in &report.pods {
        out.write_all(one(pod, explain, style).as_bytes())?;
    }
    let rule = match report.rule {
        NodeRule::Exact => "exact prediction",
        NodeRule::Volcano => "Volcano's policy",
    };
    let nodes = if report.nodes == 1 { "node" } else { "nodes" };
    let ClusterPlanReport { placed, pending, .. } = report;
    writeln!(out, "{placed} placed, {pending} pending on {} {nodes}, by {rule}", report.nodes)
}

fn one(pod: &PodPlan, explain: bool, style: Style) -> String {
    let mut out = style.paint(Tone::Heading, text::escape(&pod.pod)).to_string();
    out.push_str(": ");
    if let Some(node) = &pod.node {
        out.push_str(&style.paint(Tone::Good, text::escape(node)).to_string());
        let word = if pod.numa_nodes.len() == 1 { "NUMA node" } else { "NUMA nodes" };
        let numa = (!pod.numa_nodes.is_empty()).then(|| format!(", {word} {}", pod.numa_nodes));
        out.extend(numa);
    } else {
        out.push_str(&style.paint(Tone::Bad, "pending").to_string());
    }
    out.push('\n');
    for PredictedContainer { name, cpus, mems } in &pod.containers {
        let cpus = (!cpus.is_empty()).then(|| format!(" CPUs {cpus}"));
        let mems = (!mems.is_empty()).then(|| format!(" memory of {mems}"));
        let name = format!("  {}:", text::escape(name));
        out.extend([Some(name), cpus, mems].into_iter().flatten());
        out.push('\n');
    }
    for line in pod.claims.iter().flat_map(claim_lines) {
        text::wrap(&mut out, &line, style.width, "  ", "    ");
    }
    for refused in pod.refused.iter().filter(|_| explain || pod.node.is_none()) {
        let mut names = refused.nodes.join(", ");
        let shown = u64::try_from(refused.nodes.len()).unwrap_or(u64::MAX);
        if refused.count > shown {
            names.push_str(", ...");
        }
        let line = format!("{} {} ({})", refused.count, refused.reason, names);
        text::wrap(&mut out, &line, style.width, "  ", "    ");
        if let Some(detail) = &refused.detail {
            text::wrap(&mut out, detail, style.width, "    ", "    ");
        }
    }
    out
}

/// One line for each device of a claim.
pub(super) fn claim_lines(claim: &PlannedClaim) -> impl Iterator<Item = String> {
    claim.devices.iter().map(|device| {
        let numa = (!device.numa_nodes.is_empty()).then(|| format!(", NUMA node {}", device.numa_nodes));
        let cpus = (!device.cpus.is_empty()).then(|| format!(", CPUs {}", device.cpus));
        let amounts = device.consumed.iter().map(|(key, amount)| format!("{amount} {key}"));
        let options = device.options.iter().map(|(name, value)| format!("{name} {value}"));
        let more = amounts.chain(options).collect::<Vec<_>>().join(", ");
        let more = if more.is_empty() { more } else { format!(": {more}") };
        format!(
            "claim {}, {}: {}/{}/{}{}{}{more}",
            claim.name,
            device.request,
            device.driver,
            device.pool,
            device.device,
            numa.unwrap_or_default(),
            cpus.unwrap_or_default(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use enforcer_core::cluster::plan::RefusedNodes;

    fn rendered(explain: bool) -> String {
        let placed = PodPlan {
            pod: "default/db".into(),
            node: Some("a".into()),
            numa_nodes: "1".parse().unwrap(),
            containers: vec![PredictedContainer {
                name: "main".into(),
                cpus: "4-7".parse().unwrap(),
                mems: "1".parse().unwrap(),
            }],
            claims: Vec::new(),
            refused: vec![RefusedNodes {
                reason: "NUMA: memory".into(),
                count: 4,
                nodes: vec!["b".into(), "c".into(), "d".into()],
                detail: Some("container main: 1 GiB of 8 GiB memory on node 0".into()),
            }],
        };
        let pending =
            PodPlan { pod: "default/\u{1b}x".into(), refused: placed.refused.clone(), ..PodPlan::default() };
        let report = ClusterPlanReport {
            schema_version: 1,
            rule: NodeRule::Exact,
            nodes: 5,
            placed: 1,
            pending: 1,
            pods: vec![placed, pending],
        };
        let mut out = Vec::new();
        render(&report, explain, Style { colour: false, width: 100 }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_pod_has_its_place_or_the_reasons() {
        assert_eq!(
            rendered(false),
            "default/db: a, NUMA node 1\n  main: CPUs 4-7 memory of 1\n\
             default/\\u{1b}x: pending\n  4 NUMA: memory (b, c, d, ...)\n    \
             container main: 1 GiB of 8 GiB memory on node 0\n\
             1 placed, 1 pending on 5 nodes, by exact prediction\n"
        );
    }

    #[test]
    fn every_reason_is_shown_on_demand() {
        let placed =
            "default/db: a, NUMA node 1\n  main: CPUs 4-7 memory of 1\n  4 NUMA: memory (b, c, d, ...)\n";
        assert!(rendered(true).starts_with(placed), "{}", rendered(true));
    }
}
