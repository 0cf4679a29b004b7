//! Moves that would help the running workloads: what the daemon would plan now.
//!
//! The same code as in the daemon, without history: there is no cool-down, and only the upper thresholds
//! cause a move. Nothing is changed.

use std::collections::BTreeMap;

use enforcer_core::{
    declarations::Declarations,
    hosted::Containers,
    model::Model,
    owners::Owners,
    policy::Policy,
    rebalance::{self, RebalanceReport},
    turn::{History, Inputs, Partitioned, SelfPlacedWorkloads, WrittenCgroups},
};
use numa_placement::{Allocations, Inventory};

use super::snapshot::HostSnapshot;
use enforcer_act::pages::PageMoveLimits;

/// The moves; `model` is that of two samples.
pub(super) fn moves(
    policy: &Policy,
    inventory: &Inventory,
    seen: &HostSnapshot,
    model: &Model,
    declarations: &Declarations,
    owners: &Owners,
) -> RebalanceReport {
    let inputs = Inputs {
        inventory,
        workloads: &seen.workloads,
        sample: &seen.now,
        model,
        policy,
        declarations,
        containers: &Containers::default(),
        owners,
        history: &History::default(),
        written: WrittenCgroups::NOTHING,
        partitioned: &Partitioned::default(),
        self_placed: &SelfPlacedWorkloads::new(),
        widened: &BTreeMap::new(),
        now_ns: seen.now.monotonic_ns,
    };
    let report = rebalance::once(&inputs, &mut Allocations::default(), PageMoveLimits::default().bytes);
    RebalanceReport { degraded: seen.missing(), ..report }
}
