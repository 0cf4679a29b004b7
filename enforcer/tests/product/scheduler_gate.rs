//! `scheduler gate` against a stub of an API server, without any scheduler: pods get their nodes, and lose
//! the gate.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use enforcer_test_api::{ApiStub, Fault};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    common::program,
    daemon::RunningChild,
    scheduler::{LIMIT, STATES, ask, kubeconfig, pod, put_node, put_node_of},
};

const GATE: &str = "numa-enforcer.io/placement";
const REQUIRED: &str =
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// A running gate; it is killed on drop.
struct RunningGate {
    probes: SocketAddr,
    _child: RunningChild,
    _files: TempDir,
}

impl RunningGate {
    fn start(stub: &ApiStub, further: &[&str]) -> Self {
        let (files, path) = kubeconfig(stub);
        let mut command =
            program(&["scheduler", "gate", "--probes", "127.0.0.1:0", "--settles", "0s", "--kubeconfig"]);
        let mut child = RunningChild(command.arg(&path).args(further).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
        let probes = lines.find_map(|line| {
            let line = line.unwrap();
            Some(line.split_once("probes and metrics on http://")?.1.parse().unwrap())
        });
        // Its log has to be read, or it would wait for its reader.
        thread::spawn(move || lines.for_each(drop));
        Self { probes: probes.unwrap(), _child: child, _files: files }
    }

    /// Waits until the metrics have these lines, without the prefix of their names.
    fn metrics_become(&self, lines: &[&str]) {
        let begun = Instant::now();
        loop {
            let (_, text) = ask(self.probes, "GET", "/metrics", "");
            let is_there =
                |line: &&&str| text.lines().any(|one| one == format!("numa_enforcer_scheduler_{line}"));
            let Some(missing) = lines.iter().find(|line| !is_there(line)) else { return };
            assert!(begun.elapsed() < LIMIT, "{missing} in\n{text}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn gated(uid: &str, cpus: u32) -> Value {
    let mut pod = pod(uid, cpus);
    pod["spec"]["schedulingGates"] = json!([{"name": "example.org/quota"}, {"name": GATE}]);
    pod
}

fn path(uid: &str) -> String {
    format!("/api/v1/namespaces/shop/pods/{uid}")
}

fn put(stub: &ApiStub, pod: Value) {
    let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
    stub.put(&path(&uid), pod);
}

fn gates(stub: &ApiStub, uid: &str) -> Vec<String> {
    let pod = stub.object(&path(uid)).unwrap();
    let gates = pod["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
    gates.iter().map(|gate| gate["name"].as_str().unwrap().to_owned()).collect()
}

fn is_gated(stub: &ApiStub, uid: &str) -> bool {
    gates(stub, uid).iter().any(|gate| gate == GATE)
}

/// Nodes by their names in the terms of the pod.
fn nodes(stub: &ApiStub, uid: &str) -> Vec<String> {
    let pod = stub.object(&path(uid)).unwrap();
    let terms = pod.pointer(REQUIRED).and_then(Value::as_array).cloned().unwrap_or_default();
    let fields = terms.iter().flat_map(|term| term["matchFields"].as_array().cloned().unwrap_or_default());
    fields.map(|field| field["values"][0].as_str().unwrap().to_owned()).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the pod has lost the gate; its nodes.
fn placed(stub: &ApiStub, uid: &str) -> Vec<String> {
    wait_until(&format!("{uid} loses the gate"), || !is_gated(stub, uid));
    nodes(stub, uid)
}

/// What a scheduler does in the end.
fn bind(stub: &ApiStub, uid: &str, node: &str) {
    let mut pod = stub.object(&path(uid)).unwrap();
    pod["spec"]["nodeName"] = json!(node);
    stub.put(&path(uid), pod);
}

#[test]
fn gated_pod_gets_its_node_and_keeps_what_else_it_has() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let mut p = gated("p", 8);
    let zones = json!({"key": "zone", "operator": "NotIn", "values": ["x"], "later": "kept"});
    let affinity = json!({
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [zones]}, {},
        ]}},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
    });
    p["spec"]["affinity"] = affinity.clone();
    p["metadata"]["annotations"] = json!({"example.org/a": "kept"});
    put(&stub, p);
    let gate = RunningGate::start(&stub, &[]);
    assert_eq!(placed(&stub, "p"), ["a"]);
    assert_eq!(gates(&stub, "p"), ["example.org/quota"]);
    let p = stub.object(&path("p")).unwrap();
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["a"]});
    let terms = json!([{"matchExpressions": [zones], "matchFields": [field]}, {}]);
    assert_eq!(p.pointer(REQUIRED), Some(&terms));
    assert_eq!(p["spec"]["affinity"]["podAffinity"], affinity["podAffinity"]);
    assert_eq!(p["metadata"]["annotations"]["example.org/a"], "kept");
    let mark = p["metadata"]["annotations"]["numa-enforcer.io/placed-on"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(mark).unwrap()["node"], "a");
    gate.metrics_become(&[
        "gate_active 1",
        "gate_changes_total{end=\"placed\"} 1",
        "gate_pods{state=\"placed\"} 1",
    ]);
}

#[test]
fn pod_without_a_place_stays_gated_and_is_placed_when_another_one_ends() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let gate = RunningGate::start(&stub, &[]);
    put(&stub, gated("p", 8));
    assert_eq!(placed(&stub, "p"), ["a"]);
    put(&stub, gated("q", 8));
    gate.metrics_become(&["events_total{result=\"written\"} 1", "gate_pods{state=\"gated\"} 1"]);
    let events = stub.objects("/apis/events.k8s.io/v1/namespaces/shop/events");
    assert_eq!(events[0]["reason"], "NumaPlacementImpossible");
    assert_eq!(events[0]["regarding"]["name"], "q");
    let note = events[0]["note"].as_str().unwrap();
    assert!(note.contains("no node of 1 has a place for the pod"), "{note}");
    assert!(is_gated(&stub, "q"));

    bind(&stub, "p", "a");
    gate.metrics_become(&["gate_pods{state=\"placed\"} 0"]);
    assert!(is_gated(&stub, "q"), "p is on the node");
    stub.remove(&path("p"));
    assert_eq!(placed(&stub, "q"), ["a"]);
    assert_eq!(gates(&stub, "q"), ["example.org/quota"]);
}

#[test]
fn lost_and_refused_changes_are_looked_at_again() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let gate = RunningGate::start(&stub, &[]);
    gate.metrics_become(&["gate_active 1"]);
    stub.fail_writes([
        Fault::status(409, "Conflict"),
        Fault::status(500, "InternalError"),
        Fault::DropAnswer,
    ]);
    put(&stub, gated("p", 8));
    assert_eq!(placed(&stub, "p"), ["a"]);
    gate.metrics_become(&[
        "gate_changes_total{end=\"refused\"} 1",
        "gate_changes_total{end=\"no-reply\"} 1",
        "gate_changes_total{end=\"placed\"} 1",
        "gate_pods{state=\"gated\"} 0",
        "gate_pods{state=\"placed\"} 1",
    ]);
    put(&stub, gated("q", 8));
    gate.metrics_become(&["events_total{result=\"written\"} 1"]);
    assert!(is_gated(&stub, "q"), "p has one place alone");
}

#[test]
fn change_of_an_older_version_is_made_again_for_the_newer_one() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let gate = RunningGate::start(&stub, &[]);
    gate.metrics_become(&["gate_active 1"]);
    // Its patch is served late, and meanwhile the pod changes.
    stub.fail_writes([Fault::Slow(Duration::from_millis(500))]);
    put(&stub, gated("p", 8));
    wait_until("a patch", || stub.requests().iter().any(|(_, request)| request.starts_with("PATCH")));
    let mut newer = gated("p", 8);
    newer["metadata"]["labels"] = json!({"newer": "yes"});
    put(&stub, newer);
    assert_eq!(placed(&stub, "p"), ["a"]);
    assert_eq!(stub.object(&path("p")).unwrap()["metadata"]["labels"]["newer"], "yes");
    gate.metrics_become(&["gate_changes_total{end=\"conflict\"} 1", "gate_changes_total{end=\"placed\"} 1"]);
}

#[test]
fn process_that_starts_again_gives_no_place_twice() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let first = RunningGate::start(&stub, &[]);
    first.metrics_become(&["gate_active 1"]);
    // The patch lands, and the process is killed before it reads the reply.
    stub.fail_writes([Fault::DropAnswer]);
    stub.fail_reads([Fault::Slow(Duration::from_mins(1))]);
    put(&stub, gated("p", 8));
    assert_eq!(placed(&stub, "p"), ["a"]);
    let looked = format!("GET {}", path("p"));
    wait_until("a look at p", || stub.requests().iter().any(|(_, request)| *request == looked));
    drop(first);
    put(&stub, gated("q", 8));
    let mut urgent = gated("urgent", 8);
    urgent["spec"]["priority"] = json!(1_000);
    put(&stub, urgent);
    let second = RunningGate::start(&stub, &[]);
    second.metrics_become(&["gate_pods{state=\"gated\"} 2", "gate_pods{state=\"placed\"} 1"]);
    second.metrics_become(&["events_total{result=\"written\"} 2"]);
    assert!(is_gated(&stub, "q") && is_gated(&stub, "urgent"));
}

#[test]
fn nodes_that_no_scheduler_uses_get_no_pod() {
    let stub = ApiStub::start(&[STATES]);
    let node = |name: &str, spec: Value, ready: &str| {
        let object = json!({
            "metadata": {"name": name, "uid": name, "labels": {"zone": name}}, "spec": spec,
            "status": {
                "allocatable": {"cpu": "15", "memory": "64Gi", "pods": "2"},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        });
        put_node_of(&stub, name, object);
    };
    node("a-cordoned", json!({"unschedulable": true}), "True");
    node("b-tainted", json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}), "True");
    node("c-down", json!({}), "Unknown");
    node("d", json!({}), "True");
    node("e", json!({}), "True");
    let _gate = RunningGate::start(&stub, &[]);
    let mut chosen = Vec::new();
    for number in 0..4 {
        let uid = format!("p{number}");
        put(&stub, gated(&uid, 1));
        chosen.extend(placed(&stub, &uid));
    }
    assert_eq!(chosen, ["d", "d", "e", "e"], "each takes two pods");
    let mut selective = gated("selective", 1);
    selective["spec"]["nodeSelector"] = json!({"zone": "b-tainted"});
    selective["spec"]["tolerations"] = json!([{"key": "gpu", "operator": "Exists"}]);
    put(&stub, selective);
    assert_eq!(placed(&stub, "selective"), ["b-tainted"]);
}

#[test]
fn pod_that_is_not_concerned_or_not_computed_is_released_without_a_node() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let gate = RunningGate::start(&stub, &[]);
    let mut small = gated("small", 1);
    small["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    put(&stub, small);
    assert_eq!(placed(&stub, "small"), [""; 0]);
    let mut spread = gated("spread", 8);
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    spread["spec"]["topologySpreadConstraints"] = json!([constraint]);
    put(&stub, spread.clone());
    assert_eq!(placed(&stub, "spread"), [""; 0]);
    // Terms and lists without an end are not computed either, and do not stop the process.
    let term = json!({"matchExpressions": [{"key": "zone", "operator": "Later", "values": vec!["x"; 50]}]});
    let mut large = gated("large", 8);
    large["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": vec![term; 1_000]},
    }});
    put(&stub, large);
    assert_eq!(placed(&stub, "large"), [""; 0]);
    gate.metrics_become(&[
        "gate_changes_total{end=\"not-concerned\"} 1",
        "gate_changes_total{end=\"not-computed\"} 2",
        "events_total{result=\"written\"} 2",
    ]);
    let events = stub.objects("/apis/events.k8s.io/v1/namespaces/shop/events");
    assert!(events.iter().all(|event| event["reason"] == "NumaPlacementSkipped"), "{events:?}");

    drop(gate);
    spread["metadata"] = json!({"name": "held", "namespace": "shop", "uid": "held"});
    put(&stub, spread);
    let gate = RunningGate::start(&stub, &["--uncomputed", "hold"]);
    gate.metrics_become(&["gate_pods{state=\"gated\"} 1", "events_total{result=\"written\"} 1"]);
    assert!(is_gated(&stub, "held"));
}

#[test]
fn placed_pod_that_no_scheduler_binds_is_told() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let gate = RunningGate::start(&stub, &["--late", "0s"]);
    put(&stub, gated("p", 8));
    assert_eq!(placed(&stub, "p"), ["a"]);
    gate.metrics_become(&["gate_late_total 1", "gate_pods{state=\"late\"} 1"]);
    gate.metrics_become(&["events_total{result=\"written\"} 1"]);
    let events = stub.objects("/apis/events.k8s.io/v1/namespaces/shop/events");
    assert_eq!(events[0]["reason"], "NumaPlacementLate");
    bind(&stub, "p", "a");
    gate.metrics_become(&["gate_pods{state=\"late\"} 0"]);
}

/// Events of the pods of the test, by reason.
fn events(stub: &ApiStub, reason: &str) -> Vec<Value> {
    let events = stub.objects("/apis/events.k8s.io/v1/namespaces/shop/events");
    events.into_iter().filter(|event| event["reason"] == reason).collect()
}

#[test]
fn pod_that_marks_itself_as_placed_takes_no_place_that_it_cannot_have() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let mut hostile = pod("hostile", 1_000_000);
    hostile["spec"]["schedulerName"] = json!("none");
    hostile["metadata"]["annotations"] = json!({"numa-enforcer.io/placed-on": "{\"node\":\"a\",\"at\":1}"});
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["a"]});
    hostile["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }});
    put(&stub, hostile);
    let gate = RunningGate::start(&stub, &[]);
    gate.metrics_become(&["gate_pods{state=\"placed\"} 1", "gate_pods{state=\"late\"} 1"]);
    put(&stub, gated("p", 8));
    assert_eq!(placed(&stub, "p"), ["a"]);
}

#[test]
fn gated_pod_that_cannot_be_read_is_told() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let gate = RunningGate::start(&stub, &[]);
    let mut unread = gated("p", 8);
    unread["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("many");
    put(&stub, unread);
    gate.metrics_become(&["gate_pods{state=\"unread\"} 1", "events_total{result=\"written\"} 1"]);
    let told = events(&stub, "NumaPlacementFailed");
    assert_eq!(told[0]["regarding"]["uid"], "p");
    let note = told[0]["note"].as_str().unwrap();
    assert!(note.starts_with("the pod stays gated: it cannot be read: "), "{note}");
    put(&stub, gated("p", 8));
    assert_eq!(placed(&stub, "p"), ["a"]);
    gate.metrics_become(&["gate_pods{state=\"unread\"} 0"]);
}

#[test]
fn pod_with_many_gates_loses_the_one_of_this_program() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let _gate = RunningGate::start(&stub, &[]);
    let mut many = gated("p", 8);
    let others = (0..200).map(|at| json!({"name": format!("example.org/{at}")}));
    many["spec"]["schedulingGates"] = others.chain([json!({"name": GATE})]).collect();
    put(&stub, many);
    assert_eq!(placed(&stub, "p"), ["a"]);
    assert_eq!(gates(&stub, "p").len(), 200);
}

#[test]
fn pod_whose_change_is_refused_each_time_is_told() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let gate = RunningGate::start(&stub, &[]);
    gate.metrics_become(&["gate_active 1"]);
    stub.fail_writes((0..3).map(|_| Fault::status(422, "Invalid")));
    put(&stub, gated("p", 8));
    gate.metrics_become(&["gate_pods{state=\"refused\"} 1", "events_total{result=\"written\"} 1"]);
    let told = events(&stub, "NumaPlacementFailed");
    let note = told[0]["note"].as_str().unwrap();
    assert!(note.starts_with("the pod stays gated: the API server refuses its change: "), "{note}");
    assert_eq!(placed(&stub, "p"), ["a"], "it is tried again");
    gate.metrics_become(&["gate_pods{state=\"refused\"} 0", "gate_changes_total{end=\"refused\"} 3"]);
}

#[test]
fn new_pod_does_not_wait_behind_all_others() {
    let stub = ApiStub::start(&[STATES]);
    let node = |is_cordoned: bool| {
        let allocatable = json!({"cpu": "15", "memory": "64Gi", "pods": "110"});
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let object = json!({
            "metadata": {"name": "a", "uid": "a"}, "spec": {"unschedulable": is_cordoned},
            "status": {"allocatable": allocatable, "conditions": conditions},
        });
        put_node_of(&stub, "a", object);
    };
    node(true);
    let others: Vec<String> = (0..10).map(|at| format!("other{at}")).collect();
    for uid in &others {
        put(&stub, gated(uid, 1));
    }
    let gate = RunningGate::start(&stub, &[]);
    // All of them have been tried then.
    gate.metrics_become(&["gate_pods{state=\"gated\"} 10", "events_total{result=\"written\"} 4"]);
    stub.fail_writes((0..9).map(|_| Fault::Slow(Duration::from_millis(300))));
    node(false);
    let patches = || {
        let requests = stub.requests().into_iter().map(|(_, request)| request);
        requests.filter(|request| request.starts_with("PATCH /api/v1/")).collect::<Vec<_>>()
    };
    wait_until("a patch", || !patches().is_empty());
    put(&stub, gated("new", 1));
    for uid in others.iter().map(String::as_str).chain(["new"]) {
        assert_eq!(placed(&stub, uid), ["a"]);
    }
    let patches = patches();
    let at = patches.iter().position(|patch| patch.ends_with("/new")).unwrap();
    assert!(at < 8, "{patches:?}");
}

#[test]
fn end_of_a_release_without_a_reply_counts_when_the_pod_shows_it() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    let gate = RunningGate::start(&stub, &[]);
    gate.metrics_become(&["gate_active 1"]);
    stub.fail_writes([Fault::DropAnswer]);
    let mut small = gated("p", 1);
    small["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    put(&stub, small);
    assert_eq!(placed(&stub, "p"), [""; 0]);
    gate.metrics_become(&["gate_pods{state=\"gated\"} 0", "gate_changes_total{end=\"not-concerned\"} 1"]);
}

#[test]
fn one_of_two_replicas_changes_pods_and_the_other_one_takes_over() {
    let stub = ApiStub::start(&[STATES]);
    put_node(&stub, "a");
    // Its name begins as that of a daemon's lease does.
    let lease = ["--lease", "default/numa-enforcer-gate"];
    let first = RunningGate::start(&stub, &lease);
    first.metrics_become(&["gate_active 1"]);
    let second = RunningGate::start(&stub, &lease);
    second.metrics_become(&["nodes{state=\"exact\"} 1", "gate_active 0"]);
    put(&stub, gated("p", 8));
    assert_eq!(placed(&stub, "p"), ["a"]);
    second.metrics_become(&["gate_pods{state=\"placed\"} 1", "gate_changes_total{end=\"placed\"} 0"]);
    drop(first);
    put(&stub, gated("q", 8));
    second.metrics_become(&["gate_active 1", "events_total{result=\"written\"} 1"]);
    assert!(is_gated(&stub, "q"), "p holds its place with the next leader");
    bind(&stub, "p", "a");
    stub.remove(&path("p"));
    assert_eq!(placed(&stub, "q"), ["a"]);
}
