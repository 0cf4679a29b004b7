//! `numa-enforcer status`, `explain`, `pause`, `resume` and `log-level`: a running daemon is asked and told.

use std::io::Write;

use anyhow::bail;
use enforcer_core::policy::Mode;
use hyper::Method;

use super::{Exit, args, client, terminal};
use crate::serve::api::{self, LogLevelText, PauseAnswer, PauseRequest};
use enforcer_report::{
    decision::{self, Explanation},
    status::{self, Paused, StatusReport},
    text,
};

pub(super) fn status(args: &args::StatusArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let answer: StatusReport = client::get(&args.question.daemon.socket, api::STATUS)?;
    terminal::show(args.question.output, &answer, status::render, out)?;
    Ok(Exit::Ok)
}

/// Bytes of a name above which no workload has one: the kernel has no longer path (`PATH_MAX`).
const LONGEST_NAME: usize = 4096;

pub(super) fn explain(args: &args::Explain, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let workload = args.workload.as_deref().unwrap_or_default();
    let length = workload.len();
    if length > LONGEST_NAME {
        bail!("a name of {length} bytes: no workload has one of more than {LONGEST_NAME}");
    }
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("workload", workload).finish();
    let socket = &args.question.daemon.socket;
    let answer: Explanation = client::get(socket, &format!("{}?{query}", api::EXPLAIN))?;
    terminal::show(args.question.output, &answer, decision::render, out)?;
    Ok(Exit::Ok)
}

pub(super) fn pause(args: &args::Pause, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let request = PauseRequest { for_seconds: args.length.map(|length| length.as_secs()) };
    let answer: PauseAnswer = client::send(&args.daemon.socket, Method::POST, api::PAUSE, &request)?;
    writeln!(out, "{}", answer.paused.map_or_else(|| "paused no more".to_owned(), Paused::line))?;
    if answer.mode == Some(Mode::Observe) {
        writeln!(out, "nothing changes by that: this daemon observes, and writes nothing anyway")?;
    }
    if !answer.settled {
        writeln!(
            out,
            "the plan of the running turn is still being carried out; after it nothing is written"
        )?;
    }
    if let Some(error) = &answer.unrecorded {
        writeln!(out, "a daemon that is started again is not paused: {}", text::escape(error))?;
    }
    Ok(Exit::Ok)
}

pub(super) fn resume(args: &args::Resume, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let none = PauseRequest::default();
    let answer: PauseAnswer = client::send(&args.daemon.socket, Method::POST, api::RESUME, &none)?;
    let said = match (answer.was_paused, answer.mode) {
        (false, _) => "it was not paused",
        (true, Some(Mode::Enforce)) => "no longer paused: the next turn corrects what is not in place",
        (true, Some(Mode::Observe)) => "no longer paused; this daemon observes, and writes nothing anyway",
        (true, None) => "no longer paused",
    };
    writeln!(out, "{said}")?;
    if let Some(error) = &answer.unrecorded {
        writeln!(out, "a daemon that is started again may be paused: {}", text::escape(error))?;
    }
    Ok(Exit::Ok)
}

pub(super) fn log_level(args: &args::LogLevelArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let socket = &args.daemon.socket;
    let LogLevelText { level } = match args.level {
        None => client::get(socket, api::LOG_LEVEL)?,
        Some(level) => {
            let wanted = LogLevelText { level: level.word() };
            client::send(socket, Method::PUT, api::LOG_LEVEL, &wanted)?
        }
    };
    writeln!(out, "{}", text::escape(&level))?;
    Ok(Exit::Ok)
}
