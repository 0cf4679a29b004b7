//! `numa-enforcer scheduler`: the extender, the configuration of its kube-scheduler, and the gate.

use std::{io::Write, time::Duration};

use anyhow::Context as _;
use enforcer_cluster::{ElectionSettings, LeaseTiming, TlsFiles};
use enforcer_core::cluster::{
    extender::{Binder, ExtenderSettings, Packing},
    gate::{GateSettings, UncomputedPods},
};

use super::{Exit, UsageError, args, terminal};
use crate::scheduler::{
    OpenPort, SchedulerSettings, ServedExtender, ServedGate, attached_configuration, configuration, serve,
    serve_gate,
};

/// Longest time for the last lines of the log.
const LAST_WORDS: Duration = Duration::from_millis(100);

pub(super) fn run(command: args::SchedulerCommand, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match command {
        args::SchedulerCommand::Serve(args) => serve_until_signal(args),
        args::SchedulerCommand::Gate(args) => place_until_signal(args),
        args::SchedulerCommand::Config(args) => {
            let settings = SchedulerSettings {
                scheduler_name: args.scheduler_name,
                namespace: args.namespace,
                extender: args.extender,
                binder: binder(args.filter_only),
            };
            let object = if args.attached {
                attached_configuration(args.extender, &args.server_name, &args.certificates)
            } else {
                configuration(&settings)
            };
            let text = match args.output {
                args::YamlOrJson::Yaml => serde_saphyr::to_string(&object).context("writing YAML")?,
                args::YamlOrJson::Json => format!("{object:#}\n"),
            };
            out.write_all(text.as_bytes())?;
            Ok(Exit::Ok)
        }
    }
}

fn serve_until_signal(args: args::SchedulerServeArgs) -> anyhow::Result<Exit> {
    let (_level, log) = terminal::log_to_stderr().context("starting the log")?;
    let tls = match (args.tls_cert, args.tls_key, args.client_ca) {
        (Some(certificate), Some(key), Some(client_authority)) => {
            Some(TlsFiles { certificate, key, client_authority })
        }
        // The arguments require each other.
        _ => None,
    };
    let served = serve(ServedExtender {
        listen: args.listen,
        tls,
        lease: args.lease.map(election),
        probes: args.probes,
        kubeconfig: args.kubeconfig,
        settings: ExtenderSettings {
            binder: binder(args.filter_only),
            packing: packing(args.spread),
            allows_unknown_nodes: args.unknown_nodes == args::UnknownNodes::Allow,
            call_limit: u64::try_from(args.call_limit.get().as_millis()).unwrap_or(u64::MAX),
        },
        own_pod: args.wake_with,
        settles: args.settles.get(),
    });
    let _ = log.finish(LAST_WORDS);
    served.map_err(|error| match error.downcast::<OpenPort>() {
        Ok(open) => UsageError(open.to_string()).into(),
        Err(error) => error,
    })?;
    Ok(Exit::Ok)
}

fn place_until_signal(args: args::SchedulerGateArgs) -> anyhow::Result<Exit> {
    let (_level, log) = terminal::log_to_stderr().context("starting the log")?;
    let served = serve_gate(ServedGate {
        probes: args.probes,
        kubeconfig: args.kubeconfig,
        settings: ExtenderSettings {
            binder: Binder::Scheduler,
            packing: packing(args.spread),
            allows_unknown_nodes: args.unknown_nodes == args::UnknownNodes::Allow,
            ..ExtenderSettings::default()
        },
        gate: GateSettings {
            uncomputed: match args.uncomputed {
                args::Uncomputed::Release => UncomputedPods::Release,
                args::Uncomputed::Hold => UncomputedPods::Hold,
                args::Uncomputed::Place => UncomputedPods::Place,
            },
            late_after: i64::try_from(args.late.get().as_secs()).unwrap_or(i64::MAX),
        },
        lease: args.lease.map(election),
        settles: args.settles.get(),
    });
    let _ = log.finish(LAST_WORDS);
    served.map(|()| Exit::Ok)
}

fn election(lease: args::LeaseName) -> ElectionSettings {
    let args::LeaseName { namespace, name } = lease;
    ElectionSettings { namespace, name, timing: LeaseTiming::default() }
}

const fn packing(spread: bool) -> Packing {
    if spread { Packing::Spread } else { Packing::Pack }
}

const fn binder(filter_only: bool) -> Binder {
    if filter_only { Binder::Scheduler } else { Binder::Extender }
}
