//! A node's answer if some of its pods left.
//!
//! Invariant: nothing is put elsewhere. Pods that stay keep what they hold, as on a node.

use numa_placement::PodRequest;

use super::{Millis, NodeView, Verdict};
use crate::cluster::state::DecidedBy;

impl NodeView {
    /// The node's answer to a pod that comes after these pods, by uid in the kubelet, have left and the
    /// kubelet has freed what they held.
    pub fn filter_without(&self, gone: &[&str], pod: &PodRequest, now: Millis) -> Verdict {
        let Some(model) = self.model.as_ref().filter(|_| !gone.is_empty()) else {
            return self.filter(pod, now);
        };
        if model.decided_by == DecidedBy::NumaEnforcer {
            // The pods that are still being created count there too.
            let mut view = self.clone();
            for uid in gone {
                view.observe_ended(uid, now);
            }
            return view.filter(pod, now);
        }
        let mut held = self.now().clone();
        for uid in gone {
            held.remove_uid(model, uid);
        }
        self.answer(&held, pod, now)
    }
}
