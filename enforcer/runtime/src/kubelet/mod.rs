//! The kubelet: what its static managers gave to whom, as far as a node can tell.
//!
//! Two sources. [`state`] are the files in which the managers keep what they gave away; they are there while
//! the kubelet is not. [`podresources`] is the socket on which it tells the same with names instead of uids,
//! and devices as well. [`watch`] looks at both again and again on a thread of its own, so that a kubelet
//! that does not answer holds up nobody.
//!
//! Never a guess: a file that cannot be used is a degraded entry by name, and whose CPUs are whose is not
//! known then. Where there is no kubelet there is nothing to say.

mod checksum;
mod cpu_state;
mod memory_state;
mod podresources;
mod root;
mod state;
#[cfg(test)]
mod tests;
pub mod watch;

use std::path::Path;

use enforcer_core::{
    degraded::Degraded,
    owner::{Claim, Kubelet},
    policy::KubeletSettings,
};

use self::podresources::PodResources;
pub use self::podresources::{Allocatable, SocketError, ask};

/// Name of the CPU manager's file in the kubelet's directory.
pub const CPU_STATE: &str = "cpu_manager_state";
/// Name of the memory manager's file.
pub const MEMORY_STATE: &str = "memory_manager_state";

/// Where the kubelet's command line is.
const PROC: &str = "/proc";

/// Effect of a file or a socket that cannot be used.
const NOT_KNOWN: &str = "what the kubelet gave away is not known; containers of pods are left alone";
/// Effect of a socket that cannot be used beside files that can.
const LESS_KNOWN: &str = "devices are not known, and containers only by the uid of their pod";

/// What one look gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The kubelet.
    pub kubelet: Kubelet,
    /// What it may hand out, where its socket answers.
    pub allocatable: Option<Allocatable>,
    /// What could not be seen of it.
    pub degraded: Vec<Degraded>,
}

/// Looks at the state files below `root_dir`, and puts what the socket said beside it.
fn seen(root_dir: &Path, told: Result<PodResources, SocketError>) -> Seen {
    let mut seen = Seen::default();
    let cpus = state::read(&root_dir.join(CPU_STATE), cpu_state::parse);
    let memory = state::read(&root_dir.join(MEMORY_STATE), memory_state::parse);
    let found = matches!(cpus, Ok(Some(_))) || matches!(memory, Ok(Some(_)));
    match cpus {
        Ok(Some(state)) => {
            seen.kubelet.cpu_policy = Some(state.policy);
            seen.kubelet.shared_cpus = Some(state.shared_cpus).filter(|cpus| !cpus.is_empty());
            seen.kubelet.claims.extend(state.claims);
        }
        Ok(None) => {}
        Err(error) => seen.unread("kubelet:cpu-state", error.to_string()),
    }
    match memory {
        Ok(Some(state)) => {
            seen.kubelet.memory_policy = Some(state.policy);
            seen.kubelet.claims.extend(state.claims);
        }
        Ok(None) => {}
        Err(error) => seen.unread("kubelet:memory-state", error.to_string()),
    }
    match told {
        Ok(told) => {
            seen.kubelet.claims.extend(told.claims);
            seen.allocatable = told.allocatable;
        }
        // A node without a kubelet misses none.
        Err(SocketError::Absent { .. }) if !found && seen.degraded.is_empty() => {}
        Err(error) => {
            seen.degraded.push(Degraded::new("kubelet:podresources", error.to_string(), LESS_KNOWN));
        }
    }
    seen
}

impl Seen {
    fn unread(&mut self, source: &str, reason: String) {
        self.kubelet.unread = Some(reason.clone());
        self.degraded.push(Degraded::new(source, reason, NOT_KNOWN));
    }

    /// Containers that the socket and the files name, as `(CPUs, memory, devices)`: how many have each.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |has: fn(&Claim) -> bool| self.kubelet.claims.iter().filter(|claim| has(claim)).count();
        (
            count(|claim| !claim.cpus.is_empty()),
            count(|claim| !claim.memory.is_empty()),
            count(|claim| !claim.devices.is_empty()),
        )
    }
}

/// One look, for a command that looks once. Waits for the socket for as long as [`ask`] does.
pub fn look(settings: &KubeletSettings) -> Seen {
    if !settings.enabled {
        return Seen::default();
    }
    let settings = root::of_running(settings, Path::new(PROC));
    seen(&settings.root_dir, ask(&settings.podresources))
}

/// What the state files say, for a command that must not go on without them in silence; and why they do not,
/// with the directory that was looked in. Where there is no kubelet nothing is missing.
pub fn look_at_state(settings: &KubeletSettings) -> (Kubelet, Option<String>) {
    state_below(settings, Path::new(PROC))
}

fn state_below(settings: &KubeletSettings, proc: &Path) -> (Kubelet, Option<String>) {
    if !settings.enabled {
        return Default::default();
    }
    let found = root::of_running(settings, proc);
    let kubelet = seen(&found.root_dir, ask(&found.podresources)).kubelet;
    let reason = kubelet.unread.clone().or_else(|| missing(&kubelet, &found.root_dir, proc));
    let reason = reason
        .map(|reason| format!("the kubelet's state, looked for in {}: {reason}", found.root_dir.display()));
    (kubelet, reason)
}

/// What a kubelet that is there would have written. Every one has a file of its CPU manager, whatever its
/// policy is.
fn missing(kubelet: &Kubelet, root_dir: &Path, proc: &Path) -> Option<String> {
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
