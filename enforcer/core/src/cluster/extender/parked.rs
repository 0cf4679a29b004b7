//! Pods that no node passed, and whether a scheduler would see what may help them.
//!
//! Problem: a scheduler tries such a pod again when a Pod or a Node changes. States are neither, and most
//! often it is a state that shows the place that has become free, or that a node is known again. Without a
//! change of another object the pod waits for five minutes (`flushUnschedulablePodsLeftover` in
//! pkg/scheduler/backend/queue). Idea: this is noted here, and the caller changes a Pod of its own.
//!
//! A pod may also wait for one that goes to the same node: until a state covers that one.
//!
//! Invariant: where no pod waits, or no place has become free and no node known since it was refused, nothing
//! is asked for.

use super::Extender;

/// Whether pods wait that no node passed, and what has changed since.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ParkedPods {
    /// None waits, as far as is known.
    #[default]
    None,
    /// Some wait for a place.
    Waiting,
    /// Some wait, and one of them for an earlier pod.
    WaitingForEarlier,
    /// Some wait, and a node may have a place for them now.
    Helped,
}

impl ParkedPods {
    /// Notes a pod that no node passed, and whether one refused it for an earlier pod.
    pub(super) fn park(&mut self, is_behind_earlier: bool) {
        *self = match self {
            Self::Helped => Self::Helped,
            Self::None | Self::Waiting if !is_behind_earlier => Self::Waiting,
            _ => Self::WaitingForEarlier,
        };
    }

    /// Do pods wait that nothing has helped yet?
    pub(super) fn are_waiting(self) -> bool {
        matches!(self, Self::Waiting | Self::WaitingForEarlier)
    }

    /// Notes that a state covers pods that came before.
    pub(super) fn help_behind_earlier(&mut self) {
        if *self == Self::WaitingForEarlier {
            self.help();
        }
    }

    /// Notes that a node may have a place now.
    pub(super) fn help(&mut self) {
        if self.are_waiting() {
            *self = Self::Helped;
        }
    }
}

impl Extender {
    /// Is the scheduler to try pods again that no node has passed? Says so once for each change.
    pub fn take_wake(&mut self) -> bool {
        let is_helped = self.parked == ParkedPods::Helped;
        if is_helped {
            self.parked = ParkedPods::None;
        }
        is_helped
    }
}
