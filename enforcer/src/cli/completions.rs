//! `numa-enforcer completions`: what a shell needs to complete what is typed.
//!
//! Made of the same definition that parses the command line, so neither can know what the other does not.

use std::io::Write;

use clap_complete::Shell;

use super::{Exit, args};

/// What `clap_complete` 4.6 calls this program in the labels of its script for bash, where it takes the
/// hyphen for the beginning of a command, and in the states that lead to them.
const LABEL: &str = "numa__subcmd__enforcer";
const STATE: &str = "numa__enforcer";

pub(super) fn run(args: &args::Completions, out: &mut dyn Write) -> anyhow::Result<Exit> {
    // Writing to a pipe that ended would be a panic in there.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::completed(), "numa-enforcer", &mut script);
    if args.shell == Shell::Bash {
        script = String::from_utf8_lossy(&script).replace(LABEL, STATE).into_bytes();
    }
    out.write_all(&script)?;
    Ok(Exit::Ok)
}
