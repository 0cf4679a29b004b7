//! Follows a collection of the API: a list, the changes since, and again from where the watch ended.
//!
//! Invariants: a list counts when all of it has been read. Changes come in the order of the server's
//! versions. A watch that breaks goes on with the next one from the last version; a version that is too old
//! needs a list. Waits grow, and differ from daemon to daemon.

use std::{convert::Infallible, hash::BuildHasher as _, time::Duration};

use enforcer_core::cluster::state::limits;
use http_body_util::BodyExt as _;
use kube::client::Body;
use numa_topology::degraded::Degraded;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    sync::watch::Sender,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    SPACING,
    split::{ObjectSplitter, Piece},
};
use crate::{
    api_error::ApiError,
    backoff::Backoff,
    connection::ApiConnection,
    newest::send_if_different,
    publish::{PaceLimits, Returns, WriteEnd},
};

/// Watches in sequence that end at once, from which on the server tells no change: a server that starts ends
/// some.
const USELESS: u32 = 3;
/// A watch that lasted as long was one, whatever it told.
const LASTING: Duration = Duration::from_secs(10);
/// Time without an event after which a watch that follows a failure has told what was missed. A version that
/// is too old is the first thing that a server tells.
const CAUGHT_UP: Duration = Duration::from_secs(1);
/// Longest wait after the server has come back.
const AFTER_RETURN: Duration = Duration::from_millis(900);
/// Longest resource version.
const VERSION: usize = 64;
/// Bytes at the beginning of an event that is too large in which its kind is looked for.
const KIND: usize = 64;

/// Bounds of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchLimits {
    /// How long a watch may last before the server ends it, which spreads watches over its instances.
    pub lasts: Duration,
    /// How long a watch may say nothing: a server tells its version about once a minute, so this one is dead.
    pub silence: Duration,
    /// Waits after failures; the others of its fields are for writes.
    pub pace: PaceLimits,
}

impl Default for WatchLimits {
    /// 5 min, 150 s, and the waits of [`PaceLimits`].
    fn default() -> Self {
        Self { lasts: Duration::from_mins(5), silence: Duration::from_secs(150), pace: PaceLimits::default() }
    }
}

/// A collection of the API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collection<'a> {
    /// Its path, as in `/api/v1/pods`.
    pub(crate) path: &'a str,
    /// What selects some of it, as in `fieldSelector=...`; empty for all of it.
    pub(crate) selector: &'a str,
    /// Version of the first list: "0" for whatever the server has in its cache, none for the newest there is.
    pub(crate) first_version: &'static str,
    /// Source by which a server that does not tell is reported as degraded.
    pub(crate) source: &'static str,
    /// Effect while nothing is known.
    pub(crate) without: &'static str,
    /// Effect while no change is told.
    pub(crate) outdated: &'static str,
}

/// What names an object that is gone.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GoneObject {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Where the objects of a collection go.
pub(crate) trait ObjectSink {
    /// A whole list is asked for. One that broke before has not been.
    fn begin_list(&mut self);
    /// An object of the list, or a changed one.
    fn put(&mut self, object: Piece<'_>);
    /// An object is gone. Its uid is empty where the object is too large to be read.
    fn remove(&mut self, gone: &GoneObject);
    /// The list is whole.
    fn end_list(&mut self);
    /// What was told so far is known to be true now.
    fn tell(&mut self);
    /// The server does not tell; whether for want of a right.
    fn fail(&mut self, is_refused: bool);
}

/// Why a watch is over.
enum WatchEnd {
    /// The server, or the connection, ended it; whether it told anything, or lasted.
    Ended { was_of_use: bool },
    /// The version is too old: only a list knows what has changed.
    Expired,
    /// It did not begin, or the server ended it with a failure.
    Failed(ApiError),
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// A list without its items, or a bookmark.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Versioned {
    metadata: VersionField,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VersionField {
    resource_version: String,
    #[serde(rename = "continue")]
    next_part: String,
}

/// An object that was deleted.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Deleted {
    metadata: GoneObject,
}

/// The `Status` in an event `ERROR`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Failure {
    code: u16,
    message: String,
}

/// Keeps `sink` at what the server has of a collection. `degraded` is set while the server does not tell.
pub(crate) async fn follow(
    connection: &ApiConnection,
    collection: Collection<'_>,
    limits: WatchLimits,
    sink: &mut impl ObjectSink,
    degraded: &Sender<Option<Degraded>>,
) -> Infallible {
    let mut follower = Follower { connection, collection, limits, sink, version: None };
    let mut backoff = Backoff::new(limits.pace.backoff);
    let mut first_version = collection.first_version;
    let mut useless = 0u32;
    let mut returns = Returns::of(connection);
    // Whether changes may have been missed that no answer has told since.
    let mut is_behind = false;
    loop {
        let begun = Instant::now();
        let failed = match follower.version.clone() {
            None => match follower.list(first_version).await {
                Ok(()) => {
                    is_behind = false;
                    send_if_different(degraded, None);
                    None
                }
                Err(error) => Some(error),
            },
            Some(version) => {
                match follower.watch(&version, degraded, useless < USELESS, &mut is_behind).await {
                    WatchEnd::Ended { was_of_use } => {
                        if was_of_use {
                            backoff.reset();
                            useless = 0;
                            send_if_different(degraded, None);
                        } else {
                            useless += 1;
                            if useless >= USELESS {
                                let operation = follower.operation("watch");
                                let reason = format!("{operation} ends at once, {useless} times in sequence");
                                let known = Degraded::new(collection.source, reason, collection.outdated);
                                send_if_different(degraded, Some(known));
                            }
                            sleep(part_of(backoff.next_wait())).await;
                        }
                        None
                    }
                    WatchEnd::Expired => {
                        follower.version = None;
                        is_behind = true;
                        let reason = format!("{}: its version is too old", follower.operation("watch"));
                        let known = Degraded::new(collection.source, reason, collection.outdated);
                        send_if_different(degraded, Some(known));
                        // What the cache has may be as old as the version that it no longer knows.
                        first_version = "";
                        // A server that answers each watch so is asked ever more rarely.
                        sleep(part_of(backoff.next_wait())).await;
                        None
                    }
                    WatchEnd::Failed(error) => Some(error),
                }
            }
        };
        match failed {
            None => sleep_until(begun + SPACING).await,
            Some(error) => {
                is_behind = true;
                follower.sink.fail(matches!(WriteEnd::of(&error), WriteEnd::Refused));
                let known = Degraded::new(collection.source, error.to_string(), collection.without);
                send_if_different(degraded, Some(known));
                let wait = wait_after(&error, limits.pace, &mut backoff).max(SPACING);
                let is_asked_for = matches!(WriteEnd::of(&error), WriteEnd::Busy(Some(_)));
                tokio::select! {
                    () = sleep(wait) => {}
                    () = returns.next(), if !is_asked_for => sleep(part_of(AFTER_RETURN)).await,
                }
            }
        }
    }
}

fn wait_after(error: &ApiError, pace: PaceLimits, backoff: &mut Backoff) -> Duration {
    match WriteEnd::of(error) {
        WriteEnd::Written => Duration::ZERO,
        WriteEnd::Unreachable => part_of(pace.unreachable),
        WriteEnd::Busy(asked) => part_of(backoff.next_wait()).max(asked.unwrap_or_default()),
        WriteEnd::Refused => part_of(pace.refused),
    }
}

/// At least half of a time: daemons that fail together do not come back together.
fn part_of(time: Duration) -> Duration {
    let share = std::hash::RandomState::new().hash_one(0_u8) % 512 + 512;
    time * u32::try_from(share).unwrap_or(1_024) / 1_024
}

struct Follower<'a, S> {
    connection: &'a ApiConnection,
    collection: Collection<'a>,
    limits: WatchLimits,
    sink: &'a mut S,
    /// Of the newest thing that was told; `None` if only a list helps.
    version: Option<String>,
}

impl<S: ObjectSink> Follower<'_, S> {
    fn path(&self, query: &str) -> String {
        let Collection { path, selector, .. } = self.collection;
        let query: Vec<&str> = [selector, query].into_iter().filter(|part| !part.is_empty()).collect();
        format!("{path}?{}", query.join("&"))
    }

    fn operation(&self, verb: &str) -> String {
        format!("{verb} {}", self.collection.path)
    }

    /// Reads all objects.
    async fn list(&mut self, version: &str) -> Result<(), ApiError> {
        let of_version = match version {
            "" => String::new(),
            version => format!("resourceVersion={version}"),
        };
        // What the list lacks may have come since this moment.
        self.sink.begin_list();
        let mut body = self.connection.open("list", &self.path(&of_version)).await?;
        let mut splitter = ObjectSplitter::of_list();
        while let Some(bytes) = self.next(&mut body).await? {
            splitter.feed(&bytes, |piece| self.sink.put(piece));
        }
        let list = splitter.envelope().and_then(|text| serde_json::from_slice::<Versioned>(text).ok());
        // Without a limit a server gives no part of a list.
        let whole = list.filter(|list| list.metadata.next_part.is_empty());
        let version = whole.and_then(|list| usable(list.metadata.resource_version));
        let Some(version) = version else {
            let cause = "the answer is no whole list".to_owned();
            return Err(ApiError::Broken { operation: self.operation("list"), cause });
        };
        self.version = Some(version);
        self.sink.end_list();
        self.sink.tell();
        Ok(())
    }

    /// Takes changes from a version on until the watch is over. One that is trusted is taken as working
    /// before it tells anything.
    async fn watch(
        &mut self,
        version: &str,
        degraded: &Sender<Option<Degraded>>,
        is_trusted: bool,
        is_behind: &mut bool,
    ) -> WatchEnd {
        let seconds = part_of(self.limits.lasts).as_secs().max(1);
        let path = self.path(&format!(
            "watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}"
        ));
        let mut body = match self.connection.open("watch", &path).await {
            Ok(body) => body,
            Err(ApiError::Busy { code: 410, .. }) => return WatchEnd::Expired,
            Err(error) => return WatchEnd::Failed(error),
        };
        if is_trusted && !*is_behind {
            send_if_different(degraded, None);
        }
        // What is known counts again after a time without the right to read.
        self.sink.tell();
        let begun = Instant::now();
        let mut splitter = ObjectSplitter::of_watch();
        let mut has_told = false;
        loop {
            let more = if is_trusted && *is_behind {
                if let Ok(more) = timeout(CAUGHT_UP, self.next(&mut body)).await {
                    more
                } else {
                    *is_behind = false;
                    send_if_different(degraded, None);
                    self.next(&mut body).await
                }
            } else {
                self.next(&mut body).await
            };
            // A watch that breaks goes on with the next one; only one that cannot begin is a failure.
            let Ok(Some(bytes)) = more else { break };
            let mut end = None;
            splitter.feed(&bytes, |piece| {
                if end.is_none() {
                    end = self.event(piece);
                    has_told |= end.is_none();
                }
            });
            self.sink.tell();
            if has_told {
                *is_behind = false;
                send_if_different(degraded, None);
            }
            if let Some(end) = end {
                return end;
            }
        }
        WatchEnd::Ended { was_of_use: has_told || begun.elapsed() >= LASTING }
    }

    /// More of an answer; `None` at its end.
    async fn next(&self, body: &mut Body) -> Result<Option<Vec<u8>>, ApiError> {
        let broken = |cause: String| ApiError::Broken { operation: self.operation("read"), cause };
        let frame = match timeout(self.limits.silence, body.frame()).await {
            Ok(frame) => frame.transpose().map_err(|error| broken(error.to_string()))?,
            Err(_elapsed) => return Err(broken("the server has fallen silent".to_owned())),
        };
        Ok(frame.map(|frame| frame.into_data().map(Vec::from).unwrap_or_default()))
    }

    /// Applies one event of a watch.
    fn event(&mut self, piece: Piece<'_>) -> Option<WatchEnd> {
        let text = match piece {
            Piece::Whole(text) => text,
            Piece::TooLarge(head) => {
                let is_gone = head.windows(9).take(KIND).any(|word| word == b"\"DELETED\"");
                if is_gone {
                    let (namespace, name) = name_in(head);
                    self.sink.remove(&GoneObject { uid: String::new(), namespace, name });
                } else {
                    self.sink.put(piece);
                }
                return None;
            }
        };
        // Of a later version of the API; what it says, the next list says too.
        let Event { kind, object } = serde_json::from_slice(text).ok()?;
        let object = object.get().as_bytes();
        if matches!(kind, "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK") {
            let read: Result<Versioned, _> = serde_json::from_slice(object);
            self.advance(read.unwrap_or_default().metadata.resource_version);
        }
        match kind {
            "ADDED" | "MODIFIED" => self.sink.put(Piece::Whole(object)),
            "DELETED" => {
                let Deleted { metadata } = serde_json::from_slice(object).ok()?;
                self.sink.remove(&metadata);
            }
            "ERROR" => {
                let Failure { code, message } = serde_json::from_slice(object).unwrap_or_default();
                if code == 410 {
                    return Some(WatchEnd::Expired);
                }
                let operation = self.operation("watch");
                let failure = ApiError::Busy { operation, code, message, retry_after: None };
                return Some(WatchEnd::Failed(failure));
            }
            _ => {}
        }
        None
    }

    fn advance(&mut self, version: String) {
        if let Some(version) = usable(version) {
            self.version = Some(version);
        }
    }
}

/// The namespace and name of an object that is not read, as far as its beginning has them: the server writes
/// both before anything else that has a name. `?` stands for one that is not there.
pub(crate) fn name_in(head: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(head);
    let word = |key: &str| {
        let rest = text.split_once(key)?.1.trim_start().strip_prefix('"')?;
        let end = rest.find('"').filter(|&end| end <= limits::NAME)?;
        Some(rest[..end].to_owned())
    };
    let of = |key| word(key).unwrap_or_else(|| "?".to_owned());
    (of("\"namespace\":"), of("\"name\":"))
}

/// A version that can stand in a query.
fn usable(version: String) -> Option<String> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_usable = !version.is_empty() && version.len() <= VERSION && version.bytes().all(is_word);
    is_usable.then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_found_at_the_beginning_of_an_object() {
        let of = |head: &[u8]| {
            let (namespace, name) = name_in(head);
            format!("{namespace}/{name}")
        };
        let event = br#"{"type":"ADDED","object":{"metadata":{"namespace":"shop","name":"web"}}}"#;
        assert_eq!(of(event), "shop/web");
        assert_eq!(of(b"{\"metadata\":{\"name\":\"web"), "?/?");
        assert_eq!(of(&[0xff; 40]), "?/?");
    }
}
