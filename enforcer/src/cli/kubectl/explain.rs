//! `kubectl numa explain`: the decisions about the containers of a pod, from the daemon of its node.
//!
//! A container is named by the id that its runtime gave it: the daemon knows the id with and without a link
//! to the runtime, and the names of the pod only with one.

use std::io::Write;

use anyhow::bail;
use enforcer_cluster::PodContainer;

use super::{
    super::{Exit, client::Refused, terminal},
    args::ExplainPod,
    nodes::{Cluster, NodeConnection},
};
use crate::serve::api;
use enforcer_report::cluster::{CLUSTER_SCHEMA_VERSION, ContainerExplanation, PodExplanation, explanations};

pub(super) fn run(cluster: &Cluster, args: &ExplainPod, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let pod = cluster.pod(args.namespace.as_deref(), &args.pod)?;
    let name = format!("{}/{}", pod.namespace, pod.name);
    let Some(node) = pod.node else { bail!("pod {name} is on no node yet") };
    let is_wanted = |one: &&PodContainer| args.container.as_ref().is_none_or(|name| one.name == *name);
    let wanted: Vec<&PodContainer> = pod.containers.iter().filter(is_wanted).collect();
    if let (true, Some(container)) = (wanted.is_empty(), &args.container) {
        let names: Vec<&str> = pod.containers.iter().map(|one| one.name.as_str()).collect();
        bail!("pod {name} has no container {container}; there are: {}", names.join(", "));
    }
    let connection = cluster.connect(&cluster.node(Some(&node))?)?;
    let containers = wanted.into_iter().map(|one| container(&connection, one)).collect::<Result<_, _>>()?;
    let explained = PodExplanation {
        schema_version: CLUSTER_SCHEMA_VERSION,
        namespace: pod.namespace,
        pod: pod.name,
        node,
        containers,
    };
    terminal::show(args.output, &explained, explanations, out)?;
    let is_explained = explained.containers.iter().any(|one| one.explanation.is_some());
    Ok(if is_explained { Exit::Ok } else { Exit::Undetermined })
}

fn container(connection: &NodeConnection, one: &PodContainer) -> anyhow::Result<ContainerExplanation> {
    let answered =
        |explanation, problem| ContainerExplanation { container: one.name.clone(), explanation, problem };
    let Some(id) = &one.id else { return Ok(answered(None, Some("it was not created yet".to_owned()))) };
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("workload", id).finish();
    match connection.get(&format!("{}?{query}", api::EXPLAIN)) {
        Ok(explanation) => Ok(answered(Some(explanation), None)),
        Err(error) => match error.downcast::<Refused>() {
            // What else runs on the node does not help here.
            Ok(Refused { message, .. }) => Ok(answered(None, Some(message))),
            Err(error) => Err(error),
        },
    }
}
