//! `numa-enforcer install-seccomp`: the seccomp profile of the daemon as a file of the node.
//!
//! A container runtime reads a Localhost profile from the node when it creates the container. The daemon's
//! own image is the init container that puts it there, so program and profile are always of one version, and
//! no other image is pulled. Readers see the old file or the new one as a whole ([`whole_file`]).

use std::{fs, io::Write};

use anyhow::Context;

use super::{Exit, args};
use crate::whole_file;

/// Deployed with the DaemonSet (deploy/helm/numa-enforcer).
const PROFILE: &str = include_str!("../../../deploy/seccomp/numa-enforcer.json");

/// Its name, by which the pod refers to it.
const NAME: &str = "numa-enforcer.json";

pub(super) fn run(args: &args::InstallSeccomp, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let directory = &args.directory;
    fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    let path = directory.join(NAME);
    // A file that cannot be read is replaced, or that fails with its reason.
    if fs::read(&path).is_ok_and(|there| there == PROFILE.as_bytes()) {
        writeln!(out, "{}: unchanged, it is the profile of this version", path.display())?;
        return Ok(Exit::Ok);
    }
    whole_file::replace(&path, PROFILE.as_bytes())?;
    writeln!(out, "{}: written, {} bytes", path.display(), PROFILE.len())?;
    Ok(Exit::Ok)
}
