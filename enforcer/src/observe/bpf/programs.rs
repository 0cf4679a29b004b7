//! The attached programs and their counters.

use std::collections::{BTreeMap, BTreeSet};

use aya::Ebpf;
use aya_log::EbpfLogger;
use enforcer_common::{
    counter::HintFaultPages,
    key::{NodeKey, PlacementKey},
};
use enforcer_core::{
    degraded::Degraded,
    id::{CpuId, NodeId},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    attach::{self, Kernel},
    axis::CgroupAxis,
    counters::{self, CountersError, Drops, KernelCounters},
    hook::{Hook, HookState},
    log::ToTracing,
};

/// How to attach.
#[derive(Debug, Clone)]
pub struct AttachOptions {
    /// NUMA node of each CPU; CPUs that are not in it are counted as dropped.
    pub cpu_node: BTreeMap<CpuId, NodeId>,
    /// Which hierarchy's cgroups are counted.
    pub cgroups: CgroupAxis,
    /// Bring the programs' own diagnostics into the log; when off they are not even loaded.
    pub log: bool,
    /// Entries of each counter map, where not what `enforcer_common::limit` says.
    pub entries: Option<u32>,
}

impl AttachOptions {
    /// Without diagnostics, with maps of the usual size.
    pub fn new(cpu_node: BTreeMap<CpuId, NodeId>, cgroups: CgroupAxis) -> Self {
        Self { cpu_node, cgroups, log: false, entries: None }
    }
}

/// The kernel side, attached while this value lives.
#[must_use = "dropping it detaches the programs"]
pub struct Programs {
    ebpf: Option<Ebpf>,
    hooks: Vec<HookState>,
    log: Option<EbpfLogger<ToTracing>>,
}

impl Programs {
    /// Attaches what this kernel and our capabilities allow; the rest comes back as degraded.
    pub fn attach(options: &AttachOptions) -> (Self, Vec<Degraded>) {
        raise_memlock();
        let mut kernel = Kernel::read(options.cgroups);
        let mut ebpf = match attach::load(&kernel, options) {
            Ok(ebpf) => ebpf,
            Err(error) => return Self::absent(&attach::with_causes(&error)),
        };
        kernel.read_attach_points();
        let hooks: Vec<HookState> = Hook::ALL
            .into_iter()
            .map(|hook| {
                let attached = attach::attach(&mut ebpf, &kernel, hook, options);
                HookState { hook, absent: attached.err().map(|error| error.to_string()) }
            })
            .collect();
        let mut degraded: Vec<Degraded> = hooks.iter().filter_map(HookState::degraded).collect();
        let log = if options.log {
            EbpfLogger::init_with_logger(&mut ebpf, ToTracing)
                .inspect_err(|error| {
                    let reason = attach::with_causes(error);
                    degraded.push(Degraded::new("bpf:log", reason, "no diagnostics of the kernel side"));
                })
                .ok()
        } else {
            None
        };
        (Self { ebpf: Some(ebpf), hooks, log }, degraded)
    }

    fn absent(reason: &str) -> (Self, Vec<Degraded>) {
        let state = |hook| HookState { hook, absent: Some(reason.to_owned()) };
        let effect = "no run time per node, no placements, no hinting faults: \
                      remote traffic cannot be measured";
        let degraded = Degraded::new("bpf", reason, effect);
        (Self { ebpf: None, hooks: Hook::ALL.map(state).into(), log: None }, vec![degraded])
    }

    /// Nothing attached.
    #[cfg(test)]
    pub(in crate::observe) fn detached() -> Self {
        Self::absent("not attached").0
    }

    /// Each hook, and why it is absent where it is.
    pub fn hooks(&self) -> &[HookState] {
        &self.hooks
    }

    /// Is the hook attached?
    pub fn has(&self, hook: Hook) -> bool {
        self.hooks.iter().any(|state| state.hook == hook && state.absent.is_none())
    }

    /// Counters by cgroup id since the programs were attached.
    ///
    /// A cgroup that is not in the answer had no event. Also writes the programs' diagnostics.
    pub fn read(&mut self) -> Result<BTreeMap<u64, KernelCounters>, CountersError> {
        if let Some(log) = &mut self.log {
            log.flush();
        }
        let Some(ebpf) = &self.ebpf else { return Ok(BTreeMap::new()) };
        let run_ticks = self.when(Hook::RunTime, || counters::run_ticks(ebpf))?;
        let placements = self.when(Hook::Placement, || counters::placements(ebpf))?;
        let hint_faults = self.when(Hook::HintFaults, || counters::hint_faults(ebpf))?;
        Ok(by_cgroup(run_ticks, placements, hint_faults))
    }

    /// Events that were seen but are in no counter; `None` when nothing is attached.
    pub fn drops(&self) -> Result<Option<Drops>, CountersError> {
        self.ebpf.as_ref().map(counters::drops).transpose()
    }

    /// Forgets every cgroup but the live ones, so that the maps do not fill up with removed ones.
    pub fn retain(&mut self, live: &BTreeSet<u64>) -> Result<(), CountersError> {
        let Some(ebpf) = &mut self.ebpf else { return Ok(()) };
        let is_live = |key: &NodeKey| live.contains(&key.cgroup);
        counters::retain::<NodeKey, u64>(ebpf, counters::RUN_TICKS, is_live)?;
        counters::retain::<NodeKey, HintFaultPages>(ebpf, counters::HINT_FAULTS, is_live)?;
        counters::retain::<PlacementKey, u64>(ebpf, counters::PLACEMENTS, |key| live.contains(&key.cgroup))
    }

    fn when<T>(
        &self,
        hook: Hook,
        read: impl FnOnce() -> Result<T, CountersError>,
    ) -> Result<Option<T>, CountersError> {
        self.has(hook).then(read).transpose()
    }
}

/// Joins the three maps; an attached hook gives an empty value, an absent one `None`.
fn by_cgroup(
    mut run_ticks: Option<BTreeMap<u64, BTreeMap<NodeId, u64>>>,
    mut placements: Option<BTreeMap<u64, Vec<enforcer_core::sample::Placements>>>,
    mut hint_faults: Option<BTreeMap<u64, BTreeMap<NodeId, enforcer_core::sample::HintFaults>>>,
) -> BTreeMap<u64, KernelCounters> {
    let cgroups: BTreeSet<u64> = [
        run_ticks.iter().flat_map(BTreeMap::keys).copied().collect::<Vec<_>>(),
        placements.iter().flat_map(BTreeMap::keys).copied().collect(),
        hint_faults.iter().flat_map(BTreeMap::keys).copied().collect(),
    ]
    .into_iter()
    .flatten()
    .collect();
    cgroups
        .into_iter()
        .map(|cgroup| {
            let counters = KernelCounters {
                run_ticks: run_ticks.as_mut().map(|all| all.remove(&cgroup).unwrap_or_default()),
                placements: placements.as_mut().map(|all| all.remove(&cgroup).unwrap_or_default()),
                hint_faults: hint_faults.as_mut().map(|all| all.remove(&cgroup).unwrap_or_default()),
            };
            (cgroup, counters)
        })
        .collect()
}

/// Before 5.11 the kernel charged BPF maps to `RLIMIT_MEMLOCK`, which is 64 KiB by default. Where it is
/// not allowed the maps say so.
fn raise_memlock() {
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        let maximum = getrlimit(Resource::Memlock).maximum;
        if let Err(error) = setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum }) {
            tracing::debug!("raising RLIMIT_MEMLOCK: {error}");
        }
    }
}
