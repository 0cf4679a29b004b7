//! CPU counters that separate local from remote memory accesses.
//!
//! Problem: the event that counts loads served from local or remote DRAM differs between makers and
//! generations, and no kernel name stands for it. Idea: a table from CPU model to pairs of events, the better
//! one first. The kernel's own generic pair, which it maps only on some CPUs, is the last resort. Only
//! opening a counter shows whether it exists: virtual machines report the CPU and mostly lack its counters.
//!
//! Terminology. *remote* is served from another node's DRAM; *near* is the other event of a pair: local
//! DRAM, or, where a CPU has no such event, all of DRAM. Both count loads, or fills of a core's caches;
//! write-backs are in neither.
//!
//! Pure: texts in, events out. The caller reads the texts and opens the events.

mod cpu;
mod table;

use std::collections::BTreeMap;

pub use self::cpu::{CpuModel, Maker, UnknownCpu};

/// `PERF_TYPE_SOFTWARE` (`include/uapi/linux/perf_event.h`).
pub const TYPE_SOFTWARE: u32 = 1;
/// `PERF_TYPE_HW_CACHE`.
pub const TYPE_HW_CACHE: u32 = 3;
/// `PERF_TYPE_RAW`.
pub const TYPE_RAW: u32 = 4;

/// An event as `perf_event_open(2)` takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerfEvent {
    /// `type`: one of the kernel's, or the number of a PMU.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `config1`: what an offcore response event counts.
    pub config1: u64,
}

/// What the event beside the remote one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NearCounts {
    /// Accesses to local DRAM.
    Local,
    /// All accesses to DRAM, the remote ones included.
    All,
}

/// Two events that together separate local from remote accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessEvents {
    /// Name of the pair, for people.
    pub name: &'static str,
    /// The event beside the remote one.
    pub near: PerfEvent,
    /// Accesses that `near` counts.
    pub counts: NearCounts,
    /// Accesses to other nodes.
    pub remote: PerfEvent,
}

/// One directory of `/sys/bus/event_source/devices`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pmu {
    /// Its name, which is that of the directory.
    pub name: String,
    /// Its file `type`.
    pub kind: u32,
    /// Contents of the files `events/NAME` that were requested.
    pub events: BTreeMap<String, String>,
}

/// Events of a PMU that [`Candidates::new`] uses: the files below `events` that are worth reading.
pub const PMU_EVENTS: [&str; 2] = [table::ARM_REMOTE, table::ARM_ALL];

/// Events to try on a CPU, best first, and the reason if only generic ones remain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// Never empty.
    pub events: Vec<AccessEvents>,
    /// Why only the kernel's generic events remain.
    pub only_generic: Option<String>,
}

impl Candidates {
    /// Events to try on the CPU that this `/proc/cpuinfo` describes, with these PMUs.
    pub fn new(cpuinfo: &str, pmus: &[Pmu]) -> Self {
        let cpu = CpuModel::identify(cpuinfo);
        let (mut events, only_generic) = match cpu.as_ref().map_err(ToString::to_string) {
            Ok(cpu) => match table::of(cpu, pmus) {
                Ok(events) => (events, None),
                Err(reason) => (Vec::new(), Some(reason)),
            },
            Err(unknown) => (Vec::new(), Some(unknown)),
        };
        events.push(table::generic(cpu.as_ref().ok()));
        Self { events, only_generic }
    }
}

#[cfg(test)]
mod tests;
