//! `numa-enforcer doctor`: what works on this host, what is missing, and what to do about it.

use std::io::Write;

use enforcer_core::policy::Policy;

use super::{Exit, args, config_file, terminal};
use crate::doctor;
use enforcer_host::HostRoot;
use enforcer_report::checks;

/// Reports, and succeeds whatever there is to report.
pub(super) fn run(args: &args::Doctor, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Policy { state_dir, kubelet, .. } = config_file::read(args.config.as_deref())?.unwrap_or_default();
    let state_dir = args.state_dir.as_ref().unwrap_or(&state_dir);
    let diagnosis = doctor::examine(&HostRoot::live(), &kubelet, state_dir);
    terminal::show(args.output, &diagnosis, checks::render, out)?;
    Ok(Exit::Ok)
}
