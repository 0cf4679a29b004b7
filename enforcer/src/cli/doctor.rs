//! `numa-enforcer doctor`: what works on this host, what is missing, and what to do about it.

use std::io::Write;

use super::{Exit, args};

pub(super) fn run(_args: &args::Doctor, _out: &mut dyn Write) -> anyhow::Result<Exit> {
    anyhow::bail!("doctor: not part of this build yet")
}
