//! The engine itself: ask, merge, judge, assign.

use crate::{
    place::{Allocations, Inventory, Placement, PodRequest, Reason, Rejection, Trace},
    policy::placement::HintsSettings,
};

/// Places by hints.
#[derive(Debug, Clone)]
pub struct HintsEngine {
    settings: HintsSettings,
}

impl HintsEngine {
    /// With these settings.
    pub const fn new(settings: HintsSettings) -> Self {
        Self { settings }
    }
}

impl Placement for HintsEngine {
    fn name(&self) -> &'static str {
        "hints"
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
