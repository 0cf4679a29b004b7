//! The epoch that states of this daemon have to exceed.
//!
//! Problem: the server refuses a state that is older than the one that it has. A command or another
//! daemon may write a state of a later epoch, and then no state of this daemon is accepted any more.
//!
//! Invariant: the epoch of another writer is exceeded only if its object is as it was at the refusal
//! before. Two daemons of one node do not write in turns with each change.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use serde_json::Value;

use super::publisher::{PublishedObject, resource_version};

/// Shared by the publisher, which raises it, and by the source of states.
#[derive(Debug, Default)]
pub struct NewerEpoch(AtomicI64);

impl NewerEpoch {
    /// The epoch; 0 while there is none to exceed.
    pub fn epoch(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// States of other writers that the server has instead of this daemon's.
#[derive(Debug)]
pub(super) struct OtherWriters {
    newer: Arc<NewerEpoch>,
    /// Version of the object at the last refusal.
    seen: Option<String>,
    /// The epoch was raised since the last state.
    is_raised: bool,
}

impl OtherWriters {
    pub(super) fn new(newer: Arc<NewerEpoch>) -> Self {
        Self { newer, seen: None, is_raised: false }
    }

    /// Notes that the server refused a state and has this object instead.
    pub(super) fn note_refusal(&mut self, refused: &PublishedObject, live: &Value) {
        let ours = refused.content.get("state").and_then(revision);
        let Some(theirs) = live.get("state").and_then(revision).filter(|theirs| Some(*theirs) > ours) else {
            self.seen = None;
            return;
        };
        let version = Some(resource_version(live));
        if self.seen == version {
            self.newer.0.fetch_max(theirs.0, Ordering::Relaxed);
            self.is_raised = true;
        }
        self.seen = version;
    }

    /// Whether the next state exceeds what the server has; asked once for each state.
    pub(super) fn take_raised(&mut self) -> bool {
        std::mem::take(&mut self.is_raised)
    }

    /// Notes that the server has a state of this daemon.
    pub(super) fn note_written(&mut self) {
        self.seen = None;
    }
}

/// Epoch and counter of a state.
fn revision(state: &Value) -> Option<(i64, i64)> {
    let field = |name: &str| state.get("revision")?.get(name)?.as_i64();
    Some((field("epoch")?, field("counter")?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn epoch_is_raised_only_after_another_writer_has_been_quiet() {
        let newer = Arc::<NewerEpoch>::default();
        let mut others = OtherWriters::new(Arc::clone(&newer));
        let state = |epoch: i64| json!({"revision": {"epoch": epoch, "counter": 1}});
        let refused = PublishedObject { content: [("state".to_owned(), state(5))].into_iter().collect() };
        let live = |epoch: i64, version: &str| json!({"metadata": {"resourceVersion": version}, "state": state(epoch)});
        others.note_refusal(&refused, &live(9, "1"));
        others.note_refusal(&refused, &live(9, "2"));
        assert_eq!((newer.epoch(), others.take_raised()), (0, false), "it writes");
        others.note_refusal(&refused, &live(9, "2"));
        assert_eq!((newer.epoch(), others.take_raised()), (9, true));
        assert!(!others.take_raised());
        others.note_written();
        others.note_refusal(&refused, &live(12, "3"));
        assert_eq!(newer.epoch(), 9);
        for version in ["4", "4"] {
            others.note_refusal(&refused, &live(5, version));
        }
        assert!(!others.take_raised(), "it was refused for another reason");
    }
}
