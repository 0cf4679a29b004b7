//! How an error of a command is printed, and the exit code that it ends with.
//!
//! A reader that goes away before the output ends is no failure of ours: 0, and silence.

use std::{
    fmt::Display,
    io::{self, Write},
};

use clap::error::ErrorKind;
use thiserror::Error;

use super::client::{NoDaemon, NoNodeDaemon};
use crate::{config::ConfigError, exit::Exit};
use enforcer_report::text;
use enforcer_runtime::manifest::source::InputError;

/// What errors begin with.
const PROGRAM: &str = "numa-enforcer";

/// What was asked for makes no sense; nothing was run.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// A configuration that is not valid is a usage error, as is one that is no text; one that cannot be read is
/// not.
pub(super) fn of_config(error: ConfigError) -> anyhow::Error {
    match error {
        ConfigError::Read { ref cause, .. } if is_no_text(cause) => UsageError(error.to_string()).into(),
        ConfigError::Read { .. } => error.into(),
        ConfigError::Invalid { .. } | ConfigError::NotHere { .. } => with_excerpt(&error, error.excerpt()),
    }
}

/// The same of manifests, devices and steps.
pub(super) fn of_input(error: InputError) -> anyhow::Error {
    match error {
        InputError::Read { ref cause, .. } if is_no_text(cause) => UsageError(error.to_string()).into(),
        InputError::Read { .. } => error.into(),
        InputError::Invalid { .. } => with_excerpt(&error, error.excerpt()),
    }
}

fn with_excerpt(error: &dyn Display, excerpt: Option<&str>) -> anyhow::Error {
    let lines = excerpt.map(|lines| format!("\n{lines}")).unwrap_or_default();
    UsageError(format!("{error}{lines}")).into()
}

/// It was read, and is no UTF-8.
fn is_no_text(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::InvalidData
}

/// Prints what clap has to say and gives its exit code: help and version are a success.
pub(super) fn of_clap(error: &clap::Error) -> Exit {
    let printed = error.print();
    match (error.kind(), printed) {
        (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, Err(error)) => {
            of_error(&anyhow::Error::new(error).context("printing"))
        }
        (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, Ok(())) => Exit::Ok,
        // If this fails, there is no reader left.
        (_, _) => Exit::Usage,
    }
}

/// Prints an error and gives its exit code. It is one line, but for what is wrong with the request: that
/// may show where.
pub(super) fn of_error(error: &anyhow::Error) -> Exit {
    of_error_by(PROGRAM, error)
}

/// The same for a program with another name.
pub(super) fn of_error_by(program: &str, error: &anyhow::Error) -> Exit {
    let (exit, said) = told_by(program, error);
    if let Some(said) = said {
        let _ = writeln!(io::stderr(), "{said}");
    }
    exit
}

/// The exit code of an error, and what is to be printed of it, without the last line end.
pub(super) fn exit_and_message(error: &anyhow::Error) -> (Exit, Option<String>) {
    told_by(PROGRAM, error)
}

fn told_by(program: &str, error: &anyhow::Error) -> (Exit, Option<String>) {
    if is_broken_pipe(error) {
        return (Exit::Ok, None);
    }
    let message = message(error);
    let is_usage = error.is::<UsageError>();
    let message = if is_usage { escape_lines(&message) } else { text::escape(&message).into_owned() };
    let exit = match () {
        () if is_usage => Exit::Usage,
        () if error.is::<NoDaemon>() || error.is::<NoNodeDaemon>() => Exit::NoDaemon,
        () => Exit::Undetermined,
    };
    (exit, Some(format!("{program}: {message}")))
}

fn escape_lines(message: &str) -> String {
    message.lines().map(text::escape).collect::<Vec<_>>().join("\n")
}

/// The error and its causes, each told once: most of our errors end in their cause already.
fn message(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |message, cause| {
        let cause = cause.to_string();
        match message.as_str() {
            "" => cause,
            told if told.ends_with(&cause) => message,
            told => format!("{told}: {cause}"),
        }
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use anyhow::{Context, anyhow};

    use super::{super::args, *};

    #[test]
    fn every_code_is_documented_and_no_other() {
        let all = [Exit::Ok, Exit::Findings, Exit::Rejected, Exit::Undetermined, Exit::Usage, Exit::NoDaemon];
        let codes: BTreeSet<u8> = all.map(Exit::code).into();
        let (_, help) = args::HELP.split_once("Exit codes:").unwrap();
        let in_help = help.lines().skip(1).take_while(|line| !line.is_empty());
        let in_help: Vec<u8> =
            in_help.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect();
        assert_eq!(in_help, codes.iter().copied().collect::<Vec<_>>());
        let page = include_str!("../../../docs/commands.md");
        let row = |line: &str| line.strip_prefix("| ")?.split(' ').next()?.parse().ok();
        assert_eq!(page.lines().filter_map(row).collect::<Vec<u8>>(), in_help);
    }

    #[test]
    fn a_cause_is_told_once() {
        #[derive(Debug, Error)]
        #[error("reading /x: {0}")]
        struct Reading(#[source] io::Error);

        let reading = || Reading(io::Error::other("gone"));
        assert_eq!(message(&anyhow::Error::new(reading())), "reading /x: gone");
        assert_eq!(message(&anyhow::Error::new(reading()).context("no audit")), "no audit: reading /x: gone");
        assert_eq!(message(&anyhow!("gone")), "gone");
    }

    #[test]
    fn errors_map_to_the_documented_codes() {
        let pipe = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe));
        let usage = anyhow::Error::new(UsageError("bad".into()));
        for (error, code) in [
            (pipe, 0),
            (anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("writing"), 0),
            (usage, 64),
            (Err::<(), _>(UsageError("bad".into())).context("reading x").unwrap_err(), 64),
            (anyhow!("anything else"), 2),
        ] {
            assert_eq!(of_error(&error).code(), code, "{error:#}");
        }
    }
}
