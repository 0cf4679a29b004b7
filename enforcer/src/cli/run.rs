//! `numa-enforcer run`: the daemon.

use std::{fs, io::Write, path::Path};

use anyhow::Context;
use enforcer_core::policy::Policy;

use super::{Exit, UsageError, args};

/// How the daemon runs: the configuration file with the flags applied over it.
#[derive(Debug)]
pub(super) struct Options {
    policy: Policy,
    once: bool,
    check: bool,
}

impl TryFrom<args::Run> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::Run) -> anyhow::Result<Self> {
        let mut policy = match &args.config {
            Some(path) => read_policy(path)?,
            None => Policy::default(),
        };
        if let Some(mode) = args.mode {
            policy.mode = mode.into();
        }
        if let Some(interval) = args.interval {
            policy.interval = interval.into();
        }
        if let Some(state_dir) = args.state_dir {
            policy.state_dir = state_dir;
        }
        if let Some(listen) = args.metrics_listen {
            policy.metrics.enabled = true;
            policy.metrics.listen = listen;
        }
        Ok(Self { policy, once: args.once, check: args.check })
    }
}

/// Reads a configuration; one that cannot be read is a runtime error, one that is not valid a usage error.
fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let text = fs::read_to_string(path).with_context(|| format!("reading --config {}", path.display()))?;
    let policy: Policy = toml::from_str(&text)
        .map_err(|error| UsageError(format!("--config {}: {}", path.display(), one_line(&text, &error))))?;
    policy.validate().map_err(|error| UsageError(format!("--config {}: {error}", path.display())))?;
    Ok(policy)
}

/// `line 3: unknown field ...`, without the drawing that the parser makes of it.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    match error.span() {
        Some(span) => {
            let line = text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1;
            format!("line {line}: {}", error.message())
        }
        None => error.message().to_owned(),
    }
}

pub(super) fn run(options: Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if options.check {
        writeln!(
            out,
            "configuration is valid: mode {:?}, {} declared workloads",
            options.policy.mode,
            options.policy.workloads.len()
        )?;
        return Ok(Exit::Ok);
    }
    let Options { policy, once, .. } = options;
    tracing::debug!(?policy, once);
    anyhow::bail!("run: the engine is not part of this build yet")
}
