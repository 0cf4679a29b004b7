//! The DRA driver of this node: prepares claims for the kubelet and keeps what it has decided on disk.
//!
//! [`ClaimDriver`] joins the pure ledger of `enforcer_core::dra` with the kubelet's calls
//! (`enforcer_runtime::dra`), the API server, which alone knows what a claim was given, and two places on
//! disk ([`ClaimStore`]): the state file, from which a restarted daemon knows every claim, and a file for
//! each claim in the directory of the Container Device Interface, by which a runtime hands it to containers.
//!
//! Invariants: what is not on disk is not answered, and a write that fails prepares nothing. What is given
//! up is so at once, and on disk as soon as that can be written. The ledger's lock is not held while a claim
//! waits, so that another one can be given up meanwhile.

mod conditions;
mod driver;
mod earlier;
mod lock;
mod offer;
mod orphans;
mod places;
mod running;
mod runtime_link;
mod service;
mod source;
mod store;
mod take_over;
mod tally;

pub use self::{
    driver::{ClaimDriver, DriverSettings},
    lock::{ClaimLock, ClaimStateError},
    orphans::ClaimsInUse,
    places::ClaimPlaces,
    runtime_link::RuntimeWait,
    source::{ClaimSource, LateClaims, ReadAnswer, UnreadClaim},
    store::{ClaimStore, StoredLedger},
    take_over::TakenClaims,
    tally::ClaimTally,
};
pub(crate) use self::{
    earlier::hold_earlier_claims,
    service::{DriverFaults, DriverService, DriverSocketFiles, OpenedDriver, no_driver},
};
