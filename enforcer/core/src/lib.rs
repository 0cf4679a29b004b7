//! The pure core of numa-enforcer: everything that thinks, and nothing that touches the host.
//!
//! It knows what a machine looks like ([`topology`]), what runs on it ([`workload`]), what was seen
//! ([`sample`]), who is declared ([`declarations`]), who decides on its cpuset ([`owner`]), what that means
//! ([`model`], [`finding`]), what should be done ([`place`], [`decide`], [`plan`]), when a workload needs
//! more memory nodes ([`widening`]) and what people asked for ([`policy`]). Kernel text becomes values in
//! [`parse`]; the text is read elsewhere. How fast pages are moved is in [`pacing`], how long the calls for
//! it took in [`call_times`], where a write of a cpuset brings them in `page_migration`, what stays behind in
//! [`residue`], which go to slower memory in [`demotion`], and how long a container stays there at first in
//! [`cold_start`]. Which counters of a CPU tell where memory is, [`hardware`] knows. What comes of a recorded
//! turn now, [`replay`] says.
//!
//! This crate must never open a file or socket, read a clock, start a thread or log. Time is an
//! argument. The same input gives the same output, byte for byte: no hash maps whose order shows.
#![forbid(unsafe_code)]

pub mod audit;
pub mod call_times;
pub mod cold_start;
pub mod considered;
pub mod decide;
pub mod declarations;
pub mod degraded;
pub mod demotion;
pub mod finding;
pub mod hardware;
pub mod id;
pub mod memory_policy;
pub mod model;
pub mod node_room;
pub mod owner;
pub mod pacing;
mod page_migration;
pub mod parse;
pub mod partition;
pub mod place;
pub mod plan;
pub mod policy;
mod quoted;
pub mod rebalance;
pub mod replay;
pub mod residue;
pub mod sample;
#[cfg(test)]
mod scene;
pub mod self_placement;
pub mod set;
pub mod topology;
pub mod trial;
pub mod vma;
pub mod widening;
mod words;
pub mod workload;
