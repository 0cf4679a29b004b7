//! `numa-enforcer run`: the daemon.

use std::io::Write;

use enforcer_core::policy::Mode;

use super::{Exit, args, exit::of_config, restore, terminal};
use crate::{
    host::HostRoot,
    log_level::LogLevel,
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
            bpf_log: args.bpf_log,
        };
        let run = RunOptions {
            host: HostRoot::live(),
            config: args.config,
            overrides,
            once: args.once,
            restore_on_exit: args.restore_on_exit,
            style: terminal::style(),
            log: LogLevel::default(),
        };
        Self { run, check: args.check }
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if options.check {
        let policy = options.run.policy().map_err(of_config)?;
        writeln!(out, "configuration is valid: mode {}, {}", policy.mode, run::declared(&policy))?;
        return Ok(Exit::Ok);
    }
    let run = RunOptions { log: terminal::log_to_stderr(), ..options.run.clone() };
    // What it had enforced is in its journal, whatever mode a reloaded configuration asked for last.
    let enforced = run.restore_on_exit.then(|| run.policy()).transpose().map_err(of_config)?;
    match run::run(&run, out) {
        Ok(mut ended) => match enforced {
            Some(policy) if policy.mode == Mode::Enforce => {
                ended.release_journal();
                restore::everything(&run.host, &policy.state_dir, out)
            }
            _ => Ok(Exit::Ok),
        },
        Err(RunError::Config(error)) => Err(of_config(error)),
        Err(error) => Err(error.into()),
    }
}
