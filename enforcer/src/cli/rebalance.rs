//! `numa-enforcer plan --rebalance`: who of those that run here should be moved.
//!
//! Two samples of this host go through the same code as in the daemon, with nothing remembered: no cool-down holds
//! anybody back, and only what is above the upper thresholds moves anybody. Nothing is changed.

use std::{collections::BTreeMap, io::Write, time::Duration};

use enforcer_core::{
    decide::{History, Inputs, Partitioned, Written},
    declarations::Declarations,
    model::Model,
    owner::Owners,
    place::{Allocations, Containers, Inventory},
    policy::Policy,
    rebalance,
};

use super::{Exit, args, exit::of_config, root, seen::Seen, terminal};
use crate::{
    config::read_policy,
    discover::topology::read_topology,
    enforce::pages::PageMoveLimits,
    host::HostRoot,
    report::{json, rebalance_text},
};

/// What is watched, and for how long.
pub(super) struct Options {
    host: HostRoot,
    format: args::TableOrJson,
    sample: Duration,
    policy: Policy,
}

impl TryFrom<args::Plan> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::Plan) -> anyhow::Result<Self> {
        let policy = args.config.as_deref().map(read_policy).transpose().map_err(of_config)?;
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
    let mut seen = Seen::new(host, Some(*sample), policy, &machine, degraded);
    let (inventory, unfit) = Inventory::or_whole(machine, &policy.placement);
    seen.degraded.extend(unfit);
    let model = Model::new(&inventory.machine, &seen.workloads, &seen.now, seen.before.as_ref());
    let declarations = Declarations::find(policy, &seen.workloads, &seen.now.tasks, &seen.facts);
    let owners = Owners::find(&seen.facts, &seen.workloads, &model, &declarations, |_| false);
    let inputs = Inputs {
        inventory: &inventory,
        workloads: &seen.workloads,
        sample: &seen.now,
        model: &model,
        policy,
        declarations: &declarations,
        containers: &Containers::default(),
        owners: &owners,
        history: &History::default(),
        written: Written::NOTHING,
        partitioned: &Partitioned::default(),
        widened: &BTreeMap::new(),
        now_ns: seen.now.monotonic_ns,
    };
    let report = rebalance::once(&inputs, &mut Allocations::default(), PageMoveLimits::default().bytes);
    let report = rebalance::RebalanceReport { degraded: seen.missing(), ..report };
    match format {
        args::TableOrJson::Table => write!(out, "{}", rebalance_text::render(&report, terminal::style()))?,
        args::TableOrJson::Json => json::write(&report, out)?,
    }
    Ok(Exit::Ok)
}
