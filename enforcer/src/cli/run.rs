//! `numa-enforcer run`: the daemon.

use std::io::Write;

use super::{Exit, UsageError, args, terminal};
use crate::{
    config::ConfigError,
    host::HostRoot,
    run::{self, Overrides, RunError, RunOptions},
};

/// How the daemon runs.
#[derive(Debug)]
pub(super) struct Options {
    run: RunOptions,
    check: bool,
}

impl From<args::Run> for Options {
    fn from(args: args::Run) -> Self {
        let overrides = Overrides {
            mode: args.mode.map(Into::into),
            interval: args.interval,
            state_dir: args.state_dir,
            metrics_listen: args.metrics_listen.map(Into::into),
        };
        let run = RunOptions {
            host: HostRoot::live(),
            config: args.config,
            overrides,
            once: args.once,
            style: terminal::style(),
        };
        Self { run, check: args.check }
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if options.check {
        let policy = options.run.policy().map_err(as_usage)?;
        writeln!(
            out,
            "configuration is valid: mode {:?}, {} declared workloads",
            policy.mode,
            policy.workloads.len()
        )?;
        return Ok(Exit::Ok);
    }
    terminal::log_to_stderr();
    match run::run(&options.run, out) {
        Ok(()) => Ok(Exit::Ok),
        Err(RunError::Config(error)) => Err(as_usage(error)),
        Err(error) => Err(error.into()),
    }
}

/// A configuration that is not valid is a usage error; one that cannot be read is not.
fn as_usage(error: ConfigError) -> anyhow::Error {
    match error {
        ConfigError::Read { .. } => error.into(),
        ConfigError::Invalid { .. } | ConfigError::Refused { .. } => UsageError(error.to_string()).into(),
    }
}
