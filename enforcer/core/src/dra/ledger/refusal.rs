//! Claims that are refused, whatever other claims do.

use thiserror::Error;

use super::{ClaimCapacity, DeviceName, MAX_CLAIMS, MAX_CONSUMERS_IN_ALL};

/// Why a claim is refused, whatever other claims do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LedgerError {
    /// It is prepared with another allocation.
    #[error("claim {claim}: it is prepared with another allocation, and allocations of a uid never change")]
    OtherAllocation {
        /// Namespace and name.
        claim: String,
    },
    /// The machine has no such device, or has lost it.
    #[error("claim {claim}: {device} has nothing that claims may take on this machine")]
    NoSuchDevice {
        /// Namespace and name.
        claim: String,
        /// The device.
        device: DeviceName,
    },
    /// It asks for more of a device than there is.
    #[error("claim {claim}: {asked} of {} asked of {device}, which has {capacity}", resource.key())]
    TooLarge {
        /// Namespace and name.
        claim: String,
        /// The device.
        device: DeviceName,
        /// What is too little.
        resource: ClaimCapacity,
        /// Amount that it asks for.
        asked: u64,
        /// Amount of the device.
        capacity: u64,
    },
    /// Its number of CPUs is not one of whole cores.
    #[error("claim {claim}: cores is `full`, and {asked} CPUs are no whole cores of {threads} threads")]
    NotWholeCores {
        /// Namespace and name.
        claim: String,
        /// CPUs asked.
        asked: u64,
        /// Threads of a core.
        threads: u64,
    },
    /// Several pods want the same exclusive CPUs.
    #[error(
        "claim {claim}: its exclusive CPUs are for one pod, and it is reserved for {consumers} consumers"
    )]
    Shared {
        /// Namespace and name.
        claim: String,
        /// Number of consumers.
        consumers: usize,
    },
    /// The node has too many claims.
    #[error(
        "claim {claim}: the node has {MAX_CLAIMS} claims or {MAX_CONSUMERS_IN_ALL} consumers of them already"
    )]
    TooMany {
        /// Namespace and name.
        claim: String,
    },
}
