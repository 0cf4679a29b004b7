//! The table: CPU to events.
//!
//! Raw codes are `umask << 8 | event`, from the makers' manuals and event lists.

use super::{AccessEvents, CpuModel, Maker, NearCounts, PerfEvent, Pmu, TYPE_HW_CACHE, TYPE_RAW};

/// Arm's optional architectural event 0x31: accesses to another chip.
pub(super) const ARM_REMOTE: &str = "remote_access";
/// Arm's event 0x37: reads that miss the last level of cache, wherever they are served from.
pub(super) const ARM_ALL: &str = "ll_cache_miss_rd";

/// `PERF_COUNT_HW_CACHE_NODE`, read, access; and its misses.
const NODE_READS: u64 = 6;
const NODE_READ_MISSES: u64 = 6 | 1 << 16;

const INTEL: u32 = 6;
/// Family 6 models of Intel before Haswell that have generic node events are below it, with one exception.
const HASWELL: u32 = 0x3c;
const IVY_BRIDGE_EP: u32 = 0x3e;

const fn raw(config: u64) -> PerfEvent {
    PerfEvent { kind: TYPE_RAW, config, config1: 0 }
}

const fn offcore(config: u64, config1: u64) -> PerfEvent {
    PerfEvent { kind: TYPE_RAW, config, config1 }
}

const fn pair(name: &'static str, near: PerfEvent, remote: PerfEvent) -> AccessEvents {
    AccessEvents { name, near, counts: NearCounts::Local, remote }
}

/// `MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM` and `.REMOTE_DRAM`.
const RETIRED_LOADS: AccessEvents = pair("mem_load_l3_miss_retired", raw(0x01d3), raw(0x02d3));
/// Demand reads by the source of the data, which the second register of an offcore event selects.
const OFFCORE_SKX: AccessEvents =
    pair("offcore_response", offcore(0x01bb, 0x1f_8400_0001), offcore(0x01b7, 0x6_3800_0001));
const OFFCORE_ICX: AccessEvents =
    pair("offcore_response", offcore(0x01bb, 0x1_0400_0001), offcore(0x01b7, 0x7_3000_0001));
const OFFCORE_SPR: AccessEvents =
    pair("offcore_response", offcore(0x012b, 0x1_0400_0001), offcore(0x012a, 0x7_3000_0001));
const OFFCORE_SRF: AccessEvents =
    pair("offcore_response", offcore(0x02b7, 0x1_8400_0001), offcore(0x01b7, 0x7_3000_0001));

/// Refills of the data cache by demand.
const ZEN_1: AccessEvents = pair("ls_refills_from_sys", raw(0x0843), raw(0x4043));
/// All fills of the data cache, prefetches included.
const ZEN_3: AccessEvents = pair("ls_any_fills_from_sys", raw(0x0844), raw(0x4044));

/// Maker, family, first and last model, and events. Models as in `asm/intel-family.h`.
const X86: [(Maker, u32, [u32; 2], &[AccessEvents]); 10] = [
    // Skylake, Cascade Lake, Cooper Lake
    (Maker::Intel, INTEL, [0x55, 0x55], &[RETIRED_LOADS, OFFCORE_SKX]),
    // Ice Lake
    (Maker::Intel, INTEL, [0x6a, 0x6a], &[RETIRED_LOADS, OFFCORE_ICX]),
    (Maker::Intel, INTEL, [0x6c, 0x6c], &[RETIRED_LOADS, OFFCORE_ICX]),
    // Sapphire, Emerald and Granite Rapids
    (Maker::Intel, INTEL, [0x8f, 0x8f], &[RETIRED_LOADS, OFFCORE_SPR]),
    (Maker::Intel, INTEL, [0xcf, 0xcf], &[RETIRED_LOADS, OFFCORE_SPR]),
    (Maker::Intel, INTEL, [0xad, 0xae], &[RETIRED_LOADS, OFFCORE_SPR]),
    // Sierra Forest
    (Maker::Intel, INTEL, [0xaf, 0xaf], &[OFFCORE_SRF]),
    // Zen 1 and 2
    (Maker::Amd, 0x17, [0, u32::MAX], &[ZEN_1]),
    // Zen 3 and 4
    (Maker::Amd, 0x19, [0, u32::MAX], &[ZEN_3]),
    // Zen 5
    (Maker::Amd, 0x1a, [0, u32::MAX], &[ZEN_3]),
];

/// The events of a CPU, best first, or the reason why there are none.
pub(super) fn of(cpu: &CpuModel, pmus: &[Pmu]) -> Result<Vec<AccessEvents>, String> {
    let CpuModel::X86 { maker, family, model } = cpu else { return arm(pmus).map(|events| vec![events]) };
    X86.iter()
        .find(|(of, in_family, [first, last], _)| {
            of == maker && in_family == family && (first..=last).contains(&model)
        })
        .map(|(.., events)| events.to_vec())
        .ok_or_else(|| format!("{cpu} is not in the table of CPUs"))
}

/// The events that a PMU of an Arm CPU lists: the CPU's name does not determine them.
fn arm(pmus: &[Pmu]) -> Result<AccessEvents, String> {
    let listed = |pmu: &Pmu| {
        let event =
            |name| Some(PerfEvent { kind: pmu.kind, config: code(pmu.events.get(name)?)?, config1: 0 });
        Some((event(ARM_ALL)?, event(ARM_REMOTE)?))
    };
    let (near, remote) = pmus.iter().find_map(listed).ok_or_else(|| {
        format!("no PMU in /sys/bus/event_source/devices lists the events {ARM_REMOTE} and {ARM_ALL}")
    })?;
    Ok(AccessEvents { name: ARM_REMOTE, near, counts: NearCounts::All, remote })
}

/// The number of `event=0x31`; a text with more fields is an error.
fn code(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().strip_prefix("event=0x")?, 16).ok()
}

/// The kernel's events for nodes. The meaning of `access` differs: all accesses on most CPUs, local accesses
/// on Intel's from Haswell on (`hsw_hw_cache_extra_regs` of the kernel).
pub(super) fn generic(cpu: Option<&CpuModel>) -> AccessEvents {
    let local = matches!(
        cpu,
        Some(CpuModel::X86 { maker: Maker::Intel, family: INTEL, model })
            if *model >= HASWELL && *model != IVY_BRIDGE_EP
    );
    let event = |config| PerfEvent { kind: TYPE_HW_CACHE, config, config1: 0 };
    AccessEvents {
        name: "node-loads",
        near: event(NODE_READS),
        counts: if local { NearCounts::Local } else { NearCounts::All },
        remote: event(NODE_READ_MISSES),
    }
}
