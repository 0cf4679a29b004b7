//! `numa-enforcer audit`: what is misaligned on this machine right now.

use std::{io::Write, time::Duration};

use enforcer_core::finding::Severity;

use super::{Exit, args, root};
use crate::host::HostRoot;

/// What an audit does.
pub(super) struct Options {
    host: HostRoot,
    format: args::TableOrJson,
    sample: Option<Duration>,
    only: Option<args::Only>,
    fail_on: Severity,
}

impl TryFrom<args::Audit> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::Audit) -> anyhow::Result<Self> {
        Ok(Self {
            host: root::resolve(args.root.as_deref())?,
            format: args.output,
            sample: args.sample,
            only: args.only,
            fail_on: args.fail_on.into(),
        })
    }
}

pub(super) fn run(options: &Options, _out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Options { host, format, sample, only, fail_on } = options;
    tracing::debug!(?host, ?format, ?sample, ?only, ?fail_on);
    anyhow::bail!("audit: the readers are not part of this build yet")
}
