//! `numa-enforcer run`: the daemon.

use std::{
    io::{self, Write},
    time::Duration,
};

use anyhow::Context as _;
use enforcer_core::policy::Mode;
use numa_placement::Inventory;

use super::{
    Exit, args, config_file,
    exit::{exit_and_message, of_config},
    restore, terminal,
};
use crate::{
    log_level::LogLevel,
    run::{self, DaemonOutput, Overrides, RecordOptions, RunError, RunOptions},
};
use enforcer_host::{HostRoot, topology::read_topology};

/// Longest time for the last lines of a daemon that ends: their reader may have stalled.
const LAST_LINES: Duration = Duration::from_millis(500);

/// The same for its log and its error.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How the daemon runs.
#[derive(Debug)]
pub(super) struct Options {
    run: RunOptions,
    check: bool,
}

impl From<args::RunArgs> for Options {
    fn from(args: args::RunArgs) -> Self {
        let overrides = Overrides {
            mode: args.mode.map(Into::into),
            interval: args.interval,
            state_dir: args.state_dir,
            metrics_listen: args.metrics_listen.map(Into::into),
            probes_listen: args.probes_listen,
            reports_listen: args.reports_listen,
            publish_as: args.publish_as,
            node_name: args.node_name,
            also_publish: args.also_publish.into_iter().map(Into::into).collect(),
            events: args.events,
            feature_file: args.feature_file,
            bpf_log: args.bpf_log,
        };
        let run = RunOptions {
            host: HostRoot::live(),
            config_may_be_absent: args.config_if_present.is_some(),
            config: args.config.or(args.config_if_present),
            overrides,
            once: args.once,
            restore_on_exit: args.restore_on_exit,
            take_over: args.take_over.unwrap_or_default(),
            record: args.record.map(|file| RecordOptions { file, limit: args.record_limit.0 }),
            style: terminal::style(),
            log: LogLevel::default(),
        };
        Self { run, check: args.check }
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if options.check {
        let policy = config_file::log_notes(options.run.configured().map_err(of_config)?);
        writeln!(out, "configuration is valid: mode {}, {}", policy.mode, run::declared(&policy))?;
        // It may be meant for another machine.
        if let Ok((machine, _)) = read_topology(&options.run.host) {
            let (inventory, unfit) = Inventory::or_whole(machine, &policy.placement);
            config_file::tell_of_machine(&policy, &inventory);
            if let Some(unfit) = unfit {
                writeln!(out, "on this machine: {}; {}", unfit.reason, unfit.effect)?;
            }
        }
        return Ok(Exit::Ok);
    }
    let (level, log) = terminal::log_to_stderr().context("starting the log")?;
    let turns = terminal::print_to_stdout(|lost| tracing::warn!("{lost}")).context("starting to print")?;
    let run = RunOptions { log: level, ..options.run.clone() };
    let exit = run_and_restore(&run, DaemonOutput { turns: &turns, log: &log }).unwrap_or_else(|error| {
        let (exit, said) = exit_and_message(&error);
        if let Some(said) = said {
            log.print_last(said + "\n");
        }
        exit
    });
    // Its reader may have stalled.
    let _ = log.finish(LAST_WORDS);
    Ok(exit)
}

fn run_and_restore(run: &RunOptions, output: DaemonOutput<'_>) -> anyhow::Result<Exit> {
    // The journal holds what was enforced, whatever mode the latest configuration asked for.
    let enforced = run.restore_on_exit.then(|| run.policy()).transpose().map_err(of_config)?;
    let mut ended = run::run(run, output).map_err(of_run)?;
    let result = std::mem::replace(&mut ended.result, Ok(()));
    let restored = match enforced {
        Some(policy) if policy.mode == Mode::Enforce => {
            ended.release_journal();
            let mut text = Vec::new();
            let restored = restore::everything(&run.host, &policy.state_dir, &policy.kubelet, &mut text);
            output.turns.print_last(text);
            Some(restored)
        }
        _ => None,
    };
    if let Some(signal) = ended.signal().filter(|_| !run.once) {
        let cpusets = match &restored {
            None => "cpusets stay as they are",
            Some(Ok(Exit::Ok)) => "cpusets were put back",
            Some(_) => "not all cpusets were put back; see numa-enforcer restore",
        };
        tracing::info!("numa-enforcer ends on {signal}; {cpusets}");
    }
    // With `--once` the audit is awaited until the daemon is told to end. Otherwise the daemon has ended,
    // even if its output is unread.
    let is_awaited = || run.once && !ended.must_end();
    let is_late =
        |printed: &io::Result<()>| matches!(printed, Err(late) if late.kind() == io::ErrorKind::TimedOut);
    let mut printed = output.turns.finish(LAST_LINES);
    while is_late(&printed) && is_awaited() {
        printed = output.turns.finish(LAST_LINES);
    }
    let printed = if is_awaited() { printed.context("printing") } else { Ok(()) };
    let Err(error) = result.map_err(of_run).and(printed) else { return restored.unwrap_or(Ok(Exit::Ok)) };
    let note = |line: &str| output.log.print_last(terminal::noted(line) + "\n");
    // If nothing could be printed, the report on the restore is lost, too.
    match restored {
        Some(Ok(Exit::Ok)) => note("everything was put back"),
        Some(Ok(_)) => note("not everything could be put back; see numa-enforcer restore"),
        Some(Err(error)) => note(&format!("putting everything back: {error:#}")),
        None => {}
    }
    Err(error)
}

fn of_run(error: RunError) -> anyhow::Error {
    match error {
        RunError::Config(error) => of_config(error),
        error => error.into(),
    }
}
