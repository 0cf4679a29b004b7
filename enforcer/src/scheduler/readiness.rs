//! When calls are answered, and why not.

use std::time::{Duration, Instant};

use enforcer_cluster::{Leadership, extender::Synced};
use numa_topology::degraded::Degraded;
use tokio::sync::watch::Receiver;

/// What has to be so before a call is answered.
#[derive(Debug)]
pub(super) struct Readiness {
    pub(super) synced: Receiver<Synced>,
    /// Of the collections without which no call is answered.
    pub(super) faults: Vec<Receiver<Option<Degraded>>>,
    /// Whether this replica is the one that works; `None` where there is no election.
    pub(super) leadership: Option<Receiver<Leadership>>,
    pub(super) started: Instant,
    pub(super) settles: Duration,
}

impl Readiness {
    /// Why no call is answered now.
    pub(super) fn refusal(&self) -> Option<String> {
        self.follows().or_else(|| self.obstacle())
    }

    /// Another replica leads.
    pub(super) fn follows(&self) -> Option<String> {
        let leadership = self.leadership.as_ref()?.borrow();
        if leadership.leads() {
            return None;
        }
        Some(match leadership.holder.as_str() {
            "" => "no replica is known to lead".to_owned(),
            holder => format!("the lease is of {holder}"),
        })
    }

    /// Why a replica that leads would answer no call.
    pub(super) fn obstacle(&self) -> Option<String> {
        let Synced { nodes, states, pods } = *self.synced.borrow();
        let missing: Vec<&str> = [(nodes, "nodes"), (states, "states"), (pods, "pods")]
            .into_iter()
            .filter_map(|(is_there, name)| (!is_there).then_some(name))
            .collect();
        if !missing.is_empty() {
            return Some(format!("the lists of {} have not been read yet", missing.join(", ")));
        }
        if let Some(fault) = self.faults.iter().find_map(|fault| fault.borrow().clone()) {
            return Some(fault.to_string());
        }
        let left = self.settles.saturating_sub(self.answers_since().elapsed());
        (!left.is_zero()).then(|| {
            format!("pods that were chosen before its start may still be bound for {} s", left.as_secs() + 1)
        })
    }

    /// From when on no other replica has chosen nodes.
    fn answers_since(&self) -> Instant {
        let since = self.leadership.as_ref().and_then(|leadership| leadership.borrow().since());
        since.map_or(self.started, |since| since.into_std().max(self.started))
    }
}
