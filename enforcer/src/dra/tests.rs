//! The driver on real files, with an API server that is played.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::atomic::Ordering};

use enforcer_core::dra::BudgetOptions;
use numa_placement::{Inventory, settings::PlacementSettings};
use numa_topology::synth::Machine;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::*;
use crate::dra::{ReadAnswer, UnreadClaim};

use played::{PlayedApi, PlayedPlaces};

#[path = "tests/conditions.rs"]
mod conditions;
#[path = "tests/played.rs"]
mod played;
#[path = "tests/recovered.rs"]
mod recovered;
#[path = "tests/waits.rs"]
mod waits;

/// A claim of so many CPUs of a node, for these pods.
fn object(name: &str, node: u32, cpus: u32, pods: &[&str]) -> Value {
    let reserved =
        pods.iter().map(|pod| json!({"resource": "pods", "name": pod, "uid": format!("pod-{pod}")}));
    json!({
        "metadata": {"namespace": "shop", "name": name, "uid": format!("uid-{name}")},
        "status": {
            "reservedFor": reserved.collect::<Vec<_>>(),
            "allocation": {"devices": {"results": [{
                "request": "place", "driver": "numa-enforcer.io", "pool": "n1",
                "device": format!("ne-numa{node}"), "shareID": "share",
                "consumedCapacity": {"numa-enforcer.io/cpu": cpus.to_string()},
            }]}},
        },
    })
}

fn asked(name: &str) -> KubeletClaim {
    KubeletClaim { uid: format!("uid-{name}"), namespace: "shop".into(), name: name.into() }
}

/// Two nodes of 8 CPUs, of which claims may have 6 each.
fn machine() -> Inventory {
    let machine = Machine::new().sockets(2).cores(4).build();
    Inventory::new(machine, Vec::new(), &PlacementSettings::default()).unwrap()
}

/// What claims may have, without the CPUs of a kubelet.
fn supply(kubelet: &CpuSet) -> ClaimSupply {
    ClaimSupply::new(&machine(), &BudgetOptions::default(), kubelet)
}

struct Rig {
    dir: TempDir,
    api: Arc<PlayedApi>,
    places: Arc<PlayedPlaces>,
}

impl Rig {
    fn new() -> Self {
        let places = Arc::new(PlayedPlaces::new(Arc::new(machine()), false));
        Self { dir: tempfile::tempdir().unwrap(), api: Arc::default(), places }
    }

    fn store(&self) -> ClaimStore {
        ClaimStore {
            state: self.dir.path().join("state/dra.json"),
            cdi: self.dir.path().join("cdi"),
            compatible: false,
            metadata: Some(self.dir.path().join("metadata")),
        }
    }

    /// The driver of a daemon that knows the containers of its node.
    fn driver(&self) -> Arc<ClaimDriver> {
        let driver = Arc::new(self.started());
        driver.containers_known();
        driver
    }

    /// The driver as a start of the daemon makes it.
    fn started(&self) -> ClaimDriver {
        let stored = self.store().load("n1", "boot").unwrap();
        assert_eq!(stored.damage, None);
        self.store().tidy(&stored.ledger).unwrap();
        let settings = DriverSettings {
            driver: "numa-enforcer.io".into(),
            missing: MissingAmounts::Refuse,
            share_exclusive: false,
            steers_interrupts: Arc::default(),
        };
        let source: Arc<dyn ClaimSource> = Arc::clone(&self.api) as _;
        let places: Arc<dyn ClaimPlaces> = Arc::clone(&self.places) as _;
        ClaimDriver::new(settings, self.store(), source, places, stored.ledger)
    }

    /// Containers without claims have these CPUs from now on, and the driver learns of it.
    async fn give(&self, driver: &Arc<ClaimDriver>, cpus: &CpuSet) {
        self.places.given.lock().unwrap().clone_from(cpus);
        driver.observe_machine(CpuSet::new()).await.unwrap();
    }

    fn held(&self) -> CpuSet {
        self.places.held.lock().unwrap().clone()
    }

    fn has(&self, name: &str, object: Value) {
        self.api.0.lock().unwrap().insert(name.into(), object);
    }

    fn cdi(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.store().cdi) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_on_disk_before_it_is_answered_and_known_after_a_restart() {
    let rig = Rig::new();
    rig.has("a", object("a", 1, 4, &["web"]));
    let driver = rig.driver();
    let answer = driver.prepare(asked("a")).await.unwrap();
    let expected = PreparedDevice {
        requests: vec!["place".into()],
        pool: "n1".into(),
        device: "ne-numa1".into(),
        cdi_ids: vec!["numa-enforcer.io/place=claim-uid-a".into()],
        share_id: Some("share".into()),
    };
    assert_eq!(answer, [expected]);
    let cpus = driver.exclusive_cpus();
    assert_eq!(cpus.len(), 4);
    assert_eq!(rig.cdi(), ["numa-enforcer.io-place_claim-uid-a.json"]);
    assert!(read(&rig.store().state).contains("uid-a"));
    drop(driver);
    // The server is away, and a file is missing.
    rig.api.0.lock().unwrap().clear();
    fs::remove_dir_all(rig.store().cdi).unwrap();
    let driver = rig.driver();
    assert_eq!(driver.exclusive_cpus(), cpus);
    assert_eq!(rig.cdi(), ["numa-enforcer.io-place_claim-uid-a.json"]);
    assert_eq!(driver.prepare(asked("a")).await.unwrap(), answer);
    assert_eq!(rig.held(), cpus);
    driver.unprepare(asked("a")).await.unwrap();
    driver.unprepare(asked("a")).await.unwrap();
    assert_eq!((rig.cdi(), driver.exclusive_cpus()), (Vec::<String>::new(), CpuSet::new()));
    assert_eq!(rig.held(), CpuSet::new());
    assert_eq!(rig.driver().exclusive_cpus(), CpuSet::new());
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_cpus_that_are_being_given_up_and_not_for_ever() {
    let rig = Rig::new();
    for (name, cpus) in [("a", 4), ("b", 4), ("c", 2)] {
        rig.has(name, object(name, 0, cpus, &["web"]));
    }
    let driver = rig.driver();
    driver.prepare(asked("a")).await.unwrap();
    let begun = Instant::now();
    let error = driver.prepare(asked("b")).await.unwrap_err();
    assert_eq!(error, "claim shop/b: numa0: 4 CPUs asked, 2 free, still held: 4 by claim shop/a");
    assert!(begun.elapsed() >= LIMIT && begun.elapsed() < Duration::from_secs(45));
    let waiting = tokio::spawn({
        let driver = Arc::clone(&driver);
        async move { driver.prepare(asked("b")).await }
    });
    sleep(Duration::from_secs(2)).await;
    driver.prepare(asked("c")).await.unwrap();
    assert!(!waiting.is_finished());
    driver.unprepare(asked("a")).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap()[0].device, "ne-numa0");
    assert_eq!(driver.exclusive_cpus().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_has_lost_a_cpu_is_told_and_gets_one_that_is_given_back() {
    let rig = Rig::new();
    for (name, cpus) in [("a", 4), ("b", 2)] {
        rig.has(name, object(name, 0, cpus, &["web"]));
    }
    let driver = rig.driver();
    driver.prepare(asked("a")).await.unwrap();
    let had = driver.exclusive_cpus();
    driver.prepare(asked("b")).await.unwrap();
    let devices = ["ne-numa0".to_owned(), "ne-numa1".to_owned()];
    let sick = |driver: &ClaimDriver| {
        let health = driver.health(&devices);
        let sick = health.devices.iter().filter(|(_, how)| *how != DeviceCondition::Healthy);
        sick.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(sick(&driver), Vec::<String>::new());
    let mut changes = driver.changes();
    changes.borrow_and_update();
    let gone: CpuSet = had.iter().take(2).collect();
    rig.give(&driver, &gone).await;
    assert!(changes.has_changed().unwrap());
    assert_eq!(sick(&driver), ["ne-numa0"]);
    driver.unprepare(asked("b")).await.unwrap();
    assert_eq!(sick(&driver), Vec::<String>::new());
    let has = driver.exclusive_cpus();
    assert_eq!((has.len(), has.is_disjoint(&gone)), (4, true));
    assert!(read(&rig.store().state).contains(&has.to_string()), "the disk has the new CPUs");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_gets_cpus_that_the_machine_gains() {
    let rig = Rig::new();
    for (name, cpus) in [("a", 2), ("b", 4)] {
        rig.has(name, object(name, 0, cpus, &["web"]));
    }
    let driver = rig.driver();
    rig.give(&driver, &"0-1".parse().unwrap()).await;
    driver.prepare(asked("a")).await.unwrap();
    let waiting = tokio::spawn({
        let driver = Arc::clone(&driver);
        async move { driver.prepare(asked("b")).await }
    });
    sleep(Duration::from_secs(2)).await;
    assert!(!waiting.is_finished());
    rig.give(&driver, &CpuSet::new()).await;
    assert_eq!(waiting.await.unwrap().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_is_waited_for_and_other_claims_are_refused_by_name() {
    let rig = Rig::new();
    let driver = rig.driver();
    let later = async {
        sleep(Duration::from_secs(10)).await;
        rig.has("a", object("a", 0, 2, &["web"]));
    };
    let (answer, ()) = tokio::join!(driver.prepare(asked("a")), later);
    assert_eq!(answer.unwrap().len(), 1);
    let away = driver.prepare(asked("absent")).await.unwrap_err();
    assert_eq!(away, "reading claim shop/absent: get: 503: the server is starting");
    for (name, why) in [("gone", "get: not found"), ("forbidden", "get: not permitted")] {
        let limit = Duration::from_millis(1);
        let error = timeout(limit, driver.prepare(asked(name))).await.unwrap().unwrap_err();
        assert_eq!(error, format!("reading claim shop/{name}: {why}"), "no other try");
    }
    let mut replaced = object("b", 0, 2, &["web"]);
    replaced["metadata"]["uid"] = json!("another");
    rig.has("b", replaced);
    let error = timeout(Duration::from_secs(1), driver.prepare(asked("b"))).await.unwrap().unwrap_err();
    assert!(error.starts_with("claim shop/b: metadata.uid: the claim was replaced"), "{error}");
    rig.has("c", object("c", 0, 2, &["one", "two"]));
    let error = timeout(Duration::from_secs(1), driver.prepare(asked("c"))).await.unwrap().unwrap_err();
    assert!(error.contains("its exclusive CPUs are for one pod"), "{error}");
    let bad = KubeletClaim { uid: "../x".into(), ..asked("a") };
    assert_eq!(driver.prepare(bad.clone()).await.unwrap_err(), "claim shop/a: ../x is no uid");
    driver.unprepare(bad).await.unwrap();
    assert_eq!(driver.exclusive_cpus().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_prepares_nothing_and_keeps_no_claim_from_being_given_up() {
    let rig = Rig::new();
    for name in ["a", "b"] {
        rig.has(name, object(name, 0, 2, &["web"]));
    }
    let driver = rig.driver();
    driver.prepare(asked("a")).await.unwrap();
    // In the place of each file is a directory, as a full disk has none.
    let store = rig.store();
    let (state, cdi) = (store.state.clone(), store.cdi.join("numa-enforcer.io-place_claim-uid-b.json"));
    fs::create_dir(&cdi).unwrap();
    let error = driver.prepare(asked("b")).await.unwrap_err();
    assert!(error.contains("not a regular file"), "{error}");
    assert!(!read(&state).contains("uid-b") && driver.exclusive_cpus().len() == 2);
    fs::remove_dir(&cdi).unwrap();
    let kept = read(&state);
    fs::remove_file(&state).unwrap();
    fs::create_dir(&state).unwrap();
    let error = driver.prepare(asked("b")).await.unwrap_err();
    assert!(error.contains("not a regular file"), "{error}");
    // The kubelet asks until it succeeds, and the pod would never end on a full disk.
    for _ in 0..2 {
        driver.unprepare(asked("a")).await.unwrap();
        assert_eq!((driver.exclusive_cpus(), rig.held()), (CpuSet::new(), CpuSet::new()));
    }
    assert!(driver.prepare(asked("b")).await.is_err(), "what is not on disk is not answered");
    fs::remove_dir(&state).unwrap();
    fs::write(&state, kept).unwrap();
    driver.prepare(asked("b")).await.unwrap();
    assert_eq!(rig.cdi(), ["numa-enforcer.io-place_claim-uid-b.json"]);
    assert!(!read(&state).contains("uid-a"), "what was left out is written");
}

#[test]
fn a_damaged_state_file_is_kept_aside_and_other_files_of_the_directory_stay() {
    let rig = Rig::new();
    let store = rig.store();
    fs::create_dir_all(store.state.parent().unwrap()).unwrap();
    fs::create_dir_all(&store.cdi).unwrap();
    fs::write(&store.state, "{\"version\": 1").unwrap();
    fs::write(store.cdi.join("vendor.json"), "{}").unwrap();
    let file = "numa-enforcer.io-place_claim-uid-x.json";
    let variables = json!(["NUMA_ENFORCER_CLAIM_uid-x=1-2,5;0"]);
    let text = json!({"devices": [{"containerEdits": {"env": variables}}]});
    fs::write(store.cdi.join(file), text.to_string()).unwrap();
    let stored = store.load("n1", "boot").unwrap();
    let damage = stored.damage.unwrap();
    assert!(damage.contains("dra.json: first line: ") && damage.contains("dra.json.damaged"), "{damage}");
    assert_eq!(fs::read_to_string(store.state.with_added_extension("damaged")).unwrap(), "{\"version\": 1");
    assert_eq!(rig.cdi(), [file, "vendor.json"], "a container of the claim may start again");
    // Another one is kept, too.
    fs::write(&store.state, "x").unwrap();
    let damage = store.load("n1", "boot").unwrap().damage.unwrap();
    assert!(damage.ends_with("dra.json.damaged.2"), "{damage}");
    store.tidy(&stored.ledger).unwrap();
    assert_eq!(rig.cdi(), ["vendor.json"]);
    assert_eq!(store.load("n1", "boot").unwrap().damage, None);
}

#[tokio::test(start_paused = true)]
async fn what_a_runtime_reads_can_be_read_by_all() {
    let rig = Rig::new();
    rig.has("a", object("a", 0, 2, &["web"]));
    rig.driver().prepare(asked("a")).await.unwrap();
    let path = rig.store().cdi.join("numa-enforcer.io-place_claim-uid-a.json");
    let metadata = rig.store().metadata.unwrap().join("uid-a_place.json");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&path), mode(&metadata)], [0o644, 0o644]);
    // As an umask of 077 leaves a file.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, "old").unwrap();
    rig.driver();
    assert_eq!(mode(&path), 0o644);
}

#[tokio::test(start_paused = true)]
async fn metadata_of_devices_come_and_go_with_the_claim() {
    let rig = Rig::new();
    rig.has("a", object("a", 1, 2, &["web"]));
    let driver = rig.driver();
    driver.prepare(asked("a")).await.unwrap();
    let path = rig.store().metadata.unwrap().join("uid-a_place.json");
    let text: Value = serde_json::from_str(&read(&path)).unwrap();
    let attributes = &text["requests"][0]["devices"][0]["attributes"];
    assert_eq!(attributes["numa-enforcer.io/cpus"]["string"], driver.exclusive_cpus().to_string());
    let cdi: Value =
        serde_json::from_str(&read(&rig.store().cdi.join("numa-enforcer.io-place_claim-uid-a.json")))
            .unwrap();
    let mount = &cdi["devices"][0]["containerEdits"]["mounts"][0];
    assert_eq!(mount["hostPath"], path.to_str().unwrap());
    assert!(mount["containerPath"].as_str().unwrap().contains("/resourceclaims/a/place/"), "{mount}");
    // A lost file comes with the next request, and one of an unknown claim goes with the next start.
    fs::remove_file(&path).unwrap();
    driver.prepare(asked("a")).await.unwrap();
    assert!(path.exists());
    let stale = path.with_file_name("uid-x_place.json");
    fs::write(&stale, "{}").unwrap();
    rig.store().tidy(&driver.ledger()).unwrap();
    assert!(path.exists() && !stale.exists());
    driver.unprepare(asked("a")).await.unwrap();
    assert!(!path.exists());
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_leaves_hands_its_claims_over() {
    let rig = Rig::new();
    rig.has("a", object("a", 1, 2, &["web"]));
    let none = ClaimSupply::default();
    let old = rig.store().take_over(("n1", "boot"), &none, Duration::ZERO).unwrap();
    let driver = rig.started().with_lock(old.lock);
    driver.containers_known();
    let driver = Arc::new(driver);
    let answer = driver.prepare(asked("a")).await.unwrap();
    assert!(
        rig.store().take_over(("n1", "boot"), &none, Duration::ZERO).is_err(),
        "the old daemon still decides"
    );
    drop(driver);
    let new = rig.store().take_over(("n1", "boot"), &none, Duration::ZERO).unwrap();
    assert_eq!(new.ledger.claims().count(), 1);
    let next = Arc::new(rig.started().with_lock(new.lock));
    next.containers_known();
    assert_eq!(next.prepare(asked("a")).await.unwrap(), answer);
    next.unprepare(asked("a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cpus_that_a_container_gets_meanwhile_go_to_no_claim() {
    let rig = Rig::new();
    rig.has("a", object("a", 0, 2, &["web"]));
    let driver = rig.driver();
    let chosen = {
        driver.prepare(asked("a")).await.unwrap();
        driver.exclusive_cpus()
    };
    driver.unprepare(asked("a")).await.unwrap();
    // The same CPUs would be chosen again.
    *rig.places.meanwhile.lock().unwrap() = chosen.clone();
    driver.prepare(asked("a")).await.unwrap();
    assert_eq!(driver.exclusive_cpus().len(), 2);
    assert!(driver.exclusive_cpus().is_disjoint(&chosen), "{} and {chosen}", driver.exclusive_cpus());
    assert_eq!(rig.held(), driver.exclusive_cpus());
}

#[tokio::test(start_paused = true)]
async fn cpus_that_a_container_gets_meanwhile_replace_no_lost_ones() {
    let rig = Rig::new();
    rig.has("a", object("a", 0, 4, &["web"]));
    let driver = rig.driver();
    driver.prepare(asked("a")).await.unwrap();
    let had = driver.exclusive_cpus();
    let lost: CpuSet = had.iter().take(1).collect();
    let meanwhile = supply(&CpuSet::new()).nodes()[0].cpus.difference(&had);
    rig.places.meanwhile.lock().unwrap().clone_from(&meanwhile);
    rig.give(&driver, &lost).await;
    assert_eq!(driver.exclusive_cpus(), had.difference(&lost), "{meanwhile}");
    assert_eq!(rig.held(), driver.exclusive_cpus());
}
