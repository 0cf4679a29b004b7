//! Which of several replicas works: the one that holds a Lease, as client-go elects.
//!
//! Problem: two replicas that both work hold and bind places twice, and one alone is missed when it ends.
//! Idea: each tries to write its identity into one Lease. The API server refuses a write to a version that
//! is not the newest, so one of two wins. The holder renews the record; a record that has not been seen to
//! change for its duration is free. The decisions are in `candidate`, without time or HTTP.
//!
//! Invariants: of two replicas, one at most believes at any time that it leads, whatever their clocks say and
//! however late a request arrives, as long as their clocks run equally fast within a third (that of a machine
//! that is suspended stands still) and the lease is not deleted. [`Leadership::leads`] reads the clock: a
//! process that was stopped for a while knows at its first look. A term counts from the sending of a write
//! that was confirmed, and from nothing else.
//!
//! Cost: one request every 2 s for each replica.

mod candidate;
#[cfg(test)]
mod tests;

use std::{
    collections::hash_map::RandomState, convert::Infallible, env, hash::BuildHasher as _, time::Duration,
};

use enforcer_core::cluster::state::FIELD_MANAGER;
use hyper::Method;
use jiff::Timestamp;
use numa_topology::degraded::Degraded;
use serde_json::{Value, json};
use tokio::{
    sync::watch::{self, Receiver, Sender},
    time::{Instant, sleep, timeout},
};

pub use self::candidate::LeaseTiming;
use self::candidate::{Candidate, LeaseRecord, LeaseStep};
use crate::{
    api_error::ApiError,
    connection::{ApiConnection, JSON},
    newest::send_if_different,
    objects::COMPONENT,
};

/// Effect of a lease that cannot be read or written.
const EFFECT: &str = "this replica does not take the lease, and gives it up when its term ends";

/// Which lease is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionSettings {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Its times.
    pub timing: LeaseTiming,
}

/// Whether this process leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    /// When the term began and, unless it is renewed, ends; `None` without one.
    term: Option<(Instant, Instant)>,
    /// Identity of the holder by the latest look, for people; empty if there is none.
    pub holder: String,
}

impl Leadership {
    /// Whether this process leads at this moment.
    pub fn leads(&self) -> bool {
        self.since().is_some()
    }

    /// When it began to lead, if it leads at this moment.
    pub fn since(&self) -> Option<Instant> {
        self.term.filter(|(_, until)| Instant::now() < *until).map(|(since, _)| since)
    }
}

/// A candidate for a lease. Its identity is that of no other process.
pub struct Election {
    settings: ElectionSettings,
    candidate: Candidate,
    start: Instant,
    /// The lease as the server answered to the latest write that succeeded.
    own: Option<Value>,
    leadership: Sender<Leadership>,
    degraded: Sender<Option<Degraded>>,
}

impl Election {
    /// Nothing is asked yet.
    pub fn new(settings: ElectionSettings) -> Self {
        // A pod's name is the name of its host; a container that starts again has the same one.
        let host = env::var("HOSTNAME").unwrap_or_else(|_| "numa-enforcer".to_owned());
        let candidate = Candidate::new(format!("{host}_{:016x}", random()), settings.timing);
        let (leadership, degraded) = (watch::channel(Leadership::default()).0, watch::channel(None).0);
        Self { settings, candidate, start: Instant::now(), own: None, leadership, degraded }
    }

    /// What this process writes as the holder.
    pub fn identity(&self) -> &str {
        self.candidate.identity()
    }

    /// Whether this process leads: changes at each renewal, and when a term ends. The end is told a little
    /// late where the process was stopped, so an effect outside asks [`Leadership::leads`] just before it.
    pub fn leadership(&self) -> Receiver<Leadership> {
        self.leadership.subscribe()
    }

    /// Why the lease cannot be read or written.
    pub fn degraded(&self) -> Receiver<Option<Degraded>> {
        self.degraded.subscribe()
    }

    /// Wants the lease, renews it, and wants it again when it is lost, until the future is dropped;
    /// [`Self::release`] comes after that.
    pub async fn run(&mut self, connection: &ApiConnection) -> Infallible {
        loop {
            let timing = self.candidate.timing();
            let left = self.candidate.term(self.now()).map(|term| term.until.saturating_sub(self.now()));
            let limit = left.map_or(timing.call_limit(), |left| left.min(timing.call_limit()));
            let ended = timeout(limit, self.round(connection)).await;
            let entry = match ended {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(Degraded::new("election", error.to_string(), EFFECT)),
                Err(_elapsed) => {
                    let reason = format!("{}: no answer within {} ms", self.path(true), limit.as_millis());
                    Some(Degraded::new("election", reason, EFFECT))
                }
            };
            send_if_different(&self.degraded, entry);
            self.tell();
            self.rest().await;
        }
    }

    /// Gives the lease back, so that another replica takes it at once. Whatever comes of the request, this
    /// process does not lead any more.
    ///
    /// # Errors
    /// If the lease cannot be written: then the others wait until it has expired.
    pub async fn release(mut self, connection: &ApiConnection) -> Result<(), ApiError> {
        let led = self.candidate.term(self.now()).is_some();
        self.candidate.end_term();
        self.tell();
        let limit = self.candidate.timing().call_limit();
        let operation = format!("release {}", self.path(true));
        let exchange = async {
            let own = match self.own.take() {
                Some(own) => Some(own),
                // A renewal may be on its way, so the version is not known.
                None if led => self.read(connection).await?,
                None => None,
            };
            let held = own.filter(|own| record_of(own).holder == self.identity());
            let Some(own) = held else { return Ok(()) };
            let free = record_of(&own).released(now_in_words());
            self.write(connection, LeaseStep::Renew, &with_record(own, &free)).await.map(drop)
        };
        timeout(limit, exchange).await.unwrap_or(Err(ApiError::Late { operation, limit }))
    }

    /// Time since the start, in which the candidate counts.
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Waits for the next round, or for the end of the term if that is earlier, which it tells.
    async fn rest(&self) {
        let retry = self.candidate.timing().retry();
        let Some(term) = self.candidate.term(self.now()) else {
            // Up to a fifth longer: candidates that began together meet no more.
            let chance = u32::try_from(random() % 256).unwrap_or(0);
            sleep(retry + retry.saturating_mul(chance) / (5 * 256)).await;
            return;
        };
        sleep(retry.min(term.until.saturating_sub(self.now()))).await;
        if self.candidate.term(self.now()).is_none() {
            self.tell();
        }
    }

    /// Reads the lease unless it is the own one, and writes it if it may.
    async fn round(&mut self, connection: &ApiConnection) -> Result<(), ApiError> {
        let lease = match self.own.take() {
            Some(own) => Some(own),
            None => self.read(connection).await?,
        };
        let record = lease.as_ref().map(record_of);
        let step = self.candidate.look(record.as_ref(), self.now());
        let holder = record.as_ref().map(|record| record.holder.clone()).unwrap_or_default();
        self.leadership.send_if_modified(|last| {
            let differs = last.holder != holder;
            last.holder = holder;
            differs
        });
        if step == LeaseStep::Wait {
            return Ok(());
        }
        let new = self.candidate.record(step, record.as_ref(), now_in_words());
        let body = with_record(lease.unwrap_or_else(|| self.empty()), &new);
        let sent = self.now();
        match self.write(connection, step, &body).await {
            Ok(written) => {
                self.candidate.note_written(sent, self.now());
                self.own = Some(written);
                Ok(())
            }
            // Another one was faster, or the lease was deleted: the next round reads it.
            Err(ApiError::Busy { code: 409, .. }) => Ok(()),
            Err(ApiError::Refused { code: 404, .. }) if step != LeaseStep::Create => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn tell(&self) {
        let term = self.candidate.term(self.now());
        let term = term.map(|term| (self.start + term.since, self.start + term.until));
        self.leadership.send_if_modified(|last| {
            if term.is_some() {
                last.holder.clear();
                last.holder.push_str(self.identity());
            }
            let differs = last.term != term;
            last.term = term;
            differs
        });
    }

    fn path(&self, of_object: bool) -> String {
        let ElectionSettings { namespace, name, .. } = &self.settings;
        let all = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        if of_object { format!("{all}/{name}") } else { all }
    }

    fn empty(&self) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": self.settings.name, "namespace": self.settings.namespace,
                "labels": {"app.kubernetes.io/name": FIELD_MANAGER, COMPONENT.0: COMPONENT.1},
            },
        })
    }

    async fn read(&self, connection: &ApiConnection) -> Result<Option<Value>, ApiError> {
        match connection.request("get", Method::GET, &self.path(true), JSON, b"").await {
            Ok(answer) => Ok(Some(answer.body)),
            Err(ApiError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(
        &self,
        connection: &ApiConnection,
        step: LeaseStep,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let (verb, method) = match step {
            LeaseStep::Create => ("create", Method::POST),
            _ => ("update", Method::PUT),
        };
        let path = format!("{}?fieldManager={FIELD_MANAGER}", self.path(step != LeaseStep::Create));
        let answer = connection.request(verb, method, &path, JSON, body.to_string().as_bytes()).await?;
        Ok(answer.body)
    }
}

/// A number by chance.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

fn now_in_words() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// What an object says; what is missing or of another kind is as if it were empty.
fn record_of(lease: &Value) -> LeaseRecord {
    let spec = &lease["spec"];
    let text = |name: &str| spec[name].as_str().unwrap_or_default().to_owned();
    LeaseRecord {
        holder: text("holderIdentity"),
        duration: Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(0)),
        transitions: spec["leaseTransitions"].as_i64().unwrap_or(0),
        acquired: text("acquireTime"),
        renewed: text("renewTime"),
    }
}

/// The object with this record; its version and what others wrote stay.
fn with_record(mut lease: Value, record: &LeaseRecord) -> Value {
    if !lease.is_object() {
        lease = json!({});
    }
    if !lease["spec"].is_object() {
        lease["spec"] = json!({});
    }
    let spec = &mut lease["spec"];
    spec["holderIdentity"] = json!(record.holder);
    spec["leaseDurationSeconds"] = json!(record.duration.as_secs());
    spec["leaseTransitions"] = json!(record.transitions);
    spec["acquireTime"] = json!(record.acquired);
    spec["renewTime"] = json!(record.renewed);
    lease
}
