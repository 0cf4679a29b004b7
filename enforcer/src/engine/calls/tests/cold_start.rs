//! Containers that begin on slow memory, over turns and restarts of the daemon.

use std::{cell::RefCell, os::unix::net::UnixDatagram, path::Path, rc::Rc};

use enforcer_core::policy::Mode;
use numa_topology::MemoryKind;

use super::{
    source::{Containers, cgroup_of},
    *,
};
use crate::engine::{Engine, Gate};

const SECOND: u64 = 1_000_000_000;
const GIB: u64 = 1 << 30;

/// Nodes 0 and 1 have CPUs, 2 and 3 are PMEM beside them.
fn engine(host: &Rc<Fixture>) -> Engine {
    let machine =
        Machine::new().sockets(2).cores(4).threads(1).memory_beside_each(64 * GIB, MemoryKind::Pmem);
    let source = Containers {
        host: Rc::clone(host),
        machine: machine.build(),
        there: Rc::new(RefCell::new(BTreeMap::from([("cold", "")]))),
        dying: Rc::default(),
    };
    let mut policy = Policy { mode: Mode::Enforce, ..Policy::default() };
    policy.nri.place = true;
    let mut engine = Engine::new(Box::new(source), policy);
    let journal = host.journal();
    engine.adopt(CpusetTree::new(&host.layout.cpuset.path, true), journal.grants().clone());
    engine.set_actuator(Box::new(host.actuator_with(journal)));
    engine.prepare().unwrap();
    engine
}

fn annotated() -> Box<NriSubject> {
    let mut subject = subject("cold", "", Some(amounts(2)));
    let annotations = [
        ("engine.numa-enforcer.io/pod", "pools"),
        ("memory-type.numa-enforcer.io/pod", "dram,pmem"),
        ("cold-start.numa-enforcer.io/pod", "{duration: 60s}"),
    ];
    subject.pod.annotations = annotations.map(|(key, value)| (key.into(), value.into())).into();
    subject
}

#[test]
fn slow_memory_first_then_all_of_it_though_the_daemon_was_started_again_meanwhile() {
    let host = Rc::new(Fixture::new(true));
    let mems = || host.read(&cgroup_of("cold", ""), "cpuset.mems");
    let mut first = engine(&host);
    let answer = ask(&first.placed(), |reply| NriCall::Create { subject: annotated(), reply });
    let set = cpuset(answer.adjust.as_ref());
    assert!(set.ends_with("/2"), "{set}");
    let (cpus, slow) = set.split_once('/').unwrap();
    host.cgroup(&cgroup_of("cold", ""), cpus, slow);
    first.turn(1000 * SECOND).unwrap();
    first.turn(1050 * SECOND).unwrap();
    assert_eq!(mems(), "2");
    drop(first);

    let mut second = engine(&host);
    let before = second.turn(1055 * SECOND).unwrap();
    assert!(before.outcomes.is_empty(), "{:?}", before.outcomes);
    let NriSubject { pod, mut container } = *annotated();
    container.linux.as_mut().unwrap().resources.as_mut().unwrap().cpu.as_mut().unwrap().cpus = cpus.into();
    container.linux.as_mut().unwrap().resources.as_mut().unwrap().cpu.as_mut().unwrap().mems = "2".into();
    ask(&second.placed(), |reply| NriCall::Synchronize {
        runtime: RuntimeVersion::default(),
        pods: vec![pod],
        containers: vec![container],
        reply,
    });
    second.turn(1059 * SECOND).unwrap();
    assert_eq!(mems(), "2", "a second before its time is up");
    second.turn(1060 * SECOND).unwrap();
    assert_eq!(mems(), "0,2");
    let decisions = second.decisions().all();
    let reasons: Vec<_> =
        decisions.iter().flat_map(|one| &one.records).map(|record| &record.reason).collect();
    assert!(
        reasons.iter().any(|reason| reason.contains("cold start is over: its time is up")),
        "{reasons:?}"
    );
    let later = second.turn(1070 * SECOND).unwrap();
    assert!(later.outcomes.is_empty(), "{:?}", later.outcomes);
}

/// Reports like a program that was given this directory.
fn says(dir: &Path, what: &str) -> bool {
    UnixDatagram::unbound().unwrap().send_to(what.as_bytes(), dir.join("notify")).is_ok()
}

/// Creates the container of [`annotated`], which has a directory below `state`, and its cgroup.
fn create_exposed(host: &Fixture, engine: &mut Engine, state: &Path) {
    let exposure = ResourceFiles::below(state).unwrap();
    engine.set_exposure(exposure.clone());
    let (reply, mut answer) = Reply::new();
    let subject = annotated();
    super::super::answer(&engine.placed(), &Gate::default(), &exposure, NriCall::Create { subject, reply });
    let answer = answer.try_recv().unwrap();
    assert_eq!(answer.mounts.len(), 1);
    let set = cpuset(answer.adjust.as_ref());
    let (cpus, slow) = set.split_once('/').unwrap();
    host.cgroup(&cgroup_of("cold", ""), cpus, slow);
}

#[test]
fn container_that_reports_ready_has_all_of_its_memory_with_the_next_turn() {
    let (host, state) = (Rc::new(Fixture::new(true)), tempfile::tempdir().unwrap());
    let dir = state.path().join("exposed/id-cold");
    let mems = || host.read(&cgroup_of("cold", ""), "cpuset.mems");
    let mut engine = engine(&host);
    create_exposed(&host, &mut engine, state.path());
    engine.turn(1000 * SECOND).unwrap();
    assert!(says(&dir, "STATUS=loading"), "it is heard from its creation on");
    engine.turn(1001 * SECOND).unwrap();
    assert_eq!(mems(), "2", "it said something else");
    assert!(says(&dir, "READY=1\nSTATUS=serving"));
    engine.turn(1002 * SECOND).unwrap();
    assert_eq!(mems(), "0,2");
    let decisions = engine.decisions().all();
    let mut reasons = decisions.iter().flat_map(|one| &one.records).map(|record| &record.reason);
    assert!(reasons.any(|reason| reason.contains("cold start is over: it has said that it is ready")));
    engine.turn(1003 * SECOND).unwrap();
    assert!(!says(&dir, "READY=1"), "no socket listens any longer");
}

#[test]
fn what_it_said_outlives_a_pause_and_the_daemon() {
    let (host, state) = (Rc::new(Fixture::new(true)), tempfile::tempdir().unwrap());
    let dir = state.path().join("exposed/id-cold");
    let mems = || host.read(&cgroup_of("cold", ""), "cpuset.mems");
    let mut first = engine(&host);
    create_exposed(&host, &mut first, state.path());
    first.turn(1000 * SECOND).unwrap();
    first.turn(1001 * SECOND).unwrap();
    first.gate().close(None);
    assert!(says(&dir, "READY=1"));
    first.turn(1002 * SECOND).unwrap();
    assert_eq!(mems(), "2", "while it is paused nothing is written");
    drop(first);
    let mut second = engine(&host);
    second.set_exposure(ResourceFiles::below(state.path()).unwrap());
    let NriSubject { pod, mut container } = *annotated();
    let set = host.read(&cgroup_of("cold", ""), "cpuset.cpus");
    let cpu = container.linux.as_mut().unwrap().resources.as_mut().unwrap().cpu.as_mut().unwrap();
    (cpu.cpus, cpu.mems) = (set, "2".into());
    ask(&second.placed(), |reply| NriCall::Synchronize {
        runtime: RuntimeVersion::default(),
        pods: vec![pod],
        containers: vec![container],
        reply,
    });
    second.turn(1003 * SECOND).unwrap();
    assert_eq!(mems(), "0,2");
}
