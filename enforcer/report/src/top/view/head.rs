//! Head (source of the reports, state of the host) and foot (keys) of the screen.

use std::fmt::Write as _;

use super::canvas::Canvas;
use crate::{
    status::Paused,
    style::Tone,
    text,
    top::{event::Feed, layout::Rows, report::TopReport, state::TopState},
    units,
    view::verdicts::VerdictCounts,
};

const KEYS: &str = "q end  enter details  s sort  / filter  n nodes  a actions  d degraded  ? help";
const KEYS_OF_PAGE: &str = "q back  up, down, PgUp, PgDn scroll  ? help";

pub(super) fn draw(state: &TopState, canvas: &mut Canvas<'_>) {
    canvas.put(0, 0, &text::escape(&source_line(state)), Some(Tone::Heading));
    let (line, tone) = how(state);
    canvas.put(0, 1, &text::escape(&line), tone);
}

/// `daemon 0.1.0, enforce, turn 12, 3s ago; HOST`, the source first, since what does not fit is cut.
fn source_line(state: &TopState) -> String {
    let (Some(feed), Some(report)) = (&state.feed, state.report()) else {
        return "numa-enforcer top: looking for a daemon".to_owned();
    };
    let mut parts = vec![match feed {
        Feed::Daemon => format!("numa-enforcer top: daemon {}", report.version),
        Feed::Own { because, every } => {
            format!("numa-enforcer top: {because}, looks by itself every {}", units::short_span(*every))
        }
    }];
    if let Some(turn) = &report.turn {
        if *feed == Feed::Daemon {
            parts.push(turn.mode.to_string());
        }
        parts.extend(report.paused.map(Paused::line));
        let age = units::span(state.age_seconds().unwrap_or_default());
        parts.push(format!("turn {}, {age} ago", turn.number));
    }
    let host = report.turn.as_ref().and_then(|turn| turn.hostname.as_deref());
    format!("{}{}", parts.join(", "), host.map_or_else(String::new, |host| format!("; {host}")))
}

/// Silence before news before the summary.
fn how(state: &TopState) -> (String, Option<Tone>) {
    if let Some((seconds, reason)) = state.silence() {
        let old = state.age_seconds().map(|age| format!(", the figures are {} old", units::span(age)));
        let line = format!("no answer for {}{}: {reason}", units::span(seconds), old.unwrap_or_default());
        return (line, Some(Tone::Bad));
    }
    if let Some(news) = state.news() {
        return (news.to_owned(), Some(Tone::Notice));
    }
    match state.report() {
        Some(TopReport { turn: None, .. }) => ("it is in its first turn".to_owned(), None),
        Some(TopReport { turn: Some(turn), .. }) => {
            let verdicts = VerdictCounts::from(&turn.summary).to_string();
            let mut parts = vec![units::count(turn.summary.total, "workload")];
            parts.extend(Some(verdicts).filter(|verdicts| !verdicts.is_empty()));
            let mut line = parts.join(": ");
            if !turn.degraded.is_empty() {
                let _ = write!(line, "; {} degraded", turn.degraded.len());
            }
            if !state.filter.is_empty() {
                let _ = write!(line, "; {} shown, filter {:?}", state.shown(), state.filter);
            }
            if turn.omitted > 0 {
                let _ = write!(line, "; {} not told", turn.omitted);
            }
            (line, None)
        }
        None => ("waiting for the first figures".to_owned(), None),
    }
}

pub(super) fn foot(state: &TopState, rows: Rows, canvas: &mut Canvas<'_>) {
    if rows.count == 0 {
        return;
    }
    if state.typing {
        let line = format!("filter: {}_   enter keeps it, escape shows all", text::escape(&state.filter));
        canvas.put(0, rows.at, &line, Some(Tone::Heading));
    } else {
        canvas.put(0, rows.at, KEYS, Some(Tone::Quiet));
    }
}

pub(super) fn foot_of_page(more: usize, rows: Rows, canvas: &mut Canvas<'_>) {
    if rows.count == 0 {
        return;
    }
    let more = if more > 0 { format!("{}; ", units::count(more, "more line")) } else { String::new() };
    canvas.put(0, rows.at, &format!("{more}{KEYS_OF_PAGE}"), Some(Tone::Quiet));
}
