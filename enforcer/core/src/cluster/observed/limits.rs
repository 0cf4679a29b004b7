//! Limits of a published state: those of its schema, its size, and that its readers accept it.
//!
//! A state that is too large loses, in this order, until it fits:
//! 1. names and namespaces of pods (a reader joins pods by uid), 2. kinds of containers; neither is an input
//!    of a prediction, so both are left out without a word and the state stays exact; 3. what containers have
//!    of their own, where the packed inputs of this daemon's engine say it as well, likewise;
//! 4. refused pods, the oldest first; 5. pods; 6. memory and devices; each of these is named in `inexact`.
//!
//! A state that the model refuses, because the kubelet's sources contradict each other or because a text is
//! longer than the schema allows, is published with the machine and the settings alone, and says why.

use numa_topology::{
    id::Id,
    set::{CpuSet, IdSet},
};

use super::fingerprint;
use crate::cluster::{
    model::{NodeModel, StateFault},
    state::{CoveredPods, InexactSource, MAX_BYTES, NodeState, RejectedPod},
};

/// Bytes of the object beside the state: kind, name, owner.
const ENVELOPE: usize = 1_024;
/// Maximum length of the list of sources.
const MOST_SOURCES: usize = 16;

/// The state within all limits, with `exact`, `inexact` and `hash` set.
///
/// # Errors
/// If the machine alone exceeds them.
pub(super) fn fitted(mut state: NodeState) -> Result<NodeState, StateFault> {
    bound_settings(&mut state);
    bound_rejected(&mut state);
    let model = model_of(&state).or_else(|fault| {
        strip(&mut state);
        state.inexact.insert(0, InexactSource::new("state", fault.to_string()));
        model_of(&state)
    })?;
    settle(&mut state, model.inexact);
    let reductions: [fn(&mut NodeState) -> bool; 6] =
        [drop_names, drop_kinds, drop_shown, drop_oldest_rejected, drop_pods, drop_supplies];
    for reduce in reductions {
        while size_of(&state) > MAX_BYTES - ENVELOPE && reduce(&mut state) {
            let model = model_of(&state)?;
            settle(&mut state, model.inexact);
        }
    }
    let length = size_of(&state);
    if length > MAX_BYTES - ENVELOPE {
        return Err(StateFault::TooLong { field: "the state", length, limit: MAX_BYTES - ENVELOPE });
    }
    state.hash = String::new();
    state.hash = fingerprint::of_json(&state);
    Ok(state)
}

/// Adds what a reader's model has found, and sets `exact`.
fn settle(state: &mut NodeState, found: Vec<InexactSource>) {
    for one in found {
        if !state.inexact.contains(&one) {
            state.inexact.push(one);
        }
    }
    for one in &mut state.inexact {
        shorten(&mut one.source, 128);
        shorten(&mut one.reason, 512);
    }
    state.inexact.dedup();
    state.inexact.truncate(MOST_SOURCES);
    state.exact = state.inexact.is_empty();
}

/// A reader's model of the state, as if it were exact: what it finds by itself.
///
/// # Errors
/// The first limit that the state exceeds, or contradiction in it.
fn model_of(state: &NodeState) -> Result<NodeModel, StateFault> {
    match text_fault(state) {
        Some(fault) => Err(fault),
        None => NodeModel::new(&NodeState { exact: true, inexact: Vec::new(), ..state.clone() }),
    }
}

/// Lengths of lists of ids, which the model does not look at.
fn text_fault(state: &NodeState) -> Option<StateFault> {
    fn long<T: Id>(field: &'static str, set: &IdSet<T>, limit: usize) -> Option<StateFault> {
        // Three characters for each id are the least, so most sets need no text.
        let length = if set.len() * 6 > limit { set.to_string().len() } else { 0 };
        (length > limit).then_some(StateFault::TooLong { field, length, limit })
    }
    let machine = &state.machine;
    let containers = || state.pods.iter().flat_map(|pod| &pod.containers);
    let first = machine.nodes.iter().find_map(|node| long("machine.nodes.cpus", &node.cpus, 1_024));
    first
        .or_else(|| machine.sockets.iter().find_map(|cpus| long("machine.sockets", cpus, 1_024)))
        .or_else(|| machine.cores.iter().find_map(|cpus| long("machine.cores", cpus, 64)))
        .or_else(|| machine.caches.iter().find_map(|cpus| long("machine.caches", cpus, 1_024)))
        .or_else(|| long("reservedCpus", &state.reserved_cpus, 1_024))
        .or_else(|| long("sharedCpus", &state.shared_cpus, 4_096))
        .or_else(|| state.memory.iter().find_map(|supply| long("memory.cells", &supply.cells, 256)))
        .or_else(|| containers().find_map(|one| long("pods.containers.cpus", &one.cpus, 1_024)))
        .or_else(|| {
            let mut blocks = containers().flat_map(|one| &one.memory);
            blocks.find_map(|block| long("pods.containers.memory.nodes", &block.nodes, 256))
        })
        .or_else(|| {
            let empty = state.pods.iter().any(|pod| pod.uid.is_empty());
            empty.then(|| StateFault::Unknown { field: "pods.uid", value: String::new() })
        })
}

/// Settings are texts of a file, so they are cut to their limits, and that is named.
fn bound_settings(state: &mut NodeState) {
    let kubelet = &mut state.kubelet;
    let mut is_cut = false;
    for (text, most) in [
        (&mut kubelet.version, 64),
        (&mut kubelet.config_hash, 64),
        (&mut kubelet.cpu_policy, 32),
        (&mut kubelet.memory_policy, 32),
        (&mut kubelet.topology_policy, 32),
        (&mut kubelet.topology_scope, 32),
    ] {
        is_cut |= shorten(text, most);
    }
    for options in [&mut kubelet.cpu_options, &mut kubelet.topology_options] {
        let before = options.len();
        options.retain(|name, value| name.len() <= 64 && value.len() <= 64);
        while options.len() > 16 {
            options.pop_last();
        }
        is_cut |= options.len() < before;
    }
    let before = kubelet.gates.len();
    kubelet.gates.retain(|name, _| name.len() <= 64);
    while kubelet.gates.len() > 32 {
        kubelet.gates.pop_last();
    }
    is_cut |= kubelet.gates.len() < before;
    if kubelet.started_at.is_some_and(|at| at < 0) {
        kubelet.started_at = None;
        is_cut = true;
    }
    if is_cut {
        state
            .inexact
            .push(InexactSource::new("kubelet:configuration", "a setting is longer than a state may tell"));
    }
}

fn bound_rejected(state: &mut NodeState) {
    for RejectedPod { uid, reason, at } in &mut state.rejected {
        shorten(uid, 64);
        shorten(reason, 128);
        *at = (*at).max(0);
    }
}

/// Cuts a text to a number of bytes; returns whether it was longer.
fn shorten(text: &mut String, most: usize) -> bool {
    let is_long = text.len() > most;
    text.truncate(text.floor_char_boundary(most));
    is_long
}

/// Leaves the machine and the settings.
fn strip(state: &mut NodeState) {
    state.own_engine = None;
    state.reserved_cpus = CpuSet::new();
    state.shared_cpus = CpuSet::new();
    state.memory = Vec::new();
    state.devices = Vec::new();
    state.pods = Vec::new();
    state.covered = CoveredPods::default();
}

fn size_of(state: &NodeState) -> usize {
    serde_json::to_vec(state).map_or(usize::MAX, |json| json.len())
}

fn name_reduction(state: &mut NodeState, what: &str) {
    let reason = format!("{what} are left out, the state would exceed {MAX_BYTES} bytes");
    state.inexact.insert(0, InexactSource::new("state", reason));
}

fn drop_names(state: &mut NodeState) -> bool {
    let had = state.pods.iter().any(|pod| !pod.name.is_empty());
    for pod in &mut state.pods {
        pod.namespace = String::new();
        pod.name = String::new();
    }
    had
}

fn drop_kinds(state: &mut NodeState) -> bool {
    let mut had = false;
    for container in state.pods.iter_mut().flat_map(|pod| &mut pod.containers) {
        had |= container.kind.take().is_some();
    }
    had
}

/// What the packed inputs of this daemon's engine say as well.
fn drop_shown(state: &mut NodeState) -> bool {
    if state.own_engine.is_none() {
        return false;
    }
    let lists = state.pods.iter_mut().map(|pod| &mut pod.containers);
    let shown = lists.filter(|containers| !containers.is_empty());
    shown.map(Vec::clear).count() > 0
}

fn drop_oldest_rejected(state: &mut NodeState) -> bool {
    if state.rejected.is_empty() {
        return false;
    }
    state.rejected.remove(0);
    if !state.inexact.iter().any(|one| one.reason.starts_with("refused pods")) {
        name_reduction(state, "refused pods");
    }
    true
}

fn drop_pods(state: &mut NodeState) -> bool {
    let had = !state.pods.is_empty();
    if had {
        state.pods = Vec::new();
        state.covered = CoveredPods::default();
        name_reduction(state, "pods");
    }
    had
}

fn drop_supplies(state: &mut NodeState) -> bool {
    let had = !state.memory.is_empty() || !state.devices.is_empty();
    if had {
        state.memory = Vec::new();
        state.devices = Vec::new();
        name_reduction(state, "memory and devices");
    }
    had
}
