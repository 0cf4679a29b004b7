//! The container, or the pod, that a question of the engine is about.

use crate::{ContainerRequest, nodes::NodeIndex, settings::HintsSettings};
use numa_topology::set::CpuSet;

/// Subject of a question: a container by its position in the pod, or the pod as a whole.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    /// Position of the container, or of the first one.
    pub(super) index: usize,
    /// `None` for the pod.
    pub(super) container: Option<&'a ContainerRequest>,
    pub(super) settings: &'a HintsSettings,
    pub(super) nodes: &'a NodeIndex,
    /// CPUs that it has and keeps.
    pub(super) kept: &'a CpuSet,
    /// Whether the place must include the CPUs of ended init containers. They are free for the pod in any
    /// case, but of no use for later containers elsewhere.
    pub(super) reuse: bool,
}
