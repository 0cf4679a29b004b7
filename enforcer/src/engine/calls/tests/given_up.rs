//! A container that another writer sets repeatedly: neither turns nor answers set it.

use std::{cell::RefCell, fs, rc::Rc};

use enforcer_core::{hosted::GrantRecord, policy::Mode};

use super::{
    source::{Containers, cgroup_of},
    *,
};
use crate::engine::Engine;
use enforcer_act::journal::DriftRecord;

const SECOND: u64 = 1_000_000_000;

/// Starts a daemon on this host and its state directory.
fn start(host: &Rc<Fixture>, grants: BTreeMap<String, GrantRecord>, now_ns: u64) -> Engine {
    let there = Rc::new(RefCell::new(BTreeMap::from([("one", ""), ("shared", "/besteffort")])));
    let machine = Machine::new().sockets(2).cores(4).threads(1).build();
    let source = Containers { host: Rc::clone(host), machine, there, dying: Rc::default() };
    let mut policy = Policy { mode: Mode::Enforce, ..toml::from_str("cool_down = \"1s\"").unwrap() };
    policy.nri.place = true;
    let mut engine = Engine::new(Box::new(source), policy);
    engine.set_actuator(Box::new(host.actuator()));
    let (record, left) = DriftRecord::open(&host.state_dir(), "boot-1", now_ns);
    engine.restore_drift_counts(record, left, now_ns);
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    engine.adopt(tree, grants);
    engine.prepare().unwrap();
    engine
}

/// The runtime lists these containers, with the cpusets it created them with.
fn synchronized(placed: &SharedLedger, there: Vec<NriSubject>) -> Vec<(String, String)> {
    let (pods, containers) = there.into_iter().map(|one| (one.pod, one.container)).unzip();
    let answer = ask(placed, |reply| NriCall::Synchronize {
        runtime: RuntimeVersion::default(),
        pods,
        containers,
        reply,
    });
    updates(&answer)
}

#[test]
fn no_answer_sets_a_container_left_to_a_repeated_foreign_writer() {
    let host = Rc::new(Fixture::new(true));
    let cgroup = cgroup_of("shared", "/besteffort");
    host.cgroup(&cgroup, "0-7\n", "0-1\n");
    let file = host.path(&cgroup).join("cpuset.cpus");
    let mut engine = start(&host, BTreeMap::new(), 0);
    let shared = || *subject("shared", "/besteffort", None);
    synchronized(&engine.placed(), vec![shared()]);
    let answer = create(&engine.placed(), "one", 2);
    assert_eq!(updates(&answer), [("id-shared".to_owned(), "2-3/0-1".to_owned())], "it makes room");
    host.cgroup("/kubepods/podone/id-one", "0-1\n", "0\n");
    engine.placed().finish_pending_writes();
    // The first time it is not in its place yet; then it is corrected three times.
    for second in 10..14 {
        fs::write(&file, "0-7").unwrap();
        engine.turn(second * SECOND).unwrap();
    }
    let before = host.read(&cgroup, "cpuset.cpus");
    assert_ne!(before, "0-7", "it was put back");
    let update = |placed: &SharedLedger| {
        let subject = subject("shared", "/besteffort", None);
        updates(&ask(placed, |reply| NriCall::Update { subject, wanted: LinuxResources::default(), reply }))
    };
    assert_eq!(update(&engine.placed()).len(), 1);
    engine.placed().finish_pending_writes();

    fs::write(&file, "0-7").unwrap();
    for second in 60..62 {
        let report = engine.turn(second * SECOND).unwrap();
        assert_eq!((report.totals.drift.left_alone, report.outcomes), (1, vec![]));
    }
    let placed = engine.placed();
    assert_eq!(update(&placed), []);
    assert_eq!(placed.pending_writes(), [], "the next write is not taken for the runtime's");
    let grants = {
        let state = placed.lock();
        state.held.containers.records(&state.held.allocations)
    };

    drop(engine);
    let mut engine = start(&host, grants, 70 * SECOND);
    let one = *with_cpus("one", "", 2, "0-1");
    let told = synchronized(&engine.placed(), vec![one, shared()]);
    assert_eq!(
        told,
        [("id-one".to_owned(), "0-1/0".to_owned())],
        "no turn has run yet, and one container is set"
    );
    engine.turn(71 * SECOND).unwrap();
    assert_eq!(host.read(&cgroup, "cpuset.cpus"), "0-7");
    // It fills the other node, so the next container takes the rest of this one.
    create(&engine.placed(), "filler", 3);
    let answer = create(&engine.placed(), "two", 2);
    assert_eq!(
        updates(&answer),
        [("id-shared".to_owned(), "7/0".to_owned())],
        "it shall be something else now"
    );

    // A reload, as with SIGHUP.
    engine.set_policy(engine.policy().clone());
    assert_eq!(update(&engine.placed()).len(), 1);
}
