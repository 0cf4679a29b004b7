//! `numa-enforcer watch-brake`: the watching process that the daemon starts for its brakes.
//!
//! Its standard input is a socket to the daemon, its standard output the record of brakes. It opens nothing,
//! so it needs no capability. A thread of its own prints its output: the reader may stall. Signals that end a
//! daemon do not end it: it must release its brakes first.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    time::Duration,
};

use anyhow::Context;

use super::{Exit, terminal};
use crate::signals::Signals;
use enforcer_act::brake::watchdog::watch;
use enforcer_kernel::privileges;

/// Longest time for the last output.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Until the daemon has ended.
pub(super) fn run(out: &mut dyn Write) -> anyhow::Result<Exit> {
    let _caught = Signals::catch().context("catching signals")?;
    privileges::renounce().context("giving up privileges")?;
    // The release matters more than its message.
    let log = terminal::print_to_stderr().ok();
    let complain = |what: &str| {
        if let Some(log) = &log {
            log.print(format!("numa-enforcer watch-brake: {what}\n"));
        }
    };
    watch(io::stdin().as_fd(), out, &complain).context("standard input is to be a socket to the daemon")?;
    if let Some(log) = log {
        // Printed, or the reader has stalled.
        let _ = log.finish(LAST_WORDS);
    }
    Ok(Exit::Ok)
}
