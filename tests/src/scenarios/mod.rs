//! All scenarios, by group.
//!
//! The part of a name before the first `-` is its group: `cargo xtask test correct-` runs one group.

mod alert;
mod answered_pins;
mod arm64;
mod audit;
mod bound;
mod churn;
mod claimed;
mod cold_start;
mod cold_start_ready;
mod correct;
mod cut;
mod deadlock;
mod degrade;
mod displaced;
mod drift;
mod eyes;
mod forty;
mod full_disk;
mod idle;
mod image;
mod interrupts;
mod large;
mod late;
mod lifecycles;
mod moves;
mod node;
mod others_pins;
mod owned;
mod package;
mod partition;
mod pause;
mod placed;
mod pods;
mod policies;
mod probed;
mod published;
mod rebalance;
#[cfg(test)]
mod recordings;
mod refused;
mod remedies;
mod remedies_room;
mod resized;
mod resources;
mod restarted;
mod rig;
mod self_placed;
mod service;
mod shipped;
mod spread;
mod stopped;
mod tiers;
mod tiers_backends;
mod traffic;
mod undone;
mod unit;
mod widening;
mod widening_back;
mod widening_brake;
mod widening_cold;
mod widening_line;
mod widening_relief;
mod widening_slow;
mod workloads;

pub use self::idle::reading_seconds;

use anyhow::Result;
use serde::Serialize;

use crate::check::Checks;

/// A scenario and the machine it needs.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct Scenario {
    /// `GROUP-WHAT`.
    pub name: &'static str,
    /// Name of a topology file.
    pub topology: &'static str,
    /// Appended to the kernel command line.
    pub kernel_arguments: &'static str,
    /// Wall time after the boot, on a slow and busy host.
    pub limit_seconds: u64,
    /// Does it run the product?
    pub needs_product: bool,
    /// Does it run the tests of the kernel side?
    pub needs_kernel_side: bool,
    /// Does it make containers?
    pub needs_containerd: bool,
    /// Is systemd process 1?
    pub needs_systemd: bool,
    /// Does Prometheus scrape the product?
    pub needs_prometheus: bool,
    /// Does it install the product's Debian packages?
    pub needs_package: bool,
    /// Does it run the product's container image?
    pub needs_image: bool,
    /// Does it reach an API server on the machine that runs the guest?
    pub needs_api: bool,
    /// Takes minutes, so a run plays it only when it is named, or with `--all`: it measures, repeats, or
    /// varies what a shorter one of its group shows.
    pub only_by_name: bool,
    /// The scenario itself.
    #[serde(skip)]
    pub run: fn(&mut Checks) -> Result<()>,
}

/// Every scenario, quick ones first.
pub const ALL: &[Scenario] = &[
    Scenario { only_by_name: true, ..rig("rig-topology-uma", "uma", |checks| rig::topology(checks, "uma")) },
    rig("rig-topology-2s", "2s", |checks| rig::topology(checks, "2s")),
    Scenario {
        only_by_name: true,
        ..rig("rig-topology-asym", "asym", |checks| rig::topology(checks, "asym"))
    },
    Scenario { only_by_name: true, ..rig("rig-topology-smt", "smt", |checks| rig::topology(checks, "smt")) },
    Scenario { only_by_name: true, ..rig("rig-topology-snc", "snc", |checks| rig::topology(checks, "snc")) },
    Scenario { only_by_name: true, ..rig("rig-topology-ccx", "ccx", |checks| rig::topology(checks, "ccx")) },
    Scenario { only_by_name: true, ..rig("rig-topology-4s", "4s", |checks| rig::topology(checks, "4s")) },
    Scenario { only_by_name: true, ..rig("rig-topology-8n", "8n", |checks| rig::topology(checks, "8n")) },
    rig("rig-topology-hmat", "hmat", |checks| rig::topology(checks, "hmat")),
    Scenario {
        only_by_name: true,
        ..rig("rig-topology-pmem", "pmem", |checks| rig::topology(checks, "pmem"))
    },
    Scenario {
        only_by_name: true,
        ..rig("rig-topology-pmem-crossed", "pmem-crossed", |checks| rig::topology(checks, "pmem-crossed"))
    },
    rig("rig-hog", "2s", rig::hog),
    Scenario {
        name: "audit-large",
        topology: "2s",
        kernel_arguments: "",
        limit_seconds: 300,
        needs_product: true,
        needs_kernel_side: false,
        needs_containerd: false,
        needs_systemd: false,
        needs_prometheus: false,
        needs_package: false,
        needs_image: false,
        needs_api: false,
        only_by_name: true,
        run: large::audit,
    },
    Scenario { only_by_name: true, ..kernel_side("eyes-two-nodes", eyes::two_nodes) },
    Scenario { only_by_name: true, ..kernel_side("eyes-kernel-side", eyes::kernel_side) },
    Scenario { only_by_name: true, ..long("eyes-forty", "4s", BALANCING_OFF, forty::misaligned) },
    Scenario { only_by_name: true, ..long("eyes-bound", "2s", "", bound::to_one_node) },
    Scenario { only_by_name: true, ..long("eyes-churn", "2s", "", churn::forgotten) },
    Scenario { only_by_name: true, ..long("eyes-spread", "2s", "", spread::without_a_move) },
    Scenario { only_by_name: true, ..long("eyes-moves", "2s", "", moves::counted) },
    Scenario { only_by_name: true, ..long("eyes-traffic", "2s", BALANCING_OFF, traffic::proportions) },
    Scenario {
        only_by_name: true,
        ..long("eyes-traffic-4s", "4s", BALANCING_OFF, traffic::proportions_on_four_nodes)
    },
    Scenario { only_by_name: true, ..long("eyes-traffic-kinds", "2s", BALANCING_OFF, traffic::kinds) },
    Scenario { only_by_name: true, ..long("eyes-self-placed", "2s", "", self_placed::survives) },
    product("eyes-what-needs-what", "2s", "", eyes::what_needs_what),
    // The product is built anew for it, which takes longer than all that a run builds otherwise.
    Scenario { only_by_name: true, ..product("arm64-smoke", arm64::TOPOLOGY, "", arm64::smoke) },
    product("audit-misaligned", "2s", "", audit::misaligned),
    // Without the kernel's own balancing, which would move pages before a remedy does.
    Scenario {
        only_by_name: true,
        ..product("audit-remedies", remedies::TOPOLOGY, BALANCING_OFF, remedies::are_carried_out)
    },
    Scenario {
        only_by_name: true,
        ..product(
            "audit-remedies-room",
            remedies_room::TOPOLOGY,
            BALANCING_OFF,
            remedies_room::is_of_the_node_that_pages_go_to,
        )
    },
    Scenario {
        needs_prometheus: true,
        only_by_name: true,
        ..long("alert-fires-and-resolves", "2s", BALANCING_OFF, alert::fires_and_resolves)
    },
    product("correct-enforce", "2s", "", correct::enforce),
    Scenario { only_by_name: true, ..product("correct-pause", "2s", "", pause::and_resume) },
    Scenario { only_by_name: true, ..product("correct-restore", "2s", "", correct::restore) },
    Scenario { only_by_name: true, ..product("correct-restore-on-exit", "2s", "", correct::restore_on_exit) },
    product("correct-restore-after-kill", "2s", "", correct::restore_after_kill),
    // Without the kernel's own balancing, which would move the pages before the daemon does.
    Scenario {
        only_by_name: true,
        ..product("correct-restore-inherited", "2s", BALANCING_OFF, correct::restore_inherited)
    },
    Scenario { only_by_name: true, ..product("correct-drift", "2s", "", drift::repaired) },
    Scenario {
        only_by_name: true,
        ..product("correct-interrupts", "2s", "", interrupts::leave_exclusive_cpus)
    },
    Scenario { only_by_name: true, ..product("correct-partition", "2s", "", partition::keeps_strangers_out) },
    Scenario { only_by_name: true, ..product("correct-partition-refused", "2s", "", partition::refused) },
    Scenario { only_by_name: true, ..long("rebalance-four", "2s", BALANCING_OFF, rebalance::four) },
    Scenario { only_by_name: true, ..long("rebalance-peers", "2s", BALANCING_OFF, rebalance::peers) },
    Scenario { only_by_name: true, ..product("correct-late", "2s", "", late::between_two_turns) },
    // Without the kernel's own balancing, which would move pages between the nodes.
    product("widen-before-oom", "hmat", BALANCING_OFF, widening::before_the_oom_killer),
    Scenario {
        only_by_name: true,
        ..product("widen-before-oom-1", "hmat", BALANCING_OFF, widening::before_the_oom_killer_on_node_1)
    },
    Scenario {
        only_by_name: true,
        ..product("widen-back", "hmat", BALANCING_OFF, widening_back::without_a_stall)
    },
    Scenario {
        only_by_name: true,
        ..long("widen-bound", "hmat", BALANCING_OFF, widening_relief::of_bound_process)
    },
    Scenario {
        only_by_name: true,
        ..product("widen-strict-relief", "hmat", BALANCING_OFF, widening_relief::of_strict_workload)
    },
    Scenario {
        only_by_name: true,
        ..long("widen-cold-relief", "hmat", BALANCING_OFF, widening_cold::makes_room)
    },
    Scenario {
        only_by_name: true,
        ..product("widen-exposed", "hmat", BALANCING_OFF, widening_relief::names_exposed_workloads)
    },
    Scenario {
        only_by_name: true,
        ..long("widen-brake-high", "hmat", BALANCING_OFF, widening_brake::slows_down)
    },
    Scenario {
        only_by_name: true,
        ..long("widen-brake-killed", "hmat", BALANCING_OFF, widening_brake::ends_with_the_daemon)
    },
    Scenario {
        only_by_name: true,
        ..long("widen-head-of-line", "hmat", BALANCING_OFF, widening_line::is_not_waited_for)
    },
    Scenario {
        only_by_name: true,
        ..long("widen-full-speed", "hmat", BALANCING_OFF, widening::at_full_speed)
    },
    Scenario { only_by_name: true, ..product("widen-order", "hmat", BALANCING_OFF, widening::in_order) },
    Scenario {
        only_by_name: true,
        ..product("widen-where-it-may", "hmat", BALANCING_OFF, widening::where_it_may)
    },
    Scenario {
        only_by_name: true,
        limit_seconds: 7_200,
        ..long("widen-matrix", "hmat", BALANCING_OFF, widening::over_the_matrix)
    },
    Scenario {
        limit_seconds: 1_800,
        ..long("tiers-cold-down-hot-back", "hmat", BALANCING_OFF, tiers::cold_down_hot_back)
    },
    Scenario { only_by_name: true, ..long("tiers-cpuset", "hmat", BALANCING_OFF, tiers::stay_in_the_cpuset) },
    Scenario {
        only_by_name: true,
        limit_seconds: 2_400,
        ..long("tiers-backends", "hmat", BALANCING_OFF, tiers_backends::one_after_another)
    },
    Scenario { only_by_name: true, ..product("degrade-one-node", "uma", "", degrade::one_node) },
    product("degrade-no-btf", "2s", "", degrade::no_btf),
    Scenario { only_by_name: true, ..product("degrade-no-cap-bpf", "2s", "", degrade::no_cap_bpf) },
    Scenario { only_by_name: true, ..product("degrade-no-cap-perfmon", "2s", "", refused::no_cap_perfmon) },
    Scenario { only_by_name: true, ..product("degrade-shipped-privileges", "2s", "", shipped::privileges) },
    Scenario { only_by_name: true, ..product("degrade-no-fentry", "2s", "", refused::no_fentry) },
    Scenario {
        only_by_name: true,
        ..product("degrade-fentry-refused", "2s", "", probed::trampolines_refused)
    },
    Scenario { only_by_name: true, ..product("degrade-others-pins", "2s", "", others_pins::survive) },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("degrade-answered-pins", pods::TOPOLOGY, "", answered_pins::outlive_answers)
    },
    Scenario {
        only_by_name: true,
        ..product("degrade-lockdown", "2s", "lockdown=confidentiality", refused::lockdown_confidentiality)
    },
    Scenario {
        only_by_name: true,
        ..product("degrade-lockdown-integrity", "2s", "lockdown=integrity", refused::lockdown_integrity)
    },
    Scenario {
        only_by_name: true,
        ..product("degrade-balancing-off", "2s", BALANCING_OFF, degrade::balancing_off)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        limit_seconds: 600,
        ..rig("node-containerd", "2s", node::containerd)
    },
    Scenario { needs_containerd: true, ..long("node-placed", pods::TOPOLOGY, "", placed::at_creation) },
    Scenario {
        needs_containerd: true,
        needs_image: true,
        needs_api: true,
        limit_seconds: 1_200,
        ..long("node-published", pods::TOPOLOGY, "", published::by_the_shipped_pod)
    },
    Scenario {
        needs_containerd: true,
        needs_image: true,
        needs_api: true,
        limit_seconds: 1_200,
        ..long("node-claimed", pods::TOPOLOGY, "", claimed::by_containers)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-policies", "ccx", "", policies::on_two_nodes)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-policies-4s", "4s", "", policies::on_four_nodes)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-resized", pods::TOPOLOGY, "", resized::in_place)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-resources", pods::TOPOLOGY, "", resources::read_by_containers)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-restarted", pods::TOPOLOGY, "", restarted::while_containers_run)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-displaced", pods::TOPOLOGY, "", displaced::goes_with_its_memory)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-stopped", pods::TOPOLOGY, "", stopped::until_the_last_process_is_gone)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        limit_seconds: 2_400,
        ..long("node-lifecycles", pods::TOPOLOGY, "", lifecycles::leave_nothing)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-cold-start", "hmat", BALANCING_OFF, cold_start::ends)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-cold-start-ready", "hmat", BALANCING_OFF, cold_start_ready::ends_when_said)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        limit_seconds: 3_600,
        ..long("node-idle", pods::TOPOLOGY, "", idle::of_two_hundred)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        limit_seconds: 3_600,
        ..long("node-deadlock", pods::TOPOLOGY, "", deadlock::is_not_met)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-owned", pods::TOPOLOGY, "", owned::by_the_kubelet)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-full-disk", pods::TOPOLOGY, "", full_disk::of_the_journal)
    },
    Scenario {
        needs_containerd: true,
        only_by_name: true,
        ..long("node-cut", pods::TOPOLOGY, "", cut::while_it_tells)
    },
    systemd("systemd-placement", service::keeps_its_place),
    systemd("systemd-unit", unit::as_shipped),
    Scenario {
        needs_containerd: true,
        limit_seconds: 2_400,
        topology: pods::TOPOLOGY,
        ..systemd("systemd-undone", undone::stays_undone)
    },
    Scenario { needs_package: true, limit_seconds: 1_800, ..systemd("package-deb", package::comes_and_goes) },
    Scenario {
        needs_image: true,
        needs_containerd: true,
        only_by_name: true,
        limit_seconds: 1_800,
        ..long("package-image", pods::TOPOLOGY, "", image::of_each_preset)
    },
];

const BALANCING_OFF: &str = "numa_balancing=disable";

const fn rig(name: &'static str, topology: &'static str, run: fn(&mut Checks) -> Result<()>) -> Scenario {
    Scenario {
        name,
        topology,
        kernel_arguments: "",
        limit_seconds: 60,
        needs_product: false,
        needs_kernel_side: false,
        needs_containerd: false,
        needs_systemd: false,
        needs_prometheus: false,
        needs_package: false,
        needs_image: false,
        needs_api: false,
        only_by_name: false,
        run,
    }
}

const fn product(
    name: &'static str,
    topology: &'static str,
    kernel_arguments: &'static str,
    run: fn(&mut Checks) -> Result<()>,
) -> Scenario {
    Scenario {
        name,
        topology,
        kernel_arguments,
        limit_seconds: 600,
        needs_product: true,
        needs_kernel_side: false,
        needs_containerd: false,
        needs_systemd: false,
        needs_prometheus: false,
        needs_package: false,
        needs_image: false,
        needs_api: false,
        only_by_name: false,
        run,
    }
}

/// Waits for samples or moves by their number, however slow the guest is.
const fn long(
    name: &'static str,
    topology: &'static str,
    kernel_arguments: &'static str,
    run: fn(&mut Checks) -> Result<()>,
) -> Scenario {
    Scenario { limit_seconds: 900, ..product(name, topology, kernel_arguments, run) }
}

/// Tests of the kernel side; each loads every program anew.
const fn kernel_side(name: &'static str, run: fn(&mut Checks) -> Result<()>) -> Scenario {
    Scenario {
        limit_seconds: 1_500,
        needs_product: false,
        needs_kernel_side: true,
        ..product(name, "2s", "", run)
    }
}

/// On a machine with systemd as process 1.
const fn systemd(name: &'static str, run: fn(&mut Checks) -> Result<()>) -> Scenario {
    Scenario { needs_systemd: true, only_by_name: true, ..long(name, "2s", BALANCING_OFF, run) }
}

/// The scenario of this name.
pub fn named(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_have_a_group() {
        let names: BTreeSet<_> = ALL.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(names.iter().all(|name| name.contains('-')), "{names:?}");
    }
}
