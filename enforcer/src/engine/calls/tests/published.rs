//! What the cluster is told of the ledger.

use enforcer_core::cluster::{
    observed::{ApiContainer, ApiPod, NodeInApi, NodeInputs, NodeObservation, NodeStateSource},
    own_engine::OwnPart,
    state::{DecidedBy, KubeletProfile, NodeState},
};

use super::*;
use crate::engine::LedgerSnapshot;

fn of_uid(name: &str, cpus: u64) -> Box<NriSubject> {
    let mut subject = subject(name, "", Some(amounts(cpus)));
    subject.pod.uid = format!("uid-{name}");
    subject
}

/// The state that the daemon publishes while these pods are bound to its node.
fn state(placed: &SharedLedger, pods: &[&str]) -> NodeState {
    let LedgerSnapshot::Ready(engine) = placed.snapshot().1 else { panic!() };
    let pod = |name: &&str| ApiPod {
        uid: format!("uid-{name}"),
        name: (*name).to_owned(),
        containers: vec![ApiContainer { name: "main".into(), ..ApiContainer::default() }],
        ..ApiPod::default()
    };
    let api = NodeInApi { pods: Some(pods.iter().map(pod).collect()), ..NodeInApi::default() };
    let inputs = NodeInputs {
        machine: &engine.inputs.machine,
        kubelet: &KubeletProfile { cpu_policy: "none".into(), ..KubeletProfile::default() },
        inexact: &[],
        observation: &NodeObservation::default(),
        api: &api,
        engine: OwnPart::Known(&engine),
        measured: None,
    };
    NodeStateSource::new(1).observe(inputs).unwrap().clone()
}

fn synchronized(place: bool) -> SharedLedger {
    let placed = placed(place);
    synchronize(&placed, &[], "");
    placed
}

#[test]
fn a_state_shows_what_containers_were_given() {
    let placed = synchronized(true);
    let before = placed.stamp();
    ask(&placed, |reply| NriCall::Create { subject: of_uid("one", 2), reply });
    assert_ne!(placed.stamp(), before, "readers of the stamp see that something has changed");
    let told = state(&placed, &["one", "two"]);
    assert_eq!((told.exact, told.decided_by), (true, DecidedBy::NumaEnforcer), "{:?}", told.inexact);
    let held: Vec<_> =
        told.pods.iter().map(|pod| (pod.uid.as_str(), pod.containers[0].cpus.to_string())).collect();
    assert_eq!(held, [("uid-one", "0-1".to_owned())]);
    ask(&placed, |reply| NriCall::Stop { subject: of_uid("one", 2), reply });
    assert!(state(&placed, &["two"]).pods.is_empty());
}

#[test]
fn a_container_without_a_pod_of_the_api_harms_no_state() {
    let placed = synchronized(true);
    // As `crictl` makes it.
    ask(&placed, |reply| NriCall::Create { subject: subject("bare", "", Some(amounts(2))), reply });
    let told = state(&placed, &[]);
    assert!(told.exact && told.pods.is_empty(), "{:?}", told.inexact);
    assert_eq!(told.shared_cpus.to_string(), "2-7");
}

#[test]
fn a_state_is_never_that_of_a_kubelet_while_the_daemon_places() {
    assert!(matches!(synchronized(false).snapshot().1, LedgerSnapshot::NotPlacing));
    let placed = placed(true);
    assert!(matches!(placed.snapshot().1, LedgerSnapshot::NotReady(_)), "no runtime has come");
    let before = placed.stamp();
    synchronize(&placed, &[], "");
    assert!(matches!(placed.snapshot().1, LedgerSnapshot::Ready(_)) && placed.stamp() != before);
    let down = NriCall::Down("gone".into());
    super::super::answer(&placed, &Gate::default(), &ResourceFiles::default(), down);
    assert!(matches!(placed.snapshot().1, LedgerSnapshot::NotReady(_)), "its containers may change unseen");
}

#[test]
fn entries_about_pods_make_a_state_inexact() {
    for (entry, is_exact) in [
        ("[[workload]]\nname = 'db'\nunit = 'db.service'\ncpus = 1\n", true),
        ("[[workload]]\nname = 'web'\nnamespace = 'shop'\ncpus = 1\n", false),
        ("[[workload]]\nname = 'web'\ncgroup = '/kubepods/**'\ncpus = 1\n", false),
    ] {
        let (placed, _) = declared(entry);
        synchronize(&placed, &[], "");
        let told = state(&placed, &[]);
        assert_eq!(told.exact, is_exact, "{entry}: {:?}", told.inexact);
    }
}
