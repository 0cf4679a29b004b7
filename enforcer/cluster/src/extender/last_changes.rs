//! When the API server told of a change, by collection.
//!
//! Problem: a watch that a proxy keeps open and silent looks like a cluster without changes. Idea: the age of
//! the last change is a metric; people compare it with what their cluster does.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use enforcer_core::cluster::view::Millis;

/// Time of the last change of nodes, states, pods and leases, plus 1 ms; 0 without any.
#[derive(Debug, Default)]
pub(super) struct LastChanges([AtomicU64; 4]);

impl LastChanges {
    /// Notes a change of the collection at this position.
    pub(super) fn note(&self, collection: usize, now: Millis) {
        if let Some(last) = self.0.get(collection) {
            last.store(now.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Time since the last change.
    pub(super) fn ages(&self, now: Millis) -> [Option<Duration>; 4] {
        self.0.each_ref().map(|last| {
            let at = last.load(Ordering::Relaxed).checked_sub(1)?;
            Some(Duration::from_millis(now.saturating_sub(at)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_that_of_the_last_change() {
        let changes = LastChanges::default();
        changes.note(0, 0);
        changes.note(2, 500);
        changes.note(2, 1_500);
        changes.note(9, 1_500);
        let [nodes, states, pods, leases] = changes.ages(2_000);
        assert_eq!((nodes, pods), (Some(Duration::from_secs(2)), Some(Duration::from_millis(500))));
        assert_eq!((states, leases), (None, None), "nothing was told");
    }
}
