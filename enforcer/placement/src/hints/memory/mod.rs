//! Memory and huge pages in the engine `hints`: offers and promises.
//!
//! A set of nodes is offered if all requested memory, ordinary memory and huge pages of each size, can be
//! promised on it (see [`crate::memory`]); each of the resources offers the same sets. Those as narrow
//! as an empty machine would allow are preferred.
//!
//! Under the kubelet's rule (`strict_memory_groups`), a node with promises of single nodes has no others, and
//! a node of a group only promises of that group. Without it any set of nodes with room is suitable, because
//! promises are made on zones. Another difference is on purpose: if no set has room, nothing is offered,
//! which differs from no preference.
//!
//! Memory-only nodes are not offered.

mod assign;
mod fullness;
mod groups;
mod offer;
mod stock;

#[cfg(test)]
mod tests;

pub use self::{
    assign::{assign, shortages},
    offer::offer,
    stock::{MemoryStock, WantedMemory, wanted},
};
