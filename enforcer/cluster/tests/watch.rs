//! The pods of a node against a stub of an API server, which fails in all ways that a watch has to survive.

#![expect(clippy::unwrap_used, reason = "only tests are here")]

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::Arc,
    time::{Duration, Instant},
};

use enforcer_cluster::{ApiConnection, BoundPods, WatchLimits, WatchedPods, watch_pods};
use enforcer_test_api::{ApiStub, Fault};
use kube::Config;
use numa_topology::degraded::Degraded;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

/// Longest wait for what has to happen in the end, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(2);

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/shop/pods/{name}")
}

fn pod(node: &str) -> Value {
    json!({
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "qosClass": "BestEffort"},
    })
}

/// A running watch.
struct Watch {
    pods: watch::Receiver<WatchedPods>,
    degraded: watch::Receiver<Option<Degraded>>,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    fn start(config: Config, limits: WatchLimits) -> Self {
        let connection = ApiConnection::new(config).unwrap();
        let (send, pods) = watch::channel(WatchedPods::default());
        let (tell, degraded) = watch::channel(None);
        let task = tokio::spawn(async move {
            watch_pods(&connection, "a", limits, &send, &tell).await;
        });
        Self { pods, degraded, task }
    }

    async fn becomes(&mut self, what: &str, is: impl Fn(&BoundPods) -> bool) -> Arc<BoundPods> {
        let known = self.pods.wait_for(|now| matches!(now, WatchedPods::Known(pods) if is(pods)));
        let Ok(known) = tokio::time::timeout(LIMIT, known).await else { panic!("never: {what}") };
        match &*known.unwrap() {
            WatchedPods::Known(pods) => Arc::clone(pods),
            WatchedPods::Asked | WatchedPods::Unknown => unreachable!(),
        }
    }

    /// Waits until these pods, and no others, are known.
    async fn names(&mut self, expected: &[&str]) -> Arc<BoundPods> {
        let names = |pods: &BoundPods| {
            let mut names: Vec<String> = pods.pods.iter().map(|pod| pod.name.clone()).collect();
            names.sort();
            names
        };
        self.becomes(&expected.join(" "), |pods| names(pods) == expected).await
    }

    async fn is_degraded(&mut self, is: bool) -> Option<Degraded> {
        let wanted = self.degraded.wait_for(|now| now.is_some() == is);
        tokio::time::timeout(LIMIT, wanted).await.unwrap().unwrap().clone()
    }
}

/// Arrivals of requests, the ones of a kind alone.
fn arrivals(stub: &ApiStub, is_watch: bool) -> Vec<(Instant, String)> {
    let of_pods = stub.requests().into_iter().filter(|(_, text)| text.starts_with("GET /api/v1/pods?"));
    of_pods.filter(|(_, text)| text.contains("watch=1") == is_watch).collect()
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let waits = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, waits).await.is_ok(), "never: {what}");
}

#[tokio::test]
async fn pods_of_the_node_are_listed_once_and_then_followed() {
    let stub = ApiStub::start(&[]);
    stub.put(&path("one"), pod("a"));
    stub.put(&path("other"), pod("b"));
    let mut watch = Watch::start(stub.config(), WatchLimits::default());
    watch.names(&["one"]).await;
    stub.put(&path("two"), pod("a"));
    watch.names(&["one", "two"]).await;
    let mut refused = pod("a");
    refused["status"] = json!({"phase": "Failed", "reason": "TopologyAffinityError"});
    stub.put(&path("two"), refused);
    watch.becomes("refused", |pods| pods.pods.iter().any(|pod| pod.rejection.is_some())).await;
    assert!(stub.remove(&path("one")));
    watch.names(&["two"]).await;
    let (lists, watches) = (arrivals(&stub, false), arrivals(&stub, true));
    assert_eq!((lists.len(), watches.len()), (1, 1), "{lists:?} {watches:?}");
    for part in ["fieldSelector=spec.nodeName%3Da", "resourceVersion=0"] {
        assert!(lists[0].1.contains(part), "{lists:?}");
    }
    for part in ["fieldSelector=spec.nodeName%3Da", "allowWatchBookmarks=true", "timeoutSeconds="] {
        assert!(watches[0].1.contains(part), "{watches:?}");
    }
    assert_eq!(*watch.degraded.borrow(), None);
}

#[tokio::test]
async fn watch_goes_on_where_it_ended_and_lists_where_that_is_forgotten() {
    let stub = ApiStub::start(&[]);
    stub.put(&path("one"), pod("a"));
    let mut watch = Watch::start(stub.config(), WatchLimits::default());
    watch.names(&["one"]).await;
    until("a watch", || arrivals(&stub, true).len() == 1).await;
    stub.end_watches();
    stub.put(&path("two"), pod("a"));
    watch.names(&["one", "two"]).await;
    assert_eq!(arrivals(&stub, false).len(), 1, "no second list");

    // A version from a bookmark spares a list, too.
    stub.put("/api/v1/nodes/x", json!({}));
    stub.bookmark();
    let next = |stub: &ApiStub| arrivals(stub, true).len();
    let before = next(&stub);
    tokio::time::sleep(Duration::from_millis(200)).await;
    stub.end_watches();
    until("another watch", || next(&stub) > before).await;
    let version = |text: &str| text.rsplit("resourceVersion=").next().unwrap().parse::<u64>().unwrap();
    let watches = arrivals(&stub, true);
    let versions: Vec<u64> = watches.iter().map(|(_, text)| version(text)).collect();
    assert!(versions.last() > versions.get(versions.len() - 2), "{versions:?}");

    // Changes that no watch can tell of any more.
    stub.remove(&path("one"));
    stub.put(&path("three"), pod("a"));
    stub.compact();
    watch.names(&["three", "two"]).await;
    // The watch before may have told of them.
    until("another list", || arrivals(&stub, false).len() == 2).await;
    let lists = arrivals(&stub, false);
    assert!(!lists[1].1.contains("resourceVersion"), "the cache may be what is too old: {lists:?}");
    assert_eq!(*watch.degraded.borrow(), None, "an end is no failure");
}

#[tokio::test]
async fn failures_of_the_server_lose_nothing_and_are_no_storm() {
    let stub = ApiStub::start(&[]);
    stub.put(&path("one"), pod("a"));
    let busy = Fault::too_many(Duration::from_secs(2));
    stub.fail_reads([Fault::status(500, "InternalError"), busy, Fault::Slow(Duration::from_millis(300))]);
    let mut watch = Watch::start(stub.config(), WatchLimits::default());
    let entry = watch.is_degraded(true).await.unwrap();
    assert_eq!(entry.source, "pod-watch");
    assert!(entry.reason.starts_with("list /api/v1/pods: 500"), "{entry}");
    watch.names(&["one"]).await;
    watch.is_degraded(false).await;
    let lists = arrivals(&stub, false);
    assert_eq!(lists.len(), 3, "{lists:?}");
    assert!(lists[2].0 - lists[1].0 >= Duration::from_secs(2), "as the server asked: {lists:?}");

    // A server that breaks each connection is asked ever more rarely.
    stub.fail_always(Some(Fault::Drop));
    stub.end_watches();
    let entry = watch.is_degraded(true).await.unwrap();
    assert!(entry.reason.contains("the connection to the API server broke"), "{entry}");
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let while_down = stub.requests().into_iter().filter(|(at, _)| *at > begun).count();
    assert!(while_down <= 5, "{while_down} requests");
    let stays = matches!(&*watch.pods.borrow(), WatchedPods::Known(pods) if pods.pods.len() == 1);
    assert!(stays, "what was known stays");
    stub.put(&path("two"), pod("a"));
    stub.fail_always(None);
    watch.names(&["one", "two"]).await;
    watch.is_degraded(false).await;
    assert_eq!(arrivals(&stub, false).len(), 3, "the changes are still told");
}

#[tokio::test]
async fn server_that_ends_each_watch_at_once_is_not_flooded() {
    let stub = ApiStub::start(&[]);
    let mut watch = Watch::start(stub.config(), WatchLimits::default());
    watch.names(&[]).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        stub.end_watches();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let watches = arrivals(&stub, true);
    assert!(watches.len() <= 8, "{watches:?}");
    let told = watch.is_degraded(true).await.unwrap();
    assert!(told.reason.contains("ends at once"), "{told:?}");
    // A watch that tells something is one.
    stub.put(&path("web"), pod("a"));
    watch.names(&["web"]).await;
    watch.is_degraded(false).await;
}

#[tokio::test]
async fn watch_that_falls_silent_is_replaced() {
    let stub = ApiStub::start(&[]);
    let silence = Duration::from_secs(1);
    let mut watch = Watch::start(stub.config(), WatchLimits { silence, ..WatchLimits::default() });
    watch.names(&[]).await;
    until("a watch", || !arrivals(&stub, true).is_empty()).await;
    stub.silence_watches();
    stub.put(&path("one"), pod("a"));
    watch.names(&["one"]).await;
    assert_eq!(arrivals(&stub, false).len(), 1);
}

#[tokio::test]
async fn server_that_is_away_is_tried_again_soon() {
    // A port that refuses connections.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let config = Config::new(format!("http://127.0.0.1:{port}").parse().unwrap());
    let mut watch = Watch::start(config, WatchLimits::default());
    let entry = watch.is_degraded(true).await.unwrap();
    assert!(entry.reason.contains("no answer of the API server"), "{entry}");
    assert_eq!(*watch.pods.borrow(), WatchedPods::Unknown, "the observer does not wait");
}

#[tokio::test]
async fn missing_right_is_named_and_forgets_what_was_known() {
    let stub = ApiStub::start(&[]);
    stub.put(&path("one"), pod("a"));
    let mut limits = WatchLimits::default();
    limits.pace.refused = Duration::from_millis(800);
    let mut watch = Watch::start(stub.config(), limits);
    watch.names(&["one"]).await;
    until("a watch", || !arrivals(&stub, true).is_empty()).await;
    stub.fail_always(Some(Fault::status(403, "Forbidden")));
    stub.end_watches();
    let entry = watch.is_degraded(true).await.unwrap();
    assert!(entry.reason.contains("a role needs the verb watch on pods of group \"\""), "{entry}");
    assert_eq!(*watch.pods.borrow(), WatchedPods::Unknown);
    stub.fail_always(None);
    watch.names(&["one"]).await;
    watch.is_degraded(false).await;
}

#[tokio::test]
async fn pods_that_are_too_large_are_named_and_others_are_not_lost() {
    let stub = ApiStub::start(&[]);
    let mut large = pod("a");
    large["metadata"] = json!({"annotations": {"x": "x".repeat(3 << 20)}});
    stub.put(&path("large"), large.clone());
    stub.put(&path("one"), pod("a"));
    let mut watch = Watch::start(stub.config(), WatchLimits::default());
    let pods = watch.names(&["one"]).await;
    assert_eq!(pods.left_out.len(), 1, "{pods:?}");
    assert!(pods.left_out[0].contains("its object has more than"), "{pods:?}");
    stub.put(&path("two"), large);
    watch.becomes("two left out", |pods| !pods.left_out.is_empty()).await;
    let mut many = pod("a");
    let devices: Value = (0..17).map(|n| (format!("v.com/{n}"), json!("1"))).collect();
    many["spec"]["containers"][0]["resources"] = json!({"limits": devices});
    stub.put(&path("three"), many);
    let has_three = |pods: &BoundPods| pods.left_out.iter().any(|one| one.contains("kinds of devices"));
    let pods = watch.becomes("three left out", has_three).await;
    assert!(pods.left_out.iter().any(|one| one.starts_with("pod shop/three: ")), "{pods:?}");
    stub.remove(&path("three"));
    watch.becomes("three forgotten", |pods| !pods.left_out.iter().any(|one| one.contains("three"))).await;
    watch.names(&["one"]).await;
}
