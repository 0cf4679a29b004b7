//! `numa-enforcer topology`: what the machine looks like.

use std::io::Write;

use numa_topology::{Topology, degraded::Degraded};

use super::{Exit, args, machine, terminal};
use enforcer_report::{json, page, tree};

/// What to show.
pub(super) struct Options {
    machine: Topology,
    degraded: Vec<Degraded>,
    format: args::TopologyOutput,
}

impl TryFrom<args::TopologyArgs> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::TopologyArgs) -> anyhow::Result<Self> {
        let (machine, degraded) = machine::of(&args.machine)?;
        Ok(Self { machine, degraded, format: args.output })
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Options { machine, degraded, .. } = options;
    match options.format {
        args::TopologyOutput::Tree => write!(out, "{}", tree::render(machine, terminal::style()))?,
        args::TopologyOutput::Json => json::write(machine, out)?,
        args::TopologyOutput::Svg => out.write_all(page::picture(machine).as_bytes())?,
    }
    // The output is the topology and nothing else, so that it can be read back as one.
    out.flush()?;
    degraded.iter().for_each(terminal::note_degraded);
    Ok(Exit::Ok)
}
