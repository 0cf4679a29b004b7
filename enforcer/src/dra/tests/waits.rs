//! What ends a wait: a runtime that tells its containers, a claim that is given up; and claims that nothing
//! gives up.

use enforcer_core::{
    dra::{ClaimAllocation, ClaimContext, PreparedClaim},
    policy::DraSettings,
};

use super::*;
use crate::dra::{ClaimsInUse, service::follow_machine};

/// Prepares a claim beside the test.
fn begun(
    driver: &Arc<ClaimDriver>,
    name: &str,
) -> tokio::task::JoinHandle<Result<Vec<PreparedDevice>, String>> {
    let (driver, claim) = (Arc::clone(driver), asked(name));
    tokio::spawn(async move { driver.prepare(claim).await })
}

fn health(driver: &ClaimDriver) -> DeviceCondition {
    driver.health(&["ne-numa0".to_owned()]).devices[0].1.clone()
}

#[tokio::test(start_paused = true)]
async fn new_claims_wait_for_the_containers_or_a_grace_and_known_ones_do_not() {
    let rig = Rig::new();
    for name in ["a", "b"] {
        rig.has(name, object(name, 0, 2, &["web"]));
    }
    let driver = Arc::new(rig.started());
    let first = begun(&driver, "a");
    sleep(Duration::from_secs(10)).await;
    assert!(!first.is_finished());
    assert_eq!(health(&driver), DeviceCondition::Healthy);
    driver.containers_known();
    assert_eq!(first.await.unwrap().unwrap().len(), 1);
    drop(driver);
    // The next daemon has no runtime.
    let driver = Arc::new(rig.started());
    let begun_at = Instant::now();
    driver.prepare(asked("a")).await.unwrap();
    assert_eq!(begun_at.elapsed(), Duration::ZERO, "it has the CPUs already");
    driver.prepare(asked("b")).await.unwrap();
    assert_eq!(begun_at.elapsed(), Duration::from_secs(20));
    let DeviceCondition::Unhealthy(why) = health(&driver) else { panic!("it is told") };
    assert_eq!(why, "the container runtime has not told its containers (NRI)");
}

#[tokio::test(start_paused = true)]
async fn health_is_sent_again_when_the_shape_is_known_and_at_the_end_of_the_grace() {
    let rig = Rig::new();
    let (driver, places) = (Arc::new(rig.started()), Arc::clone(&rig.places) as Arc<dyn ClaimPlaces>);
    rig.places.is_without_runtime.store(true, Ordering::Relaxed);
    let (shape, shapes) = watch::channel(0);
    let (sent, reports) = watch::channel(Vec::new());
    let send =
        move |driver: &ClaimDriver, _: &dyn ClaimPlaces| sent.send_modify(|all| all.push(health(driver)));
    let following = follow_machine((driver, places), shapes, watch::channel(None).0, send);
    let _following = tokio::spawn(following);
    sleep(Duration::from_secs(1)).await;
    let before = reports.borrow().len();
    shape.send_replace(1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(reports.borrow()[before..], [DeviceCondition::Healthy]);
    sleep(Duration::from_mins(1)).await;
    let why = "the container runtime has not told its containers (NRI)".to_owned();
    let told = reports.borrow()[before + 1..].to_vec();
    assert_eq!(told, [DeviceCondition::Unhealthy(why)], "once, at the end of the grace");
}

#[tokio::test(start_paused = true)]
async fn link_that_is_lost_has_a_grace_of_its_own() {
    let rig = Rig::new();
    rig.has("a", object("a", 0, 2, &["web"]));
    let driver = Arc::new(rig.started());
    driver.containers_known();
    sleep(Duration::from_mins(5)).await;
    driver.runtime_lost();
    let begun_at = Instant::now();
    driver.prepare(asked("a")).await.unwrap();
    assert_eq!(begun_at.elapsed(), Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn runtime_that_is_required_is_waited_for_and_named() {
    let rig = Rig::new();
    for name in ["a", "b"] {
        rig.has(name, object(name, 0, 2, &["web"]));
    }
    let required = RuntimeWait::of(&DraSettings { require_nri: true, ..DraSettings::default() });
    let driver = Arc::new(rig.started().with_runtime_wait(required));
    let begun_at = Instant::now();
    let error = driver.prepare(asked("a")).await.unwrap_err();
    assert_eq!(error, "claim shop/a: the container runtime has not told its containers (NRI)");
    assert!(begun_at.elapsed() >= LIMIT && begun_at.elapsed() < Duration::from_secs(45));
    assert_eq!(driver.exclusive_cpus(), CpuSet::new());
    driver.containers_known();
    driver.prepare(asked("a")).await.unwrap();
    assert_eq!(health(&driver), DeviceCondition::Healthy);
    driver.runtime_lost();
    assert_eq!(
        health(&driver),
        DeviceCondition::Unhealthy("the link to the container runtime is lost (NRI)".into())
    );
    driver.prepare(asked("a")).await.unwrap();
    let waiting = begun(&driver, "b");
    sleep(Duration::from_secs(30)).await;
    assert!(!waiting.is_finished());
    driver.containers_known();
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn claim_that_is_given_up_ends_its_calls_wherever_they_wait() {
    let rig = Rig::new();
    for (name, cpus) in [("a", 4), ("b", 4), ("c", 2)] {
        rig.has(name, object(name, 0, cpus, &["web"]));
    }
    let driver = Arc::new(rig.started());
    let given_up = |name: &str| Err(format!("claim shop/{name}: the kubelet has given it up meanwhile"));
    // For the server, for the runtime, for CPUs.
    for name in ["absent", "a"] {
        let call = begun(&driver, name);
        sleep(Duration::from_secs(2)).await;
        driver.unprepare(asked(name)).await.unwrap();
        assert_eq!(call.await.unwrap(), given_up(name));
    }
    driver.containers_known();
    driver.prepare(asked("a")).await.unwrap();
    let calls = [begun(&driver, "b"), begun(&driver, "b")];
    sleep(Duration::from_secs(2)).await;
    driver.unprepare(asked("b")).await.unwrap();
    for call in calls {
        assert_eq!(call.await.unwrap(), given_up("b"));
    }
    driver.unprepare(asked("a")).await.unwrap();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(driver.exclusive_cpus(), CpuSet::new(), "nothing is left of the calls");
    // A claim that is asked for again, by another pod, is prepared.
    driver.prepare(asked("b")).await.unwrap();
    assert_eq!(driver.exclusive_cpus().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn call_that_decides_after_its_claim_was_given_up_takes_nothing() {
    let rig = Rig::new();
    rig.has("a", object("a", 0, 2, &["web"]));
    let driver = rig.driver();
    let context = ClaimContext {
        driver: "numa-enforcer.io",
        pool: "n1",
        uid: "uid-a",
        missing: MissingAmounts::Refuse,
    };
    let claim = ClaimAllocation::read(&object("a", 0, 2, &["web"]), &context).unwrap();
    let late = driver.running.begin(&claim.uid);
    driver.unprepare(asked("a")).await.unwrap();
    let error = driver.decide(&claim, &late.end()).unwrap_err();
    assert_eq!(error, "claim shop/a: the kubelet has given it up meanwhile");
    driver.prepare(asked("a")).await.unwrap();
    assert!(driver.answer_again(&claim.uid, &late.end()).is_err());
    assert_eq!(driver.exclusive_cpus().len(), 2);
}

fn names(released: &[Arc<PreparedClaim>]) -> Vec<&str> {
    released.iter().map(|claim| claim.name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn claims_that_nothing_knows_any_more_are_given_up_after_five_minutes_and_stay_so() {
    let rig = Rig::new();
    // `gone` is what the played server does not know.
    for name in ["gone", "b"] {
        rig.has(name, object(name, 0, 2, &["web"]));
    }
    let driver = rig.driver();
    for name in ["gone", "b"] {
        driver.prepare(asked(name)).await.unwrap();
    }
    rig.api.0.lock().unwrap().remove("gone");
    let uid = ClaimUid::parse("uid-gone").unwrap();
    let minute = Duration::from_mins(1);
    let in_container = ClaimsInUse { by_containers: [uid.clone()].into(), ..ClaimsInUse::default() };
    let held = ClaimsInUse { by_kubelet: [uid].into(), ..ClaimsInUse::default() };
    let unused = ClaimsInUse::default();
    for used in [&unused, &in_container, &held] {
        for _ in 0..4 {
            assert_eq!(driver.release_orphans(used).await, Ok(Vec::new()));
            sleep(minute).await;
        }
    }
    let mut changes = driver.changes();
    changes.borrow_and_update();
    for _ in 0..5 {
        assert_eq!(driver.release_orphans(&unused).await, Ok(Vec::new()));
        sleep(minute).await;
    }
    let released = driver.release_orphans(&unused).await.unwrap();
    assert_eq!(names(&released), ["gone"]);
    assert!(changes.has_changed().unwrap());
    assert_eq!((driver.exclusive_cpus().len(), rig.cdi().len()), (2, 1));
    assert!(!read(&rig.store().state).contains("uid-gone"));
    drop(driver);
    assert_eq!(rig.driver().exclusive_cpus().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_allocated_anew_under_its_uid_is_given_up() {
    let rig = Rig::new();
    let allocated = object("a", 0, 2, &["web"]);
    let mut elsewhere = allocated.clone();
    elsewhere["status"]["allocation"]["devices"]["results"][0]["shareID"] = json!("another");
    let mut deallocated = allocated.clone();
    deallocated["status"].as_object_mut().unwrap().remove("allocation");
    for (found, is_kept) in [(&allocated, true), (&elsewhere, false), (&deallocated, false)] {
        rig.has("a", allocated.clone());
        let driver = rig.driver();
        driver.prepare(asked("a")).await.unwrap();
        rig.has("a", found.clone());
        for _ in 0..6 {
            driver.release_orphans(&ClaimsInUse::default()).await.unwrap();
            sleep(Duration::from_mins(1)).await;
        }
        assert_eq!(driver.ledger().claims().count(), usize::from(is_kept), "{found}");
        driver.unprepare(asked("a")).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn claims_are_kept_while_the_server_does_not_say_or_the_disk_is_full() {
    let rig = Rig::new();
    for name in ["gone", "away"] {
        rig.has(name, object(name, 0, 2, &["web"]));
    }
    let driver = rig.driver();
    for name in ["gone", "away"] {
        driver.prepare(asked(name)).await.unwrap();
    }
    rig.api.0.lock().unwrap().clear();
    let unused = ClaimsInUse::default();
    // `away` comes first, and the server fails on it.
    for _ in 0..10 {
        assert_eq!(driver.release_orphans(&unused).await, Ok(Vec::new()));
        sleep(Duration::from_mins(1)).await;
    }
    rig.has("away", object("away", 0, 2, &["web"]));
    for _ in 0..6 {
        assert_eq!(driver.release_orphans(&unused).await, Ok(Vec::new()));
        sleep(Duration::from_secs(50)).await;
    }
    let state = rig.store().state;
    let kept = read(&state);
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    sleep(Duration::from_secs(50)).await;
    let error = driver.release_orphans(&unused).await.unwrap_err();
    assert!(error.contains("not a regular file"), "{error}");
    assert_eq!((driver.exclusive_cpus().len(), rig.cdi().len()), (4, 2), "the files go last");
    fs::remove_dir(&state).unwrap();
    fs::write(&state, kept).unwrap();
    assert_eq!(names(&driver.release_orphans(&unused).await.unwrap()), ["gone"]);
    assert_eq!(rig.cdi(), ["numa-enforcer.io-place_claim-uid-away.json"]);
}

/// A file whose reader waits until it is written: a disk that hangs, until the drop of this or for a minute.
struct HangingFile(Option<std::sync::mpsc::Sender<()>>, Option<std::thread::JoinHandle<()>>);

impl HangingFile {
    fn new(path: &Path) -> Self {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
        let (sender, dropped) = std::sync::mpsc::channel::<()>();
        let path = path.to_owned();
        let ending = std::thread::spawn(move || {
            let _dropped = dropped.recv_timeout(Duration::from_mins(1));
            let writer = fs::OpenOptions::new().write(true).open(&path).unwrap();
            fs::remove_file(path).unwrap();
            drop(writer);
        });
        Self(Some(sender), Some(ending))
    }
}

impl Drop for HangingFile {
    fn drop(&mut self) {
        drop(self.0.take());
        self.1.take().unwrap().join().unwrap();
    }
}

#[tokio::test]
async fn a_disk_that_hangs_keeps_only_what_has_to_be_written_waiting() {
    let rig = Rig::new();
    for name in ["a", "b", "c"] {
        rig.has(name, object(name, 0, 2, &["web"]));
    }
    let driver = rig.driver();
    let answer = driver.prepare(asked("a")).await.unwrap();
    let disk = HangingFile::new(&rig.store().cdi.join("numa-enforcer.io-place_claim-uid-b.json"));
    let writing = begun(&driver, "b");
    while !read(&rig.store().state).contains("uid-b") {
        sleep(Duration::from_millis(1)).await;
    }
    let next = begun(&driver, "c");
    // The kubelet asks again for what is prepared, with the API server and without it.
    assert_eq!(driver.prepare(asked("a")).await.unwrap(), answer);
    rig.api.0.lock().unwrap().remove("a");
    assert_eq!(driver.prepare(asked("a")).await.unwrap(), answer);
    assert_eq!(health(&driver), DeviceCondition::Healthy);
    assert!(!writing.is_finished() && !next.is_finished(), "no answer before the write");
    // A claim that is being given up is not answered as one that is there.
    let ended = {
        let driver = Arc::clone(&driver);
        tokio::spawn(async move { driver.unprepare(asked("a")).await })
    };
    tokio::task::yield_now().await;
    let late = begun(&driver, "a");
    tokio::task::yield_now().await;
    assert!(!ended.is_finished() && !late.is_finished());
    drop(disk);
    for call in [writing, next] {
        assert_eq!(call.await.unwrap().unwrap().len(), 1);
    }
    ended.await.unwrap().unwrap();
    late.abort();
    assert!(!read(&rig.store().state).contains("uid-a"));
    assert_eq!(driver.exclusive_cpus().len(), 4);
}
