//! The pure core of numa-enforcer: it decides, and does not touch the host.
//!
//! The machine is [`numa_topology`], the engines are [`numa_placement`]. This crate contains workloads
//! ([`workload`]), readings of one moment ([`sample`]), the workloads that the configuration declares
//! ([`declarations`]), the owners of cpusets ([`owner`], [`owners`]), placement on a running host
//! ([`hosted`]), figures and findings ([`model`], [`finding`]), decisions and plans ([`decide`], [`plan`]),
//! additional memory nodes ([`widening`]) and the configuration itself ([`policy`]). [`parse`] turns kernel
//! text into values; the text is read elsewhere. [`pacing`] limits the speed of page moves, [`call_times`]
//! holds the durations of the calls, `page_migration` computes the targets of pages after a cpuset write,
//! [`residue`] the pages that stay behind, [`demotion`] those that go to slower memory, and [`cold_start`]
//! the end of a start on slow memory. [`hardware`] knows the CPU counters of memory accesses. [`replay`]
//! decides a recorded turn again, [`cluster`] has what nodes publish, and [`dra`] claims of NUMA places.
//!
//! This crate opens no file or socket, reads no clock, starts no thread and does not log. Time is an
//! argument. The same input gives the same output, byte for byte: no hash maps with a visible order.
#![forbid(unsafe_code)]

pub mod audit;
pub mod call_times;
pub mod cluster;
pub mod cold_start;
pub mod considered;
pub mod decide;
pub mod declarations;
pub mod demotion;
pub mod dra;
pub mod finding;
pub mod hardware;
pub mod hosted;
pub mod interrupts;
pub mod memory_policy;
pub mod model;
pub mod named;
pub mod node_room;
pub mod owner;
pub mod owners;
pub mod pacing;
mod page_migration;
pub mod page_size;
pub mod parse;
pub mod partition;
pub mod plan;
pub mod policy;
pub mod rebalance;
pub mod replay;
pub mod residue;
pub mod sample;
#[cfg(test)]
mod scene;
pub mod self_placement;
pub mod turn;
pub mod vma;
pub mod widening;
pub mod workload;

pub(crate) use numa_topology::text::{figures as words, quoted};
