//! `numa-enforcer doctor`: what works on this host, what is missing, and what to do about it.

use std::io::Write;

use super::{Exit, args, terminal};
use crate::{
    doctor,
    host::HostRoot,
    report::{checks, json},
};

/// Reports, and succeeds whatever there is to report.
pub(super) fn run(args: &args::Doctor, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let diagnosis = doctor::examine(&HostRoot::live(), &args.state_dir);
    match args.output {
        args::TableOrJson::Table => write!(out, "{}", checks::render(&diagnosis, terminal::style()))?,
        args::TableOrJson::Json => json::write(&diagnosis, out)?,
    }
    Ok(Exit::Ok)
}
