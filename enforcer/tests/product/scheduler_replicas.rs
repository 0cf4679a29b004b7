//! Several replicas of `scheduler serve`, of which one works.

use std::{
    thread,
    time::{Duration, Instant},
};

use enforcer_test_api::{ApiStub, TestAuthority};
use serde_json::json;

use crate::{
    scheduler::{LIMIT, STATES, Served, put_node},
    scheduler_tls::{Certificates, connect, filter},
};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/numa/leases/extender";

fn start(stub: &ApiStub, files: &Certificates) -> Served {
    let arguments = files.arguments();
    let mut further: Vec<&str> = arguments.iter().map(String::as_str).collect();
    further.extend(["--probes", "127.0.0.1:0", "--filter-only", "--settles", "0s"]);
    further.extend(["--lease", "numa/extender"]);
    Served::start(stub, &further)
}

/// Waits until the answer to `/ready` has these words.
fn becomes(served: &Served, words: &str) {
    let begun = Instant::now();
    loop {
        let (_, text) = served.probe("/ready");
        if text.contains(words) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{words} in {text}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn follower_answers_no_call_until_the_leader_ends_or_dies() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let authority = TestAuthority::new("ours");
    let (files, client) = (Certificates::of(&authority), authority.client("kube-scheduler"));
    let mut first = start(&stub, &files);
    first.becomes_ready();
    let second = start(&stub, &files);
    becomes(&second, "the lease is of ");
    assert_eq!(second.probe("/ready").0, 503);
    assert_eq!(second.probe("/live").0, 200);
    second.metrics_become(&["ready 1", "leads 0"]);
    first.metrics_become(&["ready 1", "leads 1"]);
    let mut asked = connect(&second, &authority, Some(&client)).unwrap();
    let (status, head, text) = filter(&mut asked).unwrap();
    assert_eq!(status, 503, "{text}");
    assert!(head.contains("connection: close"), "{head}");
    assert!(filter(&mut asked).is_err(), "the connection is closed");
    let mut asked = connect(&first, &authority, Some(&client)).unwrap();
    assert_eq!(filter(&mut asked).unwrap().0, 200);

    // A death without a word: the lease has to expire.
    first.child.0.kill().unwrap();
    second.becomes_ready();
    let mut asked = connect(&second, &authority, Some(&client)).unwrap();
    assert_eq!(filter(&mut asked).unwrap().0, 200);
    assert_eq!(stub.object(LEASE).unwrap()["spec"]["leaseTransitions"], json!(1));
}

#[test]
fn leader_that_ends_gives_the_lease_back_and_a_deposed_one_closes_its_connections() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let authority = TestAuthority::new("ours");
    let (files, client) = (Certificates::of(&authority), authority.client("kube-scheduler"));
    let mut ended = start(&stub, &files);
    ended.becomes_ready();
    let pid = rustix::process::Pid::from_child(&ended.child.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(ended.child.0.wait().unwrap().success());
    let free = stub.object(LEASE).unwrap()["spec"].clone();
    assert_eq!((&free["holderIdentity"], &free["leaseDurationSeconds"]), (&json!(""), &json!(1)));

    let deposed = start(&stub, &files);
    deposed.becomes_ready();
    let mut kept = connect(&deposed, &authority, Some(&client)).unwrap();
    assert_eq!(filter(&mut kept).unwrap().0, 200);
    let mut lease = stub.object(LEASE).unwrap();
    lease["spec"]["holderIdentity"] = json!("another");
    lease["spec"]["leaseDurationSeconds"] = json!(3600);
    stub.put(LEASE, lease);
    becomes(&deposed, "the lease is of another");
    let late = filter(&mut kept);
    assert!(late.as_ref().is_err() || late.as_ref().is_ok_and(|(status, ..)| *status == 503), "{late:?}");
    assert!(filter(&mut kept).is_err(), "the connection is closed");
    assert_eq!(stub.object(LEASE).unwrap()["spec"]["holderIdentity"], json!("another"));
}
