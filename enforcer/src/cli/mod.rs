//! The command line: what was typed, what that means on this machine, and the run.
//!
//! Two stages. [`args`] is what was typed, checked without touching the system. Each command's
//! module resolves that into its `Options` (roots that exist, a configuration that was read) and
//! runs on nothing else. The command returns an [`Exit`]; it never ends the process itself, and
//! what it prints for people and programs goes through the writer it is given, so a reader that
//! closes the pipe early (`| head`) is a quiet success and not a panic.
//!
//! Under the name `kubectl-numa` the program is a plugin of kubectl, with commands of its own ([`kubectl`]).
//!
//! Only this module and the engine see all four of discover, observe, enforce and report.

pub mod args;
mod audit;
mod baseline;
mod capture;
mod client;
mod cluster_check;
mod cluster_source;
mod completions;
mod config_file;
mod control;
mod doctor;
mod ending;
mod exec;
mod exit;
mod explain_pod;
mod install_seccomp;
pub mod kubectl;
mod machine;
mod plan;
mod plan_cluster;
mod progress;
mod publish;
mod rebalance;
mod replay;
mod restore;
mod root;
mod run;
mod scheduler;
mod schema;
mod snapshot;
mod terminal;
mod top;
mod topology;
mod watch_brake;
mod what_if;

use std::{
    ffi::OsString,
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use self::args::{Args, ClusterCommand, Command, ExplainCommand};
pub use self::exit::UsageError;
use crate::exit::Exit;
use enforcer_act::scratch::hold;
use enforcer_kernel::linux::ignore_file_size_signal;

/// Parses the command line, runs the command and gives its exit code.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    ignore_file_size_signal();
    let words: Vec<OsString> = words.into_iter().collect();
    if let Some(plugin) = kubectl::called_as(words.first()) {
        return plugin.main(words);
    }
    let args = match args::parse(words) {
        Ok(args) => args,
        Err(error) => return exit::of_clap(&error).into(),
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let result = run(args, &mut out).and_then(|exit| {
        out.flush()?;
        Ok(exit)
    });
    result.unwrap_or_else(|error| exit::of_error(&error)).into()
}

fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match args.command {
        Command::Audit(args::AuditArgs { explain: Some(rule), .. }) => audit::explain(rule, out),
        Command::Audit(args) => audit::run(&args.try_into()?, out),
        Command::Topology(args) => topology::run(&args.try_into()?, out),
        Command::Plan(args) if args.rebalance => rebalance::run(&(*args).try_into()?, out),
        Command::Plan(args) if args.cluster.is_some() => plan_cluster::run((*args).try_into()?, out),
        Command::Plan(args) => plan::run(&(*args).try_into()?, out),
        Command::Cluster(args::ClusterArgs { command: ClusterCommand::Check(args) }) => {
            cluster_check::run(args, out)
        }
        Command::Scheduler(args::SchedulerArgs { command }) => scheduler::run(command, out),
        Command::Capture(args) => capture::run(&args.try_into()?, out),
        Command::Doctor(args) => doctor::run(&args, out),
        Command::Publish(args) => publish::run(&args.try_into()?, out),
        Command::Run(args) => run::run(&args.into(), out),
        Command::Exec(args) => exec::run(&args),
        Command::Replay(args) => replay::run(&args.try_into()?, out),
        Command::Restore(args) => restore::run(&args, out),
        Command::Status(args) => control::status(&args, out),
        Command::Explain(args::Explain { command: Some(ExplainCommand::Pod(args)), .. }) => {
            explain_pod::run(args, out)
        }
        Command::Explain(args) => control::explain(&args, out),
        Command::Top(args) => top::run(&(*args).into(), out),
        Command::Pause(args) => control::pause(&args, out),
        Command::Resume(args) => control::resume(&args, out),
        Command::LogLevel(args) => control::log_level(&args, out),
        Command::Completions(args) => completions::run(&args, out),
        Command::Schema(args) => schema::run(&args, out),
        Command::InstallSeccomp(args) => install_seccomp::run(&args, out),
        Command::WatchBrake => watch_brake::run(out),
        Command::HoldMemory => Ok(hold(&mut io::stdin().lock(), out).map(|()| Exit::Ok)?),
    }
}
