//! `numa-enforcer topology`: what the machine looks like.

use std::io::Write;

use super::{Exit, args, root, terminal};
use crate::{
    discover::topology::read_topology,
    host::HostRoot,
    report::{json, page, tree},
};

/// What to show.
pub(super) struct Options {
    host: HostRoot,
    format: args::TopologyOutput,
}

impl TryFrom<args::Topology> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::Topology) -> anyhow::Result<Self> {
        Ok(Self { host: root::resolve(args.root.as_deref())?, format: args.output })
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (machine, degraded) = read_topology(&options.host)?;
    match options.format {
        args::TopologyOutput::Tree => write!(out, "{}", tree::render(&machine, terminal::style()))?,
        args::TopologyOutput::Json => json::write(&machine, out)?,
        args::TopologyOutput::Svg => out.write_all(page::picture(&machine).as_bytes())?,
    }
    // The output is the topology and nothing else, so that it can be read back as one.
    out.flush()?;
    degraded.iter().for_each(terminal::note_degraded);
    Ok(Exit::Ok)
}
