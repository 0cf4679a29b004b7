//! `numa-enforcer explain pod`: why a pod has no node, and which pods would make room for it.

use std::io::Write;

use anyhow::bail;
use enforcer_cluster::objects::ClusterObjects;
use enforcer_core::cluster::{
    explain::{PodExplanation, explain},
    objects::{PodObject, PodPhase},
    plan::PlannedPod,
};
use enforcer_report::{json, pod_explanation};
use enforcer_runtime::manifest::{annotation_documents, read_pods};
use numa_placement::PodName;

use super::{
    Exit, UsageError,
    args::{self, ExplainPodArgs},
    cluster_source::{ClusterSource, ReadCluster, with_pods},
    exit::of_input,
    terminal,
};

pub(super) fn run(args: ExplainPodArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let name = args.pod.as_deref().map(named).transpose()?;
    let source = ClusterSource::named(args.cluster, args.kubeconfig, None)?;
    let source = source.map_or_else(ClusterSource::default_cluster, Ok)?;
    let is_standard_input = |path: &std::path::PathBuf| path.as_os_str() == "-";
    if source.is_standard_input() && args.file.as_ref().is_some_and(is_standard_input) {
        return Err(UsageError("standard input (`-`) can be read only once".into()).into());
    }
    let manifested = match &args.file {
        None => None,
        Some(path) => {
            let read = read_pods(&[path], &[]).map_err(of_input)?;
            read.notes.iter().for_each(|line| terminal::note(line));
            Some(the_pod(read.pods, name.as_ref())?)
        }
    };
    let ReadCluster { objects, lacks_nodes } = source.read()?;
    let report = match (manifested, name) {
        (Some(pod), _) => explain(&with_pods(objects).0, &pod, 0),
        (None, Some(name)) => of_the_cluster(objects, &name)?,
        (None, None) => return Err(UsageError("NS/NAME or --file is expected".into()).into()),
    };
    match args.output {
        args::TableOrJson::Table => pod_explanation::render(&report, terminal::style(), out)?,
        args::TableOrJson::Json => json::write(&report, out)?,
    }
    out.flush()?;
    Ok(match report.on_node.is_some() || !report.fits.is_empty() {
        _ if lacks_nodes => Exit::Undetermined,
        true => Exit::Ok,
        false => Exit::Rejected,
    })
}

/// The name that `NS/NAME` or `NAME` means.
fn named(text: &str) -> Result<PodName, UsageError> {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err(UsageError(format!("`{text}`: NS/NAME is expected, as in shop/orders")));
    }
    Ok(PodName::new(namespace, name))
}

/// The pod of a manifest with this name, or its only pod.
fn the_pod(pods: Vec<PlannedPod>, name: Option<&PodName>) -> Result<PlannedPod, UsageError> {
    let count = pods.len();
    let is_it = |pod: &PlannedPod| name.is_none_or(|name| is_called(&pod.request.name, name));
    let mut found = pods.into_iter().filter(is_it);
    match (found.next(), found.next(), name) {
        (Some(pod), None, _) => Ok(pod),
        (Some(_), Some(_), None) => Err(UsageError(format!("there are {count} pods: name one as NS/NAME"))),
        (Some(_), Some(_), Some(name)) => Err(UsageError(format!("there are several pods {name}"))),
        (None, _, _) => {
            let name = name.map(ToString::to_string).unwrap_or_default();
            Err(UsageError(format!("there is no pod {name} in the manifest")))
        }
    }
}

fn of_the_cluster(objects: ClusterObjects, name: &PodName) -> anyhow::Result<PodExplanation> {
    let of_name = |pod: &&PodObject| is_called(&pod.request.name, name);
    // A pod that was deleted may still be there beside its successor.
    let found = objects
        .pods
        .iter()
        .filter(of_name)
        .min_by_key(|pod| (pod.phase == PodPhase::Ended, pod.node.is_some()));
    let Some(found) = found else { bail!("there is no pod {name} in the cluster") };
    if found.phase == PodPhase::Ended {
        bail!("pod {name} has ended");
    }
    let mut request = found.request.clone();
    request.documents = annotation_documents(&request.annotations);
    let (scheduling, counted) = (found.scheduling.clone(), found.counted.clone());
    let pod = PlannedPod { request, scheduling, counted };
    if let Some(node) = &found.node {
        return Ok(PodExplanation::placed(&pod, node, objects.nodes.len()));
    }
    Ok(explain(&with_pods(objects).0, &pod, 0))
}

fn is_called(pod: &PodName, name: &PodName) -> bool {
    pod.namespace == name.namespace && pod.name == name.name
}
