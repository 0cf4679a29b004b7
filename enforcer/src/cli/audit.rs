//! `numa-enforcer audit`: what is misaligned on this machine right now.
//!
//! One pass through discover, observe and the core. What a stage cannot see becomes a degraded entry
//! of the report; only a machine whose CPUs cannot be made out is an error.

use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

use enforcer_core::{
    audit::{Audit, AuditInputs, Host, Tool},
    declarations::Declarations,
    degraded::Degraded,
    finding::{Severity, assess},
    model::Model,
    owner::{Facts, Owners},
    place::Inventory,
    policy::Policy,
    sample::{SAMPLE_SCHEMA_VERSION, Sample},
    topology::Topology,
    workload::Workload,
};

use super::{Exit, args, exit::of_config, root, terminal};
use crate::{
    config::read_policy,
    discover::{
        host_facts::{read_host, read_host_without_cgroups},
        kubelet,
        topology::read_topology,
        unit_files::read_unit_files,
        workloads::read_workloads,
    },
    enforce::units::recorded_settings,
    host::{HostRoot, cgroup::CgroupLayout},
    observe::{Sampler, SamplerOptions},
    report::{json, table},
};

/// What an audit does.
pub(super) struct Options {
    host: HostRoot,
    format: args::TableOrJson,
    sample: Option<Duration>,
    only_misaligned: bool,
    policy: Policy,
    fail_on: Severity,
}

impl TryFrom<args::Audit> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::Audit) -> anyhow::Result<Self> {
        Ok(Self {
            host: root::resolve(args.root.as_deref())?,
            format: args.output,
            sample: args.sample,
            only_misaligned: args.only == Some(args::Only::Misaligned),
            policy: args
                .config
                .as_deref()
                .map(read_policy)
                .transpose()
                .map_err(of_config)?
                .unwrap_or_default(),
            fail_on: args.fail_on.into(),
        })
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (machine, degraded) = read_topology(&options.host)?;
    let mut seen = Seen::new(options, &machine, degraded);
    let model = Model::new(&machine, &seen.workloads, &seen.now, seen.before.as_ref());
    let policy = &options.policy;
    let (inventory, unfit) = Inventory::or_whole(machine, &policy.placement);
    seen.degraded.extend(unfit);
    let declarations = Declarations::find(policy, &seen.workloads, &seen.now.tasks, &seen.facts);
    let owners = Owners::find(&seen.facts, &seen.workloads, &model, &declarations, |_| false);
    let findings = assess(&inventory, &seen.workloads, &seen.now, &model, policy, &owners, &declarations);
    let audit = Audit::new(AuditInputs {
        tool: Tool { name: "numa-enforcer".into(), version: env!("CARGO_PKG_VERSION").into() },
        host: seen.host,
        topology: inventory.machine,
        workloads: &seen.workloads,
        sample: &seen.now,
        model: &model,
        owners: &owners,
        findings,
        degraded: seen.degraded,
        thresholds: &policy.thresholds,
        fail_on: options.fail_on,
        only_misaligned: options.only_misaligned,
    });
    match options.format {
        args::TableOrJson::Table => write!(out, "{}", table::render(&audit, terminal::style()))?,
        args::TableOrJson::Json => json::write(&audit, out)?,
    }
    Ok(Exit::of_audit(audit.summary.exit_code))
}

/// What discover and observe have to say about a machine, as far as they could look.
struct Seen {
    host: Host,
    workloads: Vec<Workload>,
    before: Option<Sample>,
    now: Sample,
    facts: Facts,
    degraded: Vec<Degraded>,
}

impl Seen {
    fn new(options: &Options, machine: &Topology, mut degraded: Vec<Degraded>) -> Self {
        let Options { host, sample: wait, policy, .. } = options;
        let blind = |host, degraded| Self {
            host,
            workloads: Vec::new(),
            before: None,
            now: Sample { schema_version: SAMPLE_SCHEMA_VERSION, ..Sample::default() },
            facts: Facts::default(),
            degraded,
        };
        let layout = match CgroupLayout::read(host) {
            Ok(layout) => layout,
            Err(error) => {
                degraded.push(Degraded::new("cgroups", error.to_string(), "no workload is seen"));
                return blind(read_host_without_cgroups(host), degraded);
            }
        };
        let on_host = read_host(host, &layout);
        let workloads = match read_workloads(host, &layout) {
            Ok((workloads, missing)) => {
                degraded.extend(missing);
                workloads
            }
            Err(error) => {
                degraded.push(Degraded::new("workloads", error.to_string(), "no workload is seen"));
                return blind(on_host, degraded);
            }
        };
        let sources = SamplerOptions::new(&policy.sample, wait.is_some());
        let sources = SamplerOptions { bpf: sources.bpf && !host.captured, ..sources };
        let mut sampler = Sampler::new(host, layout, machine, sources);
        let start = Instant::now();
        let mut sample = || {
            let elapsed = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            sampler.sample(&workloads, elapsed)
        };
        let first = sample();
        let (before, now) = match wait {
            Some(wait) => {
                thread::sleep(*wait);
                (Some(first), sample())
            }
            None => (None, first),
        };
        // The kubelet of this machine says nothing about a captured one.
        let kubelet = if host.captured { kubelet::Seen::default() } else { kubelet::look(&policy.kubelet) };
        degraded.extend(kubelet.degraded);
        let units = read_unit_files(host, &recorded_settings(&policy.state_dir));
        let facts = Facts { kubelet: kubelet.kubelet, units, ..Facts::default() };
        Self { host: on_host, workloads, before, now, facts, degraded }
    }
}
