//! What the driver needs of the placement of this node.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
};

use enforcer_core::dra::{ClaimLedger, ClaimSupply, ClaimUid};
use numa_placement::Inventory;
use numa_topology::set::CpuSet;
use tokio::sync::watch;

/// Waits for a change, for ever if its sender is gone.
pub(super) async fn change<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        pending::<()>().await;
    }
}

/// The placement of this node: it gives containers what their claims have, and nothing else to others of it.
pub trait ClaimPlaces: Send + Sync + 'static {
    /// The machine; `None` before it is known.
    fn inventory(&self) -> Option<Arc<Inventory>>;

    /// Tells each change of what claims may have, of the link to the runtime, and each claim in doubt.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Whether the container runtime has told its containers, and tells changes.
    fn has_runtime(&self) -> bool;

    /// Prepared claims that containers of other pods name, as long as these containers are there; a pod may
    /// have been added since they were read.
    fn unconfirmed(&self) -> BTreeSet<ClaimUid>;

    /// Shares of remote memory accesses of the containers of claims, 0 to 1, as the latest turn has them.
    fn remote_accesses(&self) -> BTreeMap<ClaimUid, f64> {
        BTreeMap::new()
    }

    /// Claims whose exclusive CPUs a container of theirs does not have, because another controller owns its
    /// cpuset, with the reason in words.
    fn unused(&self) -> BTreeMap<ClaimUid, String> {
        BTreeMap::new()
    }

    /// What turns have corrected of the containers of claims since the last call, in words.
    fn take_corrections(&self) -> BTreeMap<ClaimUid, String> {
        BTreeMap::new()
    }

    /// Claims that containers name.
    fn named(&self) -> BTreeSet<ClaimUid>;

    /// What claims may have, beside the CPUs that containers without claims have exclusively; `None` before
    /// the machine is known.
    fn supply(&self) -> Option<ClaimSupply>;

    /// Holds these claims in place of those before, if no container without a claim has an exclusive CPU that
    /// they have got since.
    ///
    /// # Errors
    /// The CPUs that such containers have; nothing is changed.
    fn hold(&self, ledger: &ClaimLedger, supply: &ClaimSupply) -> Result<(), CpuSet>;

    /// Holds these claims in place of those before, whatever containers have.
    fn hold_all(&self, ledger: &ClaimLedger, supply: &ClaimSupply);
}
