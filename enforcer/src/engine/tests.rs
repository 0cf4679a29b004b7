//! Turns over a host that is data, with writes that go to a fixture tree.

mod interrupts;
mod recording;
mod self_placed;
mod steady;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

use enforcer_core::{
    interrupts::InterruptTable,
    plan::OutcomeResult,
    sample::{CgroupSample, NodeBytes, NodeSample, TaskSample},
    workload::{CgroupPath, Origin, Workload},
};
use numa_topology::{id::NodeId, set::NodeSet, synth::Machine};

use super::*;
use enforcer_act::{fixture::Fixture, journal::fake_disk::FakeDisk};
use enforcer_host::interrupts::InterruptReader;
use enforcer_report::{metrics::Metrics, tick::TickReport};

const SECOND: u64 = 1_000_000_000;

/// One workload with its memory on node 0 and its CPUs on node 1.
struct Recorded {
    interrupts: InterruptReader,
    /// CPUs that the cpuset of the workload names; it runs on 4-7 where it names none.
    named: Rc<Cell<Option<&'static str>>>,
    /// irqbalance runs.
    balanced: Rc<Cell<bool>>,
    broken: Rc<RefCell<Option<&'static str>>>,
    aimed: Rc<RefCell<BTreeMap<CgroupPath, NodeSet>>>,
}

impl HostSource for Recorded {
    fn host(&self) -> AuditedHost {
        AuditedHost::default()
    }

    fn topology(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError> {
        match *self.broken.borrow() {
            Some("topology") => Err(SourceError::new("topology", &"gone")),
            _ => Ok((Machine::new().sockets(2).threads(1).build(), vec![Degraded::new("hmat", "none", "")])),
        }
    }

    fn workloads(&mut self) -> Result<(Vec<Workload>, Vec<Degraded>), SourceError> {
        if *self.broken.borrow() == Some("workloads") {
            return Err(SourceError::new("workloads", &"gone"));
        }
        let cgroup = CgroupPath::new("/db");
        let workload = Workload { cgroup, cgroup_id: None, name: "db".into(), origin: Origin::Cgroup };
        Ok((vec![workload], Vec::new()))
    }

    fn aim(&mut self, aims: &BTreeMap<CgroupPath, NodeSet>) {
        self.aimed.borrow_mut().clone_from(aims);
    }

    fn interrupts(&mut self, now_ns: u64) -> Option<Result<InterruptTable, Degraded>> {
        Some(self.interrupts.read(now_ns))
    }

    fn sample(&mut self, workloads: &[Workload], now_ns: u64) -> Sample {
        let mut sample = Sample { monotonic_ns: now_ns, ..Sample::default() };
        if self.balanced.get() {
            sample.tasks.push(TaskSample {
                tid: 9,
                pid: 9,
                command: "irqbalance".into(),
                cgroup: Some(CgroupPath::new("/system.slice/irqbalance.service")),
                cpu: None,
                cpus_allowed: None,
                cpu_time_ns: None,
                preferred_node: None,
                faults_by_node: None,
            });
        }
        for workload in workloads {
            let bytes = NodeBytes { anon: 400 << 20, ..NodeBytes::default() };
            let cgroup = CgroupSample {
                cpus: self.named.get().map(|cpus| cpus.parse().unwrap()),
                cpus_effective: Some(self.named.get().unwrap_or("4-7").parse().unwrap()),
                mems_effective: Some("0-1".parse().unwrap()),
                memory_by_node: Some(BTreeMap::from([(NodeId(0), bytes)])),
                ..CgroupSample::default()
            };
            sample.cgroups.insert(workload.cgroup.clone(), cgroup);
        }
        for node in [NodeId(0), NodeId(1)] {
            let free = NodeSample { mem_free_bytes: Some(8 << 30), ..NodeSample::default() };
            sample.nodes.insert(node, free);
        }
        sample
    }
}

struct Rig {
    host: Fixture,
    engine: Engine,
    named: Rc<Cell<Option<&'static str>>>,
    balanced: Rc<Cell<bool>>,
    broken: Rc<RefCell<Option<&'static str>>>,
    aimed: Rc<RefCell<BTreeMap<CgroupPath, NodeSet>>>,
}

fn rig(mode: Mode) -> Rig {
    let host = Fixture::new(true);
    host.cgroup("/db", "4-7\n", "0-1\n");
    let text = "[[workload]]\nname = \"db\"\ncgroup = \"/db\"\ncpus = 2\nmemory = \"512MiB\"\n";
    let policy = Policy { mode, ..toml::from_str(text).unwrap() };
    let broken = Rc::new(RefCell::new(None));
    let aimed = Rc::new(RefCell::new(BTreeMap::new()));
    let (named, balanced) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(false)));
    let source = Recorded {
        interrupts: InterruptReader::new(&host.host()),
        named: Rc::clone(&named),
        balanced: Rc::clone(&balanced),
        broken: Rc::clone(&broken),
        aimed: Rc::clone(&aimed),
    };
    let mut engine = Engine::new(Box::new(source), policy);
    engine.set_actuator(Box::new(host.actuator()));
    Rig { host, engine, named, balanced, broken, aimed }
}

#[test]
fn enforcing_writes_the_plan_and_then_leaves_the_workload_alone() {
    let mut rig = rig(Mode::Enforce);
    let report = rig.engine.turn(SECOND).unwrap();
    assert!(
        report.outcomes.iter().any(|outcome| matches!(outcome.result, OutcomeResult::Applied { .. })),
        "{:?}",
        report.outcomes
    );
    assert_eq!(rig.host.read("/db", "cpuset.cpus"), "0-1");
    assert_eq!(report.totals.actions["set-cpus"]["applied"], 1);
    assert!(report.audit.degraded.iter().any(|entry| entry.source == "hmat"));

    let report = rig.engine.turn(11 * SECOND).unwrap();
    assert!(report.outcomes.is_empty(), "{:?}", report.outcomes);
    assert_eq!(report.decision.refused.len(), 1, "the sample still shows the old place: cool-down");
    assert_eq!(report.totals.ticks, 2);
    assert_eq!(report.totals.actions["set-cpus"]["applied"], 1);
}

#[test]
fn observing_shows_the_same_plan_and_writes_nothing() {
    let mut rigs = [rig(Mode::Observe), rig(Mode::Enforce)];
    let before = rigs[0].host.contents();
    let [observed, enforced] = rigs.each_mut().map(|rig| rig.engine.turn(SECOND).unwrap());
    assert_eq!(rigs[0].host.contents(), before);
    assert!(!observed.decision.plan.steps.is_empty());
    assert_eq!(observed.decision, enforced.decision);
    let aim = [(CgroupPath::new("/db"), [NodeId(0)].into_iter().collect())].into();
    assert_eq!(*rigs[0].aimed.borrow(), aim, "what runs elsewhere is misplaced, whether or not we write");
    assert!(observed.outcomes.iter().all(|outcome| outcome.result == OutcomeResult::DryRun));
    assert_eq!((observed.mode, enforced.mode), (Mode::Observe, Mode::Enforce));
}

#[test]
fn a_paused_engine_writes_nothing_and_goes_on_where_it_was() {
    use enforcer_report::decision::DecisionState::{Corrected, Planned};

    let mut rig = rig(Mode::Enforce);
    let before = rig.host.contents();
    rig.engine.gate().close(None);
    for second in 1..=3 {
        let report = rig.engine.turn(second * SECOND).unwrap();
        assert!(!report.outcomes.is_empty());
        assert!(report.outcomes.iter().all(|outcome| outcome.result == OutcomeResult::DryRun));
        assert_eq!((report.mode, report.paused.is_some()), (Mode::Enforce, true));
        assert!(report.line().contains(": paused, until resumed; 1 workload"), "{}", report.line());
    }
    assert_eq!(rig.host.contents(), before);

    assert!(rig.engine.gate().open());
    let report = rig.engine.turn(4 * SECOND).unwrap();
    assert_eq!((rig.host.read("/db", "cpuset.cpus").as_str(), report.paused), ("0-1", None));
    let decisions = rig.engine.decisions().all();
    let remembered = &decisions[0].records;
    let told: Vec<_> = remembered.iter().map(|one| (one.state, one.times, one.paused)).collect();
    assert_eq!(
        told,
        [(Planned, 3, true), (Corrected, 1, false)],
        "and no cool-down for what was not written"
    );
}

#[test]
fn a_host_is_settled_when_a_turn_leaves_nothing_to_go_on_with() {
    let mut rig = rig(Mode::Enforce);
    for second in 1..=4 {
        let report = rig.engine.turn(second * SECOND).unwrap();
        assert!(!rig.engine.is_settled(&report), "turn {second}: a correction, then its cool-down");
    }
    let declared = rig.engine.policy().clone();
    rig.engine.set_policy(Policy { workloads: Vec::new(), ..declared.clone() });
    let report = rig.engine.turn(5 * SECOND).unwrap();
    assert!(rig.engine.is_settled(&report), "{:?}", report.decision);
    rig.engine.gate().close(None);
    let report = rig.engine.turn(6 * SECOND).unwrap();
    assert!(!rig.engine.is_settled(&report), "its end is waited for");
    rig.engine.gate().open();
    let report = rig.engine.turn(7 * SECOND).unwrap();
    assert!(rig.engine.is_settled(&report));
    let mut fresh = self::rig(Mode::Observe);
    fresh.engine.set_policy(Policy { workloads: Vec::new(), mode: Mode::Observe, ..declared });
    let settled: Vec<bool> = (1..=4)
        .map(|second| {
            let report = fresh.engine.turn(second * SECOND).unwrap();
            fresh.engine.is_settled(&report)
        })
        .collect();
    assert_eq!(settled, [false, false, true, true], "what the first turns led to is to be seen");
}

#[test]
fn a_turn_is_explained_by_what_it_was_made_from() {
    let mut rig = rig(Mode::Enforce);
    rig.engine.turn(SECOND).unwrap();
    let decisions = rig.engine.decisions().all();
    let record = &decisions[0].records[0];
    let considered = &record.considered;
    assert_eq!((considered.asked.rule.as_deref(), considered.asked.milli_cpus), (Some("db"), Some(2000)));
    assert_eq!(considered.seen.cpus.as_ref().map(ToString::to_string).as_deref(), Some("4-7"));
    assert_eq!(considered.placement.as_ref().map(|given| given.cpus.to_string()).as_deref(), Some("0-1"));
    let places: Vec<_> = considered.candidates.iter().map(|one| (one.place.as_str(), one.chosen)).collect();
    assert_eq!(places, [("node 0", true), ("node 1", false), ("nodes 0-1", false)]);
    assert!(considered.candidates.iter().all(|one| !one.because.is_empty()), "{considered:?}");
    assert!(record.outcomes.iter().any(|outcome| matches!(outcome.result, OutcomeResult::Applied { .. })));
}

#[test]
fn the_policy_of_a_place_is_told_in_every_turn_whether_or_not_it_is_written() {
    for mode in [Mode::Observe, Mode::Enforce] {
        let mut rig = rig(mode);
        for turn in 1..=3 {
            let report = Arc::new(rig.engine.turn(turn * SECOND).unwrap());
            let metrics = Metrics::of(move || Some(Arc::clone(&report)), false).unwrap().render().unwrap();
            let info = metrics.lines().find(|line| line.starts_with("numa_enforcer_workload_info{")).unwrap();
            assert!(info.contains("policy=\"single-numa-node\""), "{mode:?}, turn {turn}: {info}");
        }
    }
}

#[test]
fn a_policy_that_is_changed_to_enforce_is_followed() {
    let mut rig = rig(Mode::Observe);
    rig.engine.turn(SECOND).unwrap();
    rig.engine.keep_policy();
    assert!(!rig.engine.turn(2 * SECOND).unwrap().totals.config_good);
    let policy = Policy { mode: Mode::Enforce, ..rig.engine.policy().clone() };
    rig.engine.set_policy(policy);
    let report = rig.engine.turn(3 * SECOND).unwrap();
    assert_eq!(rig.host.read("/db", "cpuset.cpus"), "0-1");
    assert!(report.totals.config_good);
}

#[test]
fn a_source_that_fails_is_an_error_and_works_again_later() {
    let mut rig = rig(Mode::Observe);
    *rig.broken.borrow_mut() = Some("topology");
    assert_eq!(rig.engine.turn(SECOND).unwrap_err().to_string(), "topology: gone");
    *rig.broken.borrow_mut() = None;
    rig.engine.turn(2 * SECOND).unwrap();
    *rig.broken.borrow_mut() = Some("workloads");
    assert_eq!(rig.engine.turn(3 * SECOND).unwrap_err().to_string(), "workloads: gone");
    *rig.broken.borrow_mut() = None;
    let totals = rig.engine.turn(4 * SECOND).unwrap().totals;
    assert_eq!((totals.ticks, totals.failed_ticks), (2, 2));
}

#[test]
fn the_line_of_a_turn_says_what_was_done() {
    let mut rig = rig(Mode::Observe);
    let report = rig.engine.turn(SECOND).unwrap();
    let line = report.line();
    assert!(
        line.starts_with("turn 1: 1 workload; 1 misaligned; misaligned: ") && line.contains("dry-run"),
        "{line}"
    );
    assert!(!line.contains('\n'), "{line}");
    assert_eq!(report.complaints(), [""; 0]);
}

#[test]
fn what_could_not_be_undone_is_not_set_until_there_is_room_again() {
    let mut rig = rig(Mode::Enforce);
    let disk = FakeDisk::default();
    drop(rig.engine.actuator.take());
    rig.engine.set_actuator(Box::new(rig.host.actuator_with(rig.host.journal().appending_to(&disk))));
    let before = rig.host.contents();
    disk.leave_room(Some(0));
    let degraded = |report: &TickReport| report.audit.degraded.iter().any(|one| one.source == "journal");
    for second in 1..=3 {
        let report = rig.engine.turn(second * SECOND).unwrap();
        assert_eq!(rig.host.contents(), before, "turn {second}");
        let done = |outcome: &Outcome| matches!(outcome.result, OutcomeResult::Applied { .. });
        assert!(!report.outcomes.is_empty() && !report.outcomes.iter().any(done), "{:?}", report.outcomes);
        // The first turn finds out.
        assert_eq!(degraded(&report), second > 1);
        assert!(rig.engine.placed.lock().is_journal_blocked());
    }
    disk.leave_room(None);
    let report = rig.engine.turn(4 * SECOND).unwrap();
    assert_eq!(rig.host.read("/db", "cpuset.cpus"), "0-1", "and no cool-down: {:?}", report.decision.refused);
    assert!(!degraded(&report) && !rig.engine.placed.lock().is_journal_blocked());
}
