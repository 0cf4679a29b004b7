//! Dynamic Resource Allocation: whole NUMA places (CPUs, memory, huge pages of one node) as claimable
//! devices.
//!
//! Problem: the stock scheduler chooses devices of drivers by what [`slice`](mod@slice)s publish, and a
//! kubelet then asks the driver of the node to prepare each claim. The driver is the last line of defence: it
//! may be asked for CPUs that a force-deleted pod still runs on, asked again after any restart, or shown a
//! forged claim by a container. Idea: this module is the driver without its shell. It turns values into
//! values; the shell (sockets of the kubelet, API server, files, container runtime) calls it in this order:
//!
//! 1. At start and after each change of the machine: [`ClaimSupply::new`] from the inventory, then
//!    [`slice::slices`], compared by [`slice::difference`] with what the API server has.
//! 2. At start: [`ClaimLedger::from_text`] of the state file, then [`ClaimLedger::settle`].
//! 3. `NodePrepareResources`: [`ClaimAllocation::read`] of the claim, [`ClaimLedger::prepare`] (which
//!    decides, or says what is waited for), then [`ClaimLedger::to_text`] into the state file, then
//!    [`cdi::file`], then [`PreparedClaim::answer`]. While the API server cannot be asked,
//!    [`ClaimLedger::repeat`] answers for a claim that is prepared already.
//! 4. `NodeUnprepareResources`: [`ClaimLedger::unprepare`], [`ClaimLedger::settle`], state file, CDI file.
//! 5. Creation and update of a container: [`binding::bind`].
//!
//! Invariants: no CPU is exclusive to two claims; the same claim gets the same answer; a claim leaves the
//! ledger only by [`ClaimLedger::unprepare`] and [`ClaimLedger::release_orphans`]; texts and objects from
//! outside are bounded, and every error names the field.

mod accounting;
mod amounts;
mod answer;
pub mod binding;
mod budget;
pub mod cdi;
mod claim;
mod condition;
mod devices;
pub(crate) mod field;
mod ledger;
pub mod metadata;
mod names;
mod options;
pub mod slice;

pub use self::{
    accounting::{AccountingFinding, AccountingMode, NodeTotals, accounting_findings},
    amounts::PlaceAmounts,
    answer::PreparedDevice,
    budget::{BudgetOptions, ClaimSupply, NodeBudget},
    claim::{
        ClaimAllocation, ClaimConsumer, ClaimContext, ClaimError, ClaimResult, ConsumedAmounts,
        MissingAmounts,
    },
    condition::{ClaimLocality, locality_status, remote_words},
    devices::{DeviceModel, NodeAllocatableShape, PublishOptions},
    field::FieldError,
    ledger::{
        ClaimLedger, CpuRepair, LedgerError, LedgerLimits, OrphanEvidence, PrepareDecision, PreparedClaim,
        PreparedResult, RecordDamage, Shortage, ShortageHolder,
    },
    names::{ClaimCapacity, ClaimUid, DeviceName},
    options::{ClaimCores, ClaimIrqs, ClaimMemory, ClaimOptions, ClaimPack, ClaimQuota, ClaimWiden},
};

/// Name of the driver, unless it is configured; also the domain of its capacities and options.
pub const DRIVER: &str = "numa-enforcer.io";

/// Type of the condition of a claim that says whether its memory accesses stay on its NUMA nodes.
pub const LOCALITY_CONDITION: &str = "NumaLocal";
