//! Whether the node does what its published states predict: counts, events of pods, and the doubt that a
//! wrong prediction casts on the states after it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use enforcer_cluster::EventTally;
use enforcer_core::cluster::{
    events::NodeEvent,
    observed::NodeInApi,
    outcome::PredictionCheck,
    state::{InexactSource, NodeState},
};
use tokio::sync::mpsc;

/// How long states are inexact after a wrong prediction.
const DOUBT: Duration = Duration::from_mins(1);
/// Most events that wait for the thread that writes them.
const QUEUE: usize = 64;

/// Predictions since the daemon started, by what became of them.
#[derive(Debug, Default)]
pub(crate) struct PredictionTally {
    /// The node did what was predicted.
    pub(crate) right: AtomicU64,
    /// It did something else.
    pub(crate) wrong: AtomicU64,
    /// Something else may explain what it did.
    pub(crate) unchecked: AtomicU64,
}

/// To the thread that writes events.
#[derive(Clone)]
pub(crate) struct NodeEvents {
    events: mpsc::Sender<NodeEvent>,
    tally: Arc<EventTally>,
}

impl NodeEvents {
    /// Both ends; events that find no room are counted as dropped.
    pub(super) fn channel(tally: Arc<EventTally>) -> (Self, mpsc::Receiver<NodeEvent>) {
        let (events, received) = mpsc::channel(QUEUE);
        (Self { events, tally }, received)
    }

    /// Sends an event, if there is room.
    pub(crate) fn send(&self, event: NodeEvent) {
        if self.events.try_send(event).is_err() {
            self.tally.drop_events(1);
        }
    }
}

/// See the module.
pub(super) struct PredictionWatch {
    check: PredictionCheck,
    /// What makes states inexact, and until when.
    doubt: Option<(InexactSource, Instant)>,
    tally: Arc<PredictionTally>,
    /// Where events go, if they are made.
    events: Option<NodeEvents>,
}

impl PredictionWatch {
    pub(super) fn new(tally: Arc<PredictionTally>, events: Option<NodeEvents>) -> Self {
        Self { check: PredictionCheck::default(), doubt: None, tally, events }
    }

    /// What makes a state of this moment inexact.
    pub(super) fn doubt(&self, now: Instant) -> Option<InexactSource> {
        let doubt = self.doubt.as_ref().filter(|(_, until)| now < *until);
        doubt.map(|(source, _)| source.clone())
    }

    /// Notes a state, made of what the API says, at `unix_s` in seconds since 1970; what makes it inexact
    /// from now on, if its predecessor's prediction was wrong.
    pub(super) fn note(
        &mut self,
        state: &NodeState,
        api: &NodeInApi,
        (now, unix_s): (Instant, i64),
    ) -> Option<InexactSource> {
        let outcomes = self.check.observe(state, api, unix_s);
        for (total, count) in [
            (&self.tally.right, outcomes.right),
            (&self.tally.wrong, outcomes.wrong),
            (&self.tally.unchecked, outcomes.unchecked),
        ] {
            total.fetch_add(count, Ordering::Relaxed);
        }
        for event in outcomes.events {
            if let Some(events) = &self.events {
                events.send(event);
            }
        }
        if let Some(doubt) = &outcomes.doubt {
            tracing::warn!(
                "{}; the published state is inexact for {} s; report it with `numa-enforcer capture`",
                doubt.reason,
                DOUBT.as_secs()
            );
            self.doubt = Some((doubt.clone(), now + DOUBT));
        }
        outcomes.doubt
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::cluster::{
        events::{EventObject, EventReason},
        outcome::PREDICTION,
    };

    use super::*;

    #[test]
    fn doubt_ends_after_a_minute() {
        let mut watch = PredictionWatch::new(Arc::default(), None);
        let start = Instant::now();
        assert_eq!(watch.doubt(start), None);
        let source = InexactSource::new(PREDICTION, "pod shop/web: other CPUs");
        watch.doubt = Some((source.clone(), start + DOUBT));
        assert_eq!(watch.doubt(start + Duration::from_secs(59)), Some(source));
        assert_eq!(watch.doubt(start + Duration::from_mins(1)), None);
    }

    #[test]
    fn event_without_room_is_counted() {
        let tally = Arc::<EventTally>::default();
        let (events, received) = NodeEvents::channel(Arc::clone(&tally));
        let object = EventObject::Node { name: "a".into(), uid: String::new() };
        for _ in 0..QUEUE + 3 {
            events.send(NodeEvent::new(object.clone(), EventReason::NumaPredictionWrong, "why"));
        }
        assert_eq!((received.len(), tally.dropped.load(Ordering::Relaxed)), (QUEUE, 3));
    }
}
