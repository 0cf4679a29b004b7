//! Loads the object: writes the settings of its programs, and creates its maps.
//!
//! Invariant: no program is loaded here; which of them the kernel takes is found one by one in
//! [`attach`](super::attach).

use aya::{Ebpf, EbpfError, EbpfLoader};
use enforcer_common::{
    change::KINDS,
    limit,
    settings::{self, NO_NODE},
};
use rustix::time::{ClockId, clock_getres};

use super::{
    attach::KernelFacts,
    columns::NodeColumns,
    maps,
    object::object,
    offsets::{CgroupFile, CgroupTree, CgroupWalk, ZoneWalk},
    options::AttachOptions,
};

/// Ring of the programs' diagnostics when they are off: the smallest that every page size allows.
const SILENT_LOG_BYTES: u32 = 65_536;
const NS_PER_S: u64 = 1_000_000_000;

/// Writes the settings and creates the maps; no program is loaded yet.
pub(super) fn load(
    kernel: &KernelFacts,
    options: &AttachOptions,
    columns: &NodeColumns,
) -> Result<Ebpf, EbpfError> {
    let settings = ProgramSettings::of(kernel, options, columns);
    let mut loader = EbpfLoader::new();
    // Nothing in the object is relocated by it.
    loader.btf(None);
    settings.write(&mut loader);
    size_maps(&mut loader, options, settings.nodes);
    let damaged = |error| EbpfError::FileError { path: "programs.o".into(), error };
    loader.load(&object().map_err(damaged)?)
}

/// Settings of the programs: read-only values that the verifier knows. 0 stands for what the kernel's types
/// do not tell; hooks that need it are not attached ([`attach`](super::attach)).
struct ProgramSettings {
    cgroup_axis: u32,
    task_cpu: u32,
    task_pid: u32,
    walk: CgroupWalk,
    tree: CgroupTree,
    hierarchy: u32,
    /// Number of columns of nodes.
    nodes: u32,
    /// Column of each CPU's node.
    cpu_node: Vec<u16>,
    /// 1 if page moves are counted by pair of nodes.
    move_table: u32,
    /// In ticks of the kernel's clock.
    event_interval: u64,
    hardware_period: u64,
    /// In ticks of the kernel's clock.
    pressure_interval: u64,
    reclaim_order: u32,
    /// 1 if the tracepoint of a kill passes the task.
    victim_is_task: u32,
    zone: ZoneWalk,
    oom_constraint: u32,
    /// 0 in a PID namespace of its own.
    own_tgid: u32,
    node_mask_bytes: u32,
    cgroup_file: CgroupFile,
    reason_argument: u32,
    reasons: [u8; limit::MIGRATE_REASONS],
    skip_unsuitable: u32,
    log_level: u8,
}

impl ProgramSettings {
    fn of(kernel: &KernelFacts, options: &AttachOptions, columns: &NodeColumns) -> Self {
        // The program that tells of a kill reads it by address: where that is refused it must not try.
        let oom_constraint = kernel.may_read_by_address().and_then(|()| kernel.oom_constraint());
        Self {
            cgroup_axis: options.cgroups.setting(),
            task_cpu: kernel.task_cpu().unwrap_or_default(),
            task_pid: kernel.task_pid().unwrap_or_default(),
            walk: kernel.walk().unwrap_or_default(),
            tree: kernel.tree().unwrap_or_default(),
            hierarchy: kernel.hierarchy().unwrap_or_default(),
            nodes: columns.count(),
            cpu_node: node_table(options, columns),
            move_table: u32::from(options.sizes.move_cells > 0),
            event_interval: ticks(options.event_interval_ns),
            hardware_period: options.hardware.period,
            pressure_interval: ticks(options.pressure_interval_ns),
            reclaim_order: kernel.reclaim_order(),
            victim_is_task: u32::from(kernel.victim_is_task().unwrap_or_default()),
            zone: kernel.zone().unwrap_or_default(),
            oom_constraint: oom_constraint.unwrap_or_default(),
            own_tgid: options.own_tgid.unwrap_or_default(),
            node_mask_bytes: kernel.node_mask_bytes().unwrap_or_default(),
            cgroup_file: kernel.cgroup_file().unwrap_or_default(),
            reason_argument: kernel.reason_argument(),
            reasons: kernel.reasons().unwrap_or_default(),
            skip_unsuitable: kernel.skip_unsuitable().unwrap_or(u32::MAX),
            log_level: if options.log { ::log::LevelFilter::Debug } else { ::log::LevelFilter::Off } as u8,
        }
    }

    fn write<'a>(&'a self, loader: &mut EbpfLoader<'a>) {
        loader
            .override_global(settings::CGROUP_AXIS, &self.cgroup_axis, true)
            .override_global(settings::TASK_CPU, &self.task_cpu, true)
            .override_global(settings::TASK_CGROUPS, &self.walk.task_cgroups, true)
            .override_global(settings::CSS_SET_SLOT, &self.walk.css_set_slot, true)
            .override_global(settings::CSS_CGROUP, &self.walk.css_cgroup, true)
            .override_global(settings::CGROUP_KN, &self.walk.cgroup_kn, true)
            .override_global(settings::KN_ID, &self.walk.kn_id, true)
            .override_global(settings::CGROUP_SELF, &self.tree.cgroup_self, true)
            .override_global(settings::CSS_PARENT, &self.tree.css_parent, true)
            .override_global(settings::CGROUP_ROOT, &self.tree.cgroup_root, true)
            .override_global(settings::ROOT_HIERARCHY, &self.tree.root_hierarchy, true)
            .override_global(settings::HIERARCHY, &self.hierarchy, true)
            .override_global(settings::TASK_PID, &self.task_pid, true)
            .override_global(settings::NODES, &self.nodes, true)
            .override_global(settings::MOVE_TABLE, &self.move_table, true)
            .override_global(settings::EVENT_INTERVAL, &self.event_interval, true)
            .override_global(settings::HARDWARE_PERIOD, &self.hardware_period, true)
            .override_global(settings::PRESSURE_INTERVAL, &self.pressure_interval, true)
            .override_global(settings::RECLAIM_ORDER, &self.reclaim_order, true)
            .override_global(settings::VICTIM_IS_TASK, &self.victim_is_task, true)
            .override_global(settings::ZONEREF_ZONE, &self.zone.zoneref_zone, true)
            .override_global(settings::ZONE_NODE, &self.zone.zone_node, true)
            .override_global(settings::OOM_CONSTRAINT, &self.oom_constraint, true)
            .override_global(settings::OWN_TGID, &self.own_tgid, true)
            .override_global(settings::NODE_MASK_BYTES, &self.node_mask_bytes, true)
            .override_global(settings::OPEN_FILE_KN, &self.cgroup_file.open_file_kn, true)
            .override_global(settings::KN_PARENT, &self.cgroup_file.kn_parent, true)
            .override_global(settings::KN_NAME, &self.cgroup_file.kn_name, true)
            .override_global(settings::REASON_ARGUMENT, &self.reason_argument, true)
            .override_global(settings::REASON_CLASS, self.reasons.as_slice(), true)
            .override_global(settings::SKIP_UNSUITABLE, &self.skip_unsuitable, true)
            .override_global(settings::CPU_NODE, self.cpu_node.as_slice(), true)
            .override_global(aya_log::LEVEL, &self.log_level, true);
    }
}

/// Sets the number of entries of the maps, for this number of columns of nodes.
fn size_maps(loader: &mut EbpfLoader<'_>, options: &AttachOptions, columns: u32) {
    let sizes = options.sizes;
    for (map, entries) in [
        (maps::MANAGED, sizes.managed),
        // None has no entries: one is the least.
        (maps::MOVE_CELLS, sizes.move_cells.max(1)),
        (maps::MOVES, sizes.moves.max(1)),
        (maps::TALLIES, sizes.tallies),
        (maps::LAST_CHANGE, sizes.slots.saturating_mul(KINDS)),
        (maps::RUN_TIME, sizes.slots.saturating_mul(columns)),
        (maps::HINT_FAULTS, sizes.slots.saturating_mul(columns)),
        (maps::HARDWARE, sizes.slots.saturating_mul(columns)),
        (maps::SENT, sizes.slots),
        (maps::EVENTS, sizes.event_bytes),
    ] {
        loader.map_max_entries(map, entries);
    }
    if !options.log {
        loader.map_max_entries("AYA_LOGS", SILENT_LOG_BYTES);
    }
}

/// Ticks of the kernel's clock that are at least so many ns; 0 of none. The one that is under way may be over
/// at once, so it does not count.
fn ticks(ns: u64) -> u64 {
    let tick = clock_getres(ClockId::MonotonicCoarse);
    let tick = u64::try_from(tick.tv_sec).unwrap_or(0) * NS_PER_S + u64::try_from(tick.tv_nsec).unwrap_or(0);
    if ns == 0 { 0 } else { ns.div_ceil(tick.max(1)) + 1 }
}

fn node_table(options: &AttachOptions, columns: &NodeColumns) -> Vec<u16> {
    let mut nodes = vec![NO_NODE; limit::CPUS];
    for (cpu, node) in &options.cpu_node {
        if let (Some(index), Some(column)) = (nodes.get_mut(cpu.0 as usize), columns.index(*node)) {
            *index = column;
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use numa_topology::id::{CpuId, NodeId};

    use super::{super::axis::CgroupAxis, *};

    #[test]
    fn the_table_holds_sparse_and_high_nodes() {
        let cpu_node =
            [(0, 72), (3, 1023), (8191, 5), (8192, 6)].map(|(cpu, node)| (CpuId(cpu), NodeId(node)));
        let options = AttachOptions::new(cpu_node.into(), CgroupAxis::Unified);
        let table = node_table(&options, &NodeColumns::new(&options.cpu_node));
        assert_eq!(table.len(), limit::CPUS);
        assert_eq!([table[0], table[1], table[3], table[8191]], [2, NO_NODE, 3, 0]);
    }
}
