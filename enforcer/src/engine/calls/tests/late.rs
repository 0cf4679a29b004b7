//! Containers created unnoticed: the creation was under way when the link came up, and no list had them.

use std::{cell::RefCell, rc::Rc};

use enforcer_core::policy::Mode;

use super::{
    source::{Containers, cgroup_of},
    *,
};
use crate::engine::Engine;
use enforcer_act::journal::MakingRecord;

fn started(placed: &SharedLedger, subject: Box<NriSubject>) {
    super::super::answer(placed, &Gate::default(), &ResourceFiles::default(), NriCall::Started(subject));
}

/// CPUs 2-3 are free, and a turn is to come.
#[test]
fn unannounced_running_container_is_placed_and_the_next_turn_writes_it() {
    let host = Rc::new(Fixture::new(true));
    let machine = Machine::new().sockets(2).cores(4).threads(1).build();
    let there = Rc::new(RefCell::new(BTreeMap::from([("late", ""), ("shared", "/besteffort")])));
    let source = Containers { host: Rc::clone(&host), machine, there, dying: Rc::default() };
    let mut policy = Policy { mode: Mode::Enforce, ..Policy::default() };
    policy.nri.place = true;
    let mut engine = Engine::new(Box::new(source), policy);
    engine.set_actuator(Box::new(host.actuator()));
    engine.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
    engine.prepare().unwrap();
    let placed = engine.placed();
    assert_eq!(updates(&synchronize(&placed, &[], "")), []);
    ask(&placed, |reply| NriCall::Create { subject: subject("shared", "/besteffort", None), reply });
    for (name, class) in [("late", ""), ("shared", "/besteffort")] {
        host.cgroup(&cgroup_of(name, class), "0-7\n", "0-1\n");
    }
    assert!(!engine.poll_events().wants_turn);
    started(&placed, subject("late", "", Some(amounts(2))));
    assert!(engine.poll_events().wants_turn, "no later call is about it");
    engine.turn(10_000_000_000).unwrap();
    let set = |name, class| {
        let read = |file| host.read(&cgroup_of(name, class), file);
        format!("{}/{}", read("cpuset.cpus").trim(), read("cpuset.mems").trim())
    };
    assert_eq!(set("late", ""), "0-1/0");
    assert_eq!(set("shared", "/besteffort"), "2-3/0", "the container that makes room did not wait either");
    // Once is enough.
    started(&placed, subject("late", "", Some(amounts(2))));
    assert!(!engine.poll_events().wants_turn);
}

#[test]
fn unannounced_updated_container_is_placed_and_told() {
    let host = Fixture::new(true);
    host.cgroup(&cgroup_of("late", ""), "0-7\n", "0\n");
    let placed = placed(true);
    placed.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
    let subject = || subject("late", "", Some(amounts(2)));
    let update = || ask(&placed, |reply| NriCall::Update { subject: subject(), wanted: amounts(2), reply });
    assert_eq!(updates(&update()), [("id-late".to_owned(), "0-1/0".to_owned())]);
    assert_eq!(placed.unrecorded().len(), 1, "what it was set to before");
    assert_eq!(updates(&update()), [("id-late".to_owned(), "0-1/0".to_owned())]);
}

#[test]
fn ended_container_is_not_placed_by_late_events() {
    let host = Fixture::new(true);
    let placed = placed(true);
    placed.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
    let taken = || placed.lock().held.allocations.iter().count();
    let asked = |name| subject(name, "", Some(amounts(2)));
    let update =
        |name| ask(&placed, |reply| NriCall::Update { subject: asked(name), wanted: amounts(2), reply });
    // Its cgroup exists for a moment more.
    host.cgroup(&cgroup_of("quick", ""), "0-1\n", "0\n");
    create(&placed, "quick", 2);
    ask(&placed, |reply| NriCall::Stop { subject: asked("quick"), reply });
    started(&placed, asked("quick"));
    assert_eq!((update("quick"), taken()), (NriAnswer::default(), 0));
    // The daemon was never told of it.
    started(&placed, asked("gone"));
    assert_eq!((update("gone"), taken()), (NriAnswer::default(), 0));
    host.cgroup(&cgroup_of("stopped", ""), "0-7\n", "0\n");
    let mut stopped = asked("stopped");
    stopped.container.state = super::super::messages::STOPPED;
    started(&placed, stopped);
    assert_eq!(taken(), 0);
    started(&placed, asked("stopped"));
    assert_eq!(taken(), 1, "the control: it runs");
}

#[test]
fn container_that_names_anothers_cgroup_is_not_placed() {
    let host = Fixture::new(true);
    let placed = placed(true);
    placed.adopt(CpusetTree::new(&host.layout.cpuset.path, true), BTreeMap::new());
    create(&placed, "one", 2);
    host.cgroup(&cgroup_of("one", ""), "0-1\n", "0\n");
    let mut liar = subject("liar", "", Some(amounts(2)));
    liar.container.linux = subject("one", "", Some(amounts(2))).container.linux;
    started(&placed, liar);
    let holders = || placed.lock().held.allocations.iter().count();
    assert_eq!(holders(), 1);
    host.cgroup(&cgroup_of("liar", ""), "0-7\n", "0\n");
    started(&placed, subject("liar", "", Some(amounts(2))));
    assert_eq!(holders(), 2, "the control: with its own");
}

/// A daemon is killed right after its answer, and the runtime is about to mount the promised directory.
#[test]
fn what_a_daemon_before_has_promised_to_be_there_stays_until_it_can_be_mounted() {
    let state = tempfile::tempdir().unwrap();
    let open = || {
        let placed = placed(true);
        let (record, left) = MakingRecord::open(state.path(), None).unwrap();
        placed.remember(record, left.made);
        (placed, ResourceFiles::below(state.path()).unwrap())
    };
    let answer = |(placed, exposure): &(SharedLedger, ResourceFiles), call: &dyn Fn(Reply) -> NriCall| {
        super::super::answer(placed, &Gate::default(), exposure, call(Reply::new().0));
    };
    let folder = |name: &str| state.path().join("exposed").join(name);
    let killed = open();
    let make = |name: &'static str| {
        move |reply| NriCall::Create { subject: subject(name, "", Some(amounts(2))), reply }
    };
    answer(&killed, &make("one"));
    std::fs::create_dir(folder("id-gone")).unwrap();
    let next = open();
    let no_containers = |reply| NriCall::Synchronize {
        runtime: RuntimeVersion::default(),
        pods: Vec::new(),
        containers: Vec::new(),
        reply,
    };
    answer(&next, &no_containers);
    assert!(folder("id-one").exists() && !folder("id-gone").exists());
    answer(&next, &|_| NriCall::Removed(subject("one", "", None)));
    assert!(!folder("id-one").exists());
}
