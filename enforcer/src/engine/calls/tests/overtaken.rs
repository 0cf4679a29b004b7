//! Calls that are answered while a turn carries out an earlier decision.

use std::{cell::RefCell, fs, rc::Rc};

use enforcer_core::{
    plan::{OutcomeResult, Step},
    policy::Mode,
    sample::{Change, ChangeKind, Changes, CpusetFile},
};

use super::{
    source::{Containers, cgroup_of},
    *,
};
use crate::engine::Engine;
use enforcer_act::{
    CurrentClaims as _,
    actuator::LiveActuator,
    step_effect::{StepEffect, Undo},
};

const SECOND: u64 = 1_000_000_000;

/// When a plan begins, creates a container, and lets the runtime write the answer.
struct Interrupted {
    inner: LiveActuator,
    host: Rc<Fixture>,
    placed: SharedLedger,
    interrupts: bool,
}

impl enforcer_act::Actuator for Interrupted {
    fn begin(&mut self) {
        self.inner.begin();
        if std::mem::take(&mut self.interrupts) {
            let answer = create(&self.placed, "new", 2);
            assert_eq!(updates(&answer), [("id-shared".to_owned(), "2-3/".to_owned())]);
            let shared = self.host.path(&cgroup_of("shared", "/besteffort"));
            fs::write(shared.join("cpuset.cpus"), "2-3").unwrap();
        }
    }

    fn apply(&mut self, step: &Step) -> StepEffect {
        self.inner.apply(step)
    }

    fn undo(&mut self, undo: &Undo) -> Result<(), String> {
        self.inner.undo(undo)
    }
}

#[test]
fn a_turn_does_not_write_over_what_a_runtime_was_told_since_it_decided() {
    for interrupts in [true, false] {
        let host = Rc::new(Fixture::new(true));
        let there = Rc::new(RefCell::new(BTreeMap::from([("shared", "/besteffort")])));
        let machine = Machine::new().sockets(2).cores(4).threads(1).build();
        let source = Containers { host: Rc::clone(&host), machine, there, dying: Rc::default() };
        let mut policy = Policy { mode: Mode::Enforce, ..toml::from_str("cool_down = \"1s\"").unwrap() };
        policy.nri.place = true;
        let mut engine = Engine::new(Box::new(source), policy);
        let placed = engine.placed();
        let inner = host.actuator();
        let actuator = Interrupted { inner, host: Rc::clone(&host), placed: placed.clone(), interrupts };
        engine.set_actuator(Box::new(actuator));
        engine.prepare().unwrap();
        // It runs everywhere: the answer to its creation came too late.
        ask(&placed, |reply| NriCall::Create { subject: subject("shared", "/besteffort", None), reply });
        host.cgroup(&cgroup_of("shared", "/besteffort"), "0-7\n", "0-1\n");
        let shared = || host.read(&cgroup_of("shared", "/besteffort"), "cpuset.cpus");
        engine.poll_events();

        let report = engine.turn(10 * SECOND).unwrap();
        let skipped =
            report.outcomes.iter().filter(|one| matches!(one.result, OutcomeResult::Skipped { .. }));
        assert_eq!(skipped.count() == report.outcomes.len(), interrupts, "{:?}", report.outcomes);
        assert_eq!(shared(), if interrupts { "2-3" } else { "0-3" });
        assert_eq!(engine.poll_events().wants_turn, interrupts, "the rest is for a turn that knows");

        let report = engine.turn(11 * SECOND).unwrap();
        let applied = |one: &_| matches!(one, OutcomeResult::Applied { .. });
        assert!(report.outcomes.iter().all(|one| applied(&one.result)), "{:?}", report.outcomes);
        assert_eq!(shared(), if interrupts { "2-3" } else { "0-3" });
        assert!(!engine.poll_events().wants_turn);
    }
}

#[test]
fn a_container_whose_own_update_was_answered_is_the_runtimes_to_write() {
    let placed = placed(true);
    create(&placed, "one", 2);
    placed.lock().decides(false);
    let cgroup = CgroupPath::new("/kubepods/podone/id-one");
    assert!(!placed.is_overtaken(&cgroup));
    let subject = subject("one", "", Some(amounts(2)));
    ask(&placed, |reply| NriCall::Update { subject, wanted: amounts(4), reply });
    assert!(placed.is_overtaken(&cgroup));
    placed.lock().decides(false);
    assert!(!placed.is_overtaken(&cgroup), "the next turn knows");
}

#[test]
fn answer_about_one_container_does_not_renew_that_of_another() {
    let placed = placed(true);
    create(&placed, "one", 2);
    create(&placed, "two", 1);
    let update = |name: &str| {
        let subject = subject(name, "", Some(amounts(1)));
        ask(&placed, |reply| NriCall::Update { subject, wanted: amounts(1), reply })
    };
    assert_eq!(updates(&update("one")).len(), 1);
    placed.lock().writes.expire_own_writes();
    assert_eq!(updates(&update("two")).len(), 1);
    let written = |name: &str| Change {
        time_ns: 5,
        workload: Some(CgroupPath::new(&format!("/kubepods/pod{name}/id-{name}"))),
        cgroup_id: 7,
        tid: 12,
        pid: 11,
        command: "runc".to_owned(),
        what: ChangeKind::CpusetWritten { file: CpusetFile::Cpus },
    };
    let mut changes = Changes { latest: vec![written("one"), written("two")], ..Changes::default() };
    placed.remove_own_writes(&mut changes);
    let left: Vec<String> =
        changes.latest.iter().filter_map(|one| Some(one.workload.as_ref()?.to_string())).collect();
    assert_eq!(left, ["/kubepods/podone/id-one"], "its answer was long ago");
}
