//! CPUs in the engine `hints`: offers and assignment.
//!
//! Problem: a container gets exclusive CPUs. Their choice decides how much it shares internally (caches, a
//! node's memory) and with others (a core's threads), and how useful the remaining CPUs are. Idea: one
//! allocator ([`packed`]) takes the largest entirely free groups that fit, then smaller and smaller ones,
//! always where the fewest CPUs are free. The other modules restrict it to some CPUs: those of chosen nodes
//! first ([`near`]), equal parts of several nodes ([`spread`]), those that a container holds already
//! ([`resize`]). [`offer`](offer()) first determines the sets of nodes with enough CPUs.
//!
//! Invariant: only available CPUs are given, and exactly as many as requested, on any machine: uneven
//! sockets, cores with offline siblings, sparse ids.

mod assign;
mod near;
mod offer;
mod options;
mod packed;
mod resize;
mod shares;
mod spread;
mod stock;
#[cfg(test)]
mod tests;

pub use self::{
    assign::{assign, reserve},
    near::{CpuPick, assign_near},
    offer::{CpuStock, offer},
    options::{CpuOptions, CpuOptionsError},
    resize::{grow, retain},
};
pub use crate::rejection::CpuError;
