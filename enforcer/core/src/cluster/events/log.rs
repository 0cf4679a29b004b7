//! Which events are written, and which are joined into a series.
//!
//! Equal events (object and reason) within [`EventLimits::series`] are one object of the API with a count.
//! Token buckets bound the writes for each of these and for the daemon. A first event beyond a bucket is
//! dropped and counted; a repetition beyond it is told with a later one, or when the series ends. Time is an
//! argument.

use std::{collections::BTreeMap, time::Duration};

use super::{EventObject, EventReason, NodeEvent};

/// Series that are remembered; beyond that, the one that is unchanged for longest is forgotten.
const MOST_SERIES: usize = 512;

/// Bounds of the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventLimits {
    /// Writes at once, for each object and reason, and for the daemon.
    pub burst: u32,
    /// Time in which an object and reason earn one more write.
    pub per_object: Duration,
    /// Time in which the daemon earns one more write.
    pub per_daemon: Duration,
    /// Time after which an equal event is a new one.
    pub series: Duration,
}

impl Default for EventLimits {
    /// 10 writes, 1 min, 1 s, 6 min.
    fn default() -> Self {
        Self {
            burst: 10,
            per_object: Duration::from_mins(1),
            per_daemon: Duration::from_secs(1),
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
    /// When the newest one happened, in nanoseconds since 1970.
    pub last_ns: i64,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct EventLog {
    limits: EventLimits,
    series: BTreeMap<(EventObject, EventReason), EventSeries>,
    daemon: TokenBucket,
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

    /// Events that no write tells of.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Notes an event at `now` of a clock that never goes back, and `at_ns` since 1970; the write that it
    /// takes.
    pub fn note(&mut self, event: NodeEvent, now: Duration, at_ns: i64) -> Option<EventCall> {
        let NodeEvent { object, reason, note } = event;
        let key = (object, reason);
        let is_open = |series: &&mut EventSeries| now.saturating_sub(series.last) < self.limits.series;
        if let Some(series) = self.series.get_mut(&key).filter(is_open) {
            series.count = series.count.saturating_add(1);
            (series.note, series.last, series.last_ns) = (note, now, at_ns);
            return self.call(&key, now);
        }
        let EventLimits { burst, per_daemon, .. } = self.limits;
        if !self.daemon.has_token(now, burst, per_daemon) {
            self.dropped += 1;
            return None;
        }
        self.make_room();
        self.serial += 1;
        let (first_ns, last_ns, bucket) = (at_ns, at_ns, TokenBucket::default());
        let serial = self.serial;
        let series = EventSeries { serial, note, first_ns, last_ns, last: now, count: 1, written: 0, bucket };
        if let Some(ended) = self.series.insert(key.clone(), series) {
            self.dropped += ended.untold();
        }
        self.call(&key, now)
    }

    /// Ends the series without an event for some time; the writes of what they have not told yet.
    pub fn end_series(&mut self, now: Duration) -> Vec<EventCall> {
        let limit = self.limits.series;
        let has_ended = |series: &EventSeries| now.saturating_sub(series.last) >= limit;
        let ended: Vec<_> =
            self.series.iter().filter(|(_, one)| has_ended(one)).map(|(key, _)| key.clone()).collect();
        let mut calls = Vec::new();
        for key in ended {
            let is_told = self.series.get(&key).is_some_and(|series| series.written == series.count);
            let call = if is_told { None } else { self.call(&key, now) };
            if is_told || call.is_some() {
                self.series.remove(&key);
            }
            calls.extend(call);
        }
        calls
    }

    /// The write of a series as it is now, if both buckets allow one.
    fn call(&mut self, key: &(EventObject, EventReason), now: Duration) -> Option<EventCall> {
        let EventLimits { burst, per_object, per_daemon, .. } = self.limits;
        let series = self.series.get_mut(key)?;
        let is_allowed =
            series.bucket.has_token(now, burst, per_object) && self.daemon.has_token(now, burst, per_daemon);
        if !is_allowed {
            return None;
        }
        series.bucket.take(now, per_object);
        self.daemon.take(now, per_daemon);
        series.written = series.count;
        let (object, reason) = key.clone();
        let &mut EventSeries { serial, first_ns, count, last_ns, .. } = series;
        let event = NodeEvent { object, reason, note: series.note.clone() };
        Some(EventCall { serial, event, first_ns, count, last_ns })
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
