//! `numa-enforcer capture`: a copy of the files that the readers use, for another machine.

use std::{io::Write, path::PathBuf};

use super::{Exit, args, root};
use crate::host::HostRoot;

/// What to copy, and where to.
pub(super) struct Options {
    host: HostRoot,
    directory: PathBuf,
}

impl TryFrom<args::Capture> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::Capture) -> anyhow::Result<Self> {
        Ok(Self { host: root::resolve(args.root.as_deref())?, directory: args.directory })
    }
}

pub(super) fn run(options: &Options, _out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Options { host, directory } = options;
    tracing::debug!(?host, ?directory);
    anyhow::bail!("capture: not part of this build yet")
}
