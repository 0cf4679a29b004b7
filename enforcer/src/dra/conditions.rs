//! Tells of claims: whether the memory accesses of their containers stay on their nodes, and what turns have
//! corrected of these.
//!
//! The condition in the status is off by default (`dra.claim_conditions`): it takes the right to change the
//! status of claims. Events go where those of pods go (`cluster.events`). Invariants: a condition is written
//! only when it changes, and at most once in three looks. A write that fails is the last one of its look,
//! for the others would fail too; all are tried at the next look, or after minutes where a right is missing.
//! A claim that becomes remote has one event; events beyond the rate are dropped and counted by their writer.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use enforcer_cluster::ApiConnection;
use enforcer_core::{
    cluster::events::{EventObject, EventReason, NodeEvent},
    dra::{ClaimLocality, ClaimUid, PreparedClaim, locality_status, remote_words},
};
use enforcer_runtime::dra::KubeletClaim;
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    driver::{ClaimDriver, named},
    places::ClaimPlaces,
    source::UnreadClaim,
};
use crate::wall_clock;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(30);

/// Time without writes after the server has refused one.
const REFUSED: Duration = Duration::from_mins(5);

/// The end of a write.
pub(super) type Written<'a> = Pin<Box<dyn Future<Output = Result<(), UnreadClaim>> + Send + 'a>>;

/// Where the status of claims is written.
pub(super) trait ClaimStatus: Send + Sync + 'static {
    /// Writes these devices into the status of the claim.
    fn write(&self, claim: KubeletClaim, devices: Value) -> Written<'_>;
}

impl ClaimStatus for watch::Receiver<Option<Arc<ApiConnection>>> {
    fn write(&self, claim: KubeletClaim, devices: Value) -> Written<'_> {
        let connection = self.borrow().clone();
        Box::pin(async move {
            let none = || UnreadClaim::Passing("there is no connection to the API server yet".to_owned());
            let connection = connection.ok_or_else(none)?;
            let KubeletClaim { uid, namespace, name } = claim;
            let written = connection.write_claim_devices((&namespace, &name), &uid, devices).await;
            written.map_err(UnreadClaim::from)
        })
    }
}

/// Where events of claims go.
pub(super) type ClaimEvents = Box<dyn Fn(NodeEvent) + Send + Sync>;

/// Keeps the conditions of claims, and sends their events. A share of remote accesses from `limit` on is
/// remote.
pub(super) async fn tell_of_claims(
    (driver, places): (Arc<ClaimDriver>, Arc<dyn ClaimPlaces>),
    (status, events): (Option<Box<dyn ClaimStatus>>, Option<ClaimEvents>),
    limit: f64,
) -> io::Result<Infallible> {
    let mut known = BTreeMap::<ClaimUid, ClaimLocality>::new();
    let mut told = BTreeMap::<ClaimUid, ClaimLocality>::new();
    let mut told_unused = BTreeSet::<ClaimUid>::new();
    let mut warned = String::new();
    let mut writes_from = Instant::now();
    loop {
        sleep(LOOK).await;
        let mut is_writing = Instant::now() >= writes_from;
        let (remote, corrections) = (places.remote_accesses(), places.take_corrections());
        let unused = places.unused();
        told_unused.retain(|uid| unused.contains_key(uid));
        let ledger = driver.ledger();
        known.retain(|uid, _| ledger.claim(uid).is_some());
        told.retain(|uid, _| ledger.claim(uid).is_some());
        for claim in ledger.claims().filter(|claim| !claim.is_recovered()) {
            if let (Some(send), Some(note)) = (&events, corrections.get(&claim.uid)) {
                send(NodeEvent::new(object_of(claim), EventReason::NumaCorrected, note));
            }
            if let Some(note) = unused.get(&claim.uid)
                && told_unused.insert(claim.uid.clone())
            {
                tracing::warn!("claim {} is not used: {note}", claim.full_name());
                if let Some(send) = &events {
                    send(NodeEvent::new(object_of(claim), EventReason::NumaMisaligned, note));
                }
            }
            let Some(remote) = remote.get(&claim.uid) else { continue };
            if let Some(send) = &events {
                let locality = told.entry(claim.uid.clone()).or_default();
                if let Some(is_local) = locality.observe(*remote, limit) {
                    locality.set_written(is_local);
                    if !is_local {
                        let note = remote_words(*remote);
                        send(NodeEvent::new(object_of(claim), EventReason::NumaMisaligned, &note));
                    }
                }
            }
            let Some(status) = &status else { continue };
            let locality = known.entry(claim.uid.clone()).or_default();
            let Some(is_local) = locality.observe(*remote, limit).filter(|_| is_writing) else { continue };
            let of = (driver.name(), ledger.node());
            let devices = locality_status(claim, of, (is_local, *remote), &wall_clock::utc_now());
            match status.write(named(claim), devices).await {
                Ok(()) => locality.set_written(is_local),
                // The claim is about to go, and says nothing of the others.
                Err(UnreadClaim::Gone(_)) => {}
                Err(unwritten) => {
                    is_writing = false;
                    if matches!(unwritten, UnreadClaim::Lasting(_)) {
                        writes_from = Instant::now() + REFUSED;
                    }
                    let error = unwritten.why();
                    if error != warned {
                        tracing::warn!(
                            "the condition of claim {} is not written: {error}",
                            claim.full_name()
                        );
                        error.clone_into(&mut warned);
                    }
                }
            }
        }
    }
}

fn object_of(claim: &PreparedClaim) -> EventObject {
    let PreparedClaim { namespace, name, uid, .. } = claim;
    EventObject::Claim { namespace: namespace.clone(), name: name.clone(), uid: uid.to_string() }
}
