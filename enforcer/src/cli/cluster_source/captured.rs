//! A directory of captured machines as nodes: `DIR/NODE/sys`, `DIR/NODE/proc` as `capture` writes them, and
//! what was added to them of the kubelet's files below `DIR/NODE/var/lib/kubelet`.

use std::{fs, path::Path};

use anyhow::{Context as _, bail};
use enforcer_cluster::objects::ClusterObjects;
use enforcer_core::cluster::{
    described::{DescribedKubelet, pods_of_state},
    objects::{NodeObject, PodObject, StateObject},
};
use enforcer_host::{HostRoot, topology::read_topology};
use enforcer_runtime::kubelet::read_captured;

use super::ReadCluster;
use crate::cli::terminal;

/// Most machines that are read.
const MACHINES: usize = 10_000;

/// The nodes of a directory, in order of name. One that cannot be read is left out and named.
pub(super) fn read(directory: &Path) -> anyhow::Result<ReadCluster> {
    let reading = || format!("reading {}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        if entry.path().join("sys/devices/system").is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    if names.is_empty() {
        bail!("{}: no captured machine in it: expected is a directory for each node", directory.display());
    }
    if names.len() > MACHINES {
        bail!("{}: more than {MACHINES} machines", directory.display());
    }
    names.sort();
    let (mut nodes, mut pods, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        match captured(&name, &directory.join(&name)) {
            Ok((node, state, of_node)) => {
                nodes.push((node, state));
                pods.extend(of_node);
            }
            Err(error) => failed.push(error),
        }
    }
    if nodes.is_empty()
        && let Some(error) = failed.pop()
    {
        return Err(error);
    }
    let lacks_nodes = !failed.is_empty();
    let left_out = failed.iter().map(|error| format!("{error:#}")).collect();
    Ok(ReadCluster { objects: ClusterObjects::of_nodes(nodes, pods, left_out), lacks_nodes })
}

fn captured(name: &str, root: &Path) -> anyhow::Result<(NodeObject, StateObject, Vec<PodObject>)> {
    let assumed = DescribedKubelet::default();
    let of_node = || format!("captured machine {name}");
    let (machine, _) = read_topology(&HostRoot::captured(root)).with_context(of_node)?;
    let found = read_captured(root, &machine, &assumed).map_err(anyhow::Error::msg).with_context(of_node)?;
    let (kubelet, profile) = (&found.kubelet, &found.kubelet.profile);
    let version = &assumed.profile.version;
    terminal::note(&if found.is_assumed {
        let policies =
            [&profile.cpu_policy, &profile.memory_policy, &profile.topology_policy].map(String::as_str);
        format!("{name}: no config.yaml of a kubelet: assumed is {version}, {}", policies.join(", "))
    } else {
        format!("{name}: assumed is a kubelet {version} without drop-ins and flags")
    });
    let made = match &found.observation {
        Some(observation) => kubelet.objects(name, &machine, observation, &found.inexact),
        None => kubelet.empty(name, &machine),
    };
    let (node, state) = made.with_context(of_node)?;
    let pods = state.state.as_ref().map(|state| pods_of_state(name, state)).unwrap_or_default();
    Ok((node, state, pods))
}
