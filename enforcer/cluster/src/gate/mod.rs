//! Gated pods at the API server: when they are decided about, and how they are changed.
//!
//! Problem: a change of a pod may be lost, refused, or land without a reply, and between two decisions the
//! cluster goes on. Idea: the decisions are [pure](enforcer_core::cluster::gate), and fed by the
//! [watches](crate::extender::watch_cluster) of the extender; here one pod after another is patched, and
//! looked at again if the reply is not clear.
//!
//! Invariants: one patch is on its way at a time, so after the end of this process at most one pod may change
//! without its knowledge. Nothing is decided while `may_change` says no. Waiting pods are tried again after a
//! change, not more often than [`SPACING`] and for at most a quarter of the time. A new pod waits for none of
//! them: it is decided about next, as a scheduler does that has tried the others before.

use std::{
    array,
    collections::VecDeque,
    convert::Infallible,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use enforcer_core::cluster::{
    extender::Extender,
    gate::{Gate, GateCounts, GateDecision, GateEnd, GateSettings, PodPatch},
    objects::PodObject,
    view::Millis,
};
use hyper::Method;
use jiff::Timestamp;
use tokio::{
    sync::Notify,
    task::yield_now,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at},
};

use crate::{
    api_error::ApiError,
    connection::ApiConnection,
    extender::{SharedExtender, is_conflict, path_of, was_not_taken},
};

/// Media type of a patch by RFC 6902.
const JSON_PATCH: &str = "application/json-patch+json";
/// Least time between two rounds over all gated pods.
const SPACING: Duration = Duration::from_millis(250);
/// Part of the time that such rounds may take, as a divisor.
const SHARE: u32 = 4;
/// Time after which all gated pods are tried again without a change: states become stale by time alone.
const FALLBACK: Duration = Duration::from_secs(30);
/// Time between two looks whether pods may be changed.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two looks for pods that are late or stuck.
const LATE_LOOK: Duration = Duration::from_secs(5);

/// Gated pods, shared by the tasks that watch and the one that changes them.
pub struct SharedGate {
    gate: Mutex<Gate>,
    /// Whether anything has changed that may make a place.
    has_changed: AtomicBool,
    /// Whether gated pods have come that no decision was made about.
    has_new: AtomicBool,
    wake: Notify,
    /// Ends of attempts, in the order of [`GateEnd`].
    ends: [AtomicU64; GateEnd::NAMES.len()],
    late: AtomicU64,
    /// Time of the last look for late pods, in seconds since 1970.
    looked_at: AtomicI64,
    /// Whether pods are changed now.
    is_active: AtomicBool,
}

impl SharedGate {
    pub(crate) fn new(settings: GateSettings) -> Self {
        Self {
            gate: Mutex::new(Gate::new(settings)),
            has_changed: AtomicBool::new(false),
            has_new: AtomicBool::new(false),
            wake: Notify::new(),
            ends: array::from_fn(|_| AtomicU64::new(0)),
            late: AtomicU64::new(0),
            looked_at: AtomicI64::new(0),
            is_active: AtomicBool::new(false),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a pod of a watch.
    pub(crate) fn observe_pod(&self, pod: &PodObject, extender: &mut Extender, now: Millis) {
        let is_new = pod.node.is_none() && pod.scheduling.gates.has_ours();
        if self.lock().observe_pod(pod, extender, now) && !is_new {
            self.note_change();
        }
        if is_new {
            self.note_new();
        }
    }

    /// Notes that a gated pod is there that no decision was made about.
    fn note_new(&self) {
        self.has_new.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Notes that a pod may have a place that had none.
    pub(crate) fn note_change(&self) {
        self.has_changed.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Number of attempts to change pods by their end, with its name.
    pub fn ends(&self) -> impl Iterator<Item = (&'static str, u64)> {
        GateEnd::NAMES
            .iter()
            .copied()
            .zip(&self.ends)
            .map(|(end, number)| (end, number.load(Ordering::Relaxed)))
    }

    /// Number of pods that were late.
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Are pods changed now?
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Numbers of pods; late ones as of the last look for them.
    pub fn counts(&self) -> GateCounts {
        self.lock().counts(self.looked_at.load(Ordering::Relaxed))
    }

    pub(crate) fn note_end(&self, end: GateEnd) {
        if let Some(number) = self.ends.get(end as usize) {
            number.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn server_now(connection: &ApiConnection) -> i64 {
    connection.server_time().unwrap_or_else(|| Timestamp::now().as_second())
}

/// Gives gated pods their nodes while `may_change` allows it; it does not end before its future is dropped.
pub async fn place_gated_pods(
    connection: &ApiConnection,
    shared: &SharedExtender,
    may_change: &(impl Fn() -> bool + Sync),
) {
    let Some(gate) = shared.gate() else { return std::future::pending().await };
    let placer = Placer { connection, shared, gate, may_change };
    tokio::select! {
        _ = placer.run() => {}
        _ = placer.tell() => {}
    }
}

struct Placer<'a, F> {
    connection: &'a ApiConnection,
    shared: &'a SharedExtender,
    gate: &'a SharedGate,
    may_change: &'a F,
}

impl<F: Fn() -> bool> Placer<'_, F> {
    async fn run(&self) -> Infallible {
        let mut next_full = Instant::now();
        loop {
            let now = self.shared.clock();
            let due = self.gate.lock().next_due(now);
            let wait = due.map_or(FALLBACK, |due| Duration::from_millis(due - now).min(FALLBACK));
            let is_late = timeout(wait, self.gate.wake.notified()).await.is_err();
            while !self.may() {
                sleep(LOOK).await;
            }
            let is_full = is_late || self.gate.has_changed.load(Ordering::Relaxed);
            if is_full {
                self.serve_new_until(next_full).await;
                self.gate.has_changed.store(false, Ordering::Relaxed);
            }
            let began = Instant::now();
            let computed = self.round(is_full).await;
            if is_full {
                next_full = began + SPACING.max(computed * SHARE);
            }
        }
    }

    /// Decides about new pods as they come, until the other ones may be tried again.
    async fn serve_new_until(&self, end: Instant) {
        loop {
            if self.gate.has_new.load(Ordering::Relaxed) {
                self.round(false).await;
            }
            if Instant::now() >= end || timeout_at(end, self.gate.wake.notified()).await.is_err() {
                return;
            }
        }
    }

    fn may(&self) -> bool {
        let may = (self.may_change)();
        self.gate.is_active.store(may, Ordering::Relaxed);
        may
    }

    /// Decides about gated pods in their order, new ones first; returns the time that decisions took.
    async fn round(&self, is_full: bool) -> Duration {
        let mut others = if is_full { self.queue(true) } else { VecDeque::new() };
        let mut new = if is_full { VecDeque::new() } else { self.queue(false) };
        let mut computed = Duration::ZERO;
        loop {
            if new.is_empty() && self.gate.has_new.load(Ordering::Relaxed) {
                new = self.queue(false);
            }
            let Some(uid) = new.pop_front().or_else(|| others.pop_front()) else { return computed };
            if !self.may() {
                // Those that are left are as before.
                self.gate.note_change();
                return computed;
            }
            let began = Instant::now();
            let decided = self.shared.decide(self.gate, &uid);
            computed += began.elapsed();
            if let Some((pod, decision)) = decided {
                self.change(&pod, &decision).await;
            }
            // Watches go on in between.
            yield_now().await;
        }
    }

    /// Gated pods to decide about: all of them, or those without a decision.
    fn queue(&self, is_full: bool) -> VecDeque<String> {
        self.gate.has_new.store(false, Ordering::Relaxed);
        self.gate.lock().queue(is_full, self.shared.clock()).into()
    }

    /// Changes a pod as it was decided.
    async fn change(&self, pod: &PodObject, decision: &GateDecision) {
        let at = server_now(self.connection);
        let Some(patch) = PodPatch::new(pod, decision, at) else { return };
        let (path, body) = (path_of(pod), patch.to_json());
        self.gate.lock().note_sent(&pod.uid, decision);
        let sent = self.connection.request("patch", Method::PATCH, &path, JSON_PATCH, body.as_bytes()).await;
        match sent {
            Ok(answer) => {
                let version = answer.body.pointer("/metadata/resourceVersion");
                let version = version.and_then(|version| version.as_str()?.parse().ok()).unwrap_or(0);
                if self.gate.lock().note_landed(&pod.uid, decision, version, at) {
                    self.shared.note_ended(self.gate, pod, decision);
                }
            }
            Err(error) => self.look_again(pod, decision, &error).await,
        }
    }

    /// Asks whether a patch that failed has landed.
    async fn look_again(&self, pod: &PodObject, decision: &GateDecision, error: &ApiError) {
        let seen = self.shared.look_at(self.connection, pod).await;
        let now = self.shared.clock();
        // A `test` of the patch that does not hold is 422, an older version 409.
        let is_certain = was_not_taken(error) || is_conflict(error);
        let end = match seen {
            Ok(None) => {
                self.gate.lock().observe_gone(&pod.uid);
                return;
            }
            // It counts as landed, if the pod shows that, or an earlier patch that had no reply does.
            Ok(Some(seen)) if !seen.scheduling.gates.has_ours() || seen.node.is_some() => {
                self.shared.observe_answer(self.gate, &seen, now);
                return;
            }
            // No patch of the former version lands any more.
            Ok(Some(seen)) if seen.arrival.version != pod.arrival.version => {
                self.shared.observe_answer(self.gate, &seen, now);
                self.gate.note_new();
                GateEnd::Conflict
            }
            Ok(Some(_)) | Err(_) if is_certain => {
                let for_good = is_for_good(error).then(|| error.to_string());
                let mut extender = self.shared.lock();
                self.gate.lock().note_refused(&pod.uid, for_good.as_deref(), &mut extender, now);
                GateEnd::Refused
            }
            Ok(Some(_)) | Err(_) => {
                self.gate.lock().note_unclear(&pod.uid, decision, now);
                GateEnd::NoReply
            }
        };
        self.gate.note_end(end);
        if end != GateEnd::Conflict {
            self.shared.leave_out(format!("gated pod {}: {error}", pod.request.name));
        }
    }

    /// Tells of pods that are late or stuck.
    async fn tell(&self) -> Infallible {
        let mut looks = interval(LATE_LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let now = server_now(self.connection);
            self.gate.looked_at.store(now, Ordering::Relaxed);
            if !self.gate.is_active() {
                continue;
            }
            let mut known = self.gate.lock();
            let (late, stuck) = (known.take_late(now), known.take_stuck());
            drop(known);
            self.gate.late.fetch_add(late.len() as u64, Ordering::Relaxed);
            for late in &late {
                self.shared.tell_late(late);
            }
            for stuck in &stuck {
                self.shared.tell_stuck(stuck);
            }
        }
    }
}

/// Will the API server refuse the same patch again?
const fn is_for_good(error: &ApiError) -> bool {
    matches!(error, ApiError::Forbidden { .. } | ApiError::Refused { .. })
}
