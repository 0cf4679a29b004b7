//! The sources of the engine's facts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    os::fd::BorrowedFd,
};

use enforcer_core::{
    audit::AuditedHost,
    interrupts::InterruptTable,
    owner::{Kubelet, LxcController, OwnSettings, UnitSetting},
    policy::Interest,
    sample::Sample,
    self_placement::CpusetWrites,
    turn::SelfPlacedWorkloads,
    workload::{CgroupPath, Origin, UnitName, Workload, identify},
};
use numa_topology::{
    Topology,
    degraded::Degraded,
    set::{CpuSet, NodeSet},
};
use thiserror::Error;

use enforcer_act::{
    cpuset::CpusetTree,
    self_placed::{self, Depth},
};
use enforcer_host::{
    HostRoot,
    cgroup::CgroupLayout,
    host_facts::read_host,
    interrupts::{InterruptReader, network_devices},
    lxc::read_lxc_controller,
    processes::owner_of_process,
    topology::read_topology,
    units::{read_units, units_of},
    workloads::{UserProcesses, read_workloads},
};
use enforcer_observe::{
    CgroupWatch, CpusetWatch, KeptCgroups, PressureTap, Sampler, SamplerOptions, WatchLimit,
};
use enforcer_runtime::kubelet::watch::KubeletWatch;

/// Result of one look: the workloads, what of them could not be read, and the sample.
pub(super) type HostView = (Vec<Workload>, Vec<Degraded>, Sample);

/// Facts about other writers of cpusets.
#[derive(Debug, Clone, Default)]
pub struct ForeignOwners {
    /// The kubelet.
    pub kubelet: Kubelet,
    /// Units to which an administrator has given CPUs or memory nodes.
    pub units: BTreeMap<String, UnitSetting>,
    /// Controller of LXC containers, if the host has one.
    pub lxc: Option<LxcController>,
    /// Cgroup of the daemon itself.
    pub own_cgroup: Option<CgroupPath>,
    /// CPUs of this cgroup, if it is a container's.
    pub own_cpus: Option<CpuSet>,
    /// Sources that could not be read.
    pub degraded: Vec<Degraded>,
}

/// Failure of a source without which there is nothing to report.
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

/// Descriptors by which a source wakes the loop; `None` where there are no events.
#[derive(Debug, Clone, Copy, Default)]
pub struct WakeFds<'a> {
    /// Readable when there is something to [`drain`](HostSource::drain); wakes when half of the room is
    /// taken.
    pub filling: Option<BorrowedFd<'a>>,
    /// Readable when [`appeared`](HostSource::appeared) should be asked.
    pub came: Option<BorrowedFd<'a>>,
    /// Readable when [`written`](HostSource::written) should be asked.
    pub written: Option<BorrowedFd<'a>>,
}

/// A host, live or recorded.
pub trait HostSource {
    /// Identity of the host.
    fn host(&self) -> AuditedHost;
    /// The machine.
    fn topology(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError>;
    /// The workloads on it.
    fn workloads(&mut self) -> Result<(Vec<Workload>, Vec<Degraded>), SourceError>;
    /// Sets the nodes on which workloads should run, for the counts from now on.
    fn aim(&mut self, aims: &BTreeMap<CgroupPath, NodeSet>);
    /// Drains events between two samples. Returns whether there were any; a source without events has none.
    fn drain(&mut self) -> bool {
        false
    }
    /// Descriptors that become readable between two samples.
    fn wake_fds(&self) -> WakeFds<'_> {
        WakeFds::default()
    }
    /// Memory pressure events for a thread that reacts at once; silent for a source without them.
    fn tap(&self) -> PressureTap {
        PressureTap::default()
    }
    /// Watches the cpusets of these cgroups only, for writes between two samples.
    fn keep_watch(&mut self, _kept: &KeptCgroups) {}
    /// Whether a watched cpuset was written since the latest sample or call.
    fn written(&mut self) -> bool {
        false
    }
    /// Whether a process has come to a cgroup of interest since the last call.
    fn appeared(&mut self, _interest: &dyn Fn(&CgroupPath) -> Interest) -> bool {
        false
    }
    /// Whether one of these two has no event, so that it must be polled.
    fn needs_polling(&self) -> bool {
        false
    }
    /// Drops cached answers of other owners: they may have changed.
    fn refresh_owners(&mut self) {}
    /// From the next sample on, reads the partition state of these cgroups only.
    fn look_at_partitions(&mut self, _cgroups: BTreeSet<CgroupPath>) {}
    /// Why these writes would change what processes of respected cgroups have set, and which processes could
    /// not be read.
    fn self_placed(
        &mut self,
        _writes: &BTreeMap<CgroupPath, CpusetWrites>,
        _respects: &dyn Fn(&CgroupPath) -> bool,
        _depth: Depth,
    ) -> (SelfPlacedWorkloads, Option<Degraded>) {
        Default::default()
    }
    /// Interrupts of devices; `None` where they are not known.
    fn interrupts(&mut self, _now_ns: u64) -> Option<Result<InterruptTable, Degraded>> {
        None
    }
    /// PCI addresses of the network devices in the network namespace of a process, if it has one of its own;
    /// an error if they are unknown.
    fn network_devices(&self, _pid: u32) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
    /// Effective user of a process, if known.
    fn owner_of_process(&self, _pid: u32) -> Option<u32> {
        None
    }
    /// Facts about other writers on this host.
    fn others(&mut self) -> ForeignOwners {
        ForeignOwners::default()
    }
    /// Treats these unit settings as ours from the next reading of the machine on.
    fn set_by_us(&mut self, _settings: OwnSettings) {}
    /// Current state of the workloads; missing parts are in the sample's own list.
    fn sample(&mut self, workloads: &[Workload], now_ns: u64) -> Sample;
}

/// The files and BPF programs of a host.
pub struct LiveSource {
    host: HostRoot,
    layout: CgroupLayout,
    options: SamplerOptions,
    /// Created with the first topology: the programs need the node of each CPU.
    sampler: Option<Sampler>,
    watch: CpusetWatch,
    cgroups: CgroupWatch,
    kubelet: KubeletWatch,
    units: BTreeMap<String, UnitSetting>,
    /// Units queried since the machine was last read.
    asked_units: BTreeSet<UnitName>,
    set_by_us: OwnSettings,
    user_processes: UserProcesses,
    interrupts: InterruptReader,
}

impl LiveSource {
    /// A source that reads `host`.
    pub fn new(host: HostRoot, layout: CgroupLayout, options: SamplerOptions) -> Self {
        let watch = CpusetWatch::new(layout.clone());
        let cgroups = CgroupWatch::new(layout.cpuset.clone(), WatchLimit::of(&host));
        let interrupts = InterruptReader::new(&host);
        Self {
            host,
            layout,
            options,
            interrupts,
            sampler: None,
            watch,
            cgroups,
            kubelet: KubeletWatch::default(),
            units: BTreeMap::new(),
            asked_units: BTreeSet::new(),
            set_by_us: OwnSettings::default(),
            user_processes: UserProcesses::default(),
        }
    }

    /// Watches the kubelet as well.
    #[must_use]
    pub fn beside(self, kubelet: KubeletWatch) -> Self {
        Self { kubelet, ..self }
    }

    /// Queries units that are new since the machine was last read; all of them after that.
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

impl HostSource for LiveSource {
    fn host(&self) -> AuditedHost {
        read_host(&self.host, &self.layout)
    }

    fn topology(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError> {
        let (machine, degraded) =
            read_topology(&self.host).map_err(|error| SourceError::new("topology", &error))?;
        // As rarely as the machine: unit settings seldom change.
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

    fn others(&mut self) -> ForeignOwners {
        let seen = self.kubelet.latest();
        let (kubelet, degraded) = (seen.kubelet.clone(), seen.degraded.clone());
        let own_cgroup = self.user_processes.own_cgroup().cloned();
        let root = &self.layout.cpuset;
        // A daemon outside of a container runs where the host's administrator put it.
        let is_contained =
            |own: &&CgroupPath| matches!(identify(own).origin, Origin::Pod { .. } | Origin::Container { .. });
        let own_cpus = own_cgroup.as_ref().filter(is_contained).and_then(|own| {
            let text = root.dir(own).join(root.files().cpus_effective).read_text().ok()?;
            text.trim().parse().ok()
        });
        ForeignOwners {
            kubelet,
            units: self.units.clone(),
            lxc: read_lxc_controller(&self.host),
            own_cgroup,
            own_cpus,
            degraded,
        }
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

    fn wake_fds(&self) -> WakeFds<'_> {
        WakeFds {
            filling: self.sampler.as_ref().and_then(Sampler::filling_fd),
            came: self.cgroups.descriptor(),
            written: self.watch.descriptor(),
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

    fn needs_polling(&self) -> bool {
        self.watch.needs_polling() || self.cgroups.needs_polling()
    }

    fn refresh_owners(&mut self) {
        self.cgroups.restart_watches();
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

    fn interrupts(&mut self, now_ns: u64) -> Option<Result<InterruptTable, Degraded>> {
        Some(self.interrupts.read(now_ns))
    }

    fn network_devices(&self, pid: u32) -> Result<Vec<String>, String> {
        network_devices(&self.host, pid)
    }

    fn owner_of_process(&self, pid: u32) -> Option<u32> {
        owner_of_process(&self.host, pid)
    }

    fn sample(&mut self, workloads: &[Workload], now_ns: u64) -> Sample {
        // The sample contains the writes until now.
        self.watch.written();
        match &mut self.sampler {
            Some(sampler) => sampler.sample(workloads, now_ns),
            None => Sample { monotonic_ns: now_ns, ..Sample::default() },
        }
    }
}
