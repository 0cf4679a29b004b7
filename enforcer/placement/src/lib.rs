//! Placement: CPUs, memory and devices of every container of a pod.
//!
//! Problem: a node gives CPUs, memory and devices to one pod after another, and each container should get all
//! of its own close together. There are two established approaches, and both are engines of this crate:
//! [`hints`] (every resource offers sets of NUMA nodes, and the offers are merged) and [`pools`] (the machine
//! is a tree of pools, and the best pool is chosen). Both use one [`Allocations`], so that nothing is given
//! twice.
//!
//! The flow is one way: an [`Inventory`] (resources of the machine) and a [`PodRequest`] go in; [`admit`]
//! selects the engine, records its [`Grant`]s in the allocations, and returns an [`Admission`] (the grants of
//! the pod, and changes for other pods) or a [`Rejection`], which leaves the allocations unchanged. Nothing
//! here reads a clock or a file, and equal input gives equal output.
//!
//! Terminology: *exclusive* CPUs run only one container. The *shared* CPUs of a container are its scope
//! without all exclusive CPUs, so they shrink and grow as other pods are created and deleted. If too little
//! of a scope remains, its youngest containers are *away* until there is room again. A *zone* is a set of
//! nodes that holds memory together.
//!
//! This machine, and a pod on it (feature `sysfs`):
//!
//! ```
//! # #[cfg(feature = "sysfs")] {
//! use numa_placement::{
//!     Allocations, ContainerRequest, Inventory, PodName, PodRequest, admit,
//!     settings::PlacementSettings,
//! };
//! use numa_topology::sysfs::{Directory, read_topology};
//!
//! let (machine, _degraded) = read_topology(&Directory::live())?;
//! let inventory = Inventory::new(machine, Vec::new(), &PlacementSettings::default())?;
//! let main = ContainerRequest::guaranteed("main", 1_000, 64 << 20);
//! let web = PodRequest::new(PodName::new("default", "web"), vec![main]);
//! let mut allocations = Allocations::default();
//! let admission = admit(&inventory, &PlacementSettings::default(), &mut allocations, &web)?;
//! for own in admission.grants {
//!     println!("{}: CPUs {}, memory nodes {}", own.holder, own.cpus, own.mems);
//! }
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A machine of two sockets, for tests:
//!
//! ```
//! use numa_placement::{
//!     Allocations, ContainerRequest, Inventory, PodName, PodRequest, admit,
//!     settings::PlacementSettings,
//! };
//! use numa_topology::synth::Machine;
//!
//! let settings = PlacementSettings::default();
//! let machine = Machine::new().sockets(2).cores(8).build();
//! let inventory = Inventory::new(machine, Vec::new(), &settings)?;
//! let mut allocations = Allocations::default();
//! let web = PodRequest::new(
//!     PodName::new("default", "web"),
//!     vec![ContainerRequest::guaranteed("main", 4_000, 8 << 30)],
//! );
//! for container in admit(&inventory, &settings, &mut allocations, &web)?.grants {
//!     println!("{}: CPUs {}, memory nodes {}", container.holder, container.cpus, container.mems);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Without features the crate needs `numa-topology` and `thiserror`. Settings, reports and errors
//! are `#[non_exhaustive]`: take a `Default` and assign the fields. Requests, grants and updates are plain
//! values that callers build whole; a new field of them is a breaking change on purpose, because each caller
//! must decide about it. A [`Rejection`] is typed: its reason, its problem, its container and its shortages.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

pub mod admission;
mod affinity;
mod allocations;
#[cfg(test)]
mod any_machine;
pub mod capacity;
mod cgroup_path;
mod choice;
mod document;
pub mod engine_name;
mod explain;
pub mod external;
mod finish_cold_start;
pub mod foreign;
mod grant;
mod hint;
pub mod hints;
mod inventory;
mod isolated;
mod layout;
pub mod memory;
pub mod nodes;
mod overflow;
mod pod_name;
pub mod pools;
mod qos;
#[cfg(feature = "serde")]
mod recorded;
pub mod rejection;
mod request;
pub mod room;
#[cfg(any(test, feature = "testing"))]
pub mod samples;
#[cfg(feature = "schemars")]
mod schema;
#[cfg(feature = "serde")]
mod serde_text;
pub mod settings;
mod size_units;
pub mod taken;
pub mod trial;
mod what_if;
mod wishes;

pub(crate) use numa_topology::text::figures as words;

pub use self::{
    admission::{Admission, PodGrant, Update, admit, admit_traced, place, remove, resize, resize_traced},
    allocations::{Allocations, Holder},
    cgroup_path::CgroupPath,
    engine_name::known_name,
    explain::{Candidate, Trace},
    finish_cold_start::finish_cold_start,
    foreign::annotations_of_interest,
    grant::{
        ColdStart, CpuClass, Grant, MemoryClaim, MemoryPriority, MemoryResource, MemorySource, SharedCpus,
    },
    inventory::{DeviceUnit, Inventory, InventoryError, InventoryProblem, NodeSupply},
    layout::{CpuLayout, CpuPlace},
    memory::ZoneAccount,
    overflow::{settle_overflow, unspill},
    pod_name::PodName,
    qos::QosClass,
    rejection::{Rejection, RejectionProblem, RejectionReason, Shortage},
    request::{
        ContainerKind, ContainerRequest, DeviceCounts, PodRequest, Resources, Undescribed, device_counts,
        qos_class,
    },
    what_if::{CpusAndNodes, HolderMove, what_if},
    wishes::{TopologyHint, Wishes},
};
