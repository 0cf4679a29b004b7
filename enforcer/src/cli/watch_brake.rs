//! `numa-enforcer watch-brake`: the process that the daemon starts beside itself, and nobody else.
//!
//! Its standard input is a socket to the daemon, its standard output the record of brakes. It needs no
//! capability, because it opens nothing. What it has to say is printed by a thread of its own: nobody has to
//! read it. The signals that end a daemon do not end it: what it holds has to be released first.

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

/// Longest time for what is said last.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Until the daemon has ended.
pub(super) fn run(out: &mut dyn Write) -> anyhow::Result<Exit> {
    let _caught = Signals::catch().context("catching signals")?;
    privileges::renounce().context("giving up privileges")?;
    // To release is more than to say so.
    let log = terminal::print_to_stderr().ok();
    let complain = |what: &str| {
        if let Some(log) = &log {
            log.print(format!("numa-enforcer watch-brake: {what}\n"));
        }
    };
    watch(io::stdin().as_fd(), out, &complain).context("standard input is to be a socket to the daemon")?;
    if let Some(log) = log {
        // Printed, or nobody reads it.
        let _ = log.finish(LAST_WORDS);
    }
    Ok(Exit::Ok)
}
