//! Adds the counts of the attached programs to the cgroups of a sample.
//!
//! Each sample first tells the programs the workloads' cgroups and their nodes, then reads. Other cgroups
//! cost next to nothing and are not counted. Counters only grow, also when the programs are reattached after
//! CPU hotplug: the former counts are kept and added.

use std::collections::BTreeMap;

use enforcer_core::{
    sample::{
        CgroupSample, Change, Changes, Count as _, EventCounts, Events, KernelSide, OtherPageMoves,
        PressureEvents, ProgramCost, Sample, TaskEvent,
    },
    workload::CgroupPath,
};
use numa_topology::{
    degraded::{Degraded, DegradedTally},
    id::{CpuId, NodeId},
    set::NodeSet,
};

use crate::{index::Index, pressure_tap::PressureTap};
use enforcer_kernel::bpf::{
    AttachOptions, CountersError, DrainedEvents, Drops, Hook, KernelChange, KernelCounters, KernelEvent,
    LoadedProgram, Programs, WatchedCgroup, with_causes,
};

/// Degraded source: the programs know a former set of CPUs.
const STALE: &str = "bpf:cpus";

/// The programs, and the counts of earlier ones.
pub(super) struct KernelCounts {
    pub(super) programs: Programs,
    missing: Vec<Degraded>,
    options: AttachOptions,
    /// Counts of earlier programs, by id of the workload's own cgroup.
    earlier: BTreeMap<u64, KernelCounters>,
    /// Events of earlier programs that no sample has yet.
    carried: Vec<KernelEvent>,
    /// Outcomes of events so far, without those that these programs could not send.
    events: EventCounts,
    pressure: PressureTap,
    /// Pages that earlier programs saw moved in unwatched cgroups.
    other_page_moves: OtherPageMoves,
    /// Changes of earlier programs that no sample has yet.
    carried_changes: Vec<KernelChange>,
    /// Outcomes of changes so far, without those that these programs could not send.
    changes: EventCounts,
}

impl KernelCounts {
    /// Attaches what this kernel allows.
    pub(super) fn attach(options: AttachOptions) -> Self {
        let (mut programs, missing) = Programs::attach(&options);
        let pressure = PressureTap::default();
        pressure.attach(programs.take_pressure());
        Self {
            programs,
            missing,
            options,
            earlier: BTreeMap::new(),
            carried: Vec::new(),
            events: EventCounts::default(),
            pressure,
            other_page_moves: OtherPageMoves::default(),
            carried_changes: Vec::new(),
            changes: EventCounts::default(),
        }
    }

    /// Hooks that are not attached.
    pub(super) fn missing(&self) -> &[Degraded] {
        &self.missing
    }

    /// Reattaches after CPU hotplug: a CPU that was offline has no clock, and no node in the programs' table.
    /// If the privileges for that are gone, the programs stay as they are.
    pub(super) fn follow(&mut self, cpu_node: &BTreeMap<CpuId, NodeId>) {
        if *cpu_node == self.options.cpu_node {
            return;
        }
        tracing::info!("CPUs came or went: the eBPF programs are attached again");
        let counted = self.programs.read();
        self.options.cpu_node.clone_from(cpu_node);
        let (mut programs, missing) = Programs::attach(&self.options);
        if let Some(lost) =
            Hook::ALL.into_iter().find(|hook| self.programs.has(*hook) && !programs.has(*hook))
        {
            self.missing.retain(|entry| entry.source != STALE);
            self.missing.push(stale(lost, &missing));
            return;
        }
        match counted {
            Ok(counted) => {
                let nothing = self.programs.nothing();
                for (id, counters) in &counted {
                    self.earlier.entry(*id).or_insert_with(|| nothing.clone()).add(counters);
                }
            }
            Err(error) => tracing::warn!("what was counted until now is lost: {}", with_causes(&error)),
        }
        if let Ok(Some(more)) = self.programs.other_page_moves() {
            self.other_page_moves.add(&more);
        }
        self.drain();
        self.carried = self.take_events().unwrap_or_default();
        self.carried_changes = self.take_changes().unwrap_or_default();
        let drops = self.programs.drops().ok().flatten();
        self.events.add(&unsent(drops));
        self.pressure.with(|told| told.carry(unsent_pressure(drops)));
        self.pressure.attach(programs.take_pressure());
        self.changes.add(&unsent_changes(drops));
        (self.programs, self.missing) = (programs, missing);
    }

    /// Drains the programs' events. Returns whether there were any that wake no thread.
    pub(super) fn drain(&mut self) -> bool {
        self.pressure.drain();
        self.programs.drain()
    }

    /// Pressure events for a thread that reacts at once.
    pub(super) fn tap(&self) -> PressureTap {
        self.pressure.clone()
    }

    /// The pressure events for a sample; `None` without a source.
    fn pressure(&mut self, index: &Index, drops: Option<Drops>) -> Option<PressureEvents> {
        let attached = self.pressure.is_attached();
        attached.then(|| self.pressure.with(|buffer| buffer.take_events(index, unsent_pressure(drops))))
    }

    /// Events that no sample has yet.
    fn take_events(&mut self) -> Option<Vec<KernelEvent>> {
        let DrainedEvents { latest, told, forgotten } = self.programs.take_events()?;
        self.events.add(&EventCounts { told, forgotten, ..EventCounts::default() });
        let mut events = std::mem::take(&mut self.carried);
        events.extend(latest);
        Some(events)
    }

    /// Changes that no sample has yet.
    fn take_changes(&mut self) -> Option<Vec<KernelChange>> {
        let DrainedEvents { latest, told, forgotten } = self.programs.changes()?;
        self.changes.add(&EventCounts { told, forgotten, ..EventCounts::default() });
        let mut changes = std::mem::take(&mut self.carried_changes);
        changes.extend(latest);
        Some(changes)
    }

    /// The changes for a sample, with workload names.
    fn changes(&mut self, index: &Index, drops: Option<Drops>) -> Option<Changes> {
        let changes = self.take_changes()?;
        let names: BTreeMap<u64, &CgroupPath> =
            index.owners.iter().map(|(path, owner)| (*owner, path)).collect();
        let named = |KernelChange { owner, change }: KernelChange| Change {
            workload: names.get(&owner).map(|path| (*path).clone()),
            ..change
        };
        Some(Changes {
            latest: changes.into_iter().map(named).collect(),
            counts: self.changes.plus(&unsent_changes(drops)),
        })
    }

    /// The events for a sample, with workload names.
    fn events(&mut self, index: &Index, drops: Option<Drops>) -> Option<Events> {
        let events = self.take_events()?;
        let names: BTreeMap<u64, &CgroupPath> =
            index.owners.iter().map(|(path, owner)| (*owner, path)).collect();
        Some(Events {
            latest: events.iter().map(|event| named(event, &names)).collect(),
            counts: self.events.plus(&unsent(drops)),
        })
    }

    /// Watches the workloads with their nodes in `aims`, and adds the counts to the cgroups of the sample.
    pub(super) fn add_to(
        &mut self,
        index: &Index,
        aims: &BTreeMap<CgroupPath, NodeSet>,
        sample: &mut Sample,
        degraded: &mut DegradedTally,
    ) {
        self.drain();
        self.earlier.retain(|id, _| index.owners.values().any(|owner| owner == id));
        let counted = self.programs.watch(&watched(index, aims)).and_then(|unwatched| {
            if let Some(entry) = no_room(unwatched) {
                degraded.push(entry);
            }
            self.programs.read()
        });
        match counted {
            Ok(counted) => {
                for (path, owner) in &index.owners {
                    if let Some(cgroup) = sample.cgroups.get_mut(path) {
                        put(cgroup, self.total(*owner, &counted), |hook| self.programs.has(hook));
                    }
                }
            }
            Err(error) => degraded.push(unreadable(&error)),
        }
        match self.programs.other_page_moves() {
            Ok(more) => {
                sample.other_page_moves = more.map(|more| {
                    let mut sum = self.other_page_moves.clone();
                    sum.add(&more);
                    sum
                });
            }
            Err(error) => degraded.push(unreadable(&error)),
        }
        for (hook, kind) in [
            (Hook::RunTime, "run time"),
            (Hook::Placement, "placements"),
            (Hook::HintFaults, "hinting faults"),
            (Hook::Hardware, "memory accesses"),
            (Hook::PageMoves, "page moves"),
            (Hook::Balancer, "balancer"),
        ] {
            if self.programs.has(hook) {
                sample.sources.insert(kind.into(), hook.source().into());
            }
        }
        self.say_what_is_not_counted(index, sample, degraded);
    }

    fn state(&self, drops: Drops) -> Result<KernelSide, CountersError> {
        let (watched, room) = self.programs.fill()?;
        let (rows, of_rows) = self.programs.rows_taken();
        let silent = self.programs.costs_silent();
        let counted = silent.is_none();
        let cost = |cost: LoadedProgram| {
            let cost_of = ProgramCost {
                runs: counted.then_some(cost.runs),
                run_ns: counted.then_some(cost.run_ns),
                verified_instructions: cost.verified_instructions,
                recursion_misses: cost.recursion_misses,
            };
            (cost.name, cost_of)
        };
        Ok(KernelSide {
            lost: lost(drops),
            cgroups_watched: watched as u64,
            cgroups_room: u64::from(room),
            workloads_watched: rows as u64,
            workloads_room: u64::from(of_rows),
            programs: self.programs.costs().into_iter().map(cost).collect(),
            run_time_silent: silent,
        })
    }

    /// A workload's counts by these and earlier programs.
    fn total(&self, owner: u64, counted: &BTreeMap<u64, KernelCounters>) -> KernelCounters {
        let mut sum = self.programs.nothing();
        for counters in [self.earlier.get(&owner), counted.get(&owner)].into_iter().flatten() {
            sum.add(counters);
        }
        sum
    }

    fn say_what_is_not_counted(&mut self, index: &Index, sample: &mut Sample, degraded: &mut DegradedTally) {
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
                sample.events = self.events(index, drops);
                sample.pressure_events = self.pressure(index, drops);
                sample.changes = self.changes(index, drops);
                match drops.map(|drops| self.state(drops)).transpose() {
                    Ok(state) => sample.kernel_side = state,
                    Err(error) => degraded.push(unreadable(&error)),
                }
            }
            Err(error) => degraded.push(unreadable(&error)),
        }
    }
}

/// Every cgroup of every workload. Of the root only its own threads count; a new cgroup below it is a
/// workload of its own, or none.
fn watched(index: &Index, aims: &BTreeMap<CgroupPath, NodeSet>) -> BTreeMap<u64, WatchedCgroup> {
    let watch = |(id, path): (&u64, &CgroupPath)| {
        let owner = *index.owners.get(path)?;
        Some((*id, WatchedCgroup { owner, allowed: aims.get(path).cloned(), heirs: !path.is_root() }))
    };
    index.ids.iter().filter_map(watch).collect()
}

fn no_room(unwatched: u64) -> Option<Degraded> {
    let reason = format!("{unwatched} cgroups of workloads more than the programs' maps have room for");
    let effect = "run time, placements and faults of these are not counted; a restart sizes the maps anew";
    (unwatched > 0).then(|| Degraded::new("bpf:watched", reason, effect))
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

/// The event with the workload's name.
fn named(event: &KernelEvent, names: &BTreeMap<u64, &CgroupPath>) -> TaskEvent {
    TaskEvent {
        time_ns: event.time_ns,
        kind: event.kind,
        workload: names.get(&event.owner).map(|path| (*path).clone()),
        cgroup_id: event.cgroup,
        tid: event.tid,
        src_numa: event.src_numa,
        dst_numa: event.dst_numa,
    }
}

/// Events that these programs could not or would not send.
fn unsent(drops: Option<Drops>) -> EventCounts {
    drops.map_or_else(EventCounts::default, |drops| EventCounts {
        ring_full: drops.events,
        limited: drops.limited,
        ..EventCounts::default()
    })
}

/// The same for changes.
fn unsent_changes(drops: Option<Drops>) -> EventCounts {
    drops.map_or_else(EventCounts::default, |drops| EventCounts {
        ring_full: drops.changes,
        limited: drops.changes_unread,
        ..EventCounts::default()
    })
}

/// The same for pressure events.
fn unsent_pressure(drops: Option<Drops>) -> EventCounts {
    drops.map_or_else(EventCounts::default, |drops| EventCounts {
        ring_full: drops.pressure,
        limited: drops.pressure_limited,
        ..EventCounts::default()
    })
}

/// The entry for events that are in no counter; `None` without any.
fn dropped(drops: Drops) -> Option<Degraded> {
    (drops.total() > 0).then(|| {
        let reason = format!(
            "{} events with a full map, {} on an unknown CPU, {} of an unknown cgroup, {} new cgroups without room, \
             since attached",
            drops.map_full, drops.unknown_cpu, drops.unknown_cgroup, drops.unwatched
        );
        Degraded::new("bpf:drops", reason, "these events are in no figure")
    })
}

/// By reason, including zeros: a counter that appears late hides its first step.
fn lost(drops: Drops) -> BTreeMap<String, u64> {
    let reasons = [
        ("map-full", drops.map_full),
        ("unknown-cpu", drops.unknown_cpu),
        ("unknown-cgroup", drops.unknown_cgroup),
        ("unwatched", drops.unwatched),
    ];
    reasons.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect()
}

/// Writes the sums of a cgroup into its sample; `has` tells which kinds are counted.
fn put(cgroup: &mut CgroupSample, counters: KernelCounters, has: impl Fn(Hook) -> bool) {
    let KernelCounters { tallies, .. } = &counters;
    cgroup.page_moves = has(Hook::PageMoves).then(|| tallies.page_moves());
    cgroup.balancer = has(Hook::Balancer).then(|| tallies.balancer());
    cgroup.cpuset_writes = has(Hook::CpusetWrites).then(|| tallies.cpuset_writes());
    cgroup.policies = has(Hook::Policies).then(|| tallies.policies());
    cgroup.scan_skips = tallies.scan_skips(has(Hook::MappingSkips), has(Hook::TaskSkips));
    cgroup.run_time = counters.run_time;
    cgroup.placements = counters.placements;
    cgroup.hint_faults = counters.hint_faults;
    cgroup.hardware = counters.hardware;
}

#[cfg(test)]
mod tests {
    use enforcer_core::{
        policy::Mode,
        sample::{HardwareAccesses, HintFaults, Placements, RunTime, TaskEventKind},
    };

    use super::*;
    use enforcer_kernel::{
        bpf::CgroupAxis,
        privileges::{Duties, reduce},
    };

    fn counted(first: u64) -> KernelCounters {
        let run_time = |samples| RunTime { ns: samples * 10, misplaced_ns: samples, samples };
        let moves =
            Placements { src_numa: NodeId(1), dst_numa: NodeId(0), migrated: 4, started: 1, misplaced: 2 };
        KernelCounters {
            run_time: Some([(NodeId(0), run_time(first)), (NodeId(1), run_time(1))].into()),
            placements: Some(vec![moves]),
            hint_faults: Some(
                [(NodeId(0), HintFaults { local: 1, remote: 2, ..HintFaults::default() })].into(),
            ),
            hardware: Some([(NodeId(0), HardwareAccesses { local: 8, remote: first, samples: 2 })].into()),
            ..KernelCounters::default()
        }
    }

    /// Nothing is attached, as without permission.
    fn counters() -> KernelCounts {
        KernelCounts {
            programs: Programs::detached(),
            missing: Vec::new(),
            options: AttachOptions::new(BTreeMap::new(), CgroupAxis::Unified),
            earlier: BTreeMap::new(),
            carried: Vec::new(),
            events: EventCounts::default(),
            pressure: PressureTap::default(),
            other_page_moves: OtherPageMoves::default(),
            carried_changes: Vec::new(),
            changes: EventCounts::default(),
        }
    }

    #[test]
    fn what_is_attached_stays_when_it_cannot_be_attached_again() {
        // Privileges belong to a thread, and this one drops its own.
        let thread = std::thread::spawn(|| {
            let attach = |cpu| AttachOptions::new([(CpuId(cpu), NodeId(0))].into(), CgroupAxis::Unified);
            let mut counters = KernelCounts::attach(attach(0));
            let hooks = |counters: &KernelCounts| Hook::ALL.map(|hook| counters.programs.has(hook));
            let before = hooks(&counters);
            reduce(Duties {
                mode: Mode::Observe,
                numa_maps: false,
                bpf: true,
                partitions: false,
                frames: false,
            })
            .unwrap();
            counters.follow(&attach(1).cpu_node);
            assert_eq!(hooks(&counters), before);
            let said = counters.missing().iter().any(|entry| entry.source == STALE);
            assert_eq!(said, before.contains(&true), "{:?}", counters.missing());
            assert!(counters.programs.read().is_ok(), "what is attached is still read");
        });
        thread.join().unwrap();
    }

    #[test]
    fn what_was_counted_earlier_adds_up() {
        let mut sum = KernelCounters {
            run_time: Some(BTreeMap::new()),
            placements: Some(Vec::new()),
            hint_faults: Some(BTreeMap::new()),
            hardware: Some(BTreeMap::new()),
            ..KernelCounters::default()
        };
        for first in [2, 3] {
            sum.add(&counted(first));
        }
        let mut cgroup = CgroupSample::default();
        put(&mut cgroup, sum, |hook| hook == Hook::PageMoves);
        let run_time = |samples| RunTime { ns: samples * 10, misplaced_ns: samples, samples };
        assert_eq!(cgroup.run_time, Some([(NodeId(0), run_time(5)), (NodeId(1), run_time(2))].into()));
        let placements = cgroup.placements.unwrap()[0];
        assert_eq!((placements.count(), placements.misplaced), (10, 4));
        assert_eq!(cgroup.hint_faults.unwrap()[&NodeId(0)].remote, 4);
        let accesses = HardwareAccesses { local: 16, remote: 5, samples: 4 };
        assert_eq!(cgroup.hardware, Some([(NodeId(0), accesses)].into()));
        assert_eq!(
            (cgroup.page_moves, cgroup.balancer),
            (Some(BTreeMap::new()), None),
            "not counted is not 0"
        );
    }

    #[test]
    fn cgroups_of_one_workload_count_for_it_and_the_root_for_itself_alone() {
        let path = CgroupPath::new("/vm");
        let index = Index {
            ids: [(1, CgroupPath::root()), (7, path.clone()), (8, path.clone()), (9, CgroupPath::new("/b"))]
                .into(),
            owners: [(CgroupPath::root(), 1), (path.clone(), 7)].into(),
            ..Index::default()
        };
        let aim: NodeSet = [NodeId(1)].into_iter().collect();
        let watched = watched(&index, &[(path, aim.clone())].into());
        let expected = [
            (1, WatchedCgroup { owner: 1, allowed: None, heirs: false }),
            (7, WatchedCgroup { owner: 7, allowed: Some(aim.clone()), heirs: true }),
            (8, WatchedCgroup { owner: 7, allowed: Some(aim), heirs: true }),
        ];
        assert_eq!(watched, expected.into());
    }

    #[test]
    fn an_event_names_its_workload_until_that_is_gone() {
        let event = KernelEvent {
            time_ns: 5,
            kind: TaskEventKind::Started,
            owner: 7,
            cgroup: 8,
            tid: 12,
            src_numa: NodeId(0),
            dst_numa: NodeId(1),
        };
        let path = CgroupPath::new("/a");
        let said = named(&event, &[(7, &path)].into());
        assert_eq!((said.workload.as_ref(), said.cgroup_id, said.tid), (Some(&path), 8, 12));
        assert_eq!((said.src_numa, said.dst_numa, said.time_ns), (NodeId(0), NodeId(1), 5));
        assert_eq!(named(&event, &BTreeMap::new()).workload, None);
    }

    #[test]
    fn what_was_not_sent_is_counted_with_what_was() {
        let drops = Drops {
            events: 2,
            limited: 3,
            map_full: 9,
            pressure: 4,
            pressure_limited: 5,
            ..Drops::default()
        };
        let told = EventCounts { told: 5, forgotten: 1, ..EventCounts::default() };
        let all = EventCounts { told: 5, forgotten: 1, ring_full: 2, limited: 3 };
        assert_eq!(told.plus(&unsent(Some(drops))), all);
        assert_eq!(told.plus(&unsent(None)), told);
        let pressure = EventCounts { ring_full: 4, limited: 5, ..EventCounts::default() };
        assert_eq!(unsent_pressure(Some(drops)), pressure);
    }

    #[test]
    fn nothing_attached_counts_nothing() {
        let index = Index { ids: [(7, CgroupPath::new("/a"))].into(), ..Index::default() };
        let mut sample = Sample::default();
        sample.cgroups.insert(CgroupPath::new("/a"), CgroupSample::default());
        let mut degraded = DegradedTally::default();
        counters().add_to(&index, &BTreeMap::new(), &mut sample, &mut degraded);
        assert_eq!(sample.cgroups[&CgroupPath::new("/a")], CgroupSample::default());
        assert!(sample.sources.is_empty() && sample.events.is_none() && degraded.into_entries().is_empty());
    }

    #[test]
    fn what_was_counted_of_a_removed_cgroup_is_forgotten() {
        let mut counters = KernelCounts { earlier: [(7, counted(2)), (8, counted(2))].into(), ..counters() };
        let index = Index { owners: [(CgroupPath::new("/a"), 8)].into(), ..Index::default() };
        counters.add_to(&index, &BTreeMap::new(), &mut Sample::default(), &mut DegradedTally::default());
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
        assert!(dropped(Drops { unwatched: 1, ..Drops::default() }).is_some());
        assert_eq!(dropped(Drops { limited: 1, ..Drops::default() }), None, "counted all the same");
        assert!(no_room(1).is_some() && no_room(0).is_none());
        let all = Drops {
            map_full: 1,
            unknown_cpu: 2,
            unknown_cgroup: 3,
            unwatched: 4,
            events: 5,
            limited: 6,
            pressure: 7,
            pressure_limited: 8,
            changes: 9,
            changes_unread: 10,
        };
        assert_eq!(lost(all).values().sum::<u64>(), all.total(), "what was only not told is not lost");
    }
}
