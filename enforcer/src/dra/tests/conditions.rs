//! Conditions of claims by their remote accesses.

use super::*;
use crate::dra::conditions::{ClaimStatus, Written, keep_conditions};

/// Conditions that were written, and whether writing fails.
#[derive(Clone, Default)]
struct PlayedStatus(Arc<Mutex<(Vec<String>, bool)>>);

impl ClaimStatus for PlayedStatus {
    fn write(&self, claim: KubeletClaim, devices: Value) -> Written<'_> {
        let mut state = self.0.lock().unwrap();
        let failed = if state.1 { Err("patch: 403".to_owned()) } else { Ok(()) };
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
    let keeping = tokio::spawn(keep_conditions((Arc::clone(&driver), places), status.clone(), 0.2));
    remote(0.6);
    sleep(Duration::from_secs(80)).await;
    assert_eq!(taken(), Vec::<String>::new(), "a start is no state");
    status.0.lock().unwrap().1 = true;
    sleep(Duration::from_secs(20)).await;
    assert_eq!(taken(), ["uid-a \"ne-numa1\" \"False\""]);
    status.0.lock().unwrap().1 = false;
    sleep(Duration::from_mins(10)).await;
    assert_eq!(taken(), ["uid-a \"ne-numa1\" \"False\""], "again, as it failed, and then no more");
    remote(0.01);
    sleep(Duration::from_mins(10)).await;
    assert_eq!(taken(), ["uid-a \"ne-numa1\" \"True\""]);
    driver.unprepare(asked("a")).await.unwrap();
    remote(0.6);
    sleep(Duration::from_mins(10)).await;
    assert_eq!(taken(), Vec::<String>::new(), "the claim is given up");
    keeping.abort();
}
