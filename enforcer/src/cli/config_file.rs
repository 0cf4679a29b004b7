//! The configuration file of a command that runs once.
//!
//! Whatever of it changes nothing is said on standard error, so that no command takes a setting in silence.

use std::path::Path;

use enforcer_core::{declarations::Entry, place::Wishes, policy::Policy, topology::Topology};

use super::{exit::of_config, terminal};
use crate::config::{Configured, read_config};

/// The policy of the file, where one is named.
pub(super) fn read(path: Option<&Path>) -> anyhow::Result<Option<Policy>> {
    let configured = path.map(read_config).transpose().map_err(of_config)?;
    Ok(configured.map(tell))
}

/// The policy; the notes beside it go to standard error.
pub(super) fn tell(Configured { policy, notes }: Configured) -> Policy {
    for note in &notes {
        terminal::note(note);
    }
    policy
}

/// Tells on standard error what entries want that this machine does not have, and which of them match
/// nothing. Those that name pods are left out of the latter: only a container runtime knows these names.
pub(super) fn tell_of_entries(policy: &Policy, machine: &Topology, entries: &[Entry]) {
    for (position, (rule, entry)) in policy.workloads.iter().zip(entries).enumerate() {
        let name = &rule.name;
        for absent in Wishes::of(rule, position, machine).1 {
            terminal::note(&format!("[[workload]] {name:?}: {absent}"));
        }
        if entry.workloads.is_empty() && !rule.names_pods() {
            let below = entry.below.as_ref().map_or_else(String::new, |below| format!(": {below}"));
            terminal::note(&format!("[[workload]] {name:?}: nothing that runs matches{below}"));
        }
    }
}
