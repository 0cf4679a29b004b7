//! Where the engine's facts come from.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    os::fd::BorrowedFd,
};

use enforcer_core::{
    audit::Host,
    decide::SelfPlacedWorkloads,
    degraded::Degraded,
    owner::{Kubelet, OwnSettings, UnitSetting},
    policy::Interest,
    sample::Sample,
    self_placement::CpusetWrites,
    set::{CpuSet, NodeSet},
    topology::Topology,
    workload::{CgroupPath, Origin, UnitName, Workload, identify},
};
use thiserror::Error;

use crate::{
    discover::{
        host_facts::read_host,
        units::{read_units, units_of},
        workloads::{UserProcesses, read_workloads},
    },
    observe::{CgroupWatch, CpusetWatch, KeptCgroups, PressureTap, Sampler, SamplerOptions, WatchLimit},
};
use enforcer_act::{
    cpuset::CpusetTree,
    self_placed::{self, Depth},
};
use enforcer_host::{HostRoot, cgroup::CgroupLayout, read_text, topology::read_topology};
use enforcer_runtime::kubelet::watch::Watch;

/// What one look gives: workloads, what could not be seen of them, and the sample.
pub(super) type Seen = (Vec<Workload>, Vec<Degraded>, Sample);

/// Others who write cpusets.
#[derive(Debug, Clone, Default)]
pub struct Others {
    /// The kubelet.
    pub kubelet: Kubelet,
    /// Units to which an administrator has given CPUs or memory nodes.
    pub units: BTreeMap<String, UnitSetting>,
    /// Cgroup that the daemon itself runs in.
    pub own_cgroup: Option<CgroupPath>,
    /// CPUs that this cgroup allows, where it is a container's.
    pub own_cpus: Option<CpuSet>,
    /// What could not be seen of them.
    pub degraded: Vec<Degraded>,
}

/// A source without which there is nothing to report.
#[derive(Debug, Error)]
#[error("{what}: {cause}")]
pub struct SourceError {
    what: &'static str,
    cause: String,
}

impl SourceError {
    /// `what` is missing because of `cause`.
    pub fn new(what: &'static str, cause: &dyn fmt::Display) -> Self {
        Self { what, cause: cause.to_string() }
    }
}

/// A host, live or recorded.
pub trait Source {
    /// Which host it is.
    fn host(&self) -> Host;
    /// The machine.
    fn topology(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError>;
    /// What runs on it.
    fn workloads(&mut self) -> Result<(Vec<Workload>, Vec<Degraded>), SourceError>;
    /// Where workloads should run, for what is counted from now on.
    fn aim(&mut self, aims: &BTreeMap<CgroupPath, NodeSet>);
    /// Makes room for what may be told between two samples; a source that is told nothing has room. Returns
    /// whether there was anything.
    fn drain(&mut self) -> bool {
        false
    }
    /// Readable when there is something to drain; who waits is woken when there is little room left for more.
    /// `None` where nothing comes.
    fn filling_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Readable when something was told that should not wait for the next sample.
    fn urgent_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Takes it, for the next sample.
    fn take_urgent(&mut self) {}
    /// Memory pressure, for a thread that acts on it at once; a source that is told nothing never tells any.
    fn tap(&self) -> PressureTap {
        PressureTap::default()
    }
    /// Watches the cpusets of these cgroups, and of no others, for writes between two samples.
    fn keep_watch(&mut self, _kept: &KeptCgroups) {}
    /// Has anybody written one of them since the latest sample, or since this was last asked?
    fn written(&mut self) -> bool {
        false
    }
    /// Has a process come to a cgroup of interest, since this was last asked?
    fn appeared(&mut self, _interest: &dyn Fn(&CgroupPath) -> Interest) -> bool {
        false
    }
    /// Readable when that should be asked.
    fn came_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Readable when [`written`](Self::written) should be asked.
    fn writes_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Is there something of these two of which nothing tells, so that it is to be asked again soon?
    fn must_be_asked(&self) -> bool {
        false
    }
    /// Others may be placed from now on.
    fn others_may(&mut self) {}
    /// From the next sample on, looks at what is said of partitions in these cgroups, and in no others.
    fn look_at_partitions(&mut self, _cgroups: BTreeSet<CgroupPath>) {}
    /// Why these writes would change what processes have set themselves, of cgroups that are respected; and
    /// what could not be looked at.
    fn self_placed(
        &mut self,
        _writes: &BTreeMap<CgroupPath, CpusetWrites>,
        _respects: &dyn Fn(&CgroupPath) -> bool,
        _depth: Depth,
    ) -> (SelfPlacedWorkloads, Option<Degraded>) {
        Default::default()
    }
    /// Others who write cpusets there.
    fn others(&mut self) -> Others {
        Others::default()
    }
    /// Takes these settings of units for ours, from the next reading of the machine on.
    fn set_by_us(&mut self, _settings: OwnSettings) {}
    /// What it is doing; what is missing is in the sample's own list.
    fn sample(&mut self, workloads: &[Workload], now_ns: u64) -> Sample;
}

/// The files and BPF programs of a host.
pub struct LiveSource {
    host: HostRoot,
    layout: CgroupLayout,
    options: SamplerOptions,
    /// Made with the first topology: the programs need to know which CPU is on which node.
    sampler: Option<Sampler>,
    watch: CpusetWatch,
    cgroups: CgroupWatch,
    kubelet: Watch,
    units: BTreeMap<String, UnitSetting>,
    /// Units that were asked about since the machine was last read.
    asked_units: BTreeSet<UnitName>,
    set_by_us: OwnSettings,
    user_processes: UserProcesses,
}

impl LiveSource {
    /// Looks at `host`.
    pub fn new(host: HostRoot, layout: CgroupLayout, options: SamplerOptions) -> Self {
        let watch = CpusetWatch::new(layout.clone());
        let cgroups = CgroupWatch::new(layout.cpuset.clone(), WatchLimit::of(&host));
        Self {
            host,
            layout,
            options,
            sampler: None,
            watch,
            cgroups,
            kubelet: Watch::default(),
            units: BTreeMap::new(),
            asked_units: BTreeSet::new(),
            set_by_us: OwnSettings::default(),
            user_processes: UserProcesses::default(),
        }
    }

    /// Has the kubelet looked at as well.
    #[must_use]
    pub fn beside(self, kubelet: Watch) -> Self {
        Self { kubelet, ..self }
    }

    /// Those that are new since the machine was last read; all of them after that.
    fn ask_about_units(&mut self, units: BTreeSet<UnitName>) {
        let new: BTreeSet<UnitName> = units.difference(&self.asked_units).cloned().collect();
        if self.asked_units.is_empty() {
            self.units.clear();
        }
        self.units.extend(read_units(&self.host, &self.set_by_us, &new));
        self.units.retain(|name, _| UnitName::new(name).is_some_and(|name| units.contains(&name)));
        self.asked_units = units;
    }
}

impl Source for LiveSource {
    fn host(&self) -> Host {
        read_host(&self.host, &self.layout)
    }

    fn topology(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError> {
        let (machine, degraded) =
            read_topology(&self.host).map_err(|error| SourceError::new("topology", &error))?;
        // As rarely as the machine: what units are set to does not change often.
        self.asked_units.clear();
        if let Some(sampler) = &mut self.sampler {
            sampler.follow(&machine);
        } else {
            let options = self.options.clone();
            self.sampler = Some(Sampler::new(&self.host, self.layout.clone(), &machine, options));
        }
        Ok((machine, degraded))
    }

    fn workloads(&mut self) -> Result<(Vec<Workload>, Vec<Degraded>), SourceError> {
        let read = read_workloads(&self.host, &self.layout, &mut self.user_processes);
        let (workloads, mut degraded) = read.map_err(|error| SourceError::new("workloads", &error))?;
        degraded.extend(self.cgroups.degraded());
        self.ask_about_units(units_of(&workloads));
        Ok((workloads, degraded))
    }

    fn others(&mut self) -> Others {
        let seen = self.kubelet.latest();
        let (kubelet, degraded) = (seen.kubelet.clone(), seen.degraded.clone());
        let own_cgroup = self.user_processes.own_cgroup().cloned();
        let root = &self.layout.cpuset;
        // A daemon that no container holds runs where the host's administrator put it.
        let is_contained =
            |own: &&CgroupPath| matches!(identify(own).origin, Origin::Pod { .. } | Origin::Container { .. });
        let own_cpus = own_cgroup.as_ref().filter(is_contained).and_then(|own| {
            let text = read_text(&root.dir(own).join(root.files().cpus_effective)).ok()?;
            text.trim().parse().ok()
        });
        Others { kubelet, units: self.units.clone(), own_cgroup, own_cpus, degraded }
    }

    fn set_by_us(&mut self, settings: OwnSettings) {
        self.set_by_us = settings;
    }

    fn aim(&mut self, aims: &BTreeMap<CgroupPath, NodeSet>) {
        if let Some(sampler) = &mut self.sampler {
            sampler.aim(aims);
        }
    }

    fn drain(&mut self) -> bool {
        self.sampler.as_mut().is_some_and(Sampler::drain)
    }

    fn filling_fd(&self) -> Option<BorrowedFd<'_>> {
        self.sampler.as_ref().and_then(Sampler::filling_fd)
    }

    fn urgent_fd(&self) -> Option<BorrowedFd<'_>> {
        self.sampler.as_ref().and_then(Sampler::urgent_fd)
    }

    fn take_urgent(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.take_urgent();
        }
    }

    fn tap(&self) -> PressureTap {
        self.sampler.as_ref().map(Sampler::tap).unwrap_or_default()
    }

    fn keep_watch(&mut self, kept: &KeptCgroups) {
        self.watch.follow(kept);
    }

    fn written(&mut self) -> bool {
        self.watch.written()
    }

    fn appeared(&mut self, interest: &dyn Fn(&CgroupPath) -> Interest) -> bool {
        self.cgroups.appeared(interest)
    }

    fn came_fd(&self) -> Option<BorrowedFd<'_>> {
        self.cgroups.descriptor()
    }

    fn writes_fd(&self) -> Option<BorrowedFd<'_>> {
        self.watch.descriptor()
    }

    fn must_be_asked(&self) -> bool {
        self.watch.must_be_asked() || self.cgroups.must_be_asked()
    }

    fn others_may(&mut self) {
        self.cgroups.begin_anew();
    }

    fn look_at_partitions(&mut self, cgroups: BTreeSet<CgroupPath>) {
        if let Some(sampler) = &mut self.sampler {
            sampler.look_at_partitions(cgroups);
        }
    }

    fn self_placed(
        &mut self,
        writes: &BTreeMap<CgroupPath, CpusetWrites>,
        respects: &dyn Fn(&CgroupPath) -> bool,
        depth: Depth,
    ) -> (SelfPlacedWorkloads, Option<Degraded>) {
        let cpuset = &self.layout.cpuset;
        let tree = CpusetTree::new(&cpuset.path, cpuset.v2).with_processes(&self.host.proc);
        self_placed::hindrances(&tree, writes, respects, depth)
    }

    fn sample(&mut self, workloads: &[Workload], now_ns: u64) -> Sample {
        // What was written until now is in the sample.
        self.watch.written();
        match &mut self.sampler {
            Some(sampler) => sampler.sample(workloads, now_ns),
            None => Sample { monotonic_ns: now_ns, ..Sample::default() },
        }
    }
}
