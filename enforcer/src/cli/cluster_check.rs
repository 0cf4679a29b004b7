//! `numa-enforcer cluster check`: published states against nodes against pods.

use std::{io::Write, thread, time::Duration};

use enforcer_core::cluster::check::{CheckedCluster, ClusterCheckReport, check};

use super::{
    Exit, args,
    cluster_source::{ClusterSource, ReadCluster},
    terminal,
};
use enforcer_report::{cluster_check, json};

/// Time between two looks at a cluster: above what a kubelet takes to free what a pod had, and a daemon to
/// publish it.
const BETWEEN_LOOKS: Duration = Duration::from_secs(20);

pub(super) fn run(args: args::ClusterCheckArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let named = ClusterSource::named(args.source, args.kubeconfig, None)?;
    let source = named.map_or_else(ClusterSource::default_cluster, Ok)?;
    let (mut report, lacks_nodes) = checked(&source)?;
    if source.changes() && !report.findings.is_empty() {
        terminal::note("the cluster is read again in 20 s: what is left then is no change under way");
        thread::sleep(BETWEEN_LOOKS);
        report = checked(&source)?.0.lasting(&report);
    }
    match args.output {
        args::TableOrJson::Table => cluster_check::render(&report, terminal::style(), out)?,
        args::TableOrJson::Json => json::write(&report, out)?,
    }
    out.flush()?;
    Ok(match report.findings.is_empty() {
        _ if lacks_nodes => Exit::Undetermined,
        true => Exit::Ok,
        false => Exit::Findings,
    })
}

/// The report, and whether nodes of the source could not be read.
fn checked(source: &ClusterSource) -> anyhow::Result<(ClusterCheckReport, bool)> {
    let ReadCluster { objects, lacks_nodes } = source.read()?;
    let report = check(CheckedCluster {
        nodes: &objects.nodes,
        states: &objects.states,
        pods: &objects.pods,
        leases: &objects.leases,
        has_all_leases: objects.has_all_leases,
        now: objects.now,
    });
    Ok((report, lacks_nodes))
}
