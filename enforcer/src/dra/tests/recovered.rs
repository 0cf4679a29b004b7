//! Claims of which only their files are left become whole when the API server answers.

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
    let taken = rig.store().take_over(("n1", "boot"), &supply).unwrap();
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
