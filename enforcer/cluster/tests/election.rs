//! Elections over a stub of an API server.

#![expect(clippy::unwrap_used, reason = "only tests are here")]

use std::{sync::Arc, time::Duration};

use enforcer_cluster::{ApiConnection, Election, ElectionSettings, Leadership, LeaseTiming};
use enforcer_test_api::{ApiStub, Fault};
use numa_topology::degraded::Degraded;
use serde_json::{Value, json};
use tokio::{
    sync::{oneshot, watch::Receiver},
    task::JoinHandle,
    time::timeout,
};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/numa/leases/worker";
/// Longest wait for what has to happen in the end, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(2);

/// A replica that runs.
struct Replica {
    identity: String,
    leadership: Receiver<Leadership>,
    degraded: Receiver<Option<Degraded>>,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Replica {
    fn start(stub: &ApiStub, duration: u64) -> Self {
        let connection = Arc::new(ApiConnection::new(stub.config()).unwrap());
        let timing = LeaseTiming::of(Duration::from_secs(duration));
        let settings = ElectionSettings { namespace: "numa".into(), name: "worker".into(), timing };
        let mut election = Election::new(settings);
        let identity = election.identity().to_owned();
        let (leadership, degraded) = (election.leadership(), election.degraded());
        let (end, ends) = oneshot::channel();
        let task = tokio::spawn(async move {
            tokio::select! {
                never = election.run(&connection) => match never {},
                _ = ends => election.release(&connection).await.unwrap(),
            }
        });
        Self { identity, leadership, degraded, end, task }
    }

    async fn becomes(&mut self, leads: bool) {
        let wanted = self.leadership.wait_for(|now| now.leads() == leads);
        timeout(LIMIT, wanted).await.unwrap().unwrap();
    }

    async fn release(self) {
        self.end.send(()).unwrap();
        self.task.await.unwrap();
    }
}

fn spec(stub: &ApiStub) -> Value {
    stub.object(LEASE).unwrap()["spec"].clone()
}

#[tokio::test]
async fn one_leads_and_the_other_follows_when_it_ends_or_dies() {
    let stub = ApiStub::start(&[]);
    let mut first = Replica::start(&stub, 3);
    first.becomes(true).await;
    let (mut second, third) = (Replica::start(&stub, 3), Replica::start(&stub, 3));
    timeout(LIMIT, second.leadership.wait_for(|now| now.holder == first.identity)).await.unwrap().unwrap();
    assert!(!second.leadership.borrow().leads());
    let held = spec(&stub);
    assert_eq!(held["holderIdentity"], json!(first.identity));
    assert_eq!((&held["leaseDurationSeconds"], &held["leaseTransitions"]), (&json!(3), &json!(0)));
    third.release().await;
    assert_eq!(spec(&stub)["holderIdentity"], json!(first.identity), "a follower releases nothing");

    let told = first.leadership.clone();
    first.release().await;
    assert!(!told.borrow().leads(), "it is told before the lease is free");
    second.becomes(true).await;
    let held = spec(&stub);
    assert_eq!((&held["holderIdentity"], &held["leaseTransitions"]), (&json!(second.identity), &json!(1)));

    let mut last = Replica::start(&stub, 3);
    timeout(LIMIT, last.leadership.wait_for(|now| now.holder == second.identity)).await.unwrap().unwrap();
    second.task.abort();
    last.becomes(true).await;
    assert_eq!(spec(&stub)["leaseTransitions"], json!(2));
    last.release().await;
    let free = spec(&stub);
    assert_eq!((&free["holderIdentity"], &free["leaseDurationSeconds"]), (&json!(""), &json!(1)));
}

#[tokio::test]
async fn leader_without_a_server_ends_its_term_and_leads_again() {
    let stub = ApiStub::start(&[]);
    let mut replica = Replica::start(&stub, 3);
    replica.becomes(true).await;
    let since = replica.leadership.borrow().since().unwrap();
    stub.fail_always(Some(Fault::status(403, "Forbidden")));
    replica.becomes(false).await;
    let told = timeout(LIMIT, replica.degraded.wait_for(Option::is_some)).await.unwrap().unwrap().clone();
    let told = told.unwrap();
    assert_eq!(told.source, "election");
    assert!(told.reason.contains("on leases of group \"coordination.k8s.io\""), "{}", told.reason);
    stub.fail_always(None);
    replica.becomes(true).await;
    assert!(replica.leadership.borrow().since().unwrap() > since, "a new term");
    timeout(LIMIT, replica.degraded.wait_for(Option::is_none)).await.unwrap().unwrap();
}

#[tokio::test]
async fn lost_answers_and_conflicts_end_no_term() {
    let stub = ApiStub::start(&[]);
    let mut replica = Replica::start(&stub, 30);
    replica.becomes(true).await;
    let since = replica.leadership.borrow().since();
    stub.fail_writes([Fault::DropAnswer, Fault::status(409, "Conflict")]);
    let writes = stub.attempts().len();
    let wait = async {
        while stub.attempts().len() < writes + 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, wait).await.unwrap();
    assert_eq!(replica.leadership.borrow().since(), since);
    assert_eq!(spec(&stub)["leaseTransitions"], json!(0));
}

#[tokio::test]
async fn what_others_wrote_into_the_lease_stays() {
    let stub = ApiStub::start(&[]);
    let other = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"holderIdentity": "", "strategy": "x"}});
    stub.put(LEASE, other);
    let mut replica = Replica::start(&stub, 3);
    replica.becomes(true).await;
    let lease = stub.object(LEASE).unwrap();
    assert_eq!((&lease["metadata"]["labels"]["a"], &lease["spec"]["strategy"]), (&json!("b"), &json!("x")));
    assert_eq!(lease["spec"]["leaseTransitions"], json!(1));
}
