//! Claims for devices (Dynamic Resource Allocation) in a plan: which devices a pod would get on a node.
//!
//! Problem: before a claim is written into a cluster, its author wants to see which GPU, network card or NUMA
//! node it would get, and why not. Idea: [`DeviceObjects`] are slices, classes, templates and claims as a
//! cluster has them; [`ClaimBook`] repeats the scheduler's allocation on them, first fit in the order of
//! drivers, pools, slices and devices, and remembers what is taken. The devices of this project's driver are
//! made by the code of the driver itself, from the state of the node, where the input has none; it also
//! chooses the CPUs of their claims.
//!
//! Invariants: no device is given twice and no capacity beyond its amount; equal input gives equal answers;
//! what is not understood is refused with that reason and never given. Objects, selectors and the search are
//! bounded.

mod book;
mod cel;
mod objects;
mod offered;
mod own;
mod search;
#[cfg(test)]
mod tests;
mod trial;

pub use self::{
    book::{ClaimBook, ClaimPlace, PodClaims},
    objects::DeviceObjects,
    own::{ClaimNode, PlannedDriver},
    trial::{ClaimTrial, SeveralNodes},
};
pub use numa_placement::trial::{PlannedClaim, PlannedDevice};

use numa_topology::text::printable_within;

/// A foreign text as a part of a reason.
fn shown(text: &str) -> String {
    printable_within(text, 80)
}
