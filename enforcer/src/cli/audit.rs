//! `numa-enforcer audit`: what is misaligned on this machine right now.
//!
//! One pass through discover, observe and the core. What a stage cannot see becomes a degraded entry
//! of the report; only unreadable CPUs of the machine are an error.

use std::{
    io::Write,
    path::PathBuf,
    time::{Duration, Instant},
};

use enforcer_core::{
    audit::{Audit, AuditInputs, Baseline},
    declarations::Declarations,
    finding::{
        AdvisedWrites, Finding, Judged, Rule, Severity, assess_with_writes, with_added, with_more,
        without_hindered,
    },
    interrupts::{
        InterruptClient, InterruptHistory, InterruptInputs, InterruptMode, InterruptTable, NetworkDevices,
        SteeredInterrupts, assess_interrupts, declared_clients, irqbalance,
    },
    model::Model,
    owners::Owners,
    policy::Policy,
    turn::Widened,
    workload::CgroupPath,
};
use numa_placement::Inventory;
use numa_topology::{Topology, degraded::Degraded};

use super::{
    Exit, args, baseline,
    client::{self, NoDaemon},
    config_file, root,
    snapshot::HostSnapshot,
    terminal, what_if,
};
use crate::{serve::api, version, wall_clock};
use enforcer_act::{
    cpuset::CpusetTree,
    self_placed::{self, Depth},
};
use enforcer_host::{
    HostRoot,
    cgroup::CgroupLayout,
    interrupts::{InterruptReader, network_devices},
    processes::owner_of_process,
    topology::read_topology,
};
use enforcer_report::{json, junit, metrics, page, rule_text, sarif, status::StatusReport, table};

/// What an audit does.
pub(super) struct Options {
    host: HostRoot,
    format: args::AuditOutput,
    file: Option<PathBuf>,
    sample: Option<Duration>,
    only_misaligned: bool,
    policy: Policy,
    baseline: Baseline,
    fail_on: Severity,
}

impl TryFrom<args::AuditArgs> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::AuditArgs) -> anyhow::Result<Self> {
        Ok(Self {
            host: root::resolve(args.root.as_deref())?,
            format: args.output,
            file: args.write,
            sample: args.sample,
            only_misaligned: args.only == Some(args::Only::Misaligned),
            policy: config_file::read(args.config.as_deref())?.unwrap_or_default(),
            baseline: args.baseline.as_deref().map(baseline::read).transpose()?.unwrap_or_default(),
            fail_on: args.fail_on.into(),
        })
    }
}

/// What a rule means; nothing is looked at.
pub(super) fn explain(rule: Rule, out: &mut dyn Write) -> anyhow::Result<Exit> {
    write!(out, "{}", rule_text::render(rule, terminal::style()))?;
    Ok(Exit::Ok)
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (machine, degraded) = read_topology(&options.host)?;
    let interrupts = AuditedInterrupts::begin(options);
    let mut seen = HostSnapshot::new(&options.host, options.sample, &options.policy, &machine, degraded);
    let model = Model::new(&machine, &seen.workloads, &seen.now, seen.before.as_ref());
    let policy = &options.policy;
    let (inventory, unfit) = Inventory::or_whole(machine, &policy.placement);
    seen.degraded.extend(unfit);
    let declarations = Declarations::find(policy, &seen.workloads, &seen.now.tasks, &seen.facts);
    let entries = declarations.entries(policy, &seen.workloads);
    config_file::tell_of_entries(policy, &inventory, &entries);
    let owners = Owners::find(&seen.facts, &seen.workloads, &model, &declarations, |_| false);
    let (mut findings, writes) = assess_with_writes(Judged {
        inventory: &inventory,
        workloads: &seen.workloads,
        sample: &seen.now,
        model: &model,
        policy,
        owners: &owners,
        declarations: &declarations,
    });
    let mut clients = declared_clients(
        &inventory.machine,
        &seen.workloads,
        &seen.now,
        &model,
        policy,
        &declarations,
        &owners,
    );
    if let Some(interrupts) = interrupts.filter(|_| !clients.is_empty()) {
        let unread = NetworkDevices::default()
            .add_to(&mut clients, &seen.now.tasks, |pid| network_devices(&options.host, pid));
        seen.degraded.extend(unread);
        let balancer = irqbalance(&seen.now.tasks, |pid| owner_of_process(&options.host, pid));
        let (more, degraded) = interrupts.end(&inventory.machine, &clients, balancer);
        findings = with_more(findings, more);
        seen.degraded.extend(degraded);
    }
    seen.degraded.extend(name_hindered(options, &declarations, &writes, &mut findings));
    let is_page = options.format == args::AuditOutput::Html;
    let moves = (is_page && options.sample.is_some())
        .then(|| what_if::moves(policy, &inventory, &seen, &model, &declarations, &owners));
    let inputs = AuditInputs {
        tool: version::tool(),
        taken_at: (!options.host.captured).then(wall_clock::utc_now),
        host: seen.host,
        topology: inventory.machine,
        workloads: &seen.workloads,
        sample: &seen.now,
        model: &model,
        owners: &owners,
        findings: with_added(findings, &added(options)),
        degraded: seen.degraded,
        thresholds: &policy.thresholds,
        fail_on: options.fail_on,
        only_misaligned: options.only_misaligned,
    };
    let audit = Audit::since(&options.baseline, inputs);
    let mut whole = Vec::new();
    let out = if options.file.is_some() { &mut whole as &mut dyn Write } else { out };
    match options.format {
        args::AuditOutput::Table => {
            let style = if options.file.is_some() { terminal::STYLE_OF_FILES } else { terminal::style() };
            write!(out, "{}", table::render(&audit, style))?;
        }
        args::AuditOutput::Json => json::write(&audit, out)?,
        args::AuditOutput::Prometheus => {
            out.write_all(metrics::of_audit(&audit, &seen.now.nodes)?.as_bytes())?;
        }
        args::AuditOutput::Html => out.write_all(page::render(&audit, moves.as_ref()).as_bytes())?,
        args::AuditOutput::Junit => out.write_all(junit::render(&audit, options.fail_on).as_bytes())?,
        args::AuditOutput::Sarif => json::write(&sarif::of(&audit), out)?,
    }
    if let Some(file) = &options.file {
        crate::whole_file::replace(file, &whole)?;
    }
    Ok(Exit::of_audit(audit.summary.exit_code))
}

/// The interrupts of an audit: read before and after the time that it watches.
struct AuditedInterrupts {
    reader: InterruptReader,
    before: Option<InterruptTable>,
    begun: Instant,
}

impl AuditedInterrupts {
    /// `None` where they are not wanted.
    fn begin(options: &Options) -> Option<Self> {
        if options.policy.interrupts.mode == InterruptMode::Off {
            return None;
        }
        let mut reader = InterruptReader::new(&options.host);
        let before = options.sample.and_then(|_| reader.read(0).ok());
        Some(Self { reader, before, begun: Instant::now() })
    }

    fn end(
        mut self,
        machine: &Topology,
        clients: &[InterruptClient],
        irqbalance: Option<u32>,
    ) -> (Vec<Finding>, Option<Degraded>) {
        let read_ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let table = match self.reader.read(read_ns) {
            Ok(table) => table,
            Err(degraded) => return (Vec::new(), Some(degraded)),
        };
        let steered = SteeredInterrupts::new();
        let inputs = InterruptInputs { machine, table: &table, clients, steered: &steered };
        let history = InterruptHistory::default();
        (assess_interrupts(&inputs, self.before.as_ref(), &history, irqbalance).findings, None)
    }
}

/// Says of remedies what they would change of what processes have set themselves; returns what could not be
/// looked at. Of a workload that the configuration declares it decides what counts.
fn name_hindered(
    options: &Options,
    declarations: &Declarations,
    writes: &AdvisedWrites,
    findings: &mut [Finding],
) -> Option<Degraded> {
    if options.host.captured || writes.is_empty() {
        return None;
    }
    let cpuset = CgroupLayout::read(&options.host).ok()?.cpuset;
    let tree = CpusetTree::new(&cpuset.path, cpuset.v2).with_processes(&options.host.proc);
    let respects = |cgroup: &CgroupPath| declarations.respects_self_placement(&options.policy, cgroup);
    let (hindrances, degraded) = self_placed::hindrances(&tree, writes, &respects, Depth::AllPolicies);
    let reasons = hindrances.into_iter().map(|(cgroup, one)| (cgroup, one.reason)).collect();
    without_hindered(findings, &reasons);
    degraded
}

/// Nodes that a running daemon has added to workloads; empty without a daemon. A daemon that cannot be asked
/// is reported: without its answer the audit calls nodes wrong that were added on purpose.
fn added(options: &Options) -> Widened {
    let socket = &options.policy.control.socket;
    if options.host.captured || !socket.exists() {
        return Widened::new();
    }
    match client::glance::<StatusReport>(socket, api::STATUS) {
        Ok(StatusReport { latest: Some(turn), .. }) => {
            turn.widened.into_iter().map(|one| (one.cgroup, one.nodes)).collect()
        }
        Ok(_) => Widened::new(),
        Err(error) => {
            if !error.is::<NoDaemon>() {
                terminal::note(&format!(
                    "{error:#}; the audit goes on without knowing which nodes the daemon has added to workloads"
                ));
            }
            Widened::new()
        }
    }
}
