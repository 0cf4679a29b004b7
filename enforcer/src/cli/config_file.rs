//! The configuration file of a command that runs once.
//!
//! Whatever of it changes nothing is said on standard error, so that no command takes a setting in silence.

use std::path::Path;

use enforcer_core::policy::Policy;

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
