//! Placement: which CPUs, which memory and which devices every container of a pod should have.
//!
//! Problem: a node gives away CPUs, memory and devices, one pod after another, so that each
//! container finds all of its own close together. Two schools have an answer, and both are here as
//! engines behind one trait: [`hints`] (every resource says which sets of NUMA nodes would do, and
//! the answers are merged) and [`pools`] (the machine is a tree of pools, and the best pool is
//! sought). They give from one [`Allocations`], so that two of them never give the same thing twice.
//!
//! The flow is one way: an [`Inventory`] (what the machine has) and a [`PodRequest`] (what is asked)
//! go in; [`admit`] chooses the engine, puts its [`Grant`]s into the allocations, and returns an
//! [`Admission`] (what changes for others) or a [`Rejection`], which leaves the allocations
//! exactly as they were. Nothing here reads a clock or a file, and the same input gives
//! the same answer.
//!
//! Terminology. *Exclusive* CPUs run one container only. The *shared* CPUs of a container are what
//! is left of its scope after all exclusive CPUs are taken out, so they shrink and grow as others
//! come and go. When too little is left of a scope, the youngest there are *away* until there is room
//! again. A *zone* is a set of nodes that holds memory together.

mod admission;
mod allocations;
mod capacity;
mod cgroup;
mod choice;
mod containers;
mod explain;
mod exposed;
pub mod foreign;
mod grant;
mod grant_record;
mod held;
pub mod hints;
mod home;
mod inventory;
mod isolated;
mod layout;
pub mod memory;
mod never;
pub mod pools;
mod recorded;
mod rejection;
mod request;
mod room;
#[cfg(test)]
mod samples;
mod taken;
mod warm;
mod what_if;
mod wishes;

pub use self::{
    admission::{Admission, Update, admit, remove, resize},
    allocations::{Allocations, Holder},
    cgroup::{Bounds, CgroupRequest, Wished},
    containers::{Announced, Containers, Cpuset, Node, Settled, UNPLACED, Weighed},
    explain::{Candidate, Trace},
    exposed::exposed,
    foreign::annotations_of_interest,
    grant::{
        ColdStart, CpuClass, Grant, MemoryClaim, MemoryPriority, MemoryResource, MemorySource, SharedCpus,
    },
    grant_record::GrantRecord,
    inventory::{DeviceUnit, Inventory, InventoryError, NodeSupply},
    layout::{CpuLayout, CpuPlace},
    never::{never_granted, never_had},
    rejection::{Reason, Rejection, Shortage},
    request::{
        ContainerKind, ContainerRequest, DeviceCounts, PodName, PodRequest, Resources, TopologyHint,
        qos_class,
    },
    warm::warm,
    what_if::{Move, Seat, what_if},
    wishes::Wishes,
};

use self::home::send_away;
pub(crate) use self::{
    held::{Apart, hold},
    home::bring_home,
    memory::ZoneAccount,
};

/// A placement engine.
pub trait Placement {
    /// Its name in configuration, annotations and output.
    fn name(&self) -> &'static str;

    /// Gives every container of the pod its grant. Is called inside a transaction of the
    /// allocations: on an error everything that it gave is taken back by the caller.
    fn place(
        &self,
        inventory: &Inventory,
        allocations: &mut Allocations,
        pod: &PodRequest,
        trace: &mut Trace,
    ) -> Result<(), Rejection>;
}
