//! The loop: list, watch, and again from where the watch ended.

use std::{convert::Infallible, hash::BuildHasher as _, sync::Arc, time::Duration};

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
    SPACING, WatchedPods,
    bound::PodSet,
    pod::{name_in, read},
    split::{ObjectSplitter, Piece},
};
use crate::{
    api_error::ApiError,
    backoff::Backoff,
    connection::ApiConnection,
    newest::send_if_different,
    publish::{PaceLimits, WriteEnd},
};

/// Effect of pods that are not known.
const NO_PODS: &str = "the published state lacks names of pods, kinds of containers and refused pods";
/// Effect of a server that tells no change.
const OLD_PODS: &str = "what the published state tells of the pods is as old as the last list of them";
/// Watches in sequence that end at once, from which on the server tells no change: a server that starts ends
/// some.
const USELESS: u32 = 3;
/// A watch that lasted as long was one, whatever it told.
const LASTING: Duration = Duration::from_secs(10);
/// Longest resource version.
const VERSION: usize = 64;

/// Bounds of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodWatchLimits {
    /// How long a watch may last before the server ends it, which spreads watches over its instances.
    pub lasts: Duration,
    /// How long a watch may say nothing: a server tells its version about once a minute, so this one is dead.
    pub silence: Duration,
    /// Waits after failures; the others of its fields are for writes.
    pub pace: PaceLimits,
}

impl Default for PodWatchLimits {
    /// 5 min, 150 s, and the waits of [`PaceLimits`].
    fn default() -> Self {
        Self { lasts: Duration::from_mins(5), silence: Duration::from_secs(150), pace: PaceLimits::default() }
    }
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

/// A list without its items, a bookmark, or a pod that was deleted.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AnyObject {
    metadata: ObjectMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectMetadata {
    uid: String,
    namespace: String,
    name: String,
    resource_version: String,
}

/// The `Status` in an event `ERROR`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Failure {
    code: u16,
    message: String,
}

/// Keeps `pods` at what the server has of the pods of `node`. `degraded` is set while the server does not
/// tell.
pub async fn watch_pods(
    connection: &ApiConnection,
    node: &str,
    limits: PodWatchLimits,
    pods: &Sender<WatchedPods>,
    degraded: &Sender<Option<Degraded>>,
) -> Infallible {
    let mut watch = PodWatch { connection, node, limits, pods, set: PodSet::default(), version: None };
    let mut backoff = Backoff::new(limits.pace.backoff);
    let mut first_version = "0";
    let mut useless = 0u32;
    loop {
        let begun = Instant::now();
        let failed = match watch.version.clone() {
            None => watch.list(first_version).await.err(),
            Some(version) => match watch.follow(&version, degraded, useless < USELESS).await {
                WatchEnd::Ended { was_of_use } => {
                    if was_of_use {
                        backoff.reset();
                        useless = 0;
                        send_if_different(degraded, None);
                    } else {
                        useless += 1;
                        if useless >= USELESS {
                            let reason =
                                format!("{} ends at once, {useless} times in sequence", operation("watch"));
                            send_if_different(degraded, Some(Degraded::new("pod-watch", reason, OLD_PODS)));
                        }
                        sleep(part_of(backoff.next_wait())).await;
                    }
                    None
                }
                WatchEnd::Expired => {
                    watch.version = None;
                    // What the cache has may be as old as the version that it no longer knows.
                    first_version = "";
                    // A server that answers each watch so is asked ever more rarely.
                    sleep(part_of(backoff.next_wait())).await;
                    None
                }
                WatchEnd::Failed(error) => Some(error),
            },
        };
        match failed {
            None => sleep_until(begun + SPACING).await,
            Some(error) => {
                watch.note_failure(&error);
                send_if_different(degraded, Some(Degraded::new("pod-watch", error.to_string(), NO_PODS)));
                sleep(wait_after(&error, limits.pace, &mut backoff).max(SPACING)).await;
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

struct PodWatch<'a> {
    connection: &'a ApiConnection,
    node: &'a str,
    limits: PodWatchLimits,
    pods: &'a Sender<WatchedPods>,
    set: PodSet,
    /// Of the newest thing that was told; `None` if only a list helps.
    version: Option<String>,
}

impl PodWatch<'_> {
    fn path(&self) -> String {
        format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", self.node)
    }

    /// Reads all pods. A version of "0" is whatever the server has in its cache, and none the newest there
    /// is.
    async fn list(&mut self, version: &str) -> Result<(), ApiError> {
        let path = self.path();
        let of_version =
            if version.is_empty() { String::new() } else { format!("&resourceVersion={version}") };
        let mut body = self.connection.open("list", &format!("{path}{of_version}")).await?;
        let mut splitter = ObjectSplitter::of_list();
        let mut set = PodSet::default();
        while let Some(bytes) = self.next(&mut body).await? {
            splitter.feed(&bytes, |piece| note(&mut set, self.node, piece));
        }
        let list = splitter.envelope().and_then(|text| serde_json::from_slice::<AnyObject>(text).ok());
        let version = list.and_then(|list| usable(list.metadata.resource_version));
        let Some(version) = version else {
            let cause = "the answer is no whole PodList".to_owned();
            return Err(ApiError::Broken { operation: operation("list"), cause });
        };
        (self.set, self.version) = (set, Some(version));
        self.tell();
        Ok(())
    }

    /// Takes changes from a version on until the watch is over. One that is trusted is taken as working
    /// before it tells anything.
    async fn follow(
        &mut self,
        version: &str,
        degraded: &Sender<Option<Degraded>>,
        is_trusted: bool,
    ) -> WatchEnd {
        let seconds = part_of(self.limits.lasts).as_secs().max(1);
        let path = format!(
            "{}&watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}",
            self.path()
        );
        let mut body = match self.connection.open("watch", &path).await {
            Ok(body) => body,
            Err(ApiError::Busy { code: 410, .. }) => return WatchEnd::Expired,
            Err(error) => return WatchEnd::Failed(error),
        };
        if is_trusted {
            send_if_different(degraded, None);
        }
        // Pods count again after a time without the right to read them.
        self.tell();
        let begun = Instant::now();
        let mut splitter = ObjectSplitter::of_watch();
        let mut has_told = false;
        // A watch that breaks goes on with the next one; only one that cannot begin is a failure.
        while let Ok(Some(bytes)) = self.next(&mut body).await {
            let mut end = None;
            splitter.feed(&bytes, |piece| {
                has_told = true;
                if end.is_none() {
                    end = self.event(piece);
                }
            });
            self.tell();
            if has_told {
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
        let broken = |cause: String| ApiError::Broken { operation: operation("read"), cause };
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
                let is_gone = head.windows(9).take(64).any(|word| word == b"\"DELETED\"");
                let name = name_in(head);
                if is_gone {
                    self.set.remove("", &name);
                } else {
                    self.set.leave_out(name, too_large());
                }
                return None;
            }
        };
        // Of a later version of the API; what it says, the next list says too.
        let Event { kind, object } = serde_json::from_slice(text).ok()?;
        let object = object.get().as_bytes();
        match kind {
            "ADDED" | "MODIFIED" => match read(object) {
                Ok(read) => {
                    self.advance(read.version.clone());
                    if read.node == self.node {
                        self.set.put(read);
                    }
                }
                Err(reason) => self.set.leave_out(name_in(object), reason),
            },
            "DELETED" | "BOOKMARK" => {
                let AnyObject { metadata } = serde_json::from_slice(object).ok()?;
                self.advance(metadata.resource_version);
                if kind == "DELETED" {
                    self.set.remove(&metadata.uid, &format!("{}/{}", metadata.namespace, metadata.name));
                }
            }
            "ERROR" => {
                let Failure { code, message } = serde_json::from_slice(object).unwrap_or_default();
                if code == 410 {
                    return Some(WatchEnd::Expired);
                }
                let operation = operation("watch");
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

    /// Without the right to read pods, none is known any more. Before the first answer the receiver is not
    /// kept waiting; after it, what was said last counts.
    fn note_failure(&self, error: &ApiError) {
        let is_refused = matches!(WriteEnd::of(error), WriteEnd::Refused);
        if is_refused || *self.pods.borrow() == WatchedPods::Asked {
            send_if_different(self.pods, WatchedPods::Unknown);
        }
    }

    fn tell(&self) {
        send_if_different(self.pods, WatchedPods::Known(Arc::new(self.set.now())));
    }
}

fn operation(verb: &str) -> String {
    format!("{verb} /api/v1/pods")
}

/// Notes one item of a list.
fn note(set: &mut PodSet, node: &str, piece: Piece<'_>) {
    match piece {
        Piece::Whole(text) => match read(text) {
            Ok(read) if read.node == node => set.put(read),
            Ok(_of_another_node) => {}
            Err(reason) => set.leave_out(name_in(text), reason),
        },
        Piece::TooLarge(head) => set.leave_out(name_in(head), too_large()),
    }
}

fn too_large() -> String {
    format!("its object has more than {} bytes", super::LARGEST)
}

/// A version that can stand in a query.
fn usable(version: String) -> Option<String> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_usable = !version.is_empty() && version.len() <= VERSION && version.bytes().all(is_word);
    is_usable.then_some(version)
}
