//! Placement: CPUs, memory and devices of every container of a pod.
//!
//! Problem: a node gives CPUs, memory and devices to one pod after another, and each container should get all
//! of its own close together. There are two established approaches, and both are engines behind one trait:
//! [`hints`] (every resource offers sets of NUMA nodes, and the offers are merged) and [`pools`] (the machine
//! is a tree of pools, and the best pool is chosen). Both use one [`Allocations`], so that nothing is given
//! twice.
//!
//! The flow is one way: an [`Inventory`] (resources of the machine) and a [`PodRequest`] go in; [`admit`]
//! selects the engine, records its [`Grant`]s in the allocations, and returns an [`Admission`] (changes for
//! other pods) or a [`Rejection`], which leaves the allocations unchanged. Nothing here reads a clock or a
//! file, and equal input gives equal output.
//!
//! Terminology: *exclusive* CPUs run only one container. The *shared* CPUs of a container are its scope
//! without all exclusive CPUs, so they shrink and grow as other pods are created and deleted. If too little
//! of a scope remains, its youngest containers are *away* until there is room again. A *zone* is a set of
//! nodes that holds memory together.

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

    /// Makes a grant for every container of the pod. Runs inside a transaction of the allocations: on an
    /// error the caller undoes all grants.
    fn place(
        &self,
        inventory: &Inventory,
        allocations: &mut Allocations,
        pod: &PodRequest,
        trace: &mut Trace,
    ) -> Result<(), Rejection>;
}
