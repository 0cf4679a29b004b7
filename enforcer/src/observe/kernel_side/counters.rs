//! What the attached programs count, added to the cgroups of a sample.
//!
//! Counters only grow, also when the programs are attached anew because CPUs came or went: what the
//! earlier ones counted is kept and added. Counters of removed cgroups are dropped as soon as the set of
//! workloads changes, so that the kernel's maps do not fill up with them.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    degraded::{Degraded, DegradedTally},
    id::{CpuId, NodeId},
    sample::{CgroupSample, Sample},
    workload::CgroupPath,
};

use super::with_causes;
use crate::observe::{
    bpf::{AttachOptions, CountersError, Drops, Hook, KernelCounters, Programs, TICK_NS},
    index::Index,
};

/// Degraded source: the programs know other CPUs than there are.
const STALE: &str = "bpf:cpus";

/// The programs, and what is remembered of earlier ones.
pub(super) struct Counters {
    programs: Programs,
    missing: Vec<Degraded>,
    options: AttachOptions,
    /// Counted by programs that were attached before these.
    earlier: BTreeMap<u64, KernelCounters>,
    /// Cgroup ids of the last sample.
    live: BTreeSet<u64>,
}

impl Counters {
    /// Attaches what this kernel allows.
    pub(super) fn attach(options: AttachOptions) -> Self {
        let (programs, missing) = Programs::attach(&options);
        Self { programs, missing, options, earlier: BTreeMap::new(), live: BTreeSet::new() }
    }

    /// Hooks that are not attached.
    pub(super) fn missing(&self) -> &[Degraded] {
        &self.missing
    }

    /// Attaches again when CPUs came or went: a CPU that was offline has no clock, and no node in the
    /// programs' table. Where that takes privileges that were given up, the programs stay as they are.
    pub(super) fn follow(&mut self, cpu_node: &BTreeMap<CpuId, NodeId>) {
        if *cpu_node == self.options.cpu_node {
            return;
        }
        tracing::info!("CPUs came or went: the eBPF programs are attached again");
        let counted = self.programs.read();
        self.options.cpu_node.clone_from(cpu_node);
        let (programs, missing) = Programs::attach(&self.options);
        if let Some(lost) =
            Hook::ALL.into_iter().find(|hook| self.programs.has(*hook) && !programs.has(*hook))
        {
            self.missing.retain(|entry| entry.source != STALE);
            self.missing.push(stale(lost, &missing));
            return;
        }
        match counted {
            Ok(counted) => {
                let nothing = self.nothing();
                for (id, counters) in &counted {
                    self.earlier.entry(*id).or_insert_with(|| nothing.clone()).add(counters);
                }
            }
            Err(error) => tracing::warn!("what was counted until now is lost: {}", with_causes(&error)),
        }
        (self.programs, self.missing) = (programs, missing);
    }

    /// Adds the counters to the cgroups of the sample.
    pub(super) fn add_to(&mut self, index: &Index, sample: &mut Sample, degraded: &mut DegradedTally) {
        match self.programs.read() {
            Ok(counted) => {
                for (path, counters) in self.by_path(index, &counted, &self.nothing()) {
                    if let Some(cgroup) = sample.cgroups.get_mut(path) {
                        put(cgroup, counters);
                    }
                }
            }
            Err(error) => degraded.push(unreadable(&error)),
        }
        for (hook, kind) in [
            (Hook::RunTime, "run time"),
            (Hook::Placement, "placements"),
            (Hook::HintFaults, "hinting faults"),
        ] {
            if self.programs.has(hook) {
                sample.sources.insert(kind.into(), hook.source().into());
            }
        }
        self.say_what_is_not_counted(index, sample, degraded);
        self.forget_the_dead(index, degraded);
    }

    /// Sums by workload; one may be several cgroups of the kernel.
    fn by_path<'a>(
        &self,
        index: &'a Index,
        counted: &BTreeMap<u64, KernelCounters>,
        nothing: &KernelCounters,
    ) -> BTreeMap<&'a CgroupPath, KernelCounters> {
        let mut sums: BTreeMap<&CgroupPath, KernelCounters> = BTreeMap::new();
        for (id, path) in &index.ids {
            let sum = sums.entry(path).or_insert_with(|| nothing.clone());
            for counters in [self.earlier.get(id), counted.get(id)].into_iter().flatten() {
                sum.add(counters);
            }
        }
        sums
    }

    /// What a cgroup has when the attached programs saw nothing of it.
    fn nothing(&self) -> KernelCounters {
        KernelCounters {
            run_ticks: self.programs.has(Hook::RunTime).then(BTreeMap::new),
            placements: self.programs.has(Hook::Placement).then(Vec::new),
            hint_faults: self.programs.has(Hook::HintFaults).then(BTreeMap::new),
        }
    }

    fn say_what_is_not_counted(&self, index: &Index, sample: &Sample, degraded: &mut DegradedTally) {
        let attached = Hook::ALL.into_iter().any(|hook| self.programs.has(hook));
        let known = index.with_id();
        let uncounted = sample.cgroups.keys().filter(|path| !known.contains(path)).count();
        if attached && uncounted > 0 {
            let reason =
                format!("{uncounted} cgroups are not set apart in the hierarchy of the cpuset controller");
            let effect = "run time and faults of these are not counted";
            degraded.push(Degraded::new("bpf:cgroups", reason, effect));
        }
        match self.programs.drops() {
            Ok(drops) => {
                if let Some(entry) = drops.and_then(dropped) {
                    degraded.push(entry);
                }
            }
            Err(error) => degraded.push(unreadable(&error)),
        }
    }

    fn forget_the_dead(&mut self, index: &Index, degraded: &mut DegradedTally) {
        if index.ids.len() == self.live.len() && index.ids.keys().eq(&self.live) {
            return;
        }
        self.live = index.ids.keys().copied().collect();
        self.earlier.retain(|id, _| self.live.contains(id));
        if let Err(error) = self.programs.retain(&self.live) {
            degraded.push(unreadable(&error));
        }
    }
}

fn stale(lost: Hook, missing: &[Degraded]) -> Degraded {
    let why = missing.iter().find(|entry| entry.source == lost.source()).or(missing.first());
    let why = why.map_or("", |entry| entry.reason.as_str());
    let reason = format!("CPUs came or went, and the programs could not be attached again: {why}");
    Degraded::new(STALE, reason, "what runs on CPUs that came is not counted until a restart")
}

fn unreadable(error: &CountersError) -> Degraded {
    Degraded::new("bpf:counters", with_causes(error), "what the kernel side counted is partly missing")
}

/// The entry for events that are in no counter; `None` when there was none.
fn dropped(drops: Drops) -> Option<Degraded> {
    (drops.total() > 0).then(|| {
        let reason = format!(
            "{} events with a full map, {} on an unknown CPU, {} of an unknown cgroup, since attached",
            drops.map_full, drops.unknown_cpu, drops.unknown_cgroup
        );
        Degraded::new("bpf:drops", reason, "these events are in no figure")
    })
}

/// Writes the sums of a cgroup into its sample.
fn put(cgroup: &mut CgroupSample, counters: KernelCounters) {
    cgroup.run_ticks = counters
        .run_ticks
        .as_ref()
        .map(|ticks| ticks.values().fold(0u64, |sum, ticks| sum.saturating_add(*ticks)));
    cgroup.run_ns = counters
        .run_ticks
        .map(|ticks| ticks.into_iter().map(|(node, ticks)| (node, ticks.saturating_mul(TICK_NS))).collect());
    cgroup.placements = counters.placements;
    cgroup.hint_faults = counters.hint_faults;
}

#[cfg(test)]
mod tests {
    use enforcer_core::{
        policy::Mode,
        sample::{HintFaults, Placements},
    };

    use super::*;
    use crate::{
        observe::bpf::CgroupAxis,
        privileges::{Duties, reduce},
    };

    fn counted(first: u64) -> KernelCounters {
        KernelCounters {
            run_ticks: Some([(NodeId(0), first), (NodeId(1), 1)].into()),
            placements: Some(vec![Placements { src_numa: NodeId(1), dst_numa: NodeId(0), count: 4 }]),
            hint_faults: Some(
                [(NodeId(0), HintFaults { local: 1, remote: 2, ..HintFaults::default() })].into(),
            ),
        }
    }

    /// Nothing is attached, as without permission.
    fn counters() -> Counters {
        Counters {
            programs: Programs::detached(),
            missing: Vec::new(),
            options: AttachOptions::new(BTreeMap::new(), CgroupAxis::Unified),
            earlier: BTreeMap::new(),
            live: BTreeSet::new(),
        }
    }

    #[test]
    fn what_is_attached_stays_when_it_cannot_be_attached_again() {
        // Privileges belong to a thread, and this one gives its own up.
        let thread = std::thread::spawn(|| {
            let attach = |cpu| AttachOptions::new([(CpuId(cpu), NodeId(0))].into(), CgroupAxis::Unified);
            let mut counters = Counters::attach(attach(0));
            let hooks = |counters: &Counters| Hook::ALL.map(|hook| counters.programs.has(hook));
            let before = hooks(&counters);
            reduce(Duties { mode: Mode::Observe, numa_maps: false, bpf: true }).unwrap();
            counters.follow(&attach(1).cpu_node);
            assert_eq!(hooks(&counters), before);
            let said = counters.missing().iter().any(|entry| entry.source == STALE);
            assert_eq!(said, before.contains(&true), "{:?}", counters.missing());
            assert!(counters.programs.read().is_ok(), "what is attached is still read");
        });
        thread.join().unwrap();
    }

    #[test]
    fn cgroups_of_one_workload_and_what_was_counted_earlier_add_up() {
        let path = CgroupPath::new("/vm");
        let index = Index { ids: [(7, path.clone()), (8, path.clone())].into(), ..Index::default() };
        let counters = Counters { earlier: [(7, counted(2))].into(), ..counters() };
        let nothing = KernelCounters {
            run_ticks: Some(BTreeMap::new()),
            placements: Some(Vec::new()),
            hint_faults: Some(BTreeMap::new()),
        };
        let now = [(7, counted(2)), (8, counted(3)), (9, counted(5))].into();
        let sums = counters.by_path(&index, &now, &nothing);
        let mut cgroup = CgroupSample::default();
        put(&mut cgroup, sums[&path].clone());
        assert_eq!(cgroup.run_ns, Some([(NodeId(0), 7 * TICK_NS), (NodeId(1), 3 * TICK_NS)].into()));
        assert_eq!(cgroup.run_ticks, Some(10));
        assert_eq!(cgroup.placements.unwrap()[0].count, 12);
        assert_eq!(cgroup.hint_faults.unwrap()[&NodeId(0)].remote, 6);
    }

    #[test]
    fn nothing_attached_counts_nothing() {
        let index = Index { ids: [(7, CgroupPath::new("/a"))].into(), ..Index::default() };
        let mut sample = Sample::default();
        sample.cgroups.insert(CgroupPath::new("/a"), CgroupSample::default());
        let mut degraded = DegradedTally::default();
        counters().add_to(&index, &mut sample, &mut degraded);
        assert_eq!(sample.cgroups[&CgroupPath::new("/a")], CgroupSample::default());
        assert!(sample.sources.is_empty() && degraded.into_entries().is_empty());
    }

    #[test]
    fn what_was_counted_of_a_removed_cgroup_is_forgotten() {
        let mut counters = Counters { earlier: [(7, counted(2)), (8, counted(2))].into(), ..counters() };
        let index = Index { ids: [(8, CgroupPath::new("/a"))].into(), ..Index::default() };
        counters.add_to(&index, &mut Sample::default(), &mut DegradedTally::default());
        assert_eq!(counters.earlier.keys().collect::<Vec<_>>(), [&8]);
    }

    #[test]
    fn a_dropped_event_is_never_silent() {
        assert_eq!(dropped(Drops::default()), None);
        let full = dropped(Drops { map_full: 3, ..Drops::default() }).unwrap();
        assert_eq!(full.source, "bpf:drops");
        assert!(full.reason.starts_with("3 events with a full map"), "{}", full.reason);
        assert!(dropped(Drops { unknown_cpu: 1, ..Drops::default() }).is_some());
        assert!(dropped(Drops { unknown_cgroup: 1, ..Drops::default() }).is_some());
    }
}
