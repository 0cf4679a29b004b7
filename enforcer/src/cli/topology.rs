//! `numa-enforcer topology`: what the machine looks like.

use std::io::Write;

use super::{Exit, args, root};
use crate::host::HostRoot;

/// What to show.
pub(super) struct Options {
    host: HostRoot,
    format: args::TreeOrJson,
}

impl TryFrom<args::Topology> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::Topology) -> anyhow::Result<Self> {
        Ok(Self { host: root::resolve(args.root.as_deref())?, format: args.output })
    }
}

pub(super) fn run(options: &Options, _out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Options { host, format } = options;
    tracing::debug!(?host, ?format);
    anyhow::bail!("topology: the readers are not part of this build yet")
}
