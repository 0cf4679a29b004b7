//! Claims in doubt are read until the API server answers: those of which only their files are left, and those
//! that containers of other pods name.

use super::*;
use crate::dra::service::read_unconfirmed;

#[tokio::test(start_paused = true)]
async fn a_claim_whose_file_is_left_is_read_until_the_server_answers_and_keeps_its_cpus() {
    let rig = Rig::new();
    rig.has("a", object("a", 0, 2, &["web"]));
    let first = rig.driver();
    first.prepare(asked("a")).await.unwrap();
    let cpus = rig.held();
    assert_eq!(cpus.len(), 2);
    drop(first);

    fs::remove_file(rig.store().state).unwrap();
    let answered = rig.api.0.lock().unwrap().remove("a").unwrap();
    let supply = supply(&CpuSet::new());
    let taken = rig.store().take_over(("n1", "boot"), &supply, Duration::ZERO).unwrap();
    assert!(taken.damage.unwrap().contains("1 claims have files"));
    rig.places.hold_all(&taken.ledger, &supply);
    let driver = rig.driver();
    let uid = ClaimUid::parse("uid-a").unwrap();
    assert_eq!(driver.recovered(), std::slice::from_ref(&uid));

    let places: Arc<dyn ClaimPlaces> = Arc::clone(&rig.places) as _;
    let reading = tokio::spawn(read_unconfirmed(Arc::clone(&driver), places));
    sleep(Duration::from_secs(90)).await;
    assert_eq!(driver.recovered(), [uid], "the server is away");
    rig.has("a", answered);
    sleep(Duration::from_mins(3)).await;
    assert_eq!(driver.recovered(), []);
    assert_eq!(rig.held(), cpus);
    assert!(read(&rig.store().state).contains("web"), "its pod is known again");
    reading.abort();
}

fn consumers(driver: &ClaimDriver) -> Vec<String> {
    let ledger = driver.ledger();
    let of_claim = ledger.claims().flat_map(|claim| claim.consumers.clone());
    of_claim.map(|one| format!("{one:?}")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_another_pod_names_is_read_until_the_pod_is_known() {
    let rig = Rig::new();
    rig.has("a", object("a", 0, 2, &["first"]));
    let driver = rig.driver();
    driver.prepare(asked("a")).await.unwrap();
    *rig.places.unconfirmed.lock().unwrap() = [ClaimUid::parse("uid-a").unwrap()].into();
    rig.api.0.lock().unwrap().clear();
    let places: Arc<dyn ClaimPlaces> = Arc::clone(&rig.places) as _;
    let reading = tokio::spawn(read_unconfirmed(Arc::clone(&driver), places));
    sleep(Duration::from_secs(90)).await;
    let has_only = |pod: &str| {
        let consumers = consumers(&driver);
        consumers.len() == 1 && consumers[0].contains(&format!("pod-{pod}"))
    };
    assert!(has_only("first"), "the server is away");
    // The exclusive CPUs stay with the first pod as long as that is there.
    rig.has("a", object("a", 0, 2, &["first", "next"]));
    sleep(Duration::from_mins(2)).await;
    assert!(has_only("first"), "{:?}", consumers(&driver));
    rig.has("a", object("a", 0, 2, &["next"]));
    sleep(Duration::from_mins(2)).await;
    assert!(has_only("next"), "{:?}", consumers(&driver));
    assert!(read(&rig.store().state).contains("pod-next"));
    reading.abort();
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_of_the_server_counts_as_a_read() {
    let rig = Rig::new();
    for name in ["a", "gone", "forbidden"] {
        rig.has(name, object(name, 0, 0, &["web"]));
    }
    let driver = rig.driver();
    for name in ["a", "gone", "forbidden"] {
        driver.prepare(asked(name)).await.unwrap();
    }
    let again = async |name: &str| driver.read_again(&ClaimUid::parse(&format!("uid-{name}")).unwrap()).await;
    assert!(again("a").await);
    rig.api.0.lock().unwrap().clear();
    assert_eq!([again("a").await, again("gone").await, again("forbidden").await], [false, true, false]);
    assert_eq!(driver.ledger().claims().count(), 3, "what cannot be read stays as it is");
}
