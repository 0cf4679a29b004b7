//! The `pools` engine: the machine is a tree of pools, and every container goes to the best one.
//!
//! Problem: containers of all classes, with exclusive, shared, isolated and reserved CPUs and with several
//! kinds of memory, should each find everything in the smallest part of the machine that holds it. Idea:
//! divide the machine into a tree (root, sockets, dies, NUMA nodes, last-level caches); classify the
//! container; rank all pools by one total order; take the best pool that can meet the request.
//!
//! Semantics are those of the topology-aware policy of CRI Resource Manager and of the NRI plugins
//! (docs/placement.md lists the differences and reasons).

pub mod affinity;
pub mod annotations;
pub mod classify;
mod cpus;
mod documents;
mod engine;
mod machine;
mod memory;
mod placing;
pub mod rank;
mod refusal;
pub mod request;
mod supply;
#[cfg(test)]
mod tests;
pub mod topology_hints;
pub mod tree;
mod zones;

pub(super) use self::annotations::{FAMILIES, RESOURCES_KEY, name_of_key};
pub use self::{
    annotations::Preferences,
    classify::{Classifier, CpuDemand},
    documents::documents,
    engine::PoolsEngine,
    machine::MachinePools,
    rank::{PoolOrder, PoolScore},
    request::RequestedAmounts,
    tree::{Pool, PoolTree},
};
pub use crate::{
    affinity::AffinityRule,
    document::{Document, Documents},
};
