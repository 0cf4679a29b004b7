//! The engine `pools`: places the containers of a pod one by one.

use super::{classify::Classifier, placing::PoolsPlacing};
use crate::{
    Allocations, ContainerKind, Inventory, PodRequest, Rejection, Trace, overflow::settle_overflow_for,
    settings::PoolsSettings,
};

/// Places pods by pools.
#[derive(Debug, Clone)]
pub struct PoolsEngine {
    settings: PoolsSettings,
    strict_cpu_reservation: bool,
}

impl PoolsEngine {
    /// An engine with these settings.
    pub const fn new(settings: PoolsSettings) -> Self {
        Self { settings, strict_cpu_reservation: false }
    }

    /// With a strict reservation: containers do not run on reserved CPUs when exclusive CPUs of the engine
    /// `hints` displace them.
    pub(crate) const fn with_strict_reservation(mut self, strict_cpu_reservation: bool) -> Self {
        self.strict_cpu_reservation = strict_cpu_reservation;
        self
    }

    /// Makes a grant for every container of the pod. On an error, the caller undoes those made before.
    pub(crate) fn place(
        &self,
        inventory: &Inventory,
        allocations: &mut Allocations,
        pod: &PodRequest,
        trace: &mut Trace,
    ) -> Result<(), Rejection> {
        let (classifier, problems) = Classifier::new(&self.settings);
        for problem in problems {
            trace.warn_about_settings(problem);
        }
        let mut placing = PoolsPlacing::new(&self.settings, inventory, &classifier, pod, allocations);
        placing.strict_cpu_reservation = self.strict_cpu_reservation;
        for (index, container) in pod.containers.iter().enumerate() {
            if index > 0 && pod.containers[index - 1].kind == ContainerKind::Init {
                placing.look_again(allocations, index);
            }
            placing.place(index, allocations, trace).map_err(|rejection| rejection.of(&container.name))?;
        }
        // Containers whose shared CPUs it reduced on a resize have left room for others.
        settle_overflow_for(inventory, allocations, pod)
    }
}
