//! `scheduler serve` over HTTP as kube-scheduler speaks it, against a stub of an API server; and the
//! configuration of that kube-scheduler.

use std::{
    fs,
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use enforcer_test_api::{ApiStub, Fault, StubKind};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    common::{program, run},
    daemon::RunningChild,
};

/// Longest wait for what has to happen in the end, on a machine that is busy.
pub(crate) const LIMIT: Duration = Duration::from_mins(2);

pub(crate) const STATES: StubKind = StubKind {
    group: "numa-enforcer.io",
    version: "v1alpha1",
    plural: "numanodestates",
    kind: "NumaNodeState",
    namespaced: false,
};

/// A running extender.
pub(crate) struct Served {
    pub(crate) child: RunningChild,
    pub(crate) address: SocketAddr,
    /// Of probes and metrics, where they have a port of their own.
    pub(crate) probes: Option<SocketAddr>,
    /// Lines of its log.
    log: Arc<Mutex<Vec<String>>>,
    _files: TempDir,
}

impl Served {
    pub(crate) fn start(stub: &ApiStub, further: &[&str]) -> Self {
        let (files, path) = kubeconfig(stub);
        let mut command = program(&["scheduler", "serve", "--listen", "127.0.0.1:0", "--kubeconfig"]);
        let mut child = RunningChild(command.arg(&path).args(further).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
        let mut probes = None;
        let serving = lines.find_map(|line| {
            let line = line.unwrap();
            let address = |before| {
                let (_, after) = line.split_once(before)?;
                Some(after.split('/').next()?.parse().unwrap())
            };
            probes = probes.or(address("probes and metrics on http://"));
            address("serving http://").or_else(|| address("serving https://"))
        });
        let log = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&log);
        // Its log has to be read, or it would wait for its reader.
        thread::spawn(move || lines.for_each(|line| written.lock().unwrap().push(line.unwrap())));
        Self { child, address: serving.unwrap(), probes, log, _files: files }
    }

    /// Waits until a line of the log has these words.
    pub(crate) fn logs(&self, words: &str) {
        let begun = Instant::now();
        while !self.log.lock().unwrap().iter().any(|line| line.contains(words)) {
            assert!(begun.elapsed() < LIMIT, "{words} in {:?}", self.log.lock().unwrap());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Status and body of an answer of the port of the probes.
    pub(crate) fn probe(&self, path: &str) -> (u16, String) {
        ask(self.probes.unwrap_or(self.address), "GET", path, "")
    }

    /// Status and body of the answer.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        ask(self.address, method, path, body)
    }

    /// Waits until the metrics have these lines, without the prefix of their names.
    pub(crate) fn metrics_become(&self, lines: &[&str]) {
        let begun = Instant::now();
        loop {
            let (_, text) = self.probe("/metrics");
            let is_there =
                |line: &&&str| text.lines().any(|one| one == format!("numa_enforcer_scheduler_{line}"));
            let Some(missing) = lines.iter().find(|line| !is_there(line)) else { return };
            assert!(begun.elapsed() < LIMIT, "{missing} in\n{text}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn becomes_ready(&self) {
        let begun = Instant::now();
        loop {
            let (status, text) = self.probe("/ready");
            if status == 200 {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "{text}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn filter(&self, pod: &Value) -> Value {
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": ["a", "b"]}).to_string();
        let (status, text) = self.ask("POST", "/v1/filter", &body);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

/// A kubeconfig for the stub, and its folder.
pub(crate) fn kubeconfig(stub: &ApiStub) -> (TempDir, PathBuf) {
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("kubeconfig");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": stub.url()}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    });
    fs::write(&path, kubeconfig.to_string()).unwrap();
    (files, path)
}

/// Status and body of the answer.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A node with 8 CPUs on each of two NUMA nodes, all of them free.
pub(crate) fn put_node(stub: &ApiStub, name: &str) {
    put_node_of(stub, name, json!({"metadata": {"name": name, "uid": name}}));
}

/// The same, with an object of its own.
pub(crate) fn put_node_of(stub: &ApiStub, name: &str, node: Value) {
    let machine = stub_machine();
    stub.put(&format!("/api/v1/nodes/{name}"), node);
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": name});
    let object = json!({
        "apiVersion": "numa-enforcer.io/v1alpha1", "kind": "NumaNodeState",
        "metadata": {"name": name, "ownerReferences": [owner]}, "state": machine,
    });
    stub.put(&format!("/apis/numa-enforcer.io/v1alpha1/numanodestates/{name}"), object);
}

fn stub_machine() -> Value {
    let node = |id: u32, cpus: &str| json!({"id": id, "cpus": cpus, "kind": "dram"});
    let cores: Vec<String> = (0..16).map(|core| core.to_string()).collect();
    json!({
        "revision": {"epoch": 1, "counter": 1}, "hash": "h", "exact": true,
        "kubelet": {"version": "v1.36.2", "cpuPolicy": "static", "memoryPolicy": "None",
            "topologyPolicy": "single-numa-node", "topologyScope": "container"},
        "machine": {"hash": "m", "nodes": [node(0, "0-7"), node(1, "8-15")],
            "distances": [[10, 21], [21, 10]], "sockets": ["0-7", "8-15"], "cores": cores,
            "caches": ["0-7", "8-15"]},
        "reservedCpus": "0", "sharedCpus": "0-15",
    })
}

pub(crate) fn pod(uid: &str, cpus: u32) -> Value {
    let amounts = json!({"cpu": cpus.to_string(), "memory": "1Gi"});
    json!({
        "metadata": {"name": uid, "namespace": "shop", "uid": uid},
        "spec": {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]},
    })
}

#[test]
fn call_that_the_scheduler_has_given_up_holds_no_place() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    for (limit, reserved) in [("1h", "reservations 1"), ("100ms", "reservations 0")] {
        let served = Served::start(&stub, &["--filter-only", "--settles", "0s", "--call-limit", limit]);
        served.becomes_ready();
        let body = json!({"Pod": pod("p", 2), "NodeNames": ["a"]}).to_string();
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let head = "POST /v1/filter HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n";
        write!(stream, "{head}Content-Length: {}\r\n\r\n", body.len()).unwrap();
        // The server has read the head, and waits for the body.
        let mut continues = [0; 25];
        stream.read_exact(&mut continues).unwrap();
        assert_eq!(continues, *b"HTTP/1.1 100 Continue\r\n\r\n");
        thread::sleep(Duration::from_millis(200));
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""NodeNames":["a"]"#), "{answer}");
        served.metrics_become(&[reserved]);
    }
}

#[test]
fn connections_that_say_nothing_keep_no_probe_out() {
    let stub = ApiStub::start(&[STATES]);
    let served = Served::start(&stub, &["--probes", "127.0.0.1:0"]);
    let probes = served.probes.unwrap();
    let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(probes).unwrap()).collect();
    assert_eq!(served.probe("/live").0, 200);
    let mut oldest = &silent[0];
    oldest.set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(oldest.read(&mut [0]).unwrap(), 0, "it made room");
    let mut newest = &silent[299];
    newest.set_nonblocking(true).unwrap();
    assert_eq!(newest.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "it did not");
}

#[test]
fn kube_scheduler_is_answered_once_all_is_known() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    stub.fail_reads(std::iter::repeat_n(Fault::status(500, "InternalError"), 6));
    let served = Served::start(&stub, &[]);
    let body = json!({"Pod": pod("p", 8), "NodeNames": ["a", "b"]}).to_string();
    let (status, text) = served.ask("POST", "/v1/filter", &body);
    assert!(status == 503 || stub.requests().len() > 6, "{status} {text}");
    served.becomes_ready();
    let expected = json!({"NodeNames": ["a", "b"], "FailedAndUnresolvableNodes": {}, "Error": ""});
    assert_eq!(served.filter(&pod("p", 8)), expected, "b has published nothing");
    let large = served.filter(&pod("large", 9));
    let why = "NUMA: no node of the machine has the CPUs free together";
    assert_eq!(large["FailedAndUnresolvableNodes"], json!({"a": why}));

    let (status, text) = served.ask("POST", "/v1/prioritize", &body);
    assert_eq!((status, text.as_str()), (200, r#"[{"Host":"a","Score":8},{"Host":"b","Score":0}]"#));

    stub.put("/api/v1/namespaces/shop/pods/p", pod("p", 8));
    let bind = json!({"PodName": "p", "PodNamespace": "shop", "PodUID": "p", "Node": "a"}).to_string();
    assert_eq!(served.ask("POST", "/v1/bind", &bind), (200, r#"{"Error":""}"#.to_owned()));
    let bound = stub.object("/api/v1/namespaces/shop/pods/p").unwrap();
    assert_eq!(bound["spec"]["nodeName"], json!("a"));
    assert!(bound["metadata"]["annotations"]["numa-enforcer.io/placement"].is_string());
    assert_eq!(served.filter(&pod("q", 8))["NodeNames"], json!(["b"]), "7 CPUs are left on one NUMA node");
}

#[test]
fn without_rights_no_call_is_answered() {
    let stub = ApiStub::start(&[STATES]);
    stub.fail_always(Some(Fault::status(403, "Forbidden")));
    let served = Served::start(&stub, &[]);
    let body = json!({"Pod": pod("p", 8), "NodeNames": ["a"]}).to_string();
    for (path, body) in [("/v1/filter", &body), ("/v1/prioritize", &body)] {
        let (status, text) = served.ask("POST", path, body);
        assert_eq!(status, 503, "{path}");
        assert!(text.contains("nodes, states, pods"), "{text}");
    }
    assert_eq!(served.ask("GET", "/live", ""), (200, "alive\n".to_owned()));
}

#[test]
fn odd_requests_are_refused() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let served = Served::start(&stub, &[]);
    served.becomes_ready();
    for (path, body, status) in [
        ("/v1/filter", "", 400),
        ("/v1/filter", "{\"Pod\":1}", 400),
        ("/v1/bind", "[]", 400),
        ("/v1/nothing", "{}", 404),
    ] {
        assert_eq!(served.ask("POST", path, body).0, status, "{path} {body}");
    }
    let long = format!("{{\"Pod\":\"{}\"}}", "x".repeat(5 << 20));
    assert_eq!(served.ask("POST", "/v1/filter", &long).0, 413);
    assert_eq!(served.ask("GET", "/v1/filter", "").0, 405);
}

#[test]
fn extender_without_a_binder_waits_for_pods_that_were_chosen_before_it_started() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let waits = Served::start(&stub, &["--filter-only", "--settles", "1h"]);
    let begun = Instant::now();
    while !waits.ask("GET", "/ready", "").1.contains("may still be bound") {
        assert!(begun.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(20));
    }
    let served = Served::start(&stub, &["--filter-only", "--settles", "0s", "--unknown-nodes", "deny"]);
    served.becomes_ready();
    let first = served.filter(&pod("p", 8));
    assert_eq!(first["NodeNames"], json!(["a"]));
    assert_eq!(first["FailedAndUnresolvableNodes"], json!({"b": "NUMA: state unknown"}));
    assert_eq!(served.filter(&pod("q", 8))["NodeNames"], json!([]), "p holds its place");
    // kube-scheduler binds: a call that asks this program to is of another configuration.
    for path in ["/v1/bind", "/v1/prioritize"] {
        let (status, text) = served.ask("POST", path, "{}");
        assert_eq!(status, 400, "{path}: {text}");
        assert!(text.contains("scheduler config --filter-only"), "{path}: {text}");
    }
    assert!(stub.bindings_from(0).is_empty(), "nothing is bound");
    drop(waits.child);
}

#[test]
fn configuration_is_that_of_the_extender() {
    let ended = run(&["scheduler", "config", "-o", "json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let object: Value = serde_json::from_str(&ended.stdout).unwrap();
    let extender = &object["extenders"][0];
    assert_eq!(extender["urlPrefix"], json!("http://127.0.0.1:9480/v1"));
    assert_eq!((&extender["bindVerb"], &extender["ignorable"]), (&json!("bind"), &json!(false)));
    let ended = run(&["scheduler", "config", "--filter-only", "--scheduler-name", "numa"]);
    let object: Value = serde_saphyr::from_str(&ended.stdout).unwrap();
    assert_eq!(object["extenders"][0]["bindVerb"], Value::Null);
    assert_eq!(object["profiles"][0]["schedulerName"], json!("numa"));
    for (address, said) in [("0.0.0.0:9480", "not on loopback"), ("9480", "an address and a port, as in")] {
        let refused = run(&["scheduler", "serve", "--listen", address]);
        assert_eq!(refused.code, Some(64));
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
    }
}

#[test]
fn scheduler_of_the_cluster_goes_on_without_an_answer_and_never_binds_through_the_extender() {
    let ended = run(&["scheduler", "config", "--attached", "--extender", "10.96.0.77:443", "-o", "json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let object: Value = serde_json::from_str(&ended.stdout).unwrap();
    let tls = json!({
        "serverName": "numa-enforcer-attached-scheduler.numa-enforcer.svc",
        "caFile": "/etc/kubernetes/numa-enforcer/ca.crt",
        "certFile": "/etc/kubernetes/numa-enforcer/tls.crt",
        "keyFile": "/etc/kubernetes/numa-enforcer/tls.key",
    });
    let extender = json!({
        "urlPrefix": "https://10.96.0.77:443/v1", "filterVerb": "filter", "nodeCacheCapable": true,
        "ignorable": true, "httpTimeout": "1s", "enableHTTPS": true, "tlsConfig": tls,
    });
    assert_eq!(object["extenders"], json!([extender]));
    assert_eq!(object["profiles"], Value::Null, "what the cluster has stays");
    for alone in ["--server-name", "--certificates"] {
        assert_eq!(run(&["scheduler", "config", alone, "x"]).code, Some(64), "{alone}");
    }
}

#[test]
fn metrics_have_what_was_answered_and_which_pods_came_by_another_way() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let served = Served::start(&stub, &["--probes", "127.0.0.1:0"]);
    served.becomes_ready();
    served.metrics_become(&[
        "ready 1",
        "foreign_pods_total 0",
        "nodes{state=\"exact\"} 1",
        "degraded{collection=\"pods\"} 0",
        "call_duration_seconds_count{verb=\"filter\"} 0",
    ]);

    served.filter(&pod("p", 8));
    served.filter(&pod("large", 9));
    assert_eq!(served.ask("POST", "/v1/filter", "{").0, 400);
    stub.put("/api/v1/namespaces/shop/pods/p", pod("p", 8));
    let bind = json!({"PodName": "p", "PodNamespace": "shop", "PodUID": "p", "Node": "a"}).to_string();
    assert_eq!(served.ask("POST", "/v1/bind", &bind).0, 200);
    let bind = json!({"PodName": "gone", "PodNamespace": "shop", "PodUID": "gone", "Node": "a"}).to_string();
    assert_eq!(served.ask("POST", "/v1/bind", &bind).0, 200);
    let mut foreign = pod("foreign", 2);
    foreign["spec"]["nodeName"] = json!("a");
    stub.put("/api/v1/namespaces/shop/pods/foreign", foreign);
    served.metrics_become(&[
        "call_duration_seconds_count{verb=\"filter\"} 2",
        "call_duration_seconds_count{verb=\"bind\"} 2",
        "calls_unanswered_total{cause=\"faulty\",verb=\"filter\"} 1",
        "answers_total{outcome=\"passed\",verb=\"filter\"} 1",
        "answers_total{outcome=\"unpublished\",verb=\"filter\"} 2",
        "answers_total{outcome=\"cpus\",verb=\"filter\"} 1",
        "answers_total{outcome=\"passed\",verb=\"bind\"} 1",
        "bind_calls_total{end=\"bound\"} 1",
        "bind_calls_total{end=\"not-there\"} 1",
        "foreign_pods_total 1",
        "claims_unsettled 0",
    ]);
    let probes = served.probes.unwrap();
    assert_eq!(ask(probes, "GET", "/ready", "").0, 200);
    assert_eq!(ask(probes, "POST", "/v1/filter", "{}").0, 404, "only the other port answers calls");
}

#[test]
fn owner_of_a_pod_without_a_place_is_told_what_the_closest_node_lacks() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let served = Served::start(&stub, &[]);
    served.becomes_ready();
    let body = |uid| json!({"Pod": pod(uid, 9), "NodeNames": ["a"]}).to_string();
    for uid in ["large", "large", "other"] {
        assert_eq!(served.ask("POST", "/v1/filter", &body(uid)).0, 200);
    }
    served.metrics_become(&["events_total{result=\"written\"} 2", "events_total{result=\"dropped\"} 0"]);
    let events = stub.objects("/apis/events.k8s.io/v1/namespaces/shop/events");
    let told: Vec<_> = events.iter().map(|event| &event["regarding"]["name"]).collect();
    assert_eq!(told, ["large", "other"], "a call that comes again within a minute is not told");
    let expected = "no node of 1 has a place for the pod: 1 for \"no node of the machine \
                    has the CPUs free together\"; closest is node a, with 8 of 9 cpu on NUMA node 1";
    for event in events {
        let of = ["reason", "type", "action", "reportingController"].map(|key| event[key].as_str().unwrap());
        assert_eq!(of, ["NumaPlacementImpossible", "Warning", "Scheduling", "numa-enforcer.io/scheduler"]);
        assert_eq!(event["note"], expected);
    }
}

#[test]
fn state_that_may_help_a_pod_changes_the_pod_of_the_extender() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let own = "/api/v1/namespaces/numa/pods/scheduler-0";
    stub.put(own, json!({"metadata": {"name": "scheduler-0", "namespace": "numa", "uid": "own"}}));
    let served = Served::start(&stub, &["--wake-with", "numa/scheduler-0"]);
    served.becomes_ready();
    let put_state = |counter: u32, exact: bool| {
        let path = "/apis/numa-enforcer.io/v1alpha1/numanodestates/a";
        let mut object = stub.object(path).unwrap();
        object["state"]["revision"]["counter"] = json!(counter);
        object["state"]["exact"] = json!(exact);
        let starting = json!({"source": "kubelet", "reason": "starting"});
        object["state"]["inexact"] = if exact { json!([]) } else { json!([starting]) };
        stub.put(path, object);
    };
    let condition = || stub.object(own).unwrap()["status"]["conditions"][0]["type"].clone();
    let filter =
        || served.ask("POST", "/v1/filter", &json!({"Pod": pod("p", 8), "NodeNames": ["a"]}).to_string());
    put_state(2, false);
    served.metrics_become(&["nodes{state=\"unknown\"} 1"]);
    put_state(3, true);
    served.metrics_become(&["nodes{state=\"exact\"} 1"]);
    put_state(4, false);
    served.metrics_become(&["nodes{state=\"unknown\"} 1"]);
    assert!(filter().1.contains("NUMA: state unknown"));
    put_state(5, true);
    let begun = Instant::now();
    while condition() != "numa-enforcer.io/NodesChanged" {
        assert!(begun.elapsed() < LIMIT, "kube-scheduler is not told");
        thread::sleep(Duration::from_millis(20));
    }
    let told = stub.requests().iter().filter(|(_, path)| path.contains("/scheduler-0/status")).count();
    assert_eq!(told, 1, "while no pod waited nothing was told");
}

#[test]
fn pod_of_the_extender_has_a_namespace_and_a_name() {
    let answer = run(&["scheduler", "serve", "--wake-with", "../secrets"]);
    assert_eq!(answer.code, Some(64), "{}", answer.stderr);
}
