//! Interrupts of devices: where they are handled, and where they should be.
//!
//! Problem: an interrupt that is handled on an exclusive CPU stops the workload that the CPU belongs to, and
//! one that is handled on another node than the workload that uses its device costs that workload remote
//! accesses. Idea: an [`InterruptTable`] has what the kernel shows, an [`InterruptClient`] is a workload with
//! CPUs or devices of its own. [`decide_interrupts`] computes which CPUs each interrupt should have,
//! [`assess_interrupts`] what was handled in the wrong place.
//!
//! Invariants: a decision starts from the *original* CPUs of an interrupt, so it gives them back when the
//! reason ends, and decides nothing new the second time. It never gives an interrupt a set without an online
//! CPU, and none with an exclusive CPU of another workload while there is another CPU.
//!
//! Cost: one pass over the interrupts, for each decision and each assessment.

mod assess;
mod clients;
mod decide;
mod history;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use numa_topology::{
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

pub use self::{
    assess::{InterruptAssessment, InterruptsOfWorkload, assess_interrupts},
    clients::{NetworkDevices, declared_clients, irqbalance},
    decide::decide_interrupts,
    history::{InterruptHistory, InterruptRefusal},
};
use crate::workload::CgroupPath;
use numa_topology::Topology;

/// What the daemon does about interrupts of devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum InterruptMode {
    /// Nothing; they are not read.
    Off,
    /// Findings and metrics.
    #[default]
    Observe,
    /// In enforce mode it also sets their CPUs (`smp_affinity_list`); in observe mode as `observe`.
    Enforce,
}

/// Where interrupts of a workload's own devices should be handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OwnInterrupts {
    /// On CPUs of its nodes that no workload has exclusively.
    #[default]
    Node,
    /// On its own exclusive CPUs.
    Cpus,
}

/// An interrupt line of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// Names of its handlers, or its description; chosen by drivers, some by users (names of interfaces).
    pub name: String,
    /// Chip and hardware number: another interrupt under the same number has another one. `None` if unknown.
    pub identity: Option<String>,
    /// `smp_affinity_list`: CPUs that it may be handled on.
    pub affinity: Option<CpuSet>,
    /// `effective_affinity_list`: CPUs that its chip sends it to.
    pub effective: Option<CpuSet>,
    /// Node of its device.
    pub node: Option<NodeId>,
    /// PCI address of its device.
    pub device: Option<String>,
    /// Counts since boot, without zeros.
    pub counts: Vec<(CpuId, u64)>,
}

impl Interrupt {
    /// Whether its device is the client's, or may be.
    fn may_be_of(&self, client: &InterruptClient) -> bool {
        let device = self.device.as_ref();
        device.is_some_and(|device| client.lacks_devices || client.devices.contains(device))
    }

    /// It was handled, although its chip sends it to no CPU: it is each CPU's own, and none can be chosen.
    pub fn is_of_each_cpu(&self) -> bool {
        !self.counts.is_empty() && self.effective.as_ref().is_some_and(CpuSet::is_empty)
    }
}

/// The interrupts of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterruptTable {
    /// In ascending order of their numbers.
    pub interrupts: Vec<Interrupt>,
    /// CPUs that were counted; `None` if all that exist were, online or not.
    pub cpus: Option<CpuSet>,
    /// Monotonic time of the reading in nanoseconds.
    pub read_ns: u64,
}

/// A workload with exclusive CPUs, or with devices of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterruptClient {
    /// Its cgroup; `None` for CPUs that are held for a workload which does not run yet.
    pub cgroup: Option<CgroupPath>,
    /// Display name.
    pub name: String,
    /// CPUs that it alone has.
    pub exclusive: CpuSet,
    /// Nodes of its CPUs.
    pub nodes: NodeSet,
    /// PCI addresses of its devices.
    pub devices: BTreeSet<String>,
    /// It may have more devices than these: no interrupt of a PCI device counts as another one's on its CPUs.
    pub lacks_devices: bool,
    /// Whether interrupts of its devices should be handled on its exclusive CPUs.
    pub on_own_cpus: bool,
    /// Its exclusive CPUs are named by a mark of its pod alone, which its cpuset agrees with: findings name
    /// it, and nothing is written because of it.
    pub is_marked: bool,
}

/// An interrupt that the daemon has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteeredInterrupt {
    /// Its CPUs before.
    pub original: CpuSet,
    /// What was set last.
    pub set: CpuSet,
    /// What it had before the last write, while it is unknown whether that was carried out.
    pub was: Option<CpuSet>,
}

impl SteeredInterrupt {
    /// Whether the daemon has set these CPUs.
    pub fn has_set(&self, cpus: &CpuSet) -> bool {
        self.set == *cpus || self.was.as_ref() == Some(cpus)
    }
}

/// Interrupts that the daemon has set, by number.
pub type SteeredInterrupts = BTreeMap<u32, SteeredInterrupt>;

/// Another set of CPUs for an interrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptChange {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// See [`Interrupt::identity`].
    pub identity: Option<String>,
    /// PCI address of its device.
    pub device: Option<String>,
    /// Its CPUs before the daemon sets any.
    pub original: CpuSet,
    /// Its CPUs now.
    pub from: CpuSet,
    /// CPUs that it gets.
    pub to: CpuSet,
    /// Why, in a few words.
    pub reason: String,
}

impl InterruptChange {
    /// Whether it gives the original back.
    pub fn gives_back(&self) -> bool {
        self.to == self.original
    }
}

/// What a decision about interrupts is made from.
#[derive(Debug, Clone, Copy)]
pub struct InterruptInputs<'a> {
    /// The machine.
    pub machine: &'a Topology,
    /// Its interrupts.
    pub table: &'a InterruptTable,
    /// Workloads with exclusive CPUs or devices.
    pub clients: &'a [InterruptClient],
    /// Interrupts that the daemon has set.
    pub steered: &'a SteeredInterrupts,
}
