//! A daemon that publishes, an API server that is asked, and a kubelet that gives something away.
//!
//! The kubelet is a process of that name, and files as it writes them; the server is a stub that has nodes.
//! What Kubernetes' own server says of the object is tried in `enforcer/cluster/tests/definition.rs`, and
//! what the states say in `enforcer/runtime/src/kubelet/observe`.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use enforcer_test_api::{Fault, StubbedNode};
use rustix::process::{Signal, geteuid};
use serde_json::{Value, json};

use crate::{common::program, daemon::Daemon};

/// Far above what anything here takes; what is not there by then does not come.
const PATIENCE: Duration = Duration::from_mins(1);

const NODE: &str = StubbedNode::NAME;

/// What this file asks of the node beside what all tests do.
trait Awaited {
    fn event(&self, reason: &str) -> Value;
    fn version(&self) -> Option<Value>;
    fn becomes(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value;
}

impl Awaited for StubbedNode {
    /// The first event of the node with this reason, once there is one.
    fn event(&self, reason: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let events = self.stub.objects("/apis/events.k8s.io/v1/namespaces/default/events");
            if let Some(event) = events.iter().find(|event| event["reason"] == reason) {
                return event.clone();
            }
            assert!(Instant::now() < until, "never {reason}: {events:?}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Version of the object, which each write of another content raises.
    fn version(&self) -> Option<Value> {
        self.stub.object(StubbedNode::STATE)?.pointer("/metadata/resourceVersion").cloned()
    }

    /// The state, once it is as wanted.
    fn becomes(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let state = self.state();
            if let Some(state) = state.clone().filter(&is) {
                return state;
            }
            assert!(Instant::now() < until, "never {what}: {state:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn revision(state: &Value) -> (i64, i64) {
    let field = |name: &str| state["revision"][name].as_i64().unwrap();
    (field("epoch"), field("counter"))
}

fn sources(state: &Value) -> Vec<&str> {
    let sources = state["inexact"].as_array().into_iter().flatten();
    sources.map(|source| source["source"].as_str().unwrap()).collect()
}

#[test]
fn state_follows_the_node_and_survives_the_server() {
    let cluster = StubbedNode::start();
    let daemon = Daemon::start_on("127.0.0.1:0", &cluster.lines());
    let first = cluster.becomes("published", |_| true);
    assert_eq!(first["kubelet"]["version"], "", "the object is that of an earlier process: {first}");
    cluster.report("2099-01-01T00:00:00Z");
    // Only a kubelet that is root is believed.
    let first = if geteuid().is_root() {
        let known = cluster.becomes("of a known version", |state| state["kubelet"]["version"] == "v1.36.2");
        assert_eq!(known["kubelet"]["topologyPolicy"], "restricted", "{known}");
        assert_eq!(known["kubelet"]["configFrom"], "files");
        known
    } else {
        first
    };
    assert!(!first["machine"]["nodes"].as_array().unwrap().is_empty());
    assert_eq!(first["exact"], false, "there is no socket");
    assert!(sources(&first).contains(&"kubelet:podresources"), "{first}");
    assert!(cluster.stub.authorizations().iter().all(|one| one.as_deref() == Some("Bearer secret")));

    cluster.write_cpus("0", &json!({}));
    let second = cluster.becomes("another state", |state| revision(state) > revision(&first));
    assert_eq!(revision(&second).0, revision(&first).0);

    // Nothing is written while nothing changes.
    let version = cluster.version();
    thread::sleep(Duration::from_secs(6));
    assert_eq!(cluster.version(), version);
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/numa-enforcer-{NODE}");
    let lease = cluster.stub.object(&lease).unwrap();
    assert!(cluster.stub.requests().iter().all(|(_, text)| !text.contains("events.k8s.io")), "not asked for");
    assert_eq!(lease["spec"]["holderIdentity"], NODE, "the sign of life is an object of its own");
    let metadata = cluster.stub.object(StubbedNode::STATE).unwrap()["metadata"].clone();
    assert_eq!(metadata["annotations"]["numa-enforcer.io/lease-namespace"], "default", "{metadata}");
    assert!(metadata["annotations"]["numa-enforcer.io/boot-id"].is_string(), "{metadata}");

    cluster.stub.fail_always(Some(Fault::status(503, "ServiceUnavailable")));
    cluster.write_cpus("0-1", &json!({}));
    // The daemon of an hour's interval has a turn when its configuration is read again.
    daemon.configure(&format!("interval = \"1s\"\n{}", cluster.lines()));
    daemon.get("/metrics", "numa_enforcer_degraded{feature=\"publish\"} 1");
    assert_eq!(cluster.state().as_ref().map(revision), Some(revision(&second)));
    cluster.stub.fail_always(None);
    let third = cluster.becomes("a state of after the failure", |state| revision(state) > revision(&second));

    // A daemon that is started again goes on above what the server has.
    assert_eq!(daemon.end(Signal::TERM), Some(0));
    let again = Daemon::start_on("127.0.0.1:0", &cluster.lines());
    cluster.becomes("a state of the next daemon", |state| revision(state).0 > revision(&third).0);
    drop(again);
}

/// A file of the kubelet has the uid of a pod alone; the API has its name, and says which pods were refused.
#[test]
fn pods_of_the_api_are_in_the_state() {
    let cluster = StubbedNode::start();
    let pod = |uid: &str, status: Value| {
        let init = json!([{"name": "main", "restartPolicy": "Always"}]);
        let spec = json!({"nodeName": NODE, "initContainers": init, "containers": [{"name": "app"}]});
        json!({"metadata": {"uid": uid}, "spec": spec, "status": status})
    };
    cluster.stub.put("/api/v1/namespaces/shop/pods/web", pod("uid-web", json!({"phase": "Running"})));
    cluster.write_cpus("0", &json!({"uid-web": {"main": "1"}}));
    let _daemon = Daemon::start_on("127.0.0.1:0", &cluster.lines());
    let named = cluster.becomes("with a pod", |state| state["pods"][0]["name"] == "web");
    assert_eq!(named["pods"][0]["namespace"], "shop", "{named}");
    assert_eq!(named["pods"][0]["containers"][0]["kind"], "sidecar", "{named}");
    assert_eq!(named["rejected"], Value::Null);

    let refused = json!({
        "phase": "Failed", "reason": "TopologyAffinityError", "startTime": "2026-11-28T02:00:00Z",
    });
    cluster.stub.put("/api/v1/namespaces/shop/pods/late", pod("uid-late", refused));
    let state = cluster.becomes("with a refused pod", |state| state["rejected"].is_array());
    let expected = json!([{"uid": "uid-late", "reason": "TopologyAffinityError", "at": 1_795_831_200}]);
    assert_eq!(state["rejected"], expected, "{state}");
}

/// Events are for `kubectl describe node`; events of pods take pods on the host (`enforcer/report`).
#[test]
fn events_of_the_node_are_written_where_that_is_asked_for() {
    let mut cluster = StubbedNode::start();
    cluster.report("2099-01-01T00:00:00Z");
    cluster.write_cpus("0", &json!({}));
    let lines = cluster.lines().replacen("publish = true", "publish = true\nevents = true", 1);
    let daemon = Daemon::start_on("127.0.0.1:0", &lines);
    if geteuid().is_root() {
        cluster.becomes("of known settings", |state| state["kubelet"]["topologyPolicy"] == "restricted");
        cluster.restart_kubelet("single-numa-node");
        let changed = cluster.event("KubeletConfigurationChanged");
        let note = changed["note"].as_str().unwrap();
        assert!(note.contains("topology manager single-numa-node (was restricted)"), "{note}");
        assert_eq!(changed["type"], "Normal", "{changed}");
    }
    let inexact = cluster.event("NumaStateInexact");
    assert!(inexact["note"].as_str().unwrap().contains("kubelet:podresources: "), "{inexact}");
    assert_eq!(inexact["type"], "Warning", "{inexact}");
    assert_eq!(inexact["reportingController"], "numa-enforcer.io/agent");
    assert_eq!(inexact["reportingInstance"], NODE);
    let node = json!({"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "node-uid"});
    assert_eq!(inexact["regarding"], node);
    daemon.configure(&format!("interval = \"1s\"\n{lines}"));
    // The first turn was before the events.
    let none = "cluster_events_total{result=\"written\"} 0";
    let until = Instant::now() + PATIENCE;
    while daemon.get("/metrics", "cluster_events_total{result=\"dropped\"} 0").contains(none) {
        assert!(Instant::now() < until, "the events are not counted");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn feature_file_is_there_while_the_daemon_runs() {
    let cluster = StubbedNode::start();
    cluster.report("2099-01-01T00:00:00Z");
    cluster.write_cpus("0", &json!({}));
    let features = cluster.dir().join("features.d");
    fs::create_dir(&features).unwrap();
    let key = format!("publish = true\nfeature_file = \"{}/numa-enforcer\"", features.display());
    let lines = cluster.lines().replacen("publish = true", &key, 1);
    let daemon = Daemon::start_on("127.0.0.1:0", &lines);
    let policy = |state: &Value| state["kubelet"]["topologyPolicy"] == "restricted";
    let state = cluster.becomes("published", |state| policy(state) || !geteuid().is_root());
    let nodes = state["machine"]["nodes"].as_array().unwrap();
    let with_cpus = nodes.iter().filter(|node| node["cpus"] != "").count();
    let mut expected = format!("numa-enforcer.cpu-nodes={with_cpus}\n");
    if geteuid().is_root() {
        expected = "numa-enforcer.topology-policy=restricted\n".to_owned();
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(features.join("numa-enforcer")).unwrap_or_default();
        if text.contains(&expected) {
            assert!(text.contains(&format!("numa-enforcer.cpu-nodes={with_cpus}\n")), "{text}");
            break;
        }
        assert!(Instant::now() < until, "never {expected}: {text}");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read_dir(&features).unwrap().count(), 1, "nothing else is left there");
    assert_eq!(daemon.end(Signal::TERM), Some(0));
    assert_eq!(fs::read_dir(&features).unwrap().count(), 0, "the file goes with the daemon");
}

/// A kubelet that cannot write its object: the daemon asks for it ever more rarely.
#[test]
fn node_that_stays_outdated_is_asked_for_ever_more_rarely() {
    if !geteuid().is_root() {
        return;
    }
    let cluster = StubbedNode::start();
    cluster.write_cpus("0", &json!({}));
    let _daemon = Daemon::start_on("127.0.0.1:0", &cluster.lines());
    let until = Instant::now() + PATIENCE;
    let asked = loop {
        let asked: Vec<Instant> = cluster
            .stub
            .requests()
            .into_iter()
            .filter(|(_, text)| *text == format!("GET {}", StubbedNode::OBJECT))
            .map(|(at, _)| at)
            .collect();
        if asked.len() >= 4 {
            break asked;
        }
        assert!(Instant::now() < until, "{asked:?}");
        thread::sleep(Duration::from_millis(50));
    };
    let waits: Vec<Duration> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (wait, least) in waits.iter().zip([2, 4, 8]) {
        assert!(*wait >= Duration::from_secs(least), "{waits:?}");
    }
}

/// One configuration on several hosts would let them write one object in turns.
#[test]
fn node_that_is_another_machine_is_not_published() {
    let cluster = StubbedNode::start();
    let info = json!({"kubeletVersion": "v1.36.2", "bootID": "another"});
    let node = json!({"metadata": {"uid": "node-uid"}, "status": {"nodeInfo": info}});
    cluster.stub.put(StubbedNode::OBJECT, node);
    let daemon = Daemon::start_on("127.0.0.1:0", &cluster.lines());
    daemon.configure(&format!("interval = \"1s\"\n{}", cluster.lines()));
    daemon.get("/metrics", "numa_enforcer_degraded{feature=\"publish\"} 1");
    let report = daemon.get("/report.json", "is another machine");
    assert!(report.contains(NODE), "{report}");
    assert_eq!(cluster.state(), None);
}

#[test]
fn daemon_goes_on_where_there_is_no_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    let kubeconfig = format!("kubeconfig = \"{}\"", absent.display());
    let lines = format!("[cluster]\npublish = true\nnode_name = \"{NODE}\"\n{kubeconfig}\n");
    let daemon = Daemon::start_on("127.0.0.1:0", &lines);
    daemon.configure(&format!("interval = \"1s\"\n{lines}"));
    let report = daemon.get("/report.json", "\"publish\"");
    assert!(report.contains("absent"), "{report}");
    assert!(Path::new("/proc").join(daemon.id().to_string()).exists());
}

#[test]
fn check_names_what_is_wrong_with_the_section() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    for (text, said) in [
        ("[cluster]\nnode_name = \"A/b\"\n", "cluster.node_name"),
        ("[cluster]\nkubeconfig = \"relative\"\n", "cluster.kubeconfig"),
        ("[cluster]\nfeature_file = \"/features.d/.hidden\"\n", "cluster.feature_file"),
        ("[cluster]\npublish = true\n[kubelet]\nenabled = false\n", "cluster.publish"),
    ] {
        fs::write(&file, text).unwrap();
        let output = program(&["run", "--check", "--config"]).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{text}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(said), "{text}: {stderr}");
    }
}
