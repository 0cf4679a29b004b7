//! What a NUMA machine is: CPUs, caches, nodes, memory, distances, devices.
//!
//! A [`Topology`] is a value. The reader of feature `sysfs` makes it from `/sys` and `/proc`, [`synth`] makes
//! it from a few numbers; nothing edits it in place. CPUs and nodes are numbered as the kernel numbers them
//! ([`id`]), and sets of them ([`set`]) have the kernel's list format as their text. How near a node's memory
//! is, and whether ordinary memory belongs there, [`Locality`] answers for every caller.
//!
//! ```
//! # #[cfg(feature = "sysfs")] {
//! use numa_topology::sysfs::{Directory, read_topology};
//!
//! let (machine, degraded) = read_topology(&Directory::live())?;
//! for node in &machine.nodes {
//!     println!("node {}: CPUs {}, {:?} bytes", node.id, node.cpus, node.mem_total_bytes);
//! }
//! for entry in degraded {
//!     eprintln!("{}: {} ({})", entry.source, entry.reason, entry.effect);
//! }
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is not known is `None` or an entry of [`degraded`], never a default. Without features the crate needs
//! `thiserror` alone: `serde` and `schemars` add the serde forms and their schemas. Only `sysfs` reads files.
#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod check;
mod cpu_kind;
pub mod degraded;
pub mod id;
pub mod kind;
mod locality;
mod machine;
pub mod parse;
pub mod quantity;
mod query;
#[cfg(feature = "schemars")]
mod schema;
#[cfg(feature = "serde")]
mod serde_text;
pub mod set;
pub mod size;
pub mod synth;
#[cfg(feature = "sysfs")]
pub mod sysfs;
pub mod text;

pub use self::{
    check::Inconsistency,
    cpu_kind::{CoreType, CpuKind, EnergyPreference},
    locality::{Locality, MemoryClass, MemoryRank},
    machine::{
        Cpu, Device, DeviceClass, Hmat, Hugepages, Llc, MemoryKind, MemoryTier, Node, Package, Topology,
    },
};
