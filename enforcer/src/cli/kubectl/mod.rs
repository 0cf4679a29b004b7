//! `kubectl numa`: the daemons of a cluster, asked from the user's machine.
//!
//! kubectl starts a program named `kubectl-numa` for `kubectl numa`; this is the same binary under that name.
//! It runs kubectl in turn ([`enforcer_cluster`]) and asks daemons over port-forwards, with the requests and
//! renderers of the local commands. It never looks at the machine that it runs on.
//!
//! Invariants: at most `nodes::AT_A_TIME` nodes are asked at a time, and each answer is bounded in time and
//! size. No kubectl that it started outlives it, unless it is killed without a signal that can be caught.

pub mod args;
mod audit;
mod complete;
mod explain;
mod nodes;
mod status;
mod top;

use std::{
    ffi::OsString,
    io::{self, BufWriter, Write},
    path::Path,
    process::{self, ExitCode},
    thread,
};

use self::{
    args::{PluginArgs, PluginCommand},
    nodes::Cluster,
};
use super::{Exit, ending::EndingSignals, exit};
use anyhow::Context as _;
use clap::FromArgMatches as _;
use enforcer_cluster::Kubectl;

/// What the program is for, by the name that it was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PluginCall {
    /// `kubectl-numa`: a command.
    Command,
    /// `kubectl_complete-numa`: what kubectl's completion can go on with.
    Completion,
}

/// What to do under this name; `None` for the program's own commands.
pub(super) fn called_as(program: Option<&OsString>) -> Option<PluginCall> {
    match Path::new(program?).file_name()?.to_str()? {
        "kubectl-numa" => Some(PluginCall::Command),
        "kubectl_complete-numa" => Some(PluginCall::Completion),
        _ => None,
    }
}

impl PluginCall {
    /// Does it, and gives the exit code.
    pub(super) fn main(self, words: Vec<OsString>) -> ExitCode {
        let mut out = BufWriter::new(io::stdout().lock());
        let result = match self {
            Self::Completion => complete::run(&words, &mut out),
            Self::Command => match parse(words) {
                Ok(args) => run(args, &mut out),
                Err(error) => return exit::of_clap(&error).into(),
            },
        };
        let result = result.and_then(|exit| {
            out.flush()?;
            Ok(exit)
        });
        result.unwrap_or_else(|error| exit::of_error_by("kubectl numa", &error)).into()
    }
}

fn parse(mut words: Vec<OsString>) -> Result<PluginArgs, clap::Error> {
    // Usage is what the user types.
    if let Some(program) = words.first_mut() {
        *program = "kubectl numa".into();
    }
    let mut command = args::command();
    let mut typed = command.try_get_matches_from_mut(words)?;
    PluginArgs::from_arg_matches_mut(&mut typed).map_err(|error| error.format(&mut command))
}

fn run(args: PluginArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let cluster = Cluster::of(args.cluster)?;
    let is_screen = matches!(&args.command, PluginCommand::Top(top) if !top.view.once);
    end_on_signals(cluster.kubectl().clone(), is_screen).context("catching signals")?;
    let result = match args.command {
        PluginCommand::Audit(args) => audit::run(&cluster, &args, out),
        PluginCommand::Status(args) => status::run(&cluster, &args, out),
        PluginCommand::Explain(args) => explain::run(&cluster, &args, out),
        PluginCommand::Top(args) => top::run(&cluster, args, out),
    };
    cluster.kubectl().end_all();
    result
}

/// Ends every kubectl at a signal, and this program too unless the screen does that.
fn end_on_signals(kubectl: Kubectl, is_screen: bool) -> io::Result<()> {
    let signals = EndingSignals::catch()?;
    let wait = move || {
        let kind = signals.wait();
        kubectl.end_all();
        if !is_screen {
            // As a shell reports a program that a signal has ended.
            process::exit(128 + kind.as_raw_value());
        }
    };
    thread::Builder::new().name("kubectl".into()).spawn(wait)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_the_program_decides() {
        for (program, call) in [
            ("kubectl-numa", Some(PluginCall::Command)),
            ("/home/a/.local/bin/kubectl-numa", Some(PluginCall::Command)),
            ("kubectl_complete-numa", Some(PluginCall::Completion)),
            ("numa-enforcer", None),
            ("/usr/bin/kubectl-numa/numa-enforcer", None),
            ("", None),
        ] {
            assert_eq!(called_as(Some(&program.into())), call, "{program}");
        }
        assert_eq!(called_as(None), None);
    }
}
