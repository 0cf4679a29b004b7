//! One look at a host, for commands without a daemon: its workloads, and one sample or two.
//!
//! A stage that fails becomes a degraded entry; a machine without cgroups has no workloads. For a captured
//! machine this machine's kubelet is not asked.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use enforcer_core::{
    audit::AuditedHost,
    owner::OwnershipFacts,
    policy::Policy,
    sample::{SAMPLE_SCHEMA_VERSION, Sample},
    workload::Workload,
};
use numa_topology::{Topology, degraded::Degraded};

use super::progress;
use enforcer_act::units::recorded_settings;
use enforcer_host::{
    HostRoot,
    cgroup::CgroupLayout,
    host_facts::{read_host, read_host_without_cgroups},
    lxc::read_lxc_controller,
    sandboxes::take_sandboxes,
    units::{read_units, units_of},
    workloads::{UserProcesses, read_workloads},
};
use enforcer_observe::{Sampler, SamplerOptions};
use enforcer_runtime::kubelet;

/// Results of discover and observe, as far as possible.
pub(super) struct HostSnapshot {
    pub(super) host: AuditedHost,
    pub(super) workloads: Vec<Workload>,
    pub(super) before: Option<Sample>,
    pub(super) now: Sample,
    pub(super) facts: OwnershipFacts,
    pub(super) degraded: Vec<Degraded>,
}

impl HostSnapshot {
    /// Looks once, and again after `wait` if rates are wanted.
    pub(super) fn new(
        host: &HostRoot,
        wait: Option<Duration>,
        policy: &Policy,
        machine: &Topology,
        mut degraded: Vec<Degraded>,
    ) -> Self {
        let blind = |host, degraded| Self {
            host,
            workloads: Vec::new(),
            before: None,
            now: Sample { schema_version: SAMPLE_SCHEMA_VERSION, ..Sample::default() },
            facts: OwnershipFacts::default(),
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
        let workloads = match read_workloads(host, &layout, &mut UserProcesses::default()) {
            Ok((mut workloads, missing)) => {
                degraded.extend(missing);
                take_sandboxes(host, &layout, &mut workloads);
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
                progress::wait("watching this host", wait);
                (Some(first), sample())
            }
            None => (None, first),
        };
        // The kubelet of this machine says nothing about a captured one.
        let kubelet = if host.captured {
            kubelet::KubeletSnapshot::default()
        } else {
            kubelet::read_snapshot(&policy.kubelet)
        };
        degraded.extend(kubelet.degraded);
        let units = read_units(host, &recorded_settings(&policy.state_dir), &units_of(&workloads));
        let facts = OwnershipFacts {
            kubelet: kubelet.kubelet,
            units,
            lxc: read_lxc_controller(host),
            ..OwnershipFacts::default()
        };
        Self { host: on_host, workloads, before, now, facts, degraded }
    }

    /// Everything that could not be read: of the machine, of its workloads, and by the samples; each once.
    pub(super) fn missing(&self) -> Vec<Degraded> {
        let all = self.degraded.iter().chain(&self.now.degraded);
        all.cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }
}
