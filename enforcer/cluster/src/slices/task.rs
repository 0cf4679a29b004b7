//! The loop that keeps the slices of this node.

use std::{collections::BTreeMap, convert::Infallible, future::pending, pin::pin, sync::Arc, time::Duration};

use enforcer_core::dra::slice::{ResourceSlice, difference};
use numa_topology::degraded::Degraded;
use serde_json::Value;
use tokio::{
    sync::watch::{Receiver, Sender},
    time::Instant,
};

use super::{
    plan::{StoredSlice, writes},
    publisher::{DoneCall, PATH, SlicePublisher, SliceWriter, read_stored},
};
use crate::{
    api_error::ApiError,
    newest::send_if_different,
    publish::{Pace, PaceLimits, WriteEnd, sleep_until},
    watch::{Collection, GoneObject, ObjectSink, Piece, WatchLimits, follow},
};

/// Source of what the cluster does not have.
const SOURCE: &str = "dra:slices";
/// Effect.
const WITHOUT: &str = "the scheduler sees no devices of this node, or old ones";
/// Longest wait for the watch to tell of a write.
const UNSEEN: Duration = Duration::from_secs(30);
/// Most slices of this driver and node that are looked at, and brought to what is wanted, at a time. One is
/// enough for all machines but the largest.
const MOST_SLICES: usize = 64;

/// Bounds of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceSettings {
    /// Bounds of the writes.
    pub pace: PaceLimits,
    /// Bounds of the watch.
    pub watch: WatchLimits,
    /// Time until the first write: a part of ten seconds by chance, so that nodes do not start at once.
    pub first: Duration,
}

impl Default for SliceSettings {
    /// Changes of 1 s are one write, of which there is at most one in 10 s, without a wait for the first.
    fn default() -> Self {
        let rate = Duration::from_secs(10);
        let pace = PaceLimits {
            debounce: Duration::from_secs(1),
            spacing: rate,
            burst: 1,
            refill: rate,
            ..PaceLimits::default()
        };
        Self { pace, watch: WatchLimits::default(), first: Duration::ZERO }
    }
}

/// The slices of a generation.
pub type WantedSlices = Arc<dyn Fn(u64) -> Vec<ResourceSlice> + Send + Sync>;

/// What the server has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct StoredSlices {
    by_name: BTreeMap<String, StoredSlice>,
    /// Whether it has more than are looked at.
    is_cut: bool,
}

struct SliceSink<'a> {
    /// Driver and node.
    of: (&'a str, &'a str),
    /// `None` until it is known.
    stored: &'a Sender<Option<StoredSlices>>,
    known: StoredSlices,
    listed: Option<StoredSlices>,
}

impl ObjectSink for SliceSink<'_> {
    fn begin_list(&mut self) {
        self.listed = Some(StoredSlices::default());
    }

    fn put(&mut self, object: Piece<'_>) {
        let slices = self.listed.as_mut().unwrap_or(&mut self.known);
        let Piece::Whole(text) = object else { return };
        let read =
            serde_json::from_slice::<Value>(text).ok().and_then(|object| read_stored(&object, self.of));
        let Some(slice) = read else { return };
        if slices.by_name.len() < MOST_SLICES || slices.by_name.contains_key(&slice.name) {
            slices.by_name.insert(slice.name.clone(), slice);
        } else {
            slices.is_cut = true;
        }
    }

    fn remove(&mut self, gone: &GoneObject) {
        self.known.by_name.remove(&gone.name);
    }

    fn end_list(&mut self) {
        self.known = self.listed.take().unwrap_or_default();
    }

    fn tell(&mut self) {
        send_if_different(self.stored, Some(self.known.clone()));
    }

    fn fail(&mut self, _: bool) {
        self.listed = None;
    }
}

/// Keeps the slices of a driver and a node at what is wanted; `None` is nothing yet. `degraded` is set while
/// the cluster does not have them. `written` counts the calls.
pub async fn publish_slices(
    publisher: &SlicePublisher,
    (driver, node): (&str, &str),
    wanted: Receiver<Option<WantedSlices>>,
    settings: &SliceSettings,
    degraded: &Sender<Option<Degraded>>,
    written: &Sender<u64>,
) -> Infallible {
    let selector = format!("fieldSelector=spec.driver%3D{driver}%2Cspec.nodeName%3D{node}");
    let collection = Collection {
        path: PATH,
        selector: &selector,
        first_version: "",
        source: SOURCE,
        without: WITHOUT,
        outdated: WITHOUT,
    };
    let (stored, list_again) = (Sender::new(None), Sender::new(()));
    let (watch_fault, write_fault) = (Sender::new(None), Sender::new(None));
    let told = WriteTold { degraded: &write_fault, written, list_again: &list_again };
    let mut writing = pin!(write_changes(publisher, wanted, stored.subscribe(), settings, told));
    let (mut watch_told, mut write_told) = (watch_fault.subscribe(), write_fault.subscribe());
    let mut lists_again = list_again.subscribe();
    loop {
        let known = StoredSlices::default();
        let mut sink = SliceSink { of: (driver, node), stored: &stored, known, listed: None };
        let watched = follow(publisher.connection(), collection, settings.watch, &mut sink, &watch_fault);
        let mut watched = pin!(watched);
        loop {
            tokio::select! {
                never = &mut watched => match never {},
                never = &mut writing => match never {},
                _ = watch_told.changed() => {}
                _ = write_told.changed() => {}
                // Slices that the list before had no room for are only in another one.
                _ = lists_again.changed() => break,
            }
            let fault = watch_told.borrow_and_update().clone();
            send_if_different(degraded, fault.or_else(|| write_told.borrow_and_update().clone()));
        }
    }
}

/// Slices that the server stores in another form: without fields of a feature that is off, or changed.
struct AlteredSlices {
    /// What was sent, of generation 0.
    sent: Vec<ResourceSlice>,
    /// What the server keeps, in the same order.
    kept: Vec<ResourceSlice>,
    /// The first difference.
    difference: String,
}

impl AlteredSlices {
    /// Of written slices, if all of the pool were written and the server has others.
    fn of(done: Vec<DoneCall>, wanted: &[ResourceSlice]) -> Option<Self> {
        let mut found = None;
        let (mut all_sent, mut all_kept) = (Vec::new(), Vec::new());
        for call in done {
            let DoneCall::Stored { sent, kept } = call else { continue };
            let kept = kept?;
            found = found.or_else(|| difference(&sent, &kept));
            all_sent.push(ResourceSlice { generation: 0, ..sent });
            all_kept.push(kept);
        }
        let is_whole = all_sent == wanted;
        let altered = |difference| Self { sent: all_sent, kept: all_kept, difference };
        found.filter(|_| is_whole).map(altered)
    }

    /// The slices of a generation: as the server keeps them, as long as the same ones are wanted.
    fn effective(known: Option<&Self>, wanted: &WantedSlices, generation: u64) -> Vec<ResourceSlice> {
        match known.filter(|known| known.sent == wanted(0)) {
            None => wanted(generation),
            Some(known) => {
                let of = |kept: &ResourceSlice| ResourceSlice { generation, ..kept.clone() };
                known.kept.iter().map(of).collect()
            }
        }
    }
}

/// What the writes tell.
#[derive(Clone, Copy)]
struct WriteTold<'a> {
    /// Why the server has other slices.
    degraded: &'a Sender<Option<Degraded>>,
    /// Number of calls.
    written: &'a Sender<u64>,
    /// Slices that were known are written, and others are not known.
    list_again: &'a Sender<()>,
}

async fn write_changes(
    writer: &impl SliceWriter,
    mut wanted: Receiver<Option<WantedSlices>>,
    mut stored: Receiver<Option<StoredSlices>>,
    settings: &SliceSettings,
    WriteTold { degraded, written, list_again }: WriteTold<'_>,
) -> Infallible {
    let start = Instant::now();
    let mut pace = Pace::new(settings.pace, settings.first);
    pace.change(Duration::ZERO);
    let mut altered: Option<AlteredSlices> = None;
    // After a write the watch has to tell what is there, or nothing for a while, before the next one.
    let mut unseen_until: Option<Instant> = None;
    loop {
        let due = pace.due().map(|due| (start + due).max(unseen_until.unwrap_or(start)));
        tokio::select! {
            changed = wanted.changed() => {
                if changed.is_err() {
                    pending::<()>().await;
                }
                pace.change(start.elapsed());
            }
            _ = stored.changed() => {
                unseen_until = None;
                pace.change(start.elapsed());
            }
            () = sleep_until(due) => {
                let (wanted, stored) =
                    (wanted.borrow_and_update().clone(), stored.borrow_and_update().clone());
                let (Some(wanted), Some(stored)) = (wanted, stored) else {
                    pace.withdraw();
                    continue;
                };
                let is_cut = stored.is_cut;
                let stored: Vec<StoredSlice> = stored.by_name.into_values().collect();
                let effective = |generation| AlteredSlices::effective(altered.as_ref(), &wanted, generation);
                if writes(&stored, effective).is_empty() {
                    pace.withdraw();
                    send_if_different(degraded, altered_fault(altered.as_ref()));
                } else if pace.begin(start.elapsed()) {
                    let mut done = Vec::new();
                    let ended = writer.write(&stored, &effective, &mut done).await;
                    written.send_modify(|count| *count += done.len() as u64);
                    pace.end(start.elapsed(), ended.as_ref().err().map_or(WriteEnd::Written, WriteEnd::of));
                    if !done.is_empty() || matches!(ended, Err(ApiError::Broken { .. } | ApiError::Late { .. })) {
                        unseen_until = Some(Instant::now() + UNSEEN);
                    }
                    if is_cut && !done.is_empty() {
                        list_again.send_replace(());
                    }
                    let fault = match ended {
                        Ok(()) => {
                            // What is wanted may be other slices than those that were altered.
                            altered = AlteredSlices::of(done, &wanted(0)).or_else(|| {
                                altered.take().filter(|known| known.sent == wanted(0))
                            });
                            altered_fault(altered.as_ref())
                        }
                        Err(error) => Some(Degraded::new(SOURCE, error.to_string(), WITHOUT)),
                    };
                    send_if_different(degraded, fault);
                }
            }
        }
    }
}

fn altered_fault(altered: Option<&AlteredSlices>) -> Option<Degraded> {
    let reason = format!("update {PATH}: the API server stores other slices: {}", altered?.difference);
    Some(Degraded::new(SOURCE, reason, WITHOUT))
}

#[cfg(test)]
mod tests;
