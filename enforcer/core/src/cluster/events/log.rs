//! Which events are written, and which are joined into a series.
//!
//! Equal events (object and reason) within [`EventLimits::series`] are one object of the API with a count.
//! Token buckets bound the writes for each of these, for each namespace and for the daemon; the last tokens
//! of the daemon are for events of the node. A first event beyond a bucket is refused, and the caller keeps
//! or drops it; a repetition beyond it is told with a later one, or when the series ends. Time is an
//! argument.

use std::{collections::BTreeMap, time::Duration};

use super::{EventObject, EventReason, NodeEvent};

/// Series that are remembered; beyond that, the one that is unchanged for longest is forgotten.
const MOST_SERIES: usize = 512;
/// Namespaces with a bucket of their own. Further ones share one until the bucket of another is full.
const MOST_NAMESPACES: usize = 256;

/// Bounds of the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventLimits {
    /// Writes at once, for each object and reason, and for the daemon.
    pub burst: u32,
    /// How many of the daemon's writes at once are for events of the node alone.
    pub node_reserve: u32,
    /// Writes at once for the pods of a namespace.
    pub namespace_burst: u32,
    /// Time in which an object and reason earn one more write.
    pub per_object: Duration,
    /// Time in which a namespace earns one more write.
    pub per_namespace: Duration,
    /// Time in which the daemon earns one more write.
    pub per_daemon: Duration,
    /// Time after which an equal event is a new one.
    pub series: Duration,
}

impl Default for EventLimits {
    /// 10 writes (2 of them for the node), 6 for a namespace; 1 min, 15 s, 5 s; 6 min.
    fn default() -> Self {
        Self {
            burst: 10,
            node_reserve: 2,
            namespace_burst: 6,
            per_object: Duration::from_mins(1),
            per_namespace: Duration::from_secs(15),
            per_daemon: Duration::from_secs(5),
            series: Duration::from_mins(6),
        }
    }
}

/// A write: a new object, or another count of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCall {
    /// Number of the first event of the series among those of the daemon.
    pub serial: u64,
    /// The newest event of the series.
    pub event: NodeEvent,
    /// When the first one happened, in nanoseconds since 1970.
    pub first_ns: i64,
    /// Number of events; 1 is a new object.
    pub count: u32,
    /// Number of events that earlier writes tell of.
    pub told: u32,
    /// When the newest one happened, in nanoseconds since 1970.
    pub last_ns: i64,
}

/// Fate of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotedEvent {
    /// It is to be written now.
    Write(EventCall),
    /// A later write of its series tells of it.
    Joined,
    /// There is no room for a new event. The log forgets it and counts nothing: the caller may try again.
    Refused,
}

/// The series that are open, and the rates at which they are written.
#[derive(Debug, Clone, Default)]
pub struct EventLog {
    limits: EventLimits,
    series: BTreeMap<(EventObject, EventReason), EventSeries>,
    daemon: TokenBucket,
    /// By namespace of pods; the empty name is the bucket that further namespaces share.
    namespaces: BTreeMap<String, TokenBucket>,
    serial: u64,
    dropped: u64,
}

#[derive(Debug, Clone)]
struct EventSeries {
    serial: u64,
    /// Of the newest event.
    note: String,
    first_ns: i64,
    last_ns: i64,
    last: Duration,
    count: u32,
    /// The count that was written.
    written: u32,
    bucket: TokenBucket,
}

impl EventSeries {
    /// Events that no write has told of.
    fn untold(&self) -> u64 {
        u64::from(self.count.saturating_sub(self.written))
    }
}

#[derive(Debug, Clone, Default)]
struct TokenBucket {
    full_at: Duration,
}

impl TokenBucket {
    fn has_token(&self, now: Duration, burst: u32, refill: Duration) -> bool {
        self.full_at.saturating_sub(refill * burst.saturating_sub(1)) <= now
    }

    fn take(&mut self, now: Duration, refill: Duration) {
        self.full_at = self.full_at.max(now) + refill;
    }
}

impl EventLog {
    /// Without any event yet.
    pub fn new(limits: EventLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Events of series that no write tells of.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Notes an event at `now` of a clock that never goes back, and `at_ns` since 1970. Without `has_room` it
    /// is not written now.
    pub fn note(&mut self, event: NodeEvent, now: Duration, at_ns: i64, has_room: bool) -> NotedEvent {
        let NodeEvent { object, reason, note } = event;
        let key = (object, reason);
        let is_open = |series: &&mut EventSeries| now.saturating_sub(series.last) < self.limits.series;
        if let Some(series) = self.series.get_mut(&key).filter(is_open) {
            series.count = series.count.saturating_add(1);
            (series.note, series.last, series.last_ns) = (note, now, at_ns);
            let call = if has_room { self.call(&key, now) } else { None };
            return call.map_or(NotedEvent::Joined, NotedEvent::Write);
        }
        if !has_room || !self.has_tokens(&key.0, now) {
            return NotedEvent::Refused;
        }
        self.make_room();
        self.serial += 1;
        let (first_ns, last_ns, bucket) = (at_ns, at_ns, TokenBucket::default());
        let serial = self.serial;
        let series = EventSeries { serial, note, first_ns, last_ns, last: now, count: 1, written: 0, bucket };
        if let Some(ended) = self.series.insert(key.clone(), series) {
            self.dropped += ended.untold();
        }
        self.call(&key, now).map_or(NotedEvent::Joined, NotedEvent::Write)
    }

    /// Ends the series without an event for some time; at most `room` writes of what they have not told yet.
    /// A series whose write has no room ends later.
    pub fn end_series(&mut self, now: Duration, room: usize) -> Vec<EventCall> {
        let limit = self.limits.series;
        let has_ended = |series: &EventSeries| now.saturating_sub(series.last) >= limit;
        let ended: Vec<_> =
            self.series.iter().filter(|(_, one)| has_ended(one)).map(|(key, _)| key.clone()).collect();
        let mut calls = Vec::new();
        for key in ended {
            let is_told = self.series.get(&key).is_some_and(|series| series.untold() == 0);
            let call = if is_told || calls.len() >= room { None } else { self.call(&key, now) };
            if is_told || call.is_some() {
                self.series.remove(&key);
            }
            calls.extend(call);
        }
        calls
    }

    /// Takes back a write that the server did not get: a later one of its series tells of it, or the one at
    /// its end. If the series has ended, its events are counted as dropped.
    pub fn take_back(&mut self, call: EventCall) {
        let EventCall { serial, event, count, told, .. } = call;
        match self.series.get_mut(&(event.object, event.reason)).filter(|series| series.serial == serial) {
            Some(series) => series.written = series.written.min(told),
            None => self.dropped += u64::from(count.saturating_sub(told)),
        }
    }

    /// The write of a series as it is now, if all buckets allow one.
    fn call(&mut self, key: &(EventObject, EventReason), now: Duration) -> Option<EventCall> {
        let EventLimits { burst, per_object, per_namespace, per_daemon, .. } = self.limits;
        if !self.has_tokens(&key.0, now) {
            return None;
        }
        let series = self.series.get_mut(key)?;
        if !series.bucket.has_token(now, burst, per_object) {
            return None;
        }
        series.bucket.take(now, per_object);
        let told = std::mem::replace(&mut series.written, series.count);
        let (object, reason) = key.clone();
        let &mut EventSeries { serial, first_ns, count, last_ns, .. } = series;
        let event = NodeEvent { object, reason, note: series.note.clone() };
        self.daemon.take(now, per_daemon);
        if let EventObject::Pod { namespace, .. } | EventObject::Claim { namespace, .. } = &key.0 {
            self.bucket_of(namespace, now).take(now, per_namespace);
        }
        Some(EventCall { serial, event, first_ns, count, told, last_ns })
    }

    /// Whether the daemon and the namespace of the object may write now.
    fn has_tokens(&mut self, object: &EventObject, now: Duration) -> bool {
        let EventLimits { burst, node_reserve, namespace_burst, per_namespace, per_daemon, .. } = self.limits;
        match object {
            EventObject::Node { .. } => self.daemon.has_token(now, burst, per_daemon),
            EventObject::Pod { namespace, .. } | EventObject::Claim { namespace, .. } => {
                self.daemon.has_token(now, burst.saturating_sub(node_reserve), per_daemon)
                    && self.bucket_of(namespace, now).has_token(now, namespace_burst, per_namespace)
            }
        }
    }

    /// The bucket that pods of a namespace share.
    fn bucket_of(&mut self, namespace: &str, now: Duration) -> &mut TokenBucket {
        let is_new = !self.namespaces.contains_key(namespace);
        if is_new && self.namespaces.len() >= MOST_NAMESPACES {
            self.namespaces.retain(|_, bucket| bucket.full_at > now);
        }
        let is_shared = is_new && self.namespaces.len() >= MOST_NAMESPACES;
        let name = if is_shared { "" } else { namespace };
        self.namespaces.entry(name.to_owned()).or_default()
    }

    fn make_room(&mut self) {
        if self.series.len() >= MOST_SERIES {
            let oldest = self.series.iter().min_by_key(|(_, series)| series.last);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.dropped += self.series.remove(&key).map_or(0, |series| series.untold());
            }
        }
    }
}
