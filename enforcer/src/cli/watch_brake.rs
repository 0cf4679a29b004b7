//! `numa-enforcer watch-brake`: the process that the daemon starts beside itself, and nobody else.
//!
//! Its standard input is a socket to the daemon, its standard output the record of brakes. It needs no capability, because
//! it opens nothing. The signals that end a daemon do not end it: what it holds has to be released first.

use std::{
    io::{self, Write},
    os::fd::AsFd,
};

use anyhow::Context;

use super::Exit;
use crate::{enforce::brake::watchdog::watch, privileges, signals::Signals};

/// Until the daemon has ended.
pub(super) fn run(out: &mut dyn Write) -> anyhow::Result<Exit> {
    let _caught = Signals::catch().context("catching signals")?;
    privileges::renounce().context("giving up privileges")?;
    watch(io::stdin().as_fd(), out).context("standard input is to be a socket to the daemon")?;
    Ok(Exit::Ok)
}
