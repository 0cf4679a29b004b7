//! Containers placed by the previous daemon, until a runtime lists its containers.

use std::{cell::RefCell, fs, rc::Rc};

use enforcer_core::policy::Mode;

use super::{
    source::{Containers, cgroup_of},
    *,
};
use crate::engine::Engine;

const SECOND: u64 = 1_000_000_000;

/// Starts a daemon on this host with the previous daemon's journal.
fn start(host: &Rc<Fixture>, keeps_grants: bool) -> Engine {
    let there = Rc::new(RefCell::new(BTreeMap::from([("one", ""), ("shared", "/besteffort")])));
    let machine = Machine::new().sockets(2).cores(4).threads(1).build();
    let source = Containers { host: Rc::clone(host), machine, there, dying: Rc::default() };
    let mut policy = Policy { mode: Mode::Enforce, ..Policy::default() };
    policy.nri.place = true;
    let mut engine = Engine::new(Box::new(source), policy);
    let journal = host.journal();
    let grants = if keeps_grants { journal.grants().clone() } else { BTreeMap::new() };
    engine.set_actuator(Box::new(host.actuator_with(journal)));
    engine.adopt(CpusetTree::new(&host.layout.cpuset.path, true), grants);
    engine.prepare().unwrap();
    engine
}

/// Cpuset after a foreign write and the next turn, and the other container's CPUs.
fn written_over(keeps_grants: bool) -> (String, String) {
    let host = Rc::new(Fixture::new(true));
    let mut before = start(&host, true);
    ask(&before.placed(), |reply| NriCall::Create { subject: subject("shared", "/besteffort", None), reply });
    create(&before.placed(), "one", 2);
    host.cgroup(&cgroup_of("one", ""), "0-1\n", "0\n");
    host.cgroup(&cgroup_of("shared", "/besteffort"), "2-3\n", "0\n");
    before.turn(10 * SECOND).unwrap();
    drop(before);

    let mut next = start(&host, keeps_grants);
    let report = next.turn(20 * SECOND).unwrap();
    assert_eq!(report.outcomes, [], "nothing that is valid is moved");
    fs::write(host.path(&cgroup_of("one", "")).join("cpuset.cpus"), "0-7").unwrap();
    next.turn(30 * SECOND).unwrap();
    let cpus = |cgroup: &str| host.read(cgroup, "cpuset.cpus").trim().to_owned();
    (cpus(&cgroup_of("one", "")), cpus(&cgroup_of("shared", "/besteffort")))
}

#[test]
fn expected_container_keeps_its_place_while_its_runtime_is_away() {
    assert_eq!(written_over(true), ("0-1".to_owned(), "2-3".to_owned()));
    assert_eq!(written_over(false).0, "0-7", "the control: no record of its place");
}
