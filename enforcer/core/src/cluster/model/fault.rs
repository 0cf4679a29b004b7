//! Why a published state cannot be used.

use numa_placement::InventoryError;
use numa_topology::{Inconsistency, set::CpuSet};
use thiserror::Error;

use crate::cluster::own_engine::UnusableInputs;

/// Why a published state cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StateFault {
    /// A list or text is longer than its schema allows.
    #[error("{field} has {length} entries or bytes, at most {limit} are allowed")]
    TooLong {
        /// Path of the field.
        field: &'static str,
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// A number below zero.
    #[error("{field} is {value}, below 0")]
    Negative {
        /// Path of the field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// The machine contradicts itself.
    #[error("machine: {0}")]
    Machine(#[from] Inconsistency),
    /// The inputs of this daemon's engine cannot be used.
    #[error("ownEngine: {0}")]
    Engine(UnusableInputs),
    /// Parts of the state show different machines.
    #[error("ownEngine: the NUMA nodes of its machine are not those of the state")]
    OtherMachine,
    /// The packed inputs of this daemon's engine tell something else than the state shows.
    #[error("{field} shows CPUs {shown}, and ownEngine has CPUs {packed}")]
    Differs {
        /// Path of the field.
        field: &'static str,
        /// What it shows.
        shown: CpuSet,
        /// What the inputs have.
        packed: CpuSet,
    },
    /// CPUs of one list are in two entries of another.
    #[error("machine.{list}: CPUs {cpus} are in two entries")]
    Overlap {
        /// The list.
        list: &'static str,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// The settings do not fit the machine.
    #[error(transparent)]
    Unfit(#[from] InventoryError),
    /// An entry names a resource that has no meaning, or a node that the machine does not have.
    #[error("{field}: {value:?} is not one of the machine's")]
    Unknown {
        /// Path of the field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// A pod holds CPUs that the machine does not have, that are reserved, or that another pod holds.
    #[error("pods: {pod} holds CPUs {cpus}, which are {why}")]
    HeldCpus {
        /// The pod.
        pod: String,
        /// The CPUs.
        cpus: CpuSet,
        /// What is wrong with them.
        why: &'static str,
    },
    /// Two entries are about the same thing.
    #[error("{field} has two entries for {value:?}")]
    Twice {
        /// Path of the list.
        field: &'static str,
        /// What they are about.
        value: String,
    },
}
