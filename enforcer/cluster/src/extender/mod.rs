//! A scheduler extender at the API server: what it watches, what it answers, and how it binds.
//!
//! Problem: kube-scheduler asks over HTTP (protocol v1, `k8s.io/kube-scheduler/extender/v1`), in types
//! without names for JSON, and never tells what became of its choice. Idea: the decisions are
//! [pure](enforcer_core::cluster::extender); here are the watches that feed them ([`watch_cluster`]), the
//! texts of the protocol ([`protocol`]), and the bindings ([`bind`]). The caller serves HTTP.
//!
//! Invariants: no answer is given before every list has been read once. The lock on the cluster is held for
//! computing alone, never while something is sent or awaited. Bindings to one node are sent one after
//! another.

mod bind;
mod gated;
mod impossible;
mod last_changes;
mod protocol;
#[cfg(test)]
mod tests;
mod wake;
mod watches;

use std::{
    array,
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use enforcer_core::cluster::{
    events::NodeEvent,
    extender::{BindCallEnd, Extender, ExtenderSettings, FilterCall, NodeCounts},
    objects::PodObject,
    view::Millis,
};
use numa_placement::PodRequest;
use tokio::{sync::mpsc::Sender, time::Instant};

pub(crate) use self::{
    bind::{is_conflict, was_not_taken},
    gated::path_of,
};
use self::{impossible::ImpossibleEvents, last_changes::LastChanges};
pub use self::{
    protocol::{BindRequest, ExtenderRequest, ProtocolError, bind_reply},
    wake::{NotAPod, OwnPod, SchedulerWake},
    watches::{Synced, WatchFaults, watch_cluster},
};
use crate::{events::EventTally, gate::SharedGate};

/// Most objects that are named as left out at a time.
const NAMED: usize = 16;

/// The cluster, shared by the tasks that watch it and those that answer.
pub struct SharedExtender {
    extender: Mutex<Extender>,
    started: Instant,
    /// Time after which a scheduler no longer reads a reply.
    call_limit: Duration,
    /// Number of the last call.
    calls: AtomicU64,
    /// Locks on bindings by node, of nodes to which one is sent.
    binding: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Ends of bind calls, in the order of [`BindCallEnd`].
    bind_ends: [AtomicU64; BindCallEnd::NAMES.len()],
    /// When the API server told of a change.
    changes: LastChanges,
    /// Where pods without a place are told.
    impossible: Option<ImpossibleEvents>,
    /// Gated pods, where this program places them.
    gate: Option<SharedGate>,
    /// Objects that could not be read since the last look at them.
    left_out: Mutex<Vec<String>>,
    /// Completes a request by what its annotations say.
    complete: fn(&mut PodRequest),
}

impl SharedExtender {
    /// An extender that knows nothing yet; `complete` adds to the request of a pod what its annotations say.
    pub fn new(settings: ExtenderSettings, complete: fn(&mut PodRequest)) -> Self {
        Self {
            extender: Mutex::new(Extender::new(settings)),
            started: Instant::now(),
            call_limit: Duration::from_millis(settings.call_limit),
            calls: AtomicU64::new(0),
            binding: Mutex::default(),
            bind_ends: array::from_fn(|_| AtomicU64::new(0)),
            changes: LastChanges::default(),
            impossible: None,
            gate: None,
            left_out: Mutex::default(),
            complete,
        }
    }

    /// Tells of pods without a place as events, of which those without room are counted as dropped.
    #[must_use]
    pub fn with_events(mut self, events: Sender<NodeEvent>, tally: Arc<EventTally>) -> Self {
        self.impossible = Some(ImpossibleEvents { events, tally, told: Mutex::default() });
        self
    }

    /// Objects that could not be read since the last call, and why; the first ones of many.
    pub fn take_left_out(&self) -> Vec<String> {
        std::mem::take(&mut *self.left_out.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn leave_out(&self, why: String) {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        if left_out.len() < NAMED {
            left_out.push(why);
        }
    }

    /// Number of bind calls by their end, with its name.
    pub fn bind_ends(&self) -> impl Iterator<Item = (&'static str, u64)> {
        BindCallEnd::NAMES
            .iter()
            .copied()
            .zip(&self.bind_ends)
            .map(|(end, number)| (end, number.load(Ordering::Relaxed)))
    }

    fn note_bind_end(&self, end: BindCallEnd) {
        if let Some(number) = self.bind_ends.get(end as usize) {
            number.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Nodes by what their published state is worth now.
    pub fn node_counts(&self) -> NodeCounts {
        self.lock().node_counts(self.now())
    }

    /// Time since the API server told of a change or a list, of nodes, states, pods and leases. `None` until
    /// it does.
    pub fn change_ages(&self) -> [Option<Duration>; 4] {
        self.changes.ages(self.now())
    }

    /// Time since its start.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Its state, for as long as nothing is awaited.
    pub fn lock(&self) -> MutexGuard<'_, Extender> {
        self.extender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reply to a filter call that came at this time. One that comes too late for the scheduler holds no
    /// place.
    pub fn filter(&self, request: &ExtenderRequest<'_>, arrived: Instant) -> String {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let accepted = self.at(arrived);
        let pod = self.completed(request.pod.clone());
        let mut extender = self.lock();
        let nodes = request.names();
        let call = FilterCall { pod: &pod, nodes: &nodes, number, accepted };
        let answer = extender.filter(call, self.now());
        extender.withdraw(call, self.now());
        if let Some(events) = &self.impossible
            && answer.is_final()
            && events.is_due(&pod, accepted)
            && let Some(note) = extender.explain_impossible(&pod, &nodes, &answer, self.now())
        {
            events.send(&pod, &note);
        }
        drop(extender);
        request.filter_reply(&answer)
    }

    /// The reply to a prioritize call.
    pub fn prioritize(&self, request: &ExtenderRequest<'_>) -> String {
        let pod = self.completed(request.pod.clone());
        let scores = self.lock().prioritize(&pod, &request.names(), self.now());
        request.priorities(&scores)
    }

    fn completed(&self, mut pod: PodObject) -> PodObject {
        (self.complete)(&mut pod.request);
        pod
    }

    fn now(&self) -> Millis {
        self.at(Instant::now())
    }

    fn at(&self, time: Instant) -> Millis {
        let since_start = time.saturating_duration_since(self.started);
        Millis::try_from(since_start.as_millis()).unwrap_or(Millis::MAX)
    }
}
