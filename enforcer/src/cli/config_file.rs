//! The configuration file of a command that runs once.
//!
//! Whatever of it changes nothing is said on standard error, so that no command takes a setting in silence.

use std::path::Path;

use enforcer_core::{
    declarations::DeclaredEntry,
    hosted::{never_granted, never_had},
    policy::Policy,
};
use numa_placement::Inventory;

use super::{exit::of_config, terminal};
use crate::config::{Configured, read_config};

/// The policy of the file, where one is named.
pub(super) fn read(path: Option<&Path>) -> anyhow::Result<Option<Policy>> {
    let configured = path.map(read_config).transpose().map_err(of_config)?;
    Ok(configured.map(log_notes))
}

/// The policy; the notes beside it go to standard error.
pub(super) fn log_notes(Configured { policy, notes, .. }: Configured) -> Policy {
    for note in &notes {
        terminal::note(note);
    }
    policy
}

/// Tells on standard error what the configuration wants that this machine can never give.
pub(super) fn tell_of_machine(policy: &Policy, inventory: &Inventory) {
    if let Some(never) = never_had(policy, inventory) {
        terminal::note(&never);
    }
    for (position, rule) in policy.workloads.iter().enumerate() {
        for never in never_granted(policy, position, rule, inventory) {
            terminal::note(&format!("[[workload]] {:?}: {never}", rule.name));
        }
    }
}

/// The same, and which entries match nothing. Those that name pods are left out of the latter: only a
/// container runtime knows these names.
pub(super) fn tell_of_entries(policy: &Policy, inventory: &Inventory, entries: &[DeclaredEntry]) {
    tell_of_machine(policy, inventory);
    for (rule, entry) in policy.workloads.iter().zip(entries) {
        if entry.workloads.is_empty() && !rule.names_pods() {
            let below = entry.below.as_ref().map_or_else(String::new, |below| format!(": {below}"));
            terminal::note(&format!("[[workload]] {:?}: nothing that runs matches{below}", rule.name));
        }
    }
}
