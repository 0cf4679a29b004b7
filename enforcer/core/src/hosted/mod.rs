//! Placement on a running host: what the engines of `numa-placement` know nothing of.
//!
//! A runtime creates, resizes and removes containers ([`Containers`]), declared cgroups are placed as pods
//! of one container ([`CgroupRequest`]), other owners have taken CPUs and memory ([`hold`]), and a restart
//! finds grants in its records ([`GrantRecord`]). All of it ends in one
//! [`Allocations`](numa_placement::Allocations).

mod cgroup;
mod containers;
mod declare;
mod exposed;
mod external;
mod grant_record;
mod never;

pub(crate) use self::external::sync_external;
pub use self::external::{ExternalGrants, cpus_of_claims, hold_resource_claims};
pub use self::{
    cgroup::{CgroupBounds, CgroupRequest, Wished},
    containers::{
        Announced, CallOutcome, Containers, Cpuset, DecidedContainer, DecisionInputs, LONGEST_DECISION,
        PlacementNode,
    },
    declare::{declare, wishes_of},
    exposed::exposed,
    grant_record::GrantRecord,
    never::{never_granted, never_had},
};
