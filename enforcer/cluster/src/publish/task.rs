//! The loop that publishes each change of a state in time.

use std::{future::pending, time::Duration};

use numa_topology::degraded::Degraded;
use tokio::{
    sync::watch::{Receiver, Sender},
    time::Instant,
};

use super::{
    error::unpublished_kind,
    pace::{Pace, PaceLimits, WriteEnd},
    publisher::{PublishedObject, Publisher},
};
use crate::{api_error::ApiError, newest::send_if_different};

/// Bounds of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublisherSettings {
    /// Bounds of the writes.
    pub limits: PaceLimits,
    /// Time until the first write: a part of half a minute by chance, so that nodes do not start at once.
    pub first: Duration,
    /// Time until a write that waits begins after the server has come back, which differs from node to node.
    pub after_return: Duration,
    /// Time between two looks whether another program has changed or deleted the object.
    pub check: Duration,
}

/// Publishes the newest of `states` until its sender is gone; `None` is nothing yet. `degraded` is set while
/// the cluster does not have it.
pub async fn publish_changes(
    mut publisher: Publisher,
    mut states: Receiver<Option<PublishedObject>>,
    settings: PublisherSettings,
    degraded: &Sender<Option<Degraded>>,
) {
    let start = Instant::now();
    let mut pace = Pace::new(settings.limits, settings.first);
    let mut check = start + settings.check;
    let mut returns = publisher.returns();
    if states.borrow_and_update().is_some() {
        pace.change(Duration::ZERO);
    }
    loop {
        let due = pace.due().map(|due| start + due);
        if let Some(lease) = publisher.lease() {
            lease.note_waiting(pace.waits_since().map(|since| (start + since).into_std()));
        }
        tokio::select! {
            changed = states.changed() => {
                if changed.is_err() {
                    return;
                }
                pace.change(start.elapsed());
                if publisher.take_raised() {
                    pace.hasten(start.elapsed());
                }
            }
            () = returns.next() => pace.hasten(start.elapsed() + settings.after_return),
            () = publisher.node_replaced() => pace.change(start.elapsed()),
            () = sleep_until(due) => {
                let newest = states.borrow_and_update().clone();
                let Some(object) = newest else {
                    pace.withdraw();
                    continue;
                };
                if pace.begin(start.elapsed()) {
                    returns.forget();
                    let ended = tokio::select! {
                        written = publisher.publish(&object) => Some(written.map(drop)),
                        // An answer to a request of before may never come.
                        () = returns.next() => None,
                    };
                    if let Some(written) = ended {
                        let end = written.as_ref().err().map_or(WriteEnd::Written, WriteEnd::of);
                        pace.end(start.elapsed(), end);
                        tell(degraded, &publisher, written.err());
                    } else {
                        pace.end(start.elapsed(), WriteEnd::Busy(None));
                        pace.hasten(start.elapsed() + settings.after_return);
                    }
                }
            }
            () = tokio::time::sleep_until(check), if due.is_none() => {
                match publisher.check().await {
                    Ok(true) => pace.change(start.elapsed()),
                    Ok(false) => tell(degraded, &publisher, None),
                    Err(error) => tell(degraded, &publisher, Some(error)),
                }
                check = Instant::now() + settings.check;
            }
        }
    }
}

/// Waits until then; for ever if there is no such time.
pub(crate) async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => pending().await,
    }
}

fn tell(degraded: &Sender<Option<Degraded>>, publisher: &Publisher, error: Option<ApiError>) {
    let entry = error.map(|error| unpublished_kind(&error, publisher.kind()));
    send_if_different(degraded, entry);
}
