//! Containers that die between a plan and its writes.

use std::{cell::RefCell, rc::Rc};

use enforcer_core::{
    plan::{Outcome, OutcomeResult},
    policy::Mode,
};

use super::{
    source::{Containers, cgroup_of},
    *,
};
use crate::engine::Engine;
use enforcer_act::{cpuset::ManagedFile, journal::MakingRecord};

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_container_that_dies_between_plan_and_write_leaves_others_right_and_nothing_behind() {
    let host = Rc::new(Fixture::new(true));
    let there = Rc::new(RefCell::new(BTreeMap::new()));
    let dying = Rc::new(RefCell::new(Vec::new()));
    let machine = Machine::new().sockets(2).cores(4).threads(1).build();
    let source =
        Containers { host: Rc::clone(&host), machine, there: Rc::clone(&there), dying: Rc::clone(&dying) };
    let mut policy = Policy { mode: Mode::Enforce, ..toml::from_str("cool_down = \"1s\"").unwrap() };
    policy.nri.place = true;
    let mut engine = Engine::new(Box::new(source), policy);
    engine.set_actuator(Box::new(host.actuator()));
    engine.prepare().unwrap();
    let placed = engine.placed();

    // Both answers came too late: the containers run, and a turn is to write their cpusets.
    ask(&placed, |reply| NriCall::Create { subject: subject("shared", "/besteffort", None), reply });
    create(&placed, "dies", 2);
    for (name, class) in [("shared", "/besteffort"), ("dies", "")] {
        host.cgroup(&cgroup_of(name, class), "0-7\n", "0-1\n");
        there.borrow_mut().insert(name, class);
    }
    let shared = || host.read(&cgroup_of("shared", "/besteffort"), "cpuset.cpus");
    dying.borrow_mut().push("dies");
    let report = engine.turn(10 * SECOND).unwrap();
    let of_it = |outcome: &&Outcome| outcome.step.action.cgroup().as_str().contains("dies");
    let results: Vec<_> = report.outcomes.iter().filter(of_it).map(|outcome| &outcome.result).collect();
    assert_eq!(results[0], &OutcomeResult::Gone, "{results:?}");
    assert_eq!(report.complaints().len(), results.len() - 1, "only that the rest was not tried");
    assert_eq!(shared(), "2-3", "the container that made room keeps its new cpuset");
    assert_eq!(
        placed.lock().held.allocations.exclusive_cpus().to_string(),
        "0-1",
        "until its runtime says so"
    );

    ask(&placed, |reply| NriCall::Stop { subject: subject("dies", "", None), reply });
    super::super::answer(
        &placed,
        &Gate::default(),
        &ResourceFiles::default(),
        NriCall::Removed(subject("dies", "", None)),
    );
    assert!(placed.lock().held.allocations.exclusive_cpus().is_empty());
    for turn in 2..40 {
        let report = engine.turn(turn * 10 * SECOND).unwrap();
        assert!(!report.audit.degraded.iter().any(|one| one.source == "journal"), "{report:?}");
    }
    assert_eq!(shared(), "0-3");
    drop(engine);
    let journal = host.journal();
    let left: Vec<&str> = journal.entries().keys().map(|key| key.cgroup.as_str()).collect();
    assert!(!left.is_empty() && left.iter().all(|path| path.contains("shared")), "{left:?}");
    assert_eq!(journal.grants().keys().collect::<Vec<_>>(), ["id-shared"]);
}

#[test]
fn a_container_that_dies_before_it_runs_leaves_nothing_behind() {
    let placed = placed(true);
    let shared = subject("shared", "/besteffort", None);
    ask(&placed, |reply| NriCall::Create { subject: shared, reply });
    let before = placed.lock().held.allocations.clone();
    let told = placed.unrecorded().len();
    create(&placed, "dies", 2);
    assert_ne!(placed.lock().held.allocations, before);
    // containerd undoes a creation like this: stop and remove without a start.
    let answer = ask(&placed, |reply| NriCall::Stop { subject: subject("dies", "", None), reply });
    assert_eq!(updates(&answer), [("id-shared".to_owned(), "0-3/".to_owned())]);
    super::super::answer(
        &placed,
        &Gate::default(),
        &ResourceFiles::default(),
        NriCall::Removed(subject("dies", "", None)),
    );
    let after = placed.lock().held.allocations.clone();
    assert_eq!((after, placed.unrecorded().len()), (before, told));
    assert_eq!(placed.regranted().unwrap().keys().collect::<Vec<_>>(), ["id-shared"]);
}

type There = Rc<RefCell<BTreeMap<&'static str, &'static str>>>;

/// A host with a state directory and no containers.
fn empty_host() -> (Rc<Fixture>, There) {
    let host = Rc::new(Fixture::new(true));
    std::fs::create_dir_all(host.state_dir()).unwrap();
    (host, Rc::default())
}

/// A daemon that places. `remembers` says whether it records pending containers and reads those of the
/// previous daemon.
fn daemon(host: &Rc<Fixture>, there: &There, remembers: bool) -> Engine {
    let machine = Machine::new().sockets(2).cores(4).threads(1).build();
    let source = Containers { host: Rc::clone(host), machine, there: Rc::clone(there), dying: Rc::default() };
    let mut policy = Policy { mode: Mode::Enforce, ..Policy::default() };
    policy.nri.place = true;
    let mut engine = Engine::new(Box::new(source), policy);
    let grants = host.journal().grants().clone();
    engine.adopt(CpusetTree::new(&host.layout.cpuset.path, true), grants);
    engine.set_actuator(Box::new(host.actuator()));
    if remembers {
        let (record, left) = MakingRecord::open(&host.state_dir(), None).unwrap();
        engine.remember(record, left.made);
    }
    engine.prepare().unwrap();
    engine
}

/// Kills a daemon after its answer to a runtime and before any turn. `remembers` says whether it recorded the
/// container's original. Returns the original in the next daemon's journal.
fn killed_after_the_answer(remembers: bool) -> Vec<String> {
    let (host, there) = empty_host();
    let killed = daemon(&host, &there, remembers);
    let mut asked = amounts(2);
    asked.cpu.as_mut().unwrap().cpus = "0-6".into();
    ask(&killed.placed(), |reply| NriCall::Create { subject: subject("one", "", Some(asked)), reply });
    drop(killed);

    // The runtime goes on with the former daemon's answer.
    let mut next = daemon(&host, &there, remembers);
    host.cgroup(&cgroup_of("one", ""), "0-1\n", "0\n");
    there.borrow_mut().insert("one", "");
    let list = NriCall::Synchronize {
        runtime: RuntimeVersion::default(),
        pods: vec![pod("one", "")],
        containers: vec![with_cpus("one", "", 2, "0-1").container],
        reply: Reply::new().0,
    };
    super::super::answer(&next.placed(), &Gate::default(), &ResourceFiles::default(), list);
    next.turn(10 * SECOND).unwrap();
    drop(next);
    let journal = host.journal();
    let before = journal.entries().iter().filter(|(key, _)| key.file == ManagedFile::Cpus);
    before.map(|(_, entry)| entry.original.trim().to_owned()).collect()
}

#[test]
fn a_daemon_that_is_killed_after_its_answer_leaves_how_to_undo_it() {
    assert_eq!(killed_after_the_answer(true), ["0-6"]);
    assert_eq!(killed_after_the_answer(false), ["0-1"], "the control: our cpuset is taken for the original");
}

/// Cpusets of another container that is created after the kill and before the first one runs, and of both in
/// the end.
fn created_after_the_kill(remembers: bool) -> [String; 3] {
    let (host, there) = empty_host();
    let make = |engine: &Engine, name| {
        let answer = ask(&engine.placed(), |reply| NriCall::Create {
            subject: subject(name, "", Some(amounts(2))),
            reply,
        });
        cpuset(answer.adjust.as_ref())
    };
    let killed = daemon(&host, &there, remembers);
    assert_eq!(make(&killed, "one"), "0-1/0");
    drop(killed);

    let mut next = daemon(&host, &there, remembers);
    synchronize(&next.placed(), &[], "");
    next.turn(10 * SECOND).unwrap();
    let two = make(&next, "two");
    for (name, cpus) in [("one", "0-1\n"), ("two", if remembers { "2-3\n" } else { "0-1\n" })] {
        host.cgroup(&cgroup_of(name, ""), cpus, "0\n");
        there.borrow_mut().insert(name, "");
        let started = NriCall::Started(subject(name, "", Some(amounts(2))));
        super::super::answer(&next.placed(), &Gate::default(), &ResourceFiles::default(), started);
    }
    next.turn(20 * SECOND).unwrap();
    let has = |name| host.read(&cgroup_of(name, ""), "cpuset.cpus").trim().to_owned();
    [two, has("one"), has("two")]
}

#[test]
fn container_created_across_a_kill_keeps_its_exclusive_cpus() {
    assert_eq!(created_after_the_kill(true), ["2-3/0", "0-1", "2-3"]);
    assert_eq!(created_after_the_kill(false)[0], "0-1/0", "the control: no record of it");
}

fn tell(engine: &Engine, call: NriCall) {
    super::super::answer(&engine.placed(), &Gate::default(), &ResourceFiles::default(), call);
}

/// `one` ends while it is only expected, and `two` gets its CPUs. Checks the cpuset of `two` after another
/// kill.
#[test]
fn expected_container_that_ended_does_not_displace_the_new_holder_of_its_cpus() {
    let (host, there) = empty_host();
    let make = |engine: &Engine, name| {
        let asked = || subject(name, "", Some(amounts(2)));
        cpuset(ask(&engine.placed(), |reply| NriCall::Create { subject: asked(), reply }).adjust.as_ref())
    };
    let killed = daemon(&host, &there, true);
    assert_eq!(make(&killed, "one"), "0-1/0");
    drop(killed);
    let mut next = daemon(&host, &there, true);
    synchronize(&next.placed(), &[], "");
    ask(&next.placed(), |reply| NriCall::Stop { subject: subject("one", "", None), reply });
    tell(&next, NriCall::Removed(subject("one", "", None)));
    assert_eq!(make(&next, "two"), "0-1/0");
    host.cgroup(&cgroup_of("two", ""), "0-1\n", "0\n");
    there.borrow_mut().insert("two", "");
    tell(&next, NriCall::Started(subject("two", "", Some(amounts(2)))));
    next.turn(10 * SECOND).unwrap();
    drop(next);
    let mut third = daemon(&host, &there, true);
    synchronize(&third.placed(), &["two"], "0-1");
    third.turn(20 * SECOND).unwrap();
    assert_eq!(host.read(&cgroup_of("two", ""), "cpuset.cpus").trim(), "0-1");
}

#[test]
fn container_without_a_cpuset_yet_keeps_its_cpus_too() {
    let (host, there) = empty_host();
    ask(&daemon(&host, &there, true).placed(), |reply| NriCall::Create {
        subject: subject("one", "", Some(amounts(2))),
        reply,
    });
    // The runtime has made the directory and writes the cpuset next.
    host.cgroup(&cgroup_of("one", ""), "\n", "\n");
    let next = daemon(&host, &there, true).placed();
    synchronize(&next, &[], "");
    assert_eq!(cpuset(create(&next, "two", 2).adjust.as_ref()), "2-3/0");
}

#[test]
fn container_never_created_after_a_runtime_restart_frees_its_cpus() {
    let placed = placed(true);
    let taken = || placed.lock().held.allocations.exclusive_cpus().to_string();
    create(&placed, "unlisted", 2);
    synchronize(&placed, &[], "");
    create(&placed, "waits", 2);
    placed.expect_only(&[]);
    assert_eq!((taken(), placed.unrecorded().len()), ("0-3".into(), 2), "both may come yet");
    placed.lock().roster.expire_answers();
    placed.expect_only(&[]);
    assert_eq!(taken(), "2-3", "of the other one the runtime would say that it ended");
    assert_eq!(placed.unrecorded().len(), 1);
}
