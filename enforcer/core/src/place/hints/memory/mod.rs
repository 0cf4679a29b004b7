//! Memory and huge pages in the engine `hints`: what can be offered, and what is promised where.
//!
//! A set of nodes is offered when everything that is asked for, ordinary memory and huge pages of each
//! size, can be promised on it (see [`crate::place::memory`]); the same sets are offered for each of
//! the resources. Those as narrow as an empty machine would allow are preferred.
//!
//! Where the kubelet's rule is switched on (`strict_memory_groups`), a node that serves single nodes'
//! promises serves no others, and one that belongs to a group serves that group only. Without it any
//! set of nodes with room will do: that is what promises on zones make possible. Another difference is
//! on purpose: when no set has room, nothing is offered, which is not the same as no preference.
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
    stock::{MemoryStock, Wanted, wanted},
};
