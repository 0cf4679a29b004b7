//! What the DRA driver costs on real files of the temporary directory, beside an API server and a placement
//! that answer at once.
//!
//! Machine: 8 NUMA nodes of 256 CPUs. Measured: the time of a prepared claim alone and beside 1,000 others;
//! the memory that 1,000 claims take; and the lives of claims in random order, 64 at a time, with restarts of
//! the driver. After each step of a life all CPUs of claims are compared, in the ledger, in the state file
//! and in the files that runtimes read, and so are the devices that would be published: another device would
//! be a write of a slice.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use enforcer::dra::{
    ClaimDriver, ClaimPlaces, ClaimSource, ClaimStore, DriverSettings, ReadAnswer, UnreadClaim,
};
use enforcer_core::dra::{
    DRIVER, DeviceModel, MissingAmounts, NodeAllocatableShape, PublishOptions,
    slice::{ResourceSlice, SliceOwner, slices},
};
use enforcer_runtime::dra::KubeletClaim;
use numa_placement::{Inventory, settings::PlacementSettings};
use numa_topology::{set::CpuSet, synth::Machine};
use serde_json::{Value, json};
use tempfile::TempDir;

const NODES: u64 = 8;
/// Claims that the memory is measured of, and beside which one is prepared.
const MANY: u64 = 1_000;
/// Prepared claims that are timed.
const TIMED: u64 = 2_000;
/// Lives of claims.
const LIVES: u64 = 10_000;
/// Claims that live at a time.
const TOGETHER: usize = 64;
/// Steps between two restarts of the driver.
const RESTART: u64 = 250;

#[path = "../src/dra/tests/played.rs"]
mod played;

use played::{PlayedApi, PlayedPlaces, held};

fn main() -> Result<()> {
    // cargo test runs benches too, to see that they start; it does not pass --bench.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let times = |full: u64| if is_bench { full } else { full.div_ceil(500) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        prepare_times("alone", times(TIMED), 0).await?;
        memory(times(MANY)).await?;
        prepare_times("beside 1000 claims", times(TIMED), times(MANY)).await?;
        lives(times(LIVES)).await
    })
}

/// A driver with what it works on.
struct Rig {
    dir: TempDir,
    api: Arc<PlayedApi>,
    places: Arc<PlayedPlaces>,
    driver: Arc<ClaimDriver>,
}

impl Rig {
    fn new() -> Result<Self> {
        let machine = Machine::new().sockets(8).cores(128).threads(2).build();
        let inventory = Inventory::new(machine, Vec::new(), &PlacementSettings::default());
        let inventory = Arc::new(inventory.map_err(|error| anyhow::anyhow!("the machine: {error}"))?);
        let places = Arc::new(PlayedPlaces::new(inventory, true));
        let (dir, api) = (tempfile::tempdir()?, Arc::default());
        let driver = started(&store(dir.path()), &api, &places)?;
        Ok(Self { dir, api, places, driver })
    }

    fn restart(&mut self) -> Result<()> {
        self.driver = started(&store(self.dir.path()), &self.api, &self.places)?;
        Ok(())
    }

    /// Allocates a claim to a node.
    fn allocate(&self, number: u64, cpus: u64) {
        let name = name(number);
        let object = json!({
            "metadata": {"namespace": "shop", "name": name, "uid": uid(number)},
            "status": {
                "reservedFor": [{"resource": "pods", "name": name, "uid": format!("pod-{number}")}],
                "allocation": {"devices": {"results": [{
                    "request": "place", "driver": DRIVER, "pool": "n1",
                    "device": format!("ne-numa{}", number % NODES),
                    "shareID": format!("6f4b3f0e-5a41-4d6e-9d55-{number:012}"),
                    "consumedCapacity": {
                        "numa-enforcer.io/cpu": cpus.to_string(), "numa-enforcer.io/memory": "64Mi",
                    },
                }]}},
            },
        });
        self.claims().insert(name, object);
    }

    fn claims(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Value>> {
        held(&self.api.0)
    }

    async fn prepare(&self, number: u64) -> Result<()> {
        let devices = self.driver.prepare(asked(number)).await.map_err(anyhow::Error::msg)?;
        ensure!(devices.len() == 1, "claim {number} has {} devices", devices.len());
        Ok(())
    }

    async fn give_up(&self, number: u64) -> Result<()> {
        self.claims().remove(&name(number));
        self.driver.unprepare(asked(number)).await.map_err(anyhow::Error::msg)
    }

    /// What would be published now.
    fn slices(&self) -> Result<Vec<ResourceSlice>> {
        let supply = self.places.supply().context("no supply")?;
        let options = PublishOptions {
            model: DeviceModel::SharedNodes,
            node_allocatable: NodeAllocatableShape::Absent,
            full_cores: false,
            version: "1.0.0",
        };
        let owner = SliceOwner { driver: DRIVER, node: "n1", node_uid: "uid", generation: 1 };
        Ok(slices(&self.places.machine, &supply, &options, &owner))
    }
}

fn store(dir: &Path) -> ClaimStore {
    ClaimStore { state: dir.join("state/dra.json"), cdi: dir.join("cdi"), compatible: false, metadata: None }
}

fn started(store: &ClaimStore, api: &Arc<PlayedApi>, places: &Arc<PlayedPlaces>) -> Result<Arc<ClaimDriver>> {
    let stored = store.load("n1", "boot")?;
    ensure!(stored.damage.is_none(), "{:?}", stored.damage);
    store.tidy(&stored.ledger)?;
    let settings = DriverSettings {
        driver: DRIVER.to_owned(),
        missing: MissingAmounts::Refuse,
        share_exclusive: false,
        steers_interrupts: Arc::default(),
    };
    let (api, places): (Arc<dyn ClaimSource>, Arc<dyn ClaimPlaces>) =
        (Arc::clone(api) as _, Arc::clone(places) as _);
    let driver = ClaimDriver::new(settings, store.clone(), api, places, stored.ledger);
    driver.containers_known();
    Ok(Arc::new(driver))
}

fn name(number: u64) -> String {
    format!("service-{number:06}-place-x2x4z")
}

fn uid(number: u64) -> String {
    format!("0d9c2f4e-77b1-4c3a-8f21-{number:012}")
}

fn asked(number: u64) -> KubeletClaim {
    KubeletClaim { uid: uid(number), namespace: "shop".into(), name: name(number) }
}

/// Prepares claims one after another, with so many that stay.
async fn prepare_times(what: &str, times: u64, beside: u64) -> Result<()> {
    let rig = Rig::new()?;
    for number in 0..beside {
        rig.allocate(number, 1);
        rig.prepare(number).await?;
    }
    let mut took = Vec::new();
    for number in beside..beside + times {
        rig.allocate(number, 4);
        let begin = Instant::now();
        rig.prepare(number).await?;
        took.push(begin.elapsed());
        rig.give_up(number).await?;
    }
    took.sort_unstable();
    let at = |percent: usize| took.get((took.len() * percent / 100).min(took.len() - 1)).copied();
    let shown = |percent| at(percent).map(|took: Duration| format!("{:.1}", took.as_secs_f64() * 1e3));
    println!(
        "claims: a claim prepared {what}, {times} times: middle {} ms, p99 {} ms",
        shown(50).context("no claim")?,
        shown(99).context("no claim")?
    );
    Ok(())
}

/// Anonymous memory of this process in KiB.
fn anonymous_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    line.trim().trim_end_matches(" kB").trim().parse().context("RssAnon")
}

async fn memory(claims: u64) -> Result<()> {
    let rig = Rig::new()?;
    // What any claim takes once.
    rig.allocate(claims, 1);
    rig.prepare(claims).await?;
    let before = anonymous_kib()?;
    for number in 0..claims {
        rig.allocate(number, 1);
        rig.prepare(number).await?;
        // The server's memory is none of the driver's.
        rig.claims().remove(&name(number));
    }
    let grown = anonymous_kib()?.saturating_sub(before);
    println!("claims: memory of {claims} claims: {grown} KiB");
    Ok(())
}

/// Pseudo-random numbers, the same in each run.
struct Steps(u64);

impl Steps {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit.max(1)
    }
}

async fn lives(lives: u64) -> Result<()> {
    let mut rig = Rig::new()?;
    let published = rig.slices()?;
    let (mut steps, mut begun, mut living) = (Steps(1), 0, Vec::new());
    let (mut looks, mut restarts, mut writes, mut most) = (0_u64, 0_u64, 0_u64, 0);
    let begin = Instant::now();
    while begun < lives || !living.is_empty() {
        let is_birth = begun < lives && (living.is_empty() || living.len() < TOGETHER && steps.below(2) == 0);
        if is_birth {
            rig.allocate(begun, 1 + u64::try_from(steps.below(8))?);
            rig.prepare(begun).await?;
            living.push(begun);
            begun += 1;
        } else {
            let number = living.swap_remove(steps.below(living.len()));
            rig.give_up(number).await?;
        }
        looks += 1;
        if looks.is_multiple_of(RESTART) {
            rig.restart()?;
            restarts += 1;
            // The kubelet asks again for a sandbox that is made anew.
            if !living.is_empty() {
                rig.prepare(living[steps.below(living.len())]).await?;
            }
        }
        most = most.max(living.len());
        compare(&rig, living.len()).with_context(|| format!("after step {looks}"))?;
        writes += u64::from(rig.slices()? != published);
    }
    let minutes = begin.elapsed().as_secs_f64() / 60.0;
    println!(
        "claims: {lives} lives, {most} at a time, {restarts} restarts: 0 overlapping CPUs in {looks} looks at \
         ledger, state and files; {writes} writes of slices; {:.0} claims per minute",
        f64::from(u32::try_from(lives)?) / minutes
    );
    Ok(())
}

/// Fails if a CPU is in two claims, or the ledger, the state file and the files of claims do not agree.
fn compare(rig: &Rig, living: usize) -> Result<()> {
    let store = store(rig.dir.path());
    // The reader refuses a state in which a CPU is in two claims.
    let stored = store.load("n1", "boot")?;
    ensure!(stored.damage.is_none(), "{:?}", stored.damage);
    let ledger = rig.driver.exclusive_cpus();
    ensure!(stored.ledger.exclusive_cpus() == ledger, "the state file has other CPUs than the ledger");
    ensure!(stored.ledger.claims().count() == living, "claims are lost or leaked");
    let mut in_files = CpuSet::new();
    let mut files = 0;
    for entry in fs::read_dir(&store.cdi)? {
        let text = fs::read_to_string(entry?.path())?;
        let value = text.split_once("NUMA_ENFORCER_CLAIM_").and_then(|(_, rest)| rest.split_once('='));
        let list = value.and_then(|(_, rest)| rest.split_once(';')).context("a file without CPUs")?.0;
        let cpus: CpuSet = list.parse().map_err(|error| anyhow::anyhow!("{list}: {error}"))?;
        ensure!(cpus.is_disjoint(&in_files), "CPUs {cpus} are in two files");
        in_files.extend(&cpus);
        files += 1;
    }
    ensure!(files == living && in_files == ledger, "the files of claims have other CPUs than the ledger");
    ensure!(*held(&rig.places.held) == ledger, "the placement holds other CPUs than the ledger");
    Ok(())
}
