//! The report for `top`, built from the latest turn and decisions.

use std::{process, time::Duration};

use super::decisions::Decisions;
use crate::{version, wall_clock::unix_ms};
use enforcer_kernel::clock;
use enforcer_report::{
    status::Paused,
    tick::TickReport,
    top::{TOP_SCHEMA_VERSION, TopAction, TopReport, TopTurn},
};

/// The report of this moment; the turn is `None` before the first one is over.
pub fn top_report(latest: Option<&TickReport>, decisions: &Decisions, paused: Option<Paused>) -> TopReport {
    let all = decisions.all();
    let records = all.iter().flat_map(|one| one.records.iter().map(|record| (&one.subject, &**record)));
    let age = |turn: &TickReport| Duration::from_nanos(clock::now_ns().saturating_sub(turn.begun_ns));
    TopReport {
        schema_version: TOP_SCHEMA_VERSION,
        version: version::VERSION.to_owned(),
        pid: process::id(),
        now_unix_ms: unix_ms(),
        paused,
        turn: latest.map(|turn| TopTurn::new(turn, age(turn).as_secs())),
        actions: TopAction::newest(records),
    }
}
