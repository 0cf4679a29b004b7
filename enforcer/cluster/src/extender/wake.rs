//! Tells kube-scheduler that pods without a place are to be tried again.
//!
//! Problem: kube-scheduler does not watch states, and tries a pod that an extender has refused when any Pod
//! or Node changes. Idea: the condition [`CONDITION`] in the status of the program's own pod is set anew,
//! which is a change of a Pod. The role `system:kube-scheduler` allows that already (`pods/status`), and the
//! kubelet keeps conditions that are not its own.
//!
//! A kube-scheduler before 1.32 asks its own plugins alone about such a change: there a pod waits as before.
//!
//! Invariants: at most one change in [`PERIOD`]. None without a pod that waits and a change that may help it.

use std::{convert::Infallible, str::FromStr, time::Duration};

use hyper::Method;
use jiff::Timestamp;
use numa_topology::degraded::Degraded;
use serde_json::json;
use thiserror::Error;
use tokio::{
    sync::watch::{self, Receiver, Sender},
    time::{MissedTickBehavior, interval, sleep},
};

use super::SharedExtender;
use crate::{
    api_error::ApiError,
    connection::{APPLY, ApiConnection},
};

/// Type of the condition of the program's own pod.
const CONDITION: &str = "numa-enforcer.io/NodesChanged";
/// Least time between two changes.
const PERIOD: Duration = Duration::from_secs(1);
/// Time until the next attempt after one that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(10);
/// Effect of a scheduler that cannot be told.
const EFFECT: &str = "pods without a place wait for a change of another object, or for five minutes";
/// Manager of the condition.
const FIELD_MANAGER: &str = "numa-enforcer-scheduler";

/// The pod in which the program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnPod {
    namespace: String,
    name: String,
}

/// A text that names no pod.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not NAMESPACE/NAME of a pod")]
pub struct NotAPod(String);

impl FromStr for OwnPod {
    type Err = NotAPod;

    fn from_str(text: &str) -> Result<Self, NotAPod> {
        let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_name = |part: &str| {
            let starts = part.bytes().next().is_some_and(is_first);
            starts && part.len() <= 253 && part.bytes().all(|byte| is_first(byte) || b"-.".contains(&byte))
        };
        let parts = text.split_once('/').filter(|(namespace, name)| is_name(namespace) && is_name(name));
        let (namespace, name) = parts.ok_or_else(|| NotAPod(text.to_owned()))?;
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// What tells kube-scheduler.
#[derive(Debug)]
pub struct SchedulerWake {
    own: OwnPod,
    degraded: Sender<Option<Degraded>>,
}

impl SchedulerWake {
    /// Tells it by this pod.
    pub fn new(own: OwnPod) -> Self {
        Self { own, degraded: watch::Sender::new(None) }
    }

    /// Why it cannot be told, while that is so.
    pub fn degraded(&self) -> Receiver<Option<Degraded>> {
        self.degraded.subscribe()
    }

    /// Tells of what may help pods, as long as it is polled.
    pub async fn run(&self, connection: &ApiConnection, shared: &SharedExtender) -> Infallible {
        let mut looks = interval(PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            if !shared.lock().take_wake() {
                continue;
            }
            while let Err(error) = tell(connection, &self.own).await {
                self.degraded.send_replace(Some(Degraded::new("wake", error.to_string(), EFFECT)));
                sleep(AFTER_FAILURE).await;
            }
            self.degraded.send_replace(None);
        }
    }
}

async fn tell(connection: &ApiConnection, own: &OwnPod) -> Result<(), ApiError> {
    let OwnPod { namespace, name } = own;
    let path =
        format!("/api/v1/namespaces/{namespace}/pods/{name}/status?fieldManager={FIELD_MANAGER}&force=true");
    let now = Timestamp::now();
    let since = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    // Two changes within a second differ, too: the API server passes over one without a difference.
    let message = format!("at {now} a node may have had a place for pods that no node had a place for");
    let condition = json!({"type": CONDITION, "status": "True", "reason": "StateChanged",
        "lastTransitionTime": since, "message": message});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "status": {"conditions": [condition]}});
    connection.request("patch", Method::PATCH, &path, APPLY, pod.to_string().as_bytes()).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pods_cannot_lead_to_another_path() {
        assert_eq!(
            "numa/scheduler-7f.x".parse(),
            Ok(OwnPod { namespace: "numa".into(), name: "scheduler-7f.x".into() })
        );
        for text in [
            "",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "a/b?x=y",
            "a/B",
            "a b/c",
            "a/%2e",
            "../b",
            &format!("a/{}", "b".repeat(254)),
        ] {
            assert_eq!(text.parse::<OwnPod>(), Err(NotAPod(text.to_owned())), "{text}");
        }
    }
}
