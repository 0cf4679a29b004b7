//! `numa-enforcer doctor`: what works on this host, what is missing, and what to do about it.

use std::io::Write;

use super::{Exit, args, client, config_file, terminal};
use crate::{doctor, serve::api};
use enforcer_host::HostRoot;
use enforcer_report::checks;

/// Reports, and succeeds whatever there is to report.
pub(super) fn run(args: &args::Doctor, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let policy = config_file::read(args.config.as_deref())?.unwrap_or_default();
    let state_dir = args.state_dir.as_ref().unwrap_or(&policy.state_dir);
    let ask = || client::glance(&policy.control.socket, api::STATUS).map_err(|error| format!("{error:#}"));
    let diagnosis = doctor::examine(&HostRoot::live(), &policy, state_dir, ask);
    terminal::show(args.output, &diagnosis, checks::render, out)?;
    Ok(Exit::Ok)
}
