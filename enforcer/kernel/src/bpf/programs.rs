//! The attached programs: the watched cgroups, and their counts.

mod rehearsal;

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::BorrowedFd,
};

use aya::Ebpf;
use aya_log::EbpfLogger;
use enforcer_common::{
    managed::{ManagedCgroup, flag},
    tally,
};
use enforcer_core::sample::{HardwareAccesses, HintFaults, OtherPageMoves, RunTime};
use numa_topology::{degraded::Degraded, id::NodeId, set::NodeSet};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    attach::{self, KernelFacts, Opened},
    changes::KernelChange,
    columns::NodeColumns,
    cost::{self, LoadedProgram},
    counters::{Drops, KernelCounters},
    events::{EventRing, KernelEvent},
    hardware::OpenCounters,
    hook::{Hook, HookState},
    kept::DrainedEvents,
    load,
    log::ToTracing,
    maps::{self, CountersError},
    object::with_causes,
    options::AttachOptions,
    pressure::PressureRing,
    probes::MultiProbe,
    sizes::Sizes,
    slots::Slots,
    tallies::Tallies,
};
use enforcer_host::{HostRoot, lockdown};

/// How a cgroup is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedCgroup {
    /// Id of the own cgroup of the workload it counts for: several cgroups may count for one.
    pub owner: u64,
    /// Nodes on which it should run; with `None` no task is misplaced.
    pub allowed: Option<NodeSet>,
    /// Whether new cgroups below it count for the same workload, until changed.
    pub heirs: bool,
}

impl WatchedCgroup {
    /// A cgroup that is a workload by itself and may be anywhere.
    pub const fn alone(id: u64) -> Self {
        Self { owner: id, allowed: None, heirs: true }
    }

    const fn flags(&self) -> u32 {
        if self.heirs { 0 } else { flag::NO_HEIRS }
    }
}

/// The kernel side, attached while this value lives.
#[must_use = "dropping it detaches the programs"]
pub struct Programs {
    ebpf: Option<Ebpf>,
    hooks: Vec<HookState>,
    counters: Option<OpenCounters>,
    probes: Vec<MultiProbe>,
    log: Option<EbpfLogger<ToTracing>>,
    events: Option<EventRing>,
    pressure: Option<PressureRing>,
    columns: NodeColumns,
    sizes: Sizes,
    slots: Slots,
    /// What the daemon wrote last, by cgroup.
    watched: BTreeMap<u64, ManagedCgroup>,
    /// What the rows of a slot had when its owner got it.
    start: BTreeMap<u64, KernelCounters>,
}

impl Programs {
    /// Attaches what this kernel and our capabilities allow; returns the rest as degraded. Nothing is counted
    /// before a cgroup is watched.
    pub fn attach(options: &AttachOptions) -> (Self, Vec<Degraded>) {
        raise_limits();
        let columns = NodeColumns::new(&options.cpu_node);
        let mut kernel = KernelFacts::read(options.cgroups);
        let mut ebpf = match load::load(&kernel, options, &columns) {
            Ok(ebpf) => ebpf,
            Err(error) => return Self::absent(&with_causes(&error)),
        };
        kernel.read_attach_points();
        let mut opened = Opened::default();
        let hooks: Vec<HookState> = Hook::ALL
            .into_iter()
            .map(|hook| match attach::attach(&mut ebpf, &kernel, hook, options, &mut opened) {
                Ok(instead) => HookState { hook, absent: None, instead },
                Err(error) => {
                    let why = lockdown::explained(&HostRoot::live(), error.to_string());
                    HookState { hook, absent: Some(why), instead: None }
                }
            })
            .collect();
        let mut degraded: Vec<Degraded> = hooks.iter().filter_map(HookState::degraded).collect();
        let log = if options.log {
            EbpfLogger::init_with_logger(&mut ebpf, ToTracing)
                .inspect_err(|error| {
                    let reason = with_causes(error);
                    degraded.push(Degraded::new("bpf:log", reason, "no diagnostics of the kernel side"));
                })
                .ok()
        } else {
            None
        };
        let events = EventRing::take(&mut ebpf, options.sizes.event_bytes)
            .inspect_err(|error| {
                let reason = with_causes(error);
                degraded.push(Degraded::new(
                    "bpf:events",
                    reason,
                    "misplaced tasks are counted, not reported one by one",
                ));
            })
            .ok();
        let pressure = PressureRing::take(&mut ebpf)
            .inspect_err(|error| {
                let reason = with_causes(error);
                degraded.push(Degraded::new("bpf:pressure", reason, Hook::Pressure.effect()));
            })
            .ok();
        let slots = Slots::new(options.sizes.slots);
        let sizes = options.sizes;
        let programs = Self {
            ebpf: Some(ebpf),
            hooks,
            counters: opened.counters,
            probes: opened.probes,
            log,
            events,
            pressure,
            columns,
            sizes,
            slots,
            ..Self::empty()
        };
        (programs, degraded)
    }

    fn empty() -> Self {
        Self {
            ebpf: None,
            hooks: Vec::new(),
            counters: None,
            probes: Vec::new(),
            log: None,
            events: None,
            pressure: None,
            columns: NodeColumns::default(),
            sizes: Sizes::new(0, 1, 1),
            slots: Slots::default(),
            watched: BTreeMap::new(),
            start: BTreeMap::new(),
        }
    }

    fn absent(reason: &str) -> (Self, Vec<Degraded>) {
        let state = |hook| HookState { hook, absent: Some(reason.to_owned()), instead: None };
        let effect = "no run time per node, no placements, no hinting faults: \
                      remote traffic cannot be measured";
        let degraded = Degraded::new("bpf", reason, effect);
        (Self { hooks: Hook::ALL.map(state).into(), ..Self::empty() }, vec![degraded])
    }

    /// Nothing attached.
    #[cfg(any(test, feature = "testing"))]
    pub fn detached() -> Self {
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

    /// Counters of a workload without any count.
    pub fn nothing(&self) -> KernelCounters {
        KernelCounters {
            run_time: self.has(Hook::RunTime).then(BTreeMap::new),
            placements: self.has(Hook::Placement).then(Vec::new),
            hint_faults: self.has(Hook::HintFaults).then(BTreeMap::new),
            hardware: self.has(Hook::Hardware).then(BTreeMap::new),
            tallies: Tallies::default(),
        }
    }

    /// Watches exactly these cgroups, and new ones below them. Returns how many workloads and cgroups there
    /// is no room for.
    pub fn watch(&mut self, wanted: &BTreeMap<u64, WatchedCgroup>) -> Result<u64, CountersError> {
        // Before a slot changes hands.
        self.drain();
        let Some(ebpf) = &mut self.ebpf else { return Ok(0) };
        let owners: BTreeSet<u64> = wanted.values().map(|watch| watch.owner).collect();
        let gone = self.slots.retain(&owners);
        self.start.retain(|owner, _| owners.contains(owner));
        maps::unwatch(ebpf, self.watched.keys().filter(|id| !wanted.contains_key(id)))?;
        self.watched.retain(|id, _| wanted.contains_key(id));
        if !gone.is_empty() {
            unwatch_heirs(ebpf, &gone)?;
            if self.sizes.move_cells == 0 {
                maps::forget_moves(ebpf, &gone)?;
            }
            maps::forget_tallies(ebpf, &gone)?;
        }
        let new: Vec<u64> = owners.iter().copied().filter(|owner| self.slots.get(*owner).is_none()).collect();
        let mut homeless: BTreeSet<u64> = BTreeSet::new();
        for owner in &new {
            if self.slots.give(*owner).is_none() {
                homeless.insert(*owner);
            }
        }
        if !new.is_empty() {
            let counted = self.rows()?;
            for owner in new {
                if let Some(row) = self.slots.get(owner).and_then(|slot| counted.get(&slot)) {
                    self.start.insert(owner, row.clone());
                }
            }
        }
        let Some(ebpf) = &mut self.ebpf else { return Ok(0) };
        let mut changed = BTreeMap::new();
        for (id, watch) in wanted {
            let Some(slot) = self.slots.get(watch.owner) else { continue };
            let allowed = self.columns.mask(watch.allowed.as_ref());
            let entry = ManagedCgroup { slot, flags: watch.flags(), allowed };
            if self.watched.get(id) != Some(&entry) {
                changed.insert(*id, entry);
            }
        }
        if changed.keys().any(|id| self.watched.contains_key(id)) {
            heirs_follow(ebpf, &self.watched, &mut changed)?;
        }
        let full = maps::watch(ebpf, &changed, |id| wanted.contains_key(&id))?;
        self.watched.extend(changed.into_iter().filter(|(id, _)| wanted.contains_key(id)));
        Ok(full + homeless.len() as u64)
    }

    /// Descriptor that wakes a waiting thread when the ring of events is half full. Readable at once if there
    /// are any. `None` without a ring.
    pub fn filling_fd(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(EventRing::fd)
    }

    /// Drains the ring of events. A few events wake no thread, so call this some times a second if they
    /// matter. Returns whether there were any.
    pub fn drain(&mut self) -> bool {
        self.events.as_mut().is_some_and(|events| events.drain(&self.slots, &self.columns))
    }

    /// The events since the last call; `None` without a ring.
    pub fn take_events(&mut self) -> Option<DrainedEvents<KernelEvent>> {
        self.drain();
        let attached = self.has(Hook::Placement);
        self.events.as_mut().filter(|_| attached).map(EventRing::take_events)
    }

    /// The changes since the last call; `None` without a ring.
    pub fn changes(&mut self) -> Option<DrainedEvents<KernelChange>> {
        self.drain();
        let attached = self.has(Hook::CpusetWrites) || self.has(Hook::Policies);
        self.events.as_mut().filter(|_| attached).map(EventRing::changes)
    }

    /// The ring of pressure events; `None` without one.
    pub fn pressure(&mut self) -> Option<&mut PressureRing> {
        let attached = self.has(Hook::Pressure) || self.has(Hook::OomVictim);
        self.pressure.as_mut().filter(|_| attached)
    }

    /// The same, to keep.
    pub fn take_pressure(&mut self) -> Option<PressureRing> {
        self.pressure()?;
        self.pressure.take()
    }

    /// Counters of each workload since it is watched, by the id of its own cgroup. Also writes the
    /// programs' diagnostics.
    pub fn read(&mut self) -> Result<BTreeMap<u64, KernelCounters>, CountersError> {
        if let Some(log) = &mut self.log {
            log.flush();
        }
        let rows = self.rows()?;
        let since = |(owner, slot): (u64, u32)| {
            let now = rows.get(&slot)?;
            let counted = self.start.get(&owner).map_or_else(|| now.clone(), |start| now.since(start));
            Some((owner, counted))
        };
        Ok(self.slots.iter().filter_map(since).collect())
    }

    /// Raw counts of each used slot since the maps were loaded.
    fn rows(&self) -> Result<BTreeMap<u32, KernelCounters>, CountersError> {
        let Some(ebpf) = &self.ebpf else { return Ok(BTreeMap::new()) };
        let used = self.slots.used();
        let run_time = self.when(Hook::RunTime, || maps::run_time(ebpf, used, &self.columns))?;
        let mut placements =
            self.when(Hook::Placement, || maps::moves(ebpf, self.sizes, used, &self.columns))?;
        let hint_faults = self.when(Hook::HintFaults, || maps::hint_faults(ebpf, used, &self.columns))?;
        let open = self.counters.as_ref();
        let hardware = open.map(|open| maps::hardware(ebpf, used, &self.columns, open)).transpose()?;
        let mut tallies = maps::tallies(ebpf, self.sizes.tallies)?;
        let mut row = |slot: u32| {
            let at = slot as usize;
            KernelCounters {
                run_time: run_time
                    .as_ref()
                    .map(|rows| self.by_node(rows.get(at), |time: &RunTime| time.samples > 0)),
                placements: placements.as_mut().map(|all| all.remove(&slot).unwrap_or_default()),
                hint_faults: hint_faults.as_ref().map(|rows| {
                    self.by_node(rows.get(at), |faults: &HintFaults| *faults != HintFaults::default())
                }),
                hardware: hardware.as_ref().map(|rows| {
                    self.by_node(rows.get(at), |some: &HardwareAccesses| *some != HardwareAccesses::default())
                }),
                tallies: tallies.remove(&slot).unwrap_or_default(),
            }
        };
        Ok(self.slots.iter().map(|(_, slot)| (slot, row(slot))).collect())
    }

    /// The nodes of a row that counted anything.
    fn by_node<V: Copy>(&self, row: Option<&Vec<V>>, counted: impl Fn(&V) -> bool) -> BTreeMap<NodeId, V> {
        row.into_iter()
            .flatten()
            .enumerate()
            .filter(|(_, value)| counted(value))
            .filter_map(|(index, value)| Some((self.columns.node(index)?, *value)))
            .collect()
    }

    /// Pages moved outside of watched workloads since the programs were attached; `None` if not counted.
    pub fn other_page_moves(&self) -> Result<Option<OtherPageMoves>, CountersError> {
        let Some(ebpf) = self.ebpf.as_ref().filter(|_| self.has(Hook::PageMoves)) else { return Ok(None) };
        let mut tallies = maps::tallies(ebpf, self.sizes.tallies)?;
        let mut of = |slot| tallies.remove(&slot).unwrap_or_default().page_moves();
        Ok(Some(OtherPageMoves { own: of(tally::OWN), elsewhere: of(tally::ELSEWHERE) }))
    }

    /// Events that are in no counter or were not sent; `None` when nothing is attached.
    pub fn drops(&self) -> Result<Option<Drops>, CountersError> {
        self.ebpf.as_ref().map(|ebpf| maps::drops(ebpf, self.sizes)).transpose()
    }

    /// What each program that is loaded has cost.
    pub fn costs(&self) -> Vec<LoadedProgram> {
        self.ebpf.as_ref().map(|ebpf| cost::read(ebpf, &self.probes)).unwrap_or_default()
    }

    /// Why [`costs`](Self::costs) has no runs and times; `None` if the kernel counts them.
    pub fn costs_silent(&self) -> Option<String> {
        cost::silent()
    }

    /// Workloads that have a row of the counters, and how many rows there are.
    pub fn rows_taken(&self) -> (usize, u32) {
        (self.slots.iter().count(), self.sizes.slots)
    }

    /// Cgroups that the kernel side watches, with those that inherited it, and how many there is room for.
    pub fn fill(&self) -> Result<(usize, u32), CountersError> {
        let watched = self.ebpf.as_ref().map(maps::managed).transpose()?.map_or(0, |all| all.len());
        Ok((watched, self.sizes.managed))
    }

    fn when<T>(
        &self,
        hook: Hook,
        read: impl FnOnce() -> Result<T, CountersError>,
    ) -> Result<Option<T>, CountersError> {
        self.has(hook).then(read).transpose()
    }
}

/// Passes over the map for heirs: one may be created meanwhile.
const ROUNDS: usize = 8;

/// Takes slots away from cgroups that inherited them, so that they can be given to others.
fn unwatch_heirs(ebpf: &mut Ebpf, slots: &BTreeSet<u32>) -> Result<(), CountersError> {
    for _ in 0..ROUNDS {
        let heirs: Vec<u64> = maps::managed(ebpf)?
            .into_iter()
            .filter(|(_, entry)| slots.contains(&entry.slot))
            .map(|(id, _)| id)
            .collect();
        if heirs.is_empty() {
            break;
        }
        maps::unwatch(ebpf, &heirs)?;
    }
    Ok(())
}

/// Adds the heirs of changed cgroups to the changes.
fn heirs_follow(
    ebpf: &Ebpf,
    watched: &BTreeMap<u64, ManagedCgroup>,
    changed: &mut BTreeMap<u64, ManagedCgroup>,
) -> Result<(), CountersError> {
    let replaced: Vec<(ManagedCgroup, ManagedCgroup)> =
        changed.iter().filter_map(|(id, new)| Some((*watched.get(id)?, *new))).collect();
    for (id, entry) in maps::managed(ebpf)? {
        if watched.contains_key(&id) || changed.contains_key(&id) {
            continue;
        }
        if let Some((_, new)) = replaced.iter().find(|(old, _)| *old == entry) {
            changed.insert(id, *new);
        }
    }
    Ok(())
}

/// Raises the limits. Before 5.11 the kernel charged BPF maps to `RLIMIT_MEMLOCK`, 64 KiB by default; and
/// counters are two files per CPU, of which 1,024 are allowed by default. If this fails, the maps and
/// counters report it.
fn raise_limits() {
    let files = getrlimit(Resource::Nofile).maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files }) {
        tracing::debug!("raising RLIMIT_NOFILE: {error}");
    }
    raise_memlock();
}

fn raise_memlock() {
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        let maximum = getrlimit(Resource::Memlock).maximum;
        if let Err(error) = setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum }) {
            tracing::debug!("raising RLIMIT_MEMLOCK: {error}");
        }
    }
}
