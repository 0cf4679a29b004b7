//! `numa-enforcer cluster check`: published states against nodes against pods.

use std::io::Write;

use enforcer_core::cluster::check::{CheckedCluster, check};

use super::{
    Exit, args,
    cluster_source::{ClusterSource, ReadCluster},
    terminal,
};
use enforcer_report::{cluster_check, json};

pub(super) fn run(args: args::ClusterCheckArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let named = ClusterSource::named(args.source, args.kubeconfig, None)?;
    let source = named.map_or_else(ClusterSource::default_cluster, Ok)?;
    let ReadCluster { objects, now } = source.read(true)?;
    let report = check(CheckedCluster {
        nodes: &objects.nodes,
        states: &objects.states,
        pods: &objects.pods,
        leases: &objects.leases,
        now,
    });
    match args.output {
        args::TableOrJson::Table => cluster_check::render(&report, terminal::style(), out)?,
        args::TableOrJson::Json => json::write(&report, out)?,
    }
    out.flush()?;
    Ok(if report.findings.is_empty() { Exit::Ok } else { Exit::Findings })
}
