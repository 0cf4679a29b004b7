//! The extender against a stub of an API server: what it knows when, and what becomes of bindings.

#![expect(clippy::unwrap_used, reason = "only tests are here")]

use std::{sync::Arc, time::Duration};

use enforcer_cluster::{
    ApiConnection, WatchLimits,
    extender::{BindRequest, ExtenderRequest, SharedExtender, Synced, WatchFaults, watch_cluster},
};
use enforcer_core::cluster::{extender::ExtenderSettings, state::NodeState};
use enforcer_test_api::{ApiStub, Fault, StubKind};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::Instant};

/// Longest wait for what has to happen in the end, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(2);

const STATES: StubKind = StubKind {
    group: "numa-enforcer.io",
    version: "v1alpha1",
    plural: "numanodestates",
    kind: "NumaNodeState",
    namespaced: false,
};

struct Rig {
    stub: ApiStub,
    connection: Arc<ApiConnection>,
    shared: Arc<SharedExtender>,
    synced: watch::Receiver<Synced>,
    task: JoinHandle<()>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Two NUMA nodes of 8 CPUs in 4 cores and 16 GiB; CPU 0 and its sibling are reserved.
fn state() -> NodeState {
    let node = |id: u32, cpus: &str| json!({"id": id, "cpus": cpus, "kind": "dram"});
    let memory = |id: u32| {
        let bytes = 16_u64 << 30;
        json!({"node": id, "resource": "memory", "allocatable": bytes, "free": bytes, "assignments": 0,
            "cells": id.to_string()})
    };
    let both = ["0-3,8-11", "4-7,12-15"];
    let cores: Vec<String> = (0..8).map(|core| format!("{core},{}", core + 8)).collect();
    let state = json!({
        "revision": {"epoch": 1, "counter": 1}, "hash": "h", "exact": true,
        "kubelet": {"version": "v1.36.2", "cpuPolicy": "static", "memoryPolicy": "Static",
            "topologyPolicy": "single-numa-node", "topologyScope": "container"},
        "machine": {"hash": "m", "nodes": [node(0, both[0]), node(1, both[1])],
            "distances": [[10, 21], [21, 10]], "sockets": both, "cores": cores, "caches": both},
        "reservedCpus": "0,8", "sharedCpus": "0-15", "memory": [memory(0), memory(1)],
    });
    serde_json::from_value(state).unwrap()
}

fn pod(uid: &str, cpus: u32) -> Value {
    let amounts = json!({"cpu": cpus.to_string(), "memory": "1Gi"});
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": uid, "namespace": "shop", "uid": uid},
        "spec": {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]},
    })
}

fn path(uid: &str) -> String {
    format!("/api/v1/namespaces/shop/pods/{uid}")
}

impl Rig {
    /// An extender of nodes `a` and `b`, which knows what the stub has.
    async fn start() -> Self {
        let stub = ApiStub::start(&[STATES]);
        for name in ["a", "b"] {
            stub.put(&format!("/api/v1/nodes/{name}"), json!({"metadata": {"name": name, "uid": name}}));
            let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": name});
            let object = json!({
                "apiVersion": "numa-enforcer.io/v1alpha1", "kind": "NumaNodeState",
                "metadata": {"name": name, "ownerReferences": [owner]}, "state": state(),
            });
            stub.put(&format!("/apis/numa-enforcer.io/v1alpha1/numanodestates/{name}"), object);
        }
        Self::of(stub).await
    }

    async fn of(stub: ApiStub) -> Self {
        let connection = Arc::new(ApiConnection::new(stub.config()).unwrap());
        let shared = Arc::new(SharedExtender::new(ExtenderSettings::default(), |_| ()));
        let (tell, synced) = watch::channel(Synced::default());
        let (of_task, watched) = (Arc::clone(&connection), Arc::clone(&shared));
        let task = tokio::spawn(async move {
            let faults = WatchFaults::default();
            watch_cluster(&of_task, &watched, WatchLimits::default(), &tell, &faults).await;
        });
        let mut rig = Self { stub, connection, shared, synced, task };
        let whole = rig.synced.wait_for(|synced| synced.is_whole());
        tokio::time::timeout(LIMIT, whole).await.unwrap().unwrap();
        rig
    }

    /// Nodes that pass.
    fn passed(&self, pod: &Value) -> Vec<String> {
        let text = json!({"Pod": pod, "NodeNames": ["a", "b"]}).to_string();
        let reply = self.shared.filter(&ExtenderRequest::read(text.as_bytes()).unwrap(), Instant::now());
        let reply: Value = serde_json::from_str(&reply).unwrap();
        serde_json::from_value(reply["NodeNames"].clone()).unwrap()
    }

    async fn passes(&self, pod: &Value, expected: &[&str]) {
        let wait = async {
            while self.passed(pod) != expected {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let ended = tokio::time::timeout(LIMIT, wait).await;
        assert!(ended.is_ok(), "{:?} pass, {expected:?} are expected", self.passed(pod));
    }

    async fn bind(&self, uid: &str, node: &str) -> Result<(), String> {
        let request = BindRequest {
            pod_name: uid.into(),
            pod_namespace: "shop".into(),
            pod_uid: uid.into(),
            node: node.into(),
        };
        self.shared.bind(&self.connection, &request, tokio::time::Instant::now()).await
    }

    fn node_of(&self, uid: &str) -> Option<String> {
        self.stub.object(&path(uid))?.pointer("/spec/nodeName")?.as_str().map(str::to_owned)
    }
}

#[tokio::test]
async fn binding_carries_the_decision_and_holds_the_place() {
    let rig = Rig::start().await;
    let large = pod("large", 8);
    rig.stub.put(&path("large"), large.clone());
    assert_eq!(rig.passed(&large), ["a", "b"]);
    assert_eq!(rig.bind("large", "a").await, Ok(()));
    assert_eq!(rig.passed(&pod("next", 8)), ["b"], "before any event of the first");
    let bound = rig.stub.object(&path("large")).unwrap();
    let decision = bound["metadata"]["annotations"]["numa-enforcer.io/placement"].as_str().unwrap();
    let decision: Value = serde_json::from_str(decision).unwrap();
    assert_eq!(decision["containers"]["main"], json!({"cpus": "4-7,12-15", "nodes": "1"}));
    assert_eq!(rig.bind("large", "a").await, Ok(()), "asked again after a lost reply");
    assert!(rig.bind("large", "b").await.unwrap_err().contains("bound to node a"));
    rig.stub.remove(&path("large"));
    rig.passes(&pod("next", 8), &["a", "b"]).await;
    assert_eq!(rig.shared.lock().claims(), 0);
}

#[tokio::test]
async fn pods_bound_by_other_programs_are_seen() {
    let rig = Rig::start().await;
    let mut by_hand = pod("by-hand", 8);
    by_hand["spec"]["nodeName"] = json!("b");
    rig.stub.put(&path("by-hand"), by_hand);
    rig.passes(&pod("next", 8), &["a"]).await;
    assert_eq!(rig.shared.lock().take_tally().foreign, 1);
    rig.stub.end_watches();
    rig.stub.remove(&path("by-hand"));
    rig.stub.compact();
    rig.passes(&pod("next", 8), &["a", "b"]).await;
}

#[tokio::test]
async fn node_whose_state_cannot_be_read_takes_no_pod() {
    let rig = Rig::start().await;
    let path = "/apis/numa-enforcer.io/v1alpha1/numanodestates/b";
    let mut faulty = rig.stub.object(path).unwrap();
    // Without the uid of its owner nothing tells whose state it is.
    faulty["metadata"]["ownerReferences"][0]["uid"] = Value::Null;
    rig.stub.put(path, faulty.clone());
    rig.passes(&pod("next", 8), &["a"]).await;
    let late = Rig::of(ApiStub::start(&[STATES])).await;
    late.stub.put(path, faulty);
    late.passes(&pod("next", 8), &["a"]).await;
}

#[tokio::test]
async fn binding_of_which_the_reply_is_lost_is_looked_at() {
    let rig = Rig::start().await;
    for (uid, node) in [("landed", "a"), ("lost", "b")] {
        rig.stub.put(&path(uid), pod(uid, 8));
        rig.passed(&pod(uid, 8));
        let fault = if uid == "landed" { Fault::DropAnswer } else { Fault::Drop };
        rig.stub.fail_writes([fault]);
        let bound = rig.bind(uid, node).await;
        assert_eq!(bound.is_ok(), uid == "landed", "{bound:?}");
        assert_eq!(rig.node_of(uid).is_some(), uid == "landed");
    }
    assert_eq!(rig.passed(&pod("next", 2)), ["a"], "what was lost may land on b");
    assert_eq!(rig.bind("lost", "b").await, Ok(()), "the same pod may be sent again");
    assert_eq!(rig.node_of("lost").as_deref(), Some("b"));
}

#[tokio::test]
async fn refused_binding_gives_its_place_back() {
    let rig = Rig::start().await;
    rig.stub.put(&path("p"), pod("p", 8));
    rig.passed(&pod("p", 8));
    rig.stub.fail_writes([Fault::status(403, "Forbidden")]);
    let refused = rig.bind("p", "a").await.unwrap_err();
    assert!(refused.contains("pods"), "{refused}");
    assert_eq!(rig.passed(&pod("next", 8)), ["a", "b"]);
    rig.stub.fail_writes([Fault::status(500, "InternalError")]);
    assert!(rig.bind("p", "a").await.is_err());
    assert_eq!(rig.passed(&pod("next", 8)), ["b"], "it may have been taken");
    rig.stub.remove(&path("p"));
    rig.passes(&pod("next", 8), &["a", "b"]).await;
    assert!(rig.bind("p", "a").await.unwrap_err().contains("gone"));
}

#[tokio::test]
async fn extender_that_starts_again_binds_what_another_one_has_chosen() {
    let rig = Rig::start().await;
    rig.stub.put(&path("p"), pod("p", 8));
    assert_eq!(rig.bind("p", "a").await, Ok(()), "no filter call was seen");
    assert_eq!(rig.node_of("p").as_deref(), Some("a"));
    assert!(rig.bind("q", "a").await.unwrap_err().contains("gone"));
    rig.stub.put(&path("q"), pod("q", 8));
    assert!(rig.bind("q", "a").await.unwrap_err().contains("NUMA: no node of the machine has the CPUs"));
    assert_eq!(rig.node_of("q"), None);
}
