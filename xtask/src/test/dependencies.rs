//! What others wrote: licences, duplicates, sources (deny.toml).
//!
//! Advisories are left out: they are a database of the network, and its news would fail a change
//! that did nothing wrong. `cargo deny check advisories` is for people and for a timer.

use std::process::Command;

use anyhow::Result;

use crate::{command, setup, workspace::Workspace};

/// Workspaces with shipped code.
const SHIPPED: &[&str] = &["Cargo.toml", "enforcer-ebpf/Cargo.toml"];

/// Runs cargo-deny over every workspace that is shipped.
pub(super) fn deny(workspace: &Workspace) -> Result<()> {
    let program = setup::cargo_deny(workspace)?;
    for manifest in SHIPPED {
        let mut deny = Command::new(&program);
        deny.args(["--locked", "--log-level", "error", "--manifest-path"])
            .arg(workspace.root().join(manifest));
        deny.arg("--config").arg(workspace.root().join("deny.toml"));
        deny.args(["check", "--hide-inclusion-graph"]);
        // A ban that one of the workspaces does not need is no news.
        deny.args(["--allow", "unmatched-wrapper", "--allow", "license-not-encountered"]);
        deny.args(["licenses", "bans", "sources"]);
        command::quietly(&mut deny)?;
    }
    Ok(())
}
