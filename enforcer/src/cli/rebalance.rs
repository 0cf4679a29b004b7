//! `numa-enforcer plan --rebalance`: moves of running workloads that would help, from two samples of this
//! host.

use std::{io::Write, time::Duration};

use enforcer_core::{declarations::Declarations, model::Model, owners::Owners, policy::Policy};
use numa_placement::Inventory;

use super::{Exit, args, config_file, root, snapshot::HostSnapshot, terminal, what_if};
use enforcer_host::{HostRoot, topology::read_topology};
use enforcer_report::rebalance_text;

/// What is watched, and for how long.
pub(super) struct Options {
    host: HostRoot,
    format: args::TableOrJson,
    sample: Duration,
    policy: Policy,
}

impl TryFrom<args::PlanArgs> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::PlanArgs) -> anyhow::Result<Self> {
        let policy = config_file::read(args.config.as_deref())?;
        Ok(Self {
            host: root::resolve(None)?,
            format: args.output,
            sample: args.sample,
            policy: policy.unwrap_or_default(),
        })
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Options { host, format, sample, policy } = options;
    let (machine, degraded) = read_topology(host)?;
    let mut seen = HostSnapshot::new(host, Some(*sample), policy, &machine, degraded);
    let (inventory, unfit) = Inventory::or_whole(machine, &policy.placement);
    seen.degraded.extend(unfit);
    let model = Model::new(&inventory.machine, &seen.workloads, &seen.now, seen.before.as_ref());
    let declarations = Declarations::find(policy, &seen.workloads, &seen.now.tasks, &seen.facts);
    let entries = declarations.entries(policy, &seen.workloads);
    config_file::tell_of_entries(policy, &inventory, &entries);
    let owners = Owners::find(&seen.facts, &seen.workloads, &model, &declarations, |_| false);
    let report = what_if::moves(policy, &inventory, &seen, &model, &declarations, &owners);
    terminal::show(*format, &report, rebalance_text::render, out)?;
    Ok(Exit::Ok)
}
