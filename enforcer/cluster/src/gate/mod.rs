//! Gated pods at the API server: when they are decided about, and how they are changed.
//!
//! Problem: a change of a pod may be lost, refused, or land without a reply, and between two decisions the
//! cluster goes on. Idea: the decisions are [pure](enforcer_core::cluster::gate), and fed by the
//! [watches](crate::extender::watch_cluster) of the extender; here one pod after another is patched, and
//! looked at again if the reply is not clear.
//!
//! Invariants: one patch is on its way at a time, so after the end of this process at most one pod may change
//! without its knowledge. Nothing is decided while `may_change` says no. Waiting pods are tried again after a
//! change, not more often than [`SPACING`] and for at most a quarter of the time.

use std::{
    array,
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
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
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
/// Time between two looks for pods that are late.
const LATE_LOOK: Duration = Duration::from_secs(5);

/// Gated pods, shared by the tasks that watch and the one that changes them.
pub struct SharedGate {
    gate: Mutex<Gate>,
    /// Whether anything has changed that may make a place.
    has_changed: AtomicBool,
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
            self.wake.notify_one();
        }
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

    fn note_end(&self, end: GateEnd) {
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
        _ = placer.tell_late() => {}
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
            let mut is_full = self.gate.has_changed.load(Ordering::Relaxed) || is_late;
            if is_full {
                // Without gated pods there is nothing to wait for.
                sleep_until(next_full).await;
                is_full |= self.gate.has_changed.swap(false, Ordering::Relaxed);
            }
            let began = Instant::now();
            let computed = self.round(is_full).await;
            if is_full {
                next_full = began + SPACING.max(computed * SHARE);
            }
        }
    }

    fn may(&self) -> bool {
        let may = (self.may_change)();
        self.gate.is_active.store(may, Ordering::Relaxed);
        may
    }

    /// Decides about gated pods in their order; returns the time that decisions took.
    async fn round(&self, is_full: bool) -> Duration {
        let queue = self.gate.lock().queue(is_full, self.shared.clock());
        let mut computed = Duration::ZERO;
        for uid in queue {
            if !self.may() {
                // The rest of them is as before.
                self.gate.note_change();
                break;
            }
            let began = Instant::now();
            let decided = self.shared.decide(self.gate, &uid);
            computed += began.elapsed();
            if let Some((pod, decision)) = decided {
                self.change(&pod, &decision).await;
            }
            // The watches have their turn.
            yield_now().await;
        }
        computed
    }

    /// Changes a pod as it was decided.
    async fn change(&self, pod: &PodObject, decision: &GateDecision) {
        let at = server_now(self.connection);
        let Some(patch) = PodPatch::new(pod, decision, at) else { return };
        let (path, body) = (path_of(pod), patch.to_json());
        let sent = self.connection.request("patch", Method::PATCH, &path, JSON_PATCH, body.as_bytes()).await;
        match sent {
            Ok(answer) => {
                let version = answer.body.pointer("/metadata/resourceVersion");
                let version = version.and_then(|version| version.as_str()?.parse().ok()).unwrap_or(0);
                self.landed(pod, decision, version, at);
            }
            Err(error) => self.look_again(pod, decision, at, &error).await,
        }
    }

    fn landed(&self, pod: &PodObject, decision: &GateDecision, version: u64, at: i64) {
        self.gate.lock().note_landed(&pod.uid, decision, version, at);
        if let Some(end) = GateEnd::of_landed(decision) {
            self.gate.note_end(end);
        }
        self.shared.tell_skipped(pod, decision);
    }

    /// Finds out what became of a patch that failed.
    async fn look_again(&self, pod: &PodObject, decision: &GateDecision, at: i64, error: &ApiError) {
        let seen = self.shared.look_at(self.connection, pod).await;
        let now = self.shared.clock();
        // A `test` of the patch that does not hold is 422, an older version 409.
        let is_certain = was_not_taken(error) || is_conflict(error);
        let end = match seen {
            Ok(None) => {
                self.gate.lock().observe_gone(&pod.uid);
                return;
            }
            Ok(Some(seen)) if !seen.scheduling.gates.has_ours() || seen.node.is_some() => {
                // An earlier patch may have landed without a reply.
                if decision_of(&seen).as_ref() == Some(decision) {
                    self.landed(pod, decision, seen.arrival.version, at);
                }
                let mut extender = self.shared.lock();
                self.gate.lock().observe_pod(&seen, &mut extender, now);
                return;
            }
            // No patch of the former version lands any more.
            Ok(Some(seen)) if seen.arrival.version != pod.arrival.version => {
                let mut extender = self.shared.lock();
                self.gate.lock().observe_pod(&seen, &mut extender, now);
                drop(extender);
                self.gate.wake.notify_one();
                GateEnd::Conflict
            }
            Ok(Some(_)) | Err(_) if is_certain => {
                let mut extender = self.shared.lock();
                self.gate.lock().note_refused(&pod.uid, &mut extender, now);
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

    async fn tell_late(&self) -> Infallible {
        let mut looks = interval(LATE_LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let now = server_now(self.connection);
            self.gate.looked_at.store(now, Ordering::Relaxed);
            if !self.gate.is_active() {
                continue;
            }
            let late = self.gate.lock().take_late(now);
            self.gate.late.fetch_add(late.len() as u64, Ordering::Relaxed);
            for late in &late {
                self.shared.tell_late(late);
            }
        }
    }
}

/// What a pod that lost its gate shows of the decision.
fn decision_of(pod: &PodObject) -> Option<GateDecision> {
    pod.scheduling.placed_on().map(|mark| GateDecision::Place { node: mark.node.clone() })
}
