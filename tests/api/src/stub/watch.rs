//! A watch: one line for each change, as the server writes them.

use std::{convert::Infallible, time::Duration};

use http_body_util::{BodyExt as _, Channel, channel::Sender, combinators::BoxBody};
use hyper::{Response, body::Bytes};
use serde_json::{Value, json};

use super::{
    Shared,
    answer::status_object,
    request::{Target, parameter},
};

/// Changes that wait for a slow reader.
const WAITING: usize = 64;
/// Time of a watch that names none.
const LIMIT: Duration = Duration::from_mins(5);

/// Answers a watch of a collection; orders to all watches count that come after `orders`.
pub(super) fn watch(
    shared: Shared,
    orders: (u64, u64),
    target: Target,
    query: &str,
) -> Response<BoxBody<Bytes, Infallible>> {
    let (sender, body) = Channel::<Bytes, Infallible>::new(WAITING);
    let number = |name| parameter(query, name).and_then(|value| value.parse::<u64>().ok());
    let limit = number("timeoutSeconds").map_or(LIMIT, Duration::from_secs);
    let from = number("resourceVersion").unwrap_or(0);
    let bookmarks = parameter(query, "allowWatchBookmarks") == Some("true");
    tokio::spawn(async move {
        // The reader may go at any time.
        let _ = tokio::time::timeout(limit, tell(shared, orders, target, from, bookmarks, sender)).await;
    });
    Response::new(body.boxed())
}

async fn tell(
    shared: Shared,
    orders: (u64, u64),
    target: Target,
    from: u64,
    bookmarks: bool,
    mut to: Sender<Bytes, Infallible>,
) -> Result<(), http_body_util::channel::SendError> {
    let mut changed = shared.changed.subscribe();
    // Version 0, or none, is whatever there is now.
    let (now, start) = {
        let state = shared.state();
        let now = if from == 0 { state.store.list(&target) } else { Vec::new() };
        let version = if from == 0 { state.store.version() } else { from };
        (now, state.store.position(version).map(|position| (position, state.store.compacted())))
    };
    for object in now {
        to.send_data(line("ADDED", &object)).await?;
    }
    let Some((mut position, compacted)) = start else { return to.send_data(expired()).await };
    loop {
        let told = shared.state().watch_orders();
        if told.1 != orders.1 {
            return std::future::pending().await;
        }
        if told.0 != orders.0 {
            return Ok(());
        }
        let changes = shared.state().store.changes_from(position, compacted).map(<[_]>::to_vec);
        let Some(changes) = changes else { return to.send_data(expired()).await };
        position += changes.len();
        for mut change in changes.into_iter().filter(|change| change.is_of(&target)) {
            if change.event == "BOOKMARK" {
                if !bookmarks {
                    continue;
                }
                change.object["kind"] = json!(target.kind.kind);
            }
            to.send_data(line(change.event, &change.object)).await?;
        }
        if changed.changed().await.is_err() {
            return Ok(());
        }
    }
}

fn line(event: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": event, "object": object})))
}

fn expired() -> Bytes {
    line("ERROR", &status_object(410, "Expired", "too old resource version", &[]))
}
