//! The kubelet: what its static managers gave to which container, as far as a node can tell.
//!
//! There are two sources. [`state`] reads the files in which the managers keep their grants, also while the
//! kubelet is down. [`podresources`] asks the socket, which has names instead of uids, and devices as well.
//! [`watch`] reads both again and again on a thread of its own, so that a kubelet that does not answer delays
//! no other thread. [`observe_node`] reads all of it as one moment, for the published state of the node.
//!
//! Invariant: nothing is guessed. An unusable file is a degraded entry by name, and the owners of CPUs are
//! unknown then. On a node without a kubelet nothing is missing.

mod captured;
mod checksum;
mod claims;
mod cpu_state;
mod device_state;
mod memory_state;
mod observe;
mod podresources;
mod root;
pub mod settings;
mod state;
#[cfg(test)]
mod tests;
pub mod watch;

use std::path::Path;

use enforcer_core::{
    owner::{Claim, Kubelet},
    policy::KubeletSettings,
};
use numa_topology::degraded::Degraded;

pub use self::{
    captured::{CapturedKubelet, read_captured},
    observe::observe_node,
    podresources::{Allocatable, PodResourcesError, ask},
    watch::FileStamps,
};
use enforcer_host::{HostPath, HostRoot};

/// Name of the CPU manager's file in the kubelet's directory.
pub const CPU_STATE: &str = "cpu_manager_state";
/// Name of the memory manager's file.
pub const MEMORY_STATE: &str = "memory_manager_state";
/// Name of the device manager's file, in the directory of the device plugins.
pub const DEVICE_STATE: &str = "kubelet_internal_checkpoint";

/// Effect of a file or a socket that cannot be used.
const NOT_KNOWN: &str = "what the kubelet gave away is not known; containers of pods are left alone";
/// Effect of a socket that cannot be used beside files that can.
const LESS_KNOWN: &str = "devices are not known, and containers only by the uid of their pod";

/// Result of one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KubeletSnapshot {
    /// The kubelet's grants.
    pub kubelet: Kubelet,
    /// Resources that it may hand out, if its socket answers.
    pub allocatable: Option<Allocatable>,
    /// Sources that could not be read.
    pub degraded: Vec<Degraded>,
}

/// Reads the state files below the settings' directory, and asks their socket.
fn seen(settings: &KubeletSettings) -> KubeletSnapshot {
    let KubeletSettings { root_dir, podresources: socket, .. } = settings;
    let mut seen = KubeletSnapshot::default();
    let [cpu_path, memory_path] = [CPU_STATE, MEMORY_STATE].map(|name| root_dir.join(name));
    let cpus = state::read(&cpu_path, cpu_state::parse);
    let memory = state::read(&memory_path, memory_state::parse);
    let found = matches!(cpus, Ok(Some(_))) || matches!(memory, Ok(Some(_)));
    match cpus {
        Ok(Some(state)) => {
            seen.kubelet.claims.extend(claims::of_cpus(&state, &cpu_path.display().to_string()));
            seen.kubelet.cpu_policy = Some(state.policy);
            seen.kubelet.shared_cpus = Some(state.default_cpus).filter(|cpus| !cpus.is_empty());
        }
        Ok(None) => {}
        Err(error) => seen.unread("kubelet:cpu-state", error.to_string()),
    }
    match memory {
        Ok(Some(state)) => {
            seen.kubelet.claims.extend(claims::of_memory(&state, &memory_path.display().to_string()));
            seen.kubelet.memory_policy = Some(state.policy);
        }
        Ok(None) => {}
        Err(error) => seen.unread("kubelet:memory-state", error.to_string()),
    }
    match ask(socket) {
        Ok(told) => {
            let source = format!("podresources at {}", socket.display());
            seen.kubelet.claims.extend(claims::of_list(&told.listed, &source));
            seen.allocatable = told.offered.ok().map(|offered| Allocatable::from(&offered));
        }
        // A node without a kubelet misses nothing.
        Err(PodResourcesError::Absent { .. }) if !found && seen.degraded.is_empty() => {}
        Err(error) => {
            seen.degraded.push(Degraded::new("kubelet:podresources", error.to_string(), LESS_KNOWN));
        }
    }
    seen
}

impl KubeletSnapshot {
    fn unread(&mut self, source: &str, reason: String) {
        self.kubelet.unread = Some(reason.clone());
        self.degraded.push(Degraded::new(source, reason, NOT_KNOWN));
    }

    /// Numbers of containers named by the socket and the files, as `(CPUs, memory, devices)`.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |has: fn(&Claim) -> bool| self.kubelet.claims.iter().filter(|claim| has(claim)).count();
        (
            count(|claim| !claim.cpus.is_empty()),
            count(|claim| !claim.memory.is_empty()),
            count(|claim| !claim.devices.is_empty()),
        )
    }
}

/// The settings with the directory and the socket that a look uses: those of the running kubelet where the
/// configured ones are the default.
pub fn in_use(settings: &KubeletSettings) -> KubeletSettings {
    root::of_running(settings, &HostRoot::live().proc)
}

/// Reads the files and the socket once, for a command. Waits for the socket as long as [`ask`] does.
pub fn read_snapshot(settings: &KubeletSettings) -> KubeletSnapshot {
    if !settings.enabled {
        return KubeletSnapshot::default();
    }
    seen(&in_use(settings))
}

/// The state files' content, for a command that must not silently go on without it; and why it is missing,
/// with the directory that was searched. Without a kubelet nothing is missing.
pub fn read_state(settings: &KubeletSettings) -> (Kubelet, Option<String>) {
    state_below(settings, &HostRoot::live().proc)
}

fn state_below(settings: &KubeletSettings, proc: &HostPath) -> (Kubelet, Option<String>) {
    if !settings.enabled {
        return Default::default();
    }
    let found = root::of_running(settings, proc);
    let kubelet = seen(&found).kubelet;
    let reason = kubelet.unread.clone().or_else(|| missing(&kubelet, &found.root_dir, proc));
    let reason = reason
        .map(|reason| format!("the kubelet's state, looked for in {}: {reason}", found.root_dir.display()));
    (kubelet, reason)
}

/// Files that a present kubelet would have written. Every kubelet has a file of its CPU manager, whatever its
/// policy.
fn missing(kubelet: &Kubelet, root_dir: &Path, proc: &HostPath) -> Option<String> {
    if let Some(policy) = &kubelet.cpu_policy {
        let is_short = policy == "static" && kubelet.shared_cpus.is_none();
        return is_short.then(|| format!("{CPU_STATE} names no shared CPUs"));
    }
    let evidence = match root::running(proc).filter(|dir| dir != root_dir) {
        Some(dir) => format!("a kubelet runs with --root-dir={}, which is not there", dir.display()),
        None if root::runs(proc) => "a kubelet runs".to_owned(),
        None if root_dir.is_dir() => "the directory is there".to_owned(),
        None if root_dir != KubeletSettings::default().root_dir => "it is configured".to_owned(),
        None => return None,
    };
    Some(format!("there is no {CPU_STATE}, and {evidence}"))
}
