//! The settings that the daemon writes before loading; `enforcer_common::settings` documents them.
//!
//! The kernel freezes them, so that the verifier folds each of them into a constant.

use aya_ebpf::Global;
use enforcer_common::{
    counter::drop,
    limit::{CPUS, MIGRATE_REASONS},
    settings::{AXIS_UNIFIED, NO_NODE},
    tally::reason,
};

use crate::maps;

#[unsafe(no_mangle)]
pub static CGROUP_AXIS: Global<u32> = Global::new(AXIS_UNIFIED);
#[unsafe(no_mangle)]
pub static TASK_CPU: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_CGROUPS: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CSS_SET_SLOT: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CSS_CGROUP: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CGROUP_KN: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static KN_ID: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CSS_PARENT: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CGROUP_SELF: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static CGROUP_ROOT: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static ROOT_HIERARCHY: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static HIERARCHY: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static TASK_PID: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static PRESSURE_INTERVAL: Global<u64> = Global::new(0);
#[unsafe(no_mangle)]
pub static RECLAIM_ORDER: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static VICTIM_IS_TASK: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static ZONEREF_ZONE: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static ZONE_NODE: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static OOM_CONSTRAINT: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static OWN_TGID: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static REASON_ARGUMENT: Global<u32> = Global::new(6);
#[unsafe(no_mangle)]
static REASON_CLASS: Global<[u8; MIGRATE_REASONS]> = Global::new([reason::OTHER; MIGRATE_REASONS]);
#[unsafe(no_mangle)]
pub static NODE_MASK_BYTES: Global<u32> = Global::new(8);
#[unsafe(no_mangle)]
pub static OPEN_FILE_KN: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static KN_PARENT: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static KN_NAME: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static SKIP_UNSUITABLE: Global<u32> = Global::new(u32::MAX);
#[unsafe(no_mangle)]
pub static NODES: Global<u32> = Global::new(1);
#[unsafe(no_mangle)]
pub static MOVE_TABLE: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
pub static EVENT_INTERVAL: Global<u64> = Global::new(0);
#[unsafe(no_mangle)]
pub static HARDWARE_PERIOD: Global<u64> = Global::new(0);
#[unsafe(no_mangle)]
static CPU_NODE: Global<[u16; CPUS]> = Global::new([NO_NODE; CPUS]);

/// The index of a CPU's NUMA node; an unknown one is counted as dropped.
#[inline(always)]
pub fn node_of(cpu: u32) -> Option<u32> {
    let table = (&raw const CPU_NODE).cast::<u16>();
    let index = cpu as usize;
    if index < CPUS {
        // SAFETY: the table has `CPUS` entries; `Global` is transparent. Volatile, because the
        // daemon has overwritten what the compiler sees. The mask is for the verifier.
        let node = unsafe { table.add(index & (CPUS - 1)).read_volatile() };
        if node != NO_NODE {
            return Some(u32::from(node));
        }
    }
    maps::count_drop(drop::UNKNOWN_CPU);
    None
}

/// The class of a reason for page moves.
#[inline(always)]
pub fn reason_class(reason: u32) -> u8 {
    let table = (&raw const REASON_CLASS).cast::<u8>();
    let index = reason as usize;
    if index >= MIGRATE_REASONS {
        return reason::OTHER;
    }
    // SAFETY: as in `node_of`, for `MIGRATE_REASONS` entries.
    unsafe { table.add(index & (MIGRATE_REASONS - 1)).read_volatile() }
}
