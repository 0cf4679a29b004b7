//! The engine itself: classify, rank, give.

use crate::{
    place::{Allocations, Inventory, Placement, PodRequest, Reason, Rejection, Trace},
    policy::placement::PoolsSettings,
};

/// Places by pools.
#[derive(Debug, Clone)]
pub struct PoolsEngine {
    settings: PoolsSettings,
}

impl PoolsEngine {
    /// With these settings.
    pub const fn new(settings: PoolsSettings) -> Self {
        Self { settings }
    }
}

impl Placement for PoolsEngine {
    fn name(&self) -> &'static str {
        "pools"
    }

    fn place(
        &self,
        _inventory: &Inventory,
        _allocations: &mut Allocations,
        pod: &PodRequest,
        _trace: &mut Trace,
    ) -> Result<(), Rejection> {
        let problem = format!("pod {}: not there yet: {:?}", pod.name, self.settings);
        Err(Rejection::new(Reason::UnexpectedAdmissionError, problem))
    }
}
