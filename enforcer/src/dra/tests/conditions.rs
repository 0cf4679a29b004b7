//! Conditions and events of claims by their remote accesses and corrections.

use super::*;
use crate::dra::conditions::{ClaimEvents, ClaimStatus, Written, tell_of_claims};
use enforcer_core::cluster::events::{EventObject, NodeEvent};

/// Conditions that were written, and whether writing fails.
#[derive(Clone, Default)]
struct PlayedStatus(Arc<Mutex<(Vec<String>, Option<UnreadClaim>)>>);

impl ClaimStatus for PlayedStatus {
    fn write(&self, claim: KubeletClaim, devices: Value) -> Written<'_> {
        let mut state = self.0.lock().unwrap();
        let failed = state.1.clone().map_or(Ok(()), Err);
        let condition = &devices[0]["conditions"][0];
        state.0.push(format!("{} {} {}", claim.uid, devices[0]["device"], condition["status"]));
        Box::pin(async move { failed })
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_told_to_be_remote_when_it_stays_so_and_local_when_that_is_over() {
    let rig = Rig::new();
    for name in ["a", "b"] {
        rig.has(name, object(name, 1, 2, &["web"]));
    }
    let driver = rig.driver();
    for name in ["a", "b"] {
        driver.prepare(asked(name)).await.unwrap();
    }
    let remote = |share: f64| {
        let uid = ClaimUid::parse("uid-a").unwrap();
        *rig.places.remote.lock().unwrap() = [(uid, share)].into();
    };
    let (status, places) = (PlayedStatus::default(), Arc::clone(&rig.places) as Arc<dyn ClaimPlaces>);
    let taken = || std::mem::take(&mut status.0.lock().unwrap().0);
    let events = Arc::new(Mutex::new(Vec::<NodeEvent>::new()));
    let sent = Arc::clone(&events);
    let send: ClaimEvents = Box::new(move |event| sent.lock().unwrap().push(event));
    let outputs = (Some(Box::new(status.clone()) as Box<dyn ClaimStatus>), Some(send));
    let keeping = tokio::spawn(tell_of_claims((Arc::clone(&driver), places), outputs, 0.2));
    let told = || {
        let events = std::mem::take(&mut *events.lock().unwrap());
        let shown = events.into_iter().map(|event| {
            let EventObject::Claim { namespace, name, uid } = &event.object else { panic!("{event:?}") };
            format!("{:?} {namespace}/{name} {uid}: {}", event.reason, event.note)
        });
        shown.collect::<Vec<_>>()
    };
    remote(0.6);
    sleep(Duration::from_secs(80)).await;
    assert_eq!(taken(), Vec::<String>::new(), "a start is no state");
    status.0.lock().unwrap().1 = Some(UnreadClaim::Passing("patch: 503".into()));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(taken(), ["uid-a \"ne-numa1\" \"False\""]);
    status.0.lock().unwrap().1 = None;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(taken(), ["uid-a \"ne-numa1\" \"False\""], "again, as it failed, and then no more");
    let remote_note = "60 % of the memory accesses of its containers go to other NUMA nodes";
    assert_eq!(told(), [format!("NumaMisaligned shop/a uid-a: {remote_note}")], "once");
    let corrected = |uid: &str| (ClaimUid::parse(uid).unwrap(), "CPUs 4-7".to_owned());
    *rig.places.corrections.lock().unwrap() = [corrected("uid-b"), corrected("uid-x")].into();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(told(), ["NumaCorrected shop/b uid-b: CPUs 4-7"], "of a claim that is prepared");
    let note = "shop/web/main is not on the CPUs of the claim: its cpuset belongs to the kubelet".to_owned();
    rig.places.unused.lock().unwrap().insert(ClaimUid::parse("uid-b").unwrap(), note.clone());
    sleep(Duration::from_mins(10)).await;
    assert_eq!(told(), [format!("NumaMisaligned shop/b uid-b: {note}")], "once");
    remote(0.01);
    sleep(Duration::from_mins(10)).await;
    assert_eq!(taken(), ["uid-a \"ne-numa1\" \"True\""]);
    assert_eq!(told(), Vec::<String>::new(), "local again is no event");
    driver.unprepare(asked("a")).await.unwrap();
    remote(0.6);
    sleep(Duration::from_mins(10)).await;
    assert_eq!(taken(), Vec::<String>::new(), "the claim is given up");
    keeping.abort();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_the_last_of_its_look_and_a_refusal_that_of_minutes() {
    let rig = Rig::new();
    for name in ["a", "b"] {
        rig.has(name, object(name, 1, 2, &["web"]));
    }
    let driver = rig.driver();
    for name in ["a", "b"] {
        driver.prepare(asked(name)).await.unwrap();
    }
    let remote = ["uid-a", "uid-b"].map(|uid| (ClaimUid::parse(uid).unwrap(), 0.6));
    *rig.places.remote.lock().unwrap() = remote.into();
    let (status, places) = (PlayedStatus::default(), Arc::clone(&rig.places) as Arc<dyn ClaimPlaces>);
    let fails = |error: Option<UnreadClaim>| status.0.lock().unwrap().1 = error;
    let taken = || std::mem::take(&mut status.0.lock().unwrap().0).len();
    fails(Some(UnreadClaim::Passing("patch: 503".into())));
    let outputs = (Some(Box::new(status.clone()) as Box<dyn ClaimStatus>), None);
    let keeping = tokio::spawn(tell_of_claims((Arc::clone(&driver), places), outputs, 0.2));
    // The third look is the first that writes.
    sleep(Duration::from_secs(100)).await;
    assert_eq!(taken(), 1, "the second claim is not tried");
    sleep(Duration::from_secs(30)).await;
    assert_eq!(taken(), 1, "the next look tries again");
    fails(Some(UnreadClaim::Lasting("patch: not permitted".into())));
    sleep(Duration::from_mins(4)).await;
    assert_eq!(taken(), 1, "no other try for minutes");
    fails(None);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(taken(), 2);
    keeping.abort();
}
