//! `numa-enforcer completions`: what a shell needs to complete what is typed.
//!
//! Made of the same definition that parses the command line, so neither can know what the other does not.

use std::io::Write;

use super::{Exit, args};

pub(super) fn run(args: &args::Completions, out: &mut dyn Write) -> anyhow::Result<Exit> {
    // Writing to a pipe that ended would be a panic in there.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::command(), "numa-enforcer", &mut script);
    out.write_all(&script)?;
    Ok(Exit::Ok)
}
