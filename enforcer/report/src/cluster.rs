//! The answers of many nodes: one line for each, findings below, and which nodes did not answer and why.
//!
//! What is shown of a node is what `audit`, `status` and `explain` show on it, in the same words. A node's
//! answer is text from outside: it is escaped here, and the findings of a node are bounded.

use std::fmt::Write as _;

use enforcer_core::{
    audit::{Audit, Summary},
    finding::Finding,
    named::Named as _,
};
use numa_topology::degraded::Degraded;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    columns, decision,
    decision::Explanation,
    status::StatusReport,
    style::{Style, Tone},
    table, text, units,
    view::verdicts::VerdictCounts,
};

/// Version of the serde form of [`ClusterAudit`], [`ClusterStatus`] and [`PodExplanation`].
pub const CLUSTER_SCHEMA_VERSION: u32 = 1;

/// Most findings of a node that are kept; the worst come first.
const MOST_FINDINGS: usize = 50;
/// Columns of the name of a node.
const NODE_WIDTH: usize = 40;
/// Columns of a version.
const VERSION_WIDTH: usize = 16;

/// Audits of the nodes of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAudit {
    /// [`CLUSTER_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Nodes, by name.
    pub nodes: Vec<AuditedNode>,
}

/// Audit of one node: its numbers and findings. `--node` prints all of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditedNode {
    /// Node, and its answer or the lack of it.
    #[serde(flatten)]
    pub asked: AskedNode,
    /// Time of its latest turn, by RFC 3339 in UTC.
    pub taken_at: Option<String>,
    /// Its audit in numbers; `null` without an answer.
    pub summary: Option<Summary>,
    /// Its findings, worst first; 50 at most.
    pub findings: Vec<Finding>,
    /// Findings beyond these.
    pub more_findings: usize,
    /// Sources that its daemon lacks.
    pub degraded: Vec<Degraded>,
}

/// A node that was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AskedNode {
    /// Name of the node.
    pub node: String,
    /// Pod of its daemon; `null` without one.
    pub pod: Option<String>,
    /// Version of its daemon; `null` without an answer.
    pub version: Option<String>,
    /// Why there is no answer; `null` with one.
    pub problem: Option<NodeProblem>,
}

/// Why a node did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeProblem {
    /// No daemon runs there: the node was not asked, and nothing has failed.
    pub no_daemon: bool,
    /// The reason in words.
    pub reason: String,
}

/// State of the daemons of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// [`CLUSTER_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Nodes, by name.
    pub nodes: Vec<DaemonStatus>,
}

/// State of one node's daemon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStatus {
    /// Node, and its answer or the lack of it.
    #[serde(flatten)]
    pub asked: AskedNode,
    /// What the daemon answered; `null` without an answer.
    pub status: Option<StatusReport>,
}

/// Decisions about the containers of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodExplanation {
    /// [`CLUSTER_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Its node.
    pub node: String,
    /// Its containers, in the order of the pod.
    pub containers: Vec<ContainerExplanation>,
}

/// Decisions about one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerExplanation {
    /// Name in the pod.
    pub container: String,
    /// What the daemon answered; `null` without an answer.
    pub explanation: Option<Explanation>,
    /// Why there is no answer; `null` with one.
    pub problem: Option<String>,
}

/// What `kubectl numa` prints as JSON without `--node`, for the schema.
#[derive(Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "its schema is all that is used of it")]
pub struct ClusterOutputs {
    /// `kubectl numa audit -o json`.
    audit: ClusterAudit,
    /// `kubectl numa status -o json`.
    status: ClusterStatus,
    /// `kubectl numa explain -o json`.
    explain: PodExplanation,
}

/// How an audit of nodes came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterResult {
    /// Every node answered, and none has a finding that counts.
    Aligned,
    /// Every node answered, and some have such findings.
    Findings,
    /// A node did not answer, or no workload could be judged.
    Undetermined,
    /// No node has a daemon.
    NoDaemon,
}

impl AuditedNode {
    /// What of `audit` is kept.
    pub fn of(asked: AskedNode, audit: Audit) -> Self {
        let mut findings = audit.findings;
        let more_findings = findings.len().saturating_sub(MOST_FINDINGS);
        findings.truncate(MOST_FINDINGS);
        Self {
            asked: AskedNode { version: Some(audit.tool.version), ..asked },
            taken_at: audit.taken_at,
            summary: Some(audit.summary),
            findings,
            more_findings,
            degraded: audit.degraded,
        }
    }

    /// A node without an answer.
    pub fn silent(asked: AskedNode) -> Self {
        Self {
            asked,
            taken_at: None,
            summary: None,
            findings: Vec::new(),
            more_findings: 0,
            degraded: Vec::new(),
        }
    }
}

impl ClusterAudit {
    /// How it came out; a node that did not answer makes the audit incomplete.
    pub fn result(&self) -> ClusterResult {
        if let Some(result) = incomplete(self.nodes.iter().map(|node| &node.asked)) {
            return result;
        }
        let summaries = || self.nodes.iter().filter_map(|node| node.summary.as_ref());
        if summaries().any(|summary| summary.exit_code == 1) {
            return ClusterResult::Findings;
        }
        if total(summaries(), |summary| summary.total) == total(summaries(), |summary| summary.unknown) {
            return ClusterResult::Undetermined;
        }
        ClusterResult::Aligned
    }
}

impl ClusterStatus {
    /// Whether every daemon answered; [`ClusterResult::Aligned`] if so.
    pub fn result(&self) -> ClusterResult {
        incomplete(self.nodes.iter().map(|node| &node.asked)).unwrap_or(ClusterResult::Aligned)
    }
}

/// The result of nodes that did not all answer.
fn incomplete<'a>(nodes: impl IntoIterator<Item = &'a AskedNode>) -> Option<ClusterResult> {
    let problems: Vec<Option<&NodeProblem>> = nodes.into_iter().map(|node| node.problem.as_ref()).collect();
    if problems.iter().flatten().any(|problem| !problem.no_daemon) {
        return Some(ClusterResult::Undetermined);
    }
    problems.iter().all(Option::is_some).then_some(ClusterResult::NoDaemon)
}

/// Saturates: the numbers are from outside.
fn total<'a>(summaries: impl Iterator<Item = &'a Summary>, number: fn(&Summary) -> usize) -> usize {
    summaries.map(number).fold(0, usize::saturating_add)
}

/// The audits for people.
pub fn audits(cluster: &ClusterAudit, style: Style) -> String {
    let mut out = String::new();
    let header =
        ["node", "daemon", "workloads", "misaligned", "partial", "aligned", "unknown", "worst finding"];
    let mut rows = columns::columns(style, header);
    for node in &cluster.nodes {
        let of =
            |number: fn(&Summary) -> usize| or_dash(node.summary.as_ref().map(number), |n| n.to_string());
        let worst = node.summary.as_ref().and_then(|summary| summary.worst);
        rows.add_row(vec![
            text::fit(&node.asked.node, NODE_WIDTH),
            version(&node.asked),
            of(|summary| summary.total),
            of(|summary| summary.misaligned),
            of(|summary| summary.partial),
            of(|summary| summary.aligned),
            of(|summary| summary.unknown),
            or_dash(worst, |severity| severity.name().to_owned()),
        ]);
    }
    columns::push(&mut out, &rows);
    for node in cluster.nodes.iter().filter(|node| !node.findings.is_empty()) {
        style.heading(&mut out, &format!("Findings of {}", text::escape(&node.asked.node)));
        table::findings(&mut out, &node.findings, style);
        if node.more_findings > 0 {
            let line =
                format!("and {} more: kubectl numa audit --node {}", node.more_findings, node.asked.node);
            text::wrap(&mut out, &line, style.width, "  ", "      ");
        }
    }
    style.section(&mut out, "Did not answer", &problems(cluster.nodes.iter().map(|node| &node.asked)));
    out.push('\n');
    text::wrap(&mut out, &summary(cluster), style.width, "", "  ");
    out
}

/// `3 nodes, 2 answered; 7 workloads: 1 misaligned, 6 aligned`.
fn summary(cluster: &ClusterAudit) -> String {
    let all = || cluster.nodes.iter().filter_map(|node| node.summary.as_ref());
    let sum = Summary {
        total: total(all(), |summary| summary.total),
        aligned: total(all(), |summary| summary.aligned),
        partial: total(all(), |summary| summary.partial),
        misaligned: total(all(), |summary| summary.misaligned),
        unknown: total(all(), |summary| summary.unknown),
        ..Summary::default()
    };
    let mut said = format!("{}, {} answered", units::count(cluster.nodes.len(), "node"), all().count());
    if sum.total > 0 {
        let _ = write!(said, "; {}: {}", units::count(sum.total, "workload"), VerdictCounts::from(&sum));
    }
    said
}

/// The states for people.
pub fn states(cluster: &ClusterStatus, style: Style) -> String {
    let mut out = String::new();
    let header = ["node", "daemon", "mode", "turns", "latest", "workloads", "misaligned", "degraded"];
    let mut rows = columns::columns(style, header);
    for node in &cluster.nodes {
        let status = node.status.as_ref();
        let turn = status.and_then(|status| status.latest.as_ref());
        let paused = if status.is_some_and(|status| status.paused.is_some()) { ", paused" } else { "" };
        rows.add_row(vec![
            text::fit(&node.asked.node, NODE_WIDTH),
            version(&node.asked),
            or_dash(turn, |turn| format!("{}{paused}", turn.mode)),
            or_dash(turn, |turn| turn.turns.to_string()),
            or_dash(turn, |turn| format!("{} ago", units::span(turn.age_seconds))),
            or_dash(turn, |turn| turn.summary.total.to_string()),
            or_dash(turn, |turn| turn.summary.misaligned.to_string()),
            or_dash(turn, |turn| turn.degraded.len().to_string()),
        ]);
    }
    columns::push(&mut out, &rows);
    style.section(&mut out, "Did not answer", &problems(cluster.nodes.iter().map(|node| &node.asked)));
    out
}

/// The decisions about a pod for people.
pub fn explanations(pod: &PodExplanation, style: Style) -> String {
    let mut out = String::new();
    let title = format!("Pod {}/{} on node {}", pod.namespace, pod.pod, pod.node);
    let _ = writeln!(out, "{}", style.paint(Tone::Heading, text::escape(&title)));
    for one in &pod.containers {
        out.push('\n');
        match (&one.explanation, &one.problem) {
            (Some(explanation), _) => out.push_str(&decision::render(explanation, style)),
            (None, problem) => {
                let problem = problem.as_deref().unwrap_or("no answer");
                text::wrap(&mut out, &format!("{}: {problem}", one.container), style.width, "", "  ");
            }
        }
    }
    out
}

/// `-` for what a node without an answer does not say.
fn or_dash<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn version(asked: &AskedNode) -> String {
    or_dash(asked.version.as_deref(), |version| text::fit(version, VERSION_WIDTH))
}

fn problems<'a>(nodes: impl Iterator<Item = &'a AskedNode>) -> Vec<String> {
    let line = |node: &'a AskedNode| Some(format!("{}: {}", node.node, node.problem.as_ref()?.reason));
    nodes.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use enforcer_core::finding::{Rule, Severity};

    use super::*;
    use crate::fixture;

    const PLAIN: Style = Style { colour: false, width: 110 };

    fn asked(node: &str) -> AskedNode {
        AskedNode { node: node.into(), pod: Some(format!("daemon-{node}")), ..AskedNode::default() }
    }

    fn without(node: &str, no_daemon: bool, reason: &str) -> AuditedNode {
        let problem = Some(NodeProblem { no_daemon, reason: reason.into() });
        AuditedNode::silent(AskedNode { problem, ..asked(node) })
    }

    fn cluster(nodes: Vec<AuditedNode>) -> ClusterAudit {
        ClusterAudit { schema_version: CLUSTER_SCHEMA_VERSION, nodes }
    }

    /// A node with one aligned workload.
    fn aligned(node: &str) -> AuditedNode {
        let small = fixture::small();
        let workload = fixture::workload("/a", "0", "0", &[]);
        AuditedNode::of(asked(node), fixture::audit(small.topology, vec![workload], Vec::new()))
    }

    #[test]
    fn nodes_are_lines_with_findings_and_reasons_below() {
        let nodes = vec![
            AuditedNode::of(asked("a"), fixture::small()),
            without("b", true, "no daemon runs on this node"),
            without("c", false, "port-forward to x/y: error: lost connection to pod"),
        ];
        insta::assert_snapshot!(audits(&cluster(nodes), PLAIN));
    }

    #[test]
    fn what_a_node_says_is_escaped_and_bounded() {
        let mut audit = fixture::small();
        let mut workload = fixture::workload("/a\u{1b}[31m", "0", "0", &[]);
        let finding = fixture::finding(&mut workload, Rule::Drift, Severity::Critical);
        audit.findings = vec![finding; 1000];
        audit.tool.version = "\u{1b}]0;x\u{7} \u{202e} of a version without end".into();
        audit.summary.total = usize::MAX;
        let nodes = vec![
            AuditedNode::of(asked("n\u{1b}[2J"), audit.clone()),
            AuditedNode::of(asked("m"), audit),
            without("k", false, "\u{9b}31m\nforged row"),
        ];
        let shown = audits(&cluster(nodes.clone()), PLAIN);
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown}");
        assert!(!shown.contains('\u{202e}') && !shown.contains("\nforged row"), "{shown}");
        assert!(shown.contains("and 950 more: kubectl numa audit --node "), "{shown}");
        assert_eq!(nodes[0].findings.len(), MOST_FINDINGS);
    }

    #[test]
    fn result_counts_answers_before_findings() {
        let with_finding = || AuditedNode::of(asked("f"), fixture::small());
        assert_eq!(with_finding().summary.unwrap().exit_code, 1);
        let unjudged = || {
            let mut node = aligned("u");
            let summary = node.summary.as_mut().unwrap();
            (summary.aligned, summary.unknown, summary.exit_code) = (0, 1, 2);
            node
        };
        assert_eq!(aligned("a").summary.unwrap().aligned, 1);
        for (nodes, expected) in [
            (vec![aligned("a")], ClusterResult::Aligned),
            (vec![aligned("a"), without("b", true, "")], ClusterResult::Aligned),
            (vec![aligned("a"), unjudged()], ClusterResult::Aligned),
            (vec![unjudged()], ClusterResult::Undetermined),
            (vec![aligned("a"), with_finding()], ClusterResult::Findings),
            (vec![with_finding(), without("b", false, "")], ClusterResult::Undetermined),
            (vec![without("b", true, ""), without("c", true, "")], ClusterResult::NoDaemon),
            (vec![without("b", true, ""), without("c", false, "")], ClusterResult::Undetermined),
            (vec![], ClusterResult::NoDaemon),
        ] {
            assert_eq!(cluster(nodes.clone()).result(), expected, "{nodes:?}");
        }
    }
}
