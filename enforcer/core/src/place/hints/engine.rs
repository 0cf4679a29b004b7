//! The engine itself: ask, merge, judge, assign.

use std::collections::BTreeMap;

use crate::{
    place::{Allocations, Inventory, Placement, PodRequest, Reason, Rejection, Trace},
    policy::placement::HintsSettings,
};

/// Places by hints.
#[derive(Debug, Clone)]
pub struct HintsEngine {
    settings: HintsSettings,
    /// Containers with settings of their own.
    containers: BTreeMap<String, HintsSettings>,
}

impl HintsEngine {
    /// With these settings.
    pub const fn new(settings: HintsSettings) -> Self {
        Self { settings, containers: BTreeMap::new() }
    }

    /// With other settings for some containers.
    #[must_use]
    pub fn with_containers(self, containers: BTreeMap<String, HintsSettings>) -> Self {
        Self { containers, ..self }
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
        let problem = format!("pod {}: not there yet: {:?} {:?}", pod.name, self.settings, self.containers);
        Err(Rejection::new(Reason::UnexpectedAdmissionError, problem))
    }
}
