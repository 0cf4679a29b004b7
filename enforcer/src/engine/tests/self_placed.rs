//! Workloads that are left alone over turns, because of what their processes have set themselves.

use std::cell::Cell;

use enforcer_core::{
    self_placement::CpusetWrites,
    turn::{RefusalCause, SelfPlaced, SelfPlacedWorkloads},
};

use super::*;
use enforcer_act::self_placed::Depth;

/// CPUs 0-1 on node 0 and 2-3 on node 1: `/a` is on node 0 with its memory on node 1, `/b` anywhere.
struct ScriptedHost {
    is_pinned: Rc<Cell<bool>>,
    asked: Rc<Cell<usize>>,
    /// Effective CPUs of `/a`.
    cpus: Rc<Cell<&'static str>>,
}

impl HostSource for ScriptedHost {
    fn host(&self) -> AuditedHost {
        AuditedHost::default()
    }

    fn topology(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError> {
        Ok((Machine::new().sockets(2).cores(2).threads(1).build(), Vec::new()))
    }

    fn workloads(&mut self) -> Result<(Vec<Workload>, Vec<Degraded>), SourceError> {
        let workload = |path: &str| Workload {
            cgroup: CgroupPath::new(path),
            cgroup_id: None,
            name: path.into(),
            origin: Origin::Cgroup,
        };
        Ok((["/a", "/b"].map(workload).into(), Vec::new()))
    }

    fn aim(&mut self, _aims: &BTreeMap<CgroupPath, NodeSet>) {}

    fn self_placed(
        &mut self,
        writes: &BTreeMap<CgroupPath, CpusetWrites>,
        _respects: &dyn Fn(&CgroupPath) -> bool,
        _depth: Depth,
    ) -> (SelfPlacedWorkloads, Option<Degraded>) {
        self.asked.set(self.asked.get() + 1);
        let one = SelfPlaced { reason: "process 7 is pinned".into(), ..SelfPlaced::default() };
        let a = CgroupPath::new("/a");
        let found = writes.contains_key(&a) && self.is_pinned.get();
        (found.then_some((a, one)).into_iter().collect(), None)
    }

    fn sample(&mut self, _workloads: &[Workload], now_ns: u64) -> Sample {
        let mut sample = Sample { monotonic_ns: now_ns, ..Sample::default() };
        for (path, cpus, node) in [("/", "0-3", 0), ("/a", self.cpus.get(), 1), ("/b", "0-3", 0)] {
            let bytes = NodeBytes { anon: 400 << 20, ..NodeBytes::default() };
            let cgroup = CgroupSample {
                cpus_effective: Some(cpus.parse().unwrap()),
                mems_effective: Some("0-1".parse().unwrap()),
                memory_by_node: Some(BTreeMap::from([(NodeId(node), bytes)])),
                ..CgroupSample::default()
            };
            sample.cgroups.insert(CgroupPath::new(path), cgroup);
        }
        for node in [NodeId(0), NodeId(1)] {
            let free = NodeSample { mem_free_bytes: Some(8 << 30), ..NodeSample::default() };
            sample.nodes.insert(node, free);
        }
        sample
    }
}

fn rig(mode: Mode) -> (Fixture, Engine, Rc<Cell<bool>>, Rc<Cell<usize>>) {
    rig_with(mode, Rc::new(Cell::new("0-1")))
}

fn rig_with(mode: Mode, cpus: Rc<Cell<&'static str>>) -> (Fixture, Engine, Rc<Cell<bool>>, Rc<Cell<usize>>) {
    let host = Fixture::new(true);
    host.cgroup("/a", "0-1\n", "0-1\n");
    host.cgroup("/b", "0-3\n", "0-1\n");
    let rule = |path: &str| format!("[[workload]]\nname = \"{path}\"\ncgroup = \"{path}\"\ncpus = 2\n");
    let text = format!("{}{}", rule("/a"), rule("/b"));
    let policy = Policy { mode, ..toml::from_str(&text).unwrap() };
    let (is_pinned, asked) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
    let source = ScriptedHost { is_pinned: Rc::clone(&is_pinned), asked: Rc::clone(&asked), cpus };
    let mut engine = Engine::new(Box::new(source), policy);
    engine.set_actuator(Box::new(host.actuator()));
    (host, engine, is_pinned, asked)
}

fn planned(report: &TickReport) -> Vec<String> {
    let steps = report.decision.plan.steps.iter().filter_map(|step| match &step.action {
        enforcer_core::plan::Action::SetCpus { cgroup, cpus } => Some(format!("{cgroup} {cpus}")),
        _ => None,
    });
    steps.collect()
}

#[test]
fn what_is_left_alone_keeps_its_cpus_and_others_are_placed_beside_it() {
    let (host, mut engine, is_pinned, _) = rig(Mode::Enforce);
    let a = CgroupPath::new("/a");
    let report = engine.turn(SECOND).unwrap();
    assert_eq!(planned(&report), ["/b 2-3"]);
    assert_eq!(host.read("/a", "cpuset.cpus"), "0-1\n");
    let refused = report.decision.refused.iter().find(|one| one.workload == a).unwrap();
    assert_eq!(refused.cause, RefusalCause::SelfPlacement);
    assert!(!report.decision.aims.contains_key(&a) && !report.decision.targets.contains_key(&a));
    assert_eq!(engine.placed.lock().held.allocations.exclusive_cpus().to_string(), "0-3");
    // Long after: still pinned, then no longer.
    let report = engine.turn(1_000 * SECOND).unwrap();
    assert!(report.decision.refused.iter().any(|one| one.cause == RefusalCause::SelfPlacement), "{report:?}");
    is_pinned.set(false);
    let report = engine.turn(2_000 * SECOND).unwrap();
    assert!(report.decision.refused.iter().all(|one| one.cause != RefusalCause::SelfPlacement), "{report:?}");
}

#[test]
fn processes_are_read_anew_when_the_cpuset_has_changed() {
    let cpus = Rc::new(Cell::new("0-1"));
    let (_host, mut engine, is_pinned, _) = rig_with(Mode::Enforce, Rc::clone(&cpus));
    let is_left_alone = |report: &TickReport| {
        report.decision.refused.iter().any(|one| one.cause == RefusalCause::SelfPlacement)
    };
    assert!(is_left_alone(&engine.turn(SECOND).unwrap()));
    // An answer to the runtime gives the container other CPUs, and nothing is left of the pin.
    is_pinned.set(false);
    assert!(is_left_alone(&engine.turn(2 * SECOND).unwrap()), "the answer is cached");
    cpus.set("0");
    assert!(!is_left_alone(&engine.turn(3 * SECOND).unwrap()));
}

#[test]
fn processes_are_read_now_and_then_and_not_in_each_turn() {
    for (mode, is_pinned) in [(Mode::Enforce, true), (Mode::Observe, true), (Mode::Observe, false)] {
        let (_host, mut engine, pinned, asked) = rig(mode);
        pinned.set(is_pinned);
        engine.turn(SECOND).unwrap();
        engine.turn(2 * SECOND).unwrap();
        let first = asked.get();
        assert!((1..=4).contains(&first), "{mode:?} {first}");
        for turn in 3..=100 {
            engine.turn(turn * SECOND).unwrap();
        }
        let read = asked.get() - first;
        assert!(read <= 1, "{mode:?} {is_pinned}: {read}");
        engine.turn(1_000 * SECOND).unwrap();
        assert!(asked.get() > first, "{mode:?}");
    }
}

#[test]
fn what_keeps_added_memory_nodes_is_asked_now_and_then() {
    let (is_pinned, asked) = (Rc::new(Cell::new(true)), Rc::new(Cell::new(0)));
    let cpus = Rc::new(Cell::new("0-1"));
    let mut source = ScriptedHost { is_pinned: Rc::clone(&is_pinned), asked: Rc::clone(&asked), cpus };
    let mut looks = super::super::self_placed::SelfPlacedLooks::default();
    let mut narrows = |second: u64, cgroup: &str| {
        let sample = Sample { monotonic_ns: second * SECOND, ..Sample::default() };
        let sets = (&"0".parse().unwrap(), &"1".parse().unwrap());
        looks.narrows(&mut source, &sample, &CgroupPath::new(cgroup), sets, &|_| true)
    };
    assert_eq!(narrows(1, "/a").as_deref(), Some("process 7 is pinned"));
    assert_eq!(narrows(2, "/b"), None);
    is_pinned.set(false);
    assert!(narrows(3, "/a").is_some());
    assert_eq!(asked.get(), 2, "what was found counts for a time");
    assert_eq!(narrows(1_000, "/a"), None);
}
