//! `kubectl numa audit`: the audits of all nodes, or all of one node's.

use std::io::Write;

use enforcer_core::audit::Audit;

use super::{
    super::{Exit, terminal},
    args::AuditNodes,
    nodes::Cluster,
};
use crate::serve::api;
use enforcer_report::{
    cluster::{AuditedNode, CLUSTER_SCHEMA_VERSION, ClusterAudit, ClusterResult, audits},
    table,
};

pub(super) fn run(cluster: &Cluster, args: &AuditNodes, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let output = args.question.output;
    if let Some(node) = &args.question.node {
        let audit: Audit = cluster.connect(&cluster.node(Some(node))?)?.get(api::AUDIT)?;
        terminal::show(output, &audit, table::render, out)?;
        return Ok(Exit::of_audit(audit.summary.exit_code));
    }
    let nodes = cluster.ask_all(&cluster.nodes()?, api::AUDIT, |asked, audit| match audit {
        Some(audit) => AuditedNode::of(asked, audit),
        None => AuditedNode::silent(asked),
    });
    let audit = ClusterAudit { schema_version: CLUSTER_SCHEMA_VERSION, nodes };
    terminal::show(output, &audit, audits, out)?;
    Ok(exit_of(audit.result()))
}

/// The exit code of a result; `Aligned` is a success.
pub(super) fn exit_of(result: ClusterResult) -> Exit {
    match result {
        ClusterResult::Aligned => Exit::Ok,
        ClusterResult::Findings => Exit::Findings,
        ClusterResult::Undetermined => Exit::Undetermined,
        ClusterResult::NoDaemon => Exit::NoDaemon,
    }
}
