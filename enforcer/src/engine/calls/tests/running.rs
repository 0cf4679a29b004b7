//! CPUs of containers that run, in answers, and the pins of their threads.

use std::{
    cell::{Cell, RefCell},
    fs,
    rc::Rc,
    thread,
    time::Duration,
};

use enforcer_core::{
    plan::{OutcomeResult, Step},
    policy::Mode,
    self_placement::CgroupThreads,
};

use super::{
    source::{Containers, cgroup_of},
    *,
};
use crate::engine::Engine;
use enforcer_act::{
    Actuator,
    actuator::SeenPins,
    journal::PinsRecord,
    pins::Gives,
    step_effect::{StepEffect, Undo},
};

const SECOND: u64 = 1_000_000_000;

/// Above the kernel's largest pid (`PID_MAX_LIMIT`), so no real process is meant.
const PID: u32 = 5_000_000;

/// A container that shares CPUs 0-3 of node 0, and a daemon connected to its runtime.
fn sharing() -> (Fixture, SharedLedger) {
    let host = Fixture::new(true);
    let placed = placed(true);
    let tree = CpusetTree::new(&host.layout.cpuset.path, true).with_processes(&host.host().proc);
    placed.adopt(tree, BTreeMap::new());
    ask(&placed, |reply| NriCall::Create { subject: subject("shared", "/besteffort", None), reply });
    host.cgroup(&cgroup_of("shared", "/besteffort"), "0-3\n", "0\n");
    placed.take_early_turn();
    (host, placed)
}

#[test]
fn no_answer_gives_a_container_that_runs_more_cpus_and_a_turn_does() {
    let (host, placed) = sharing();
    let cgroup = cgroup_of("shared", "/besteffort");
    let answer = create(&placed, "one", 2);
    assert_eq!(updates(&answer), [("id-shared".to_owned(), "2-3/0".to_owned())], "CPUs that go cannot wait");
    host.cgroup(&cgroup, "2-3\n", "0\n");
    placed.take_early_turn();
    placed.finish_pending_writes();
    let stop = |name| ask(&placed, |reply| NriCall::Stop { subject: subject(name, "", None), reply });
    assert_eq!(updates(&stop("one")), [], "more can");
    assert!(placed.take_early_turn(), "a turn is wanted");
    // The runtime writes the container of its own call, whatever the answer.
    let wanted = LinuxResources::default();
    let subject = subject("shared", "/besteffort", None);
    let own = ask(&placed, |reply| NriCall::Update { subject, wanted, reply });
    assert_eq!(updates(&own), [("id-shared".to_owned(), "0-3/0".to_owned())]);
    // The runtime may write the latest answer after a turn.
    create(&placed, "one", 2);
    host.cgroup(&cgroup, "2-3\n", "0\n");
    assert_eq!(updates(&stop("one")), [("id-shared".to_owned(), "0-3/0".to_owned())]);
    // Without readable cgroups it is told as before.
    fs::remove_dir_all(host.path(&cgroup)).unwrap();
    assert_eq!(updates(&create(&placed, "two", 2)), [("id-shared".to_owned(), "2-3/".to_owned())]);
    assert_eq!(updates(&stop("two")), [("id-shared".to_owned(), "0-3/".to_owned())]);
}

#[test]
fn pins_are_recorded_before_a_runtime_takes_cpus_and_kept_until_it_has_written() {
    let (host, placed) = sharing();
    let cgroup = cgroup_of("shared", "/besteffort");
    host.process(&cgroup, PID, "2", "");
    host.process(&cgroup, PID + 1, "0-3", "");
    let mut actuator = host.actuator();
    let recorded = actuator.record(&placed.unrecorded()).unwrap();
    placed.recorded(&recorded);
    create(&placed, "one", 2);
    assert!(placed.take_early_turn(), "a turn gives them back");
    let waiting = |placed: &SharedLedger| placed.lock().pinned();
    for (written, waits) in [(false, 1), (true, 1), (true, 0)] {
        if written {
            host.cgroup(&cgroup, "2-3\n", "0\n");
        }
        placed.give_pins_back(&mut actuator).unwrap();
        assert_eq!(waiting(&placed), waits, "at the second look they are over");
    }
    let threads: Vec<u32> = actuator
        .journal()
        .entries()
        .values()
        .flat_map(|entry| entry.threads.iter().map(|thread| thread.tid))
        .collect();
    assert_eq!(threads, [PID], "the thread with the pin, for restore");
    // No thread is read for a container that keeps its CPUs.
    create(&placed, "small", 1);
    assert_eq!(waiting(&placed), 1);
    placed.block_writes(true);
    placed.lock().freeze(false);
    create(&placed, "held", 1);
    assert_eq!(waiting(&placed), 1, "and nothing while nothing is told");
}

/// Up to Linux 6.1 the runtime's write discards pins for good, whatever the file holds afterwards.
#[test]
fn pins_are_over_whatever_was_written_and_wait_for_a_runtime_that_has_not_written() {
    for (written, waits) in [("0-3", 1), ("2-3", 0), ("1-3", 0)] {
        let (host, placed) = sharing();
        let cgroup = cgroup_of("shared", "/besteffort");
        host.cgroup(&cgroup, "0-3\n", "0\n");
        fs::write(host.path(&cgroup).join("cpuset.cpus.effective"), "0-3\n").unwrap();
        host.process(&cgroup, PID, "2", "");
        let mut actuator = host.actuator();
        create(&placed, "one", 2);
        placed.lock().expire_pending_pins();
        host.cgroup(&cgroup, &format!("{written}\n"), "0\n");
        for _ in 0..2 {
            placed.give_pins_back(&mut actuator).unwrap();
        }
        assert_eq!(placed.lock().pinned(), waits, "{written}");
    }
}

#[test]
fn pins_that_a_killed_daemon_had_noted_are_recorded_and_given_back_by_the_next_one() {
    let (host, placed) = sharing();
    let cgroup = cgroup_of("shared", "/besteffort");
    host.process(&cgroup, PID, "2", "");
    let boot_id = Some("boot-1");
    let mut actuator = host.actuator();
    let (record, left) = MakingRecord::open(&host.state_dir(), boot_id).unwrap();
    placed.remember(record, left.made);
    placed.recorded(&actuator.record(&placed.unrecorded()).unwrap());
    create(&placed, "one", 2);
    let noted = || PinsRecord::left(&host.state_dir(), boot_id);
    assert_eq!(noted().pins.len(), 1, "it is written before the answer");
    drop((placed, actuator));

    let next = SharedLedger::default();
    let (record, left) = MakingRecord::open(&host.state_dir(), boot_id).unwrap();
    next.remember(record, left.made);
    next.remember_pins(noted());
    let mut actuator = host.actuator();
    for (written, waits) in [("0-3\n", 1), ("2-3\n", 1), ("2-3\n", 0)] {
        host.cgroup(&cgroup, written, "0\n");
        next.give_pins_back(&mut actuator).unwrap();
        assert_eq!(next.lock().pinned(), waits);
    }
    let entries = actuator.journal().entries().values();
    let threads: Vec<u32> = entries.flat_map(|entry| entry.threads.iter().map(|one| one.tid)).collect();
    assert_eq!(threads, [PID], "for restore");
    // A thread of its own writes it.
    let is_gone = || noted().pins.is_empty();
    let gone = (0..1_000).any(|_| {
        is_gone() || {
            thread::sleep(Duration::from_millis(10));
            false
        }
    });
    assert!(gone, "the record is empty again");
}

/// Where the kernel forgets pins, the journal may know threads that have none of their CPUs now.
#[test]
fn an_answer_has_a_turn_look_at_containers_without_pinned_threads_where_the_kernel_forgets_pins() {
    for (release, waits) in [("6.1.0\n", 1), ("6.12.0\n", 0)] {
        let (host, placed) = sharing();
        fs::write(host.host().proc.join("sys/kernel/osrelease").as_path(), release).unwrap();
        let tree = CpusetTree::new(&host.layout.cpuset.path, true).with_processes(&host.host().proc);
        placed.adopt(tree, BTreeMap::new());
        let cgroup = cgroup_of("shared", "/besteffort");
        host.process(&cgroup, PID, "0-3", "");
        create(&placed, "one", 2);
        assert_eq!(placed.lock().pinned(), waits, "{release}");
    }
}

/// Cannot record anything once its disk is full.
#[derive(Clone, Default)]
struct Full {
    is_full: Rc<Cell<bool>>,
    looks: Rc<Cell<u32>>,
}

impl Actuator for Full {
    fn ready(&mut self) -> Result<(), String> {
        if self.is_full.get() { Err("the disk is full".to_owned()) } else { Ok(()) }
    }

    fn keep_pins(
        &mut self,
        _cgroup: &CgroupPath,
        _before: &[CgroupThreads],
        _gives: &dyn Fn(&CpuSet) -> Gives,
    ) -> Result<Option<SeenPins>, String> {
        self.looks.set(self.looks.get() + 1);
        let unrecorded = Some("the disk is full".to_owned());
        Ok(Some(SeenPins { cpus: "2-3".parse().unwrap(), unrecorded, ..SeenPins::default() }))
    }

    fn apply(&mut self, _step: &Step) -> StepEffect {
        panic!("nothing is set");
    }

    fn undo(&mut self, _undo: &Undo) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_full_disk_keeps_no_turn_from_giving_pins_back_and_they_wait_to_be_recorded() {
    let host = Rc::new(Fixture::new(true));
    let machine = Machine::new().sockets(2).cores(4).threads(1).build();
    let source = Containers { host: Rc::clone(&host), machine, there: Rc::default(), dying: Rc::default() };
    let mut policy = Policy { mode: Mode::Enforce, ..Policy::default() };
    policy.nri.place = true;
    let mut engine = Engine::new(Box::new(source), policy);
    let (placed, disk) = (engine.placed(), Full::default());
    engine.set_actuator(Box::new(disk.clone()));
    let tree = CpusetTree::new(&host.layout.cpuset.path, true).with_processes(&host.host().proc);
    engine.adopt(tree, BTreeMap::new());
    engine.prepare().unwrap();
    ask(&placed, |reply| NriCall::Create { subject: subject("shared", "/besteffort", None), reply });
    let shared = cgroup_of("shared", "/besteffort");
    host.cgroup(&shared, "0-3\n", "0\n");
    host.process(&shared, PID, "2", "");
    create(&placed, "one", 2);
    assert_eq!(placed.lock().pinned(), 1);
    disk.is_full.set(true);
    for look in 1..4 {
        let report = engine.turn(u64::from(look) * 10 * SECOND).unwrap();
        assert_eq!((disk.looks.get(), placed.lock().pinned()), (look, 1), "{:?}", report.audit.degraded);
    }
}

/// A runtime has set another cpuset since the correction, so restoring it is no repetition.
#[test]
fn container_told_other_cpus_meanwhile_gets_its_own_back_without_a_cool_down() {
    let host = Rc::new(Fixture::new(true));
    let there = Rc::new(RefCell::new(BTreeMap::from([("shared", "/besteffort")])));
    let machine = Machine::new().sockets(2).cores(4).threads(1).build();
    let source =
        Containers { host: Rc::clone(&host), machine, there: Rc::clone(&there), dying: Rc::default() };
    let mut policy = Policy { mode: Mode::Enforce, ..Policy::default() };
    policy.nri.place = true;
    let mut engine = Engine::new(Box::new(source), policy);
    let placed = engine.placed();
    engine.set_actuator(Box::new(host.actuator()));
    engine.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
    engine.prepare().unwrap();
    ask(&placed, |reply| NriCall::Create { subject: subject("shared", "/besteffort", None), reply });
    let (shared, one) = (cgroup_of("shared", "/besteffort"), cgroup_of("one", ""));
    host.cgroup(&shared, "0-7\n", "0\n");
    engine.turn(10 * SECOND).unwrap();
    assert_eq!(host.read(&shared, "cpuset.cpus"), "0-3");
    let answer = create(&placed, "one", 2);
    assert_eq!(updates(&answer), [("id-shared".to_owned(), "2-3/0".to_owned())]);
    host.cgroup(&shared, "2-3\n", "0\n");
    host.cgroup(&one, "0-1\n", "0\n");
    there.borrow_mut().insert("one", "");
    engine.turn(12 * SECOND).unwrap();
    there.borrow_mut().remove("one");
    fs::remove_dir_all(host.path(&one)).unwrap();
    ask(&placed, |reply| NriCall::Stop { subject: subject("one", "", None), reply });
    let report = engine.turn(14 * SECOND).unwrap();
    assert_eq!(host.read(&shared, "cpuset.cpus"), "0-3", "{:?}", report.decision.refused);
    let applied = |one: &OutcomeResult| matches!(one, OutcomeResult::Applied { .. });
    assert!(report.outcomes.iter().all(|one| applied(&one.result)), "{:?}", report.outcomes);
}
