//! `kubectl numa status`: the state of all daemons, or all of one daemon's.

use std::io::Write;

use super::{
    super::{Exit, terminal},
    args::StatusOfNodes,
    audit::exit_of,
    nodes::Cluster,
};
use crate::serve::api;
use enforcer_report::{
    cluster::{AskedNode, CLUSTER_SCHEMA_VERSION, ClusterStatus, DaemonStatus, states},
    status::{self, StatusReport},
};

pub(super) fn run(cluster: &Cluster, args: &StatusOfNodes, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let output = args.question.output;
    if let Some(node) = &args.question.node {
        let answer: StatusReport = cluster.connect(&cluster.node(Some(node))?)?.get(api::STATUS)?;
        terminal::show(output, &answer, status::render, out)?;
        return Ok(Exit::Ok);
    }
    let nodes = cluster.ask_all(&cluster.nodes()?, api::STATUS, |asked, status: Option<StatusReport>| {
        let version = status.as_ref().map(|status| status.version.clone());
        DaemonStatus { asked: AskedNode { version, ..asked }, status }
    });
    let status = ClusterStatus { schema_version: CLUSTER_SCHEMA_VERSION, nodes };
    terminal::show(output, &status, states, out)?;
    Ok(exit_of(status.result()))
}
