//! An API server and a placement that answer at once, for tests and benches of the driver.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use enforcer_core::dra::{BudgetOptions, ClaimLedger, ClaimSupply, ClaimUid};
use enforcer_runtime::dra::KubeletClaim;
use numa_placement::Inventory;
use numa_topology::set::CpuSet;
use serde_json::Value;
use tokio::sync::watch;

use super::{ClaimPlaces, ClaimSource, ReadAnswer, UnreadClaim};

pub(super) fn held<T>(one: &Mutex<T>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Claims by name; without one the server fails.
#[derive(Default)]
pub(super) struct PlayedApi(pub(super) Mutex<BTreeMap<String, Value>>);

impl ClaimSource for PlayedApi {
    fn read(&self, claim: &KubeletClaim) -> ReadAnswer<'_> {
        let found = held(&self.0).get(&claim.name).cloned();
        let unread = match &*claim.name {
            "gone" => UnreadClaim::Gone("get: not found".into()),
            "forbidden" => UnreadClaim::Lasting("get: not permitted".into()),
            _ => UnreadClaim::Passing("get: 503: the server is starting".into()),
        };
        Box::pin(async move { found.ok_or(unread) })
    }
}

/// The placement of the node: CPUs of containers without claims, and the claims that it holds.
pub(super) struct PlayedPlaces {
    pub(super) machine: Arc<Inventory>,
    /// Whether the machine is known beside what claims may have of it.
    pub(super) shows_machine: bool,
    pub(super) given: Mutex<CpuSet>,
    /// CPUs that a container gets after the next look at the supply.
    pub(super) meanwhile: Mutex<CpuSet>,
    pub(super) held: Mutex<CpuSet>,
    pub(super) is_without_runtime: AtomicBool,
    pub(super) unconfirmed: Mutex<BTreeSet<ClaimUid>>,
    pub(super) unused: Mutex<BTreeMap<ClaimUid, String>>,
    pub(super) remote: Mutex<BTreeMap<ClaimUid, f64>>,
    pub(super) corrections: Mutex<BTreeMap<ClaimUid, String>>,
}

impl PlayedPlaces {
    pub(super) fn new(machine: Arc<Inventory>, shows_machine: bool) -> Self {
        Self {
            machine,
            shows_machine,
            given: Mutex::default(),
            meanwhile: Mutex::default(),
            held: Mutex::default(),
            is_without_runtime: AtomicBool::default(),
            unconfirmed: Mutex::default(),
            unused: Mutex::default(),
            remote: Mutex::default(),
            corrections: Mutex::default(),
        }
    }
}

impl ClaimPlaces for PlayedPlaces {
    fn inventory(&self) -> Option<Arc<Inventory>> {
        self.shows_machine.then(|| Arc::clone(&self.machine))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }

    fn has_runtime(&self) -> bool {
        !self.is_without_runtime.load(Ordering::Relaxed)
    }

    fn unconfirmed(&self) -> BTreeSet<ClaimUid> {
        held(&self.unconfirmed).clone()
    }

    fn remote_accesses(&self) -> BTreeMap<ClaimUid, f64> {
        held(&self.remote).clone()
    }

    fn unused(&self) -> BTreeMap<ClaimUid, String> {
        held(&self.unused).clone()
    }

    fn take_corrections(&self) -> BTreeMap<ClaimUid, String> {
        std::mem::take(&mut held(&self.corrections))
    }

    fn named(&self) -> BTreeSet<ClaimUid> {
        BTreeSet::new()
    }

    fn supply(&self) -> Option<ClaimSupply> {
        let supply = ClaimSupply::new(&self.machine, &BudgetOptions::default(), &held(&self.given));
        let meanwhile = std::mem::take(&mut *held(&self.meanwhile));
        held(&self.given).extend(&meanwhile);
        Some(supply)
    }

    fn hold(&self, ledger: &ClaimLedger, supply: &ClaimSupply) -> Result<(), CpuSet> {
        let new = ledger.exclusive_cpus().difference(&held(&self.held));
        let taken = new.intersection(&held(&self.given));
        if !taken.is_empty() {
            return Err(taken);
        }
        self.hold_all(ledger, supply);
        Ok(())
    }

    fn hold_all(&self, ledger: &ClaimLedger, _: &ClaimSupply) {
        *held(&self.held) = ledger.exclusive_cpus();
    }
}
