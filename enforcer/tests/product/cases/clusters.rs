//! Pods placed over several nodes by both rules, by the built program: `tests/cases/cluster.yaml`.
//!
//! A case is nodes, pods and the plan of each rule. Every node has two NUMA nodes of 16 CPUs, of which a pod
//! holds all but the free ones.

use std::fs;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::folder;
use crate::common::{finish, program};

/// CPUs of a NUMA node.
const CPUS: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterCase {
    /// Its name.
    case: String,
    /// What it shows.
    says: String,
    /// `NAME POLICY FREE/FREE [CPU-POLICY]`, or a name alone for a node without a state.
    nodes: Vec<String>,
    /// `NAME POLICY CONTAINER...`.
    pods: Vec<String>,
    /// The plan by Volcano's policies; not tried when absent.
    volcano: Option<Vec<String>>,
    /// The exact plan; not tried when absent.
    exact: Option<Vec<String>>,
}

fn list(from: usize, count: usize) -> String {
    if count == 0 { String::new() } else { format!("{from}-{}", from + count - 1) }
}

/// The Node, its state and the pod that holds what is not free.
fn node(text: &str) -> Vec<Value> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let amounts = json!({"cpu": (2 * CPUS).to_string(), "memory": "64Gi", "pods": "110"});
    let node = json!({"kind": "Node", "metadata": {"name": words[0]}, "status": {"allocatable": amounts}});
    let [name, policy, free, rest @ ..] = &words[..] else { return vec![node] };
    let (first, second) = free.split_once('/').unwrap();
    let held = [first, second].map(|free| CPUS - free.parse::<usize>().unwrap());
    let held_cpus = [list(0, held[0]), list(CPUS, held[1])].join(",");
    let shared = [list(held[0], CPUS - held[0]), list(CPUS + held[1], CPUS - held[1])].join(",");
    let trim = |cpus: String| cpus.trim_matches(',').to_owned();
    let uid = format!("held-{name}");
    let containers = json!([{"name": "main", "cpus": trim(held_cpus)}]);
    let pods = json!([{"uid": uid, "namespace": "d", "name": uid, "containers": containers}]);
    let is_empty = held == [0, 0];
    let state = json!({
        "revision": {"epoch": 1, "counter": 1}, "hash": "", "exact": true,
        "kubelet": {"version": "v1.36.2", "configHash": "", "cpuPolicy": rest.first().unwrap_or(&"static"),
            "memoryPolicy": "None", "topologyPolicy": policy, "topologyScope": "container"},
        "machine": {"hash": "", "nodes": [{"id": 0, "cpus": "0-15", "kind": "dram"}, {"id": 1, "cpus": "16-31", "kind": "dram"}],
            "distances": [[10, 21], [21, 10]], "sockets": ["0-15", "16-31"],
            "cores": (0..2 * CPUS).map(|cpu| cpu.to_string()).collect::<Vec<_>>(), "caches": ["0-15", "16-31"]},
        "sharedCpus": trim(shared), "pods": if is_empty { json!([]) } else { pods },
    });
    let state = json!({"kind": "NumaNodeState", "metadata": {"name": name}, "state": state});
    let amounts = json!({"cpu": (held[0] + held[1]).to_string(), "memory": "1Gi"});
    let pod = json!({"kind": "Pod", "metadata": {"name": uid, "namespace": "d", "uid": uid},
        "spec": {"nodeName": name, "containers": [{"name": "main", "resources": {"limits": amounts}}]},
        "status": {"phase": "Running"}});
    if is_empty { vec![node, state] } else { vec![node, state, pod] }
}

fn pod(text: &str, at: usize) -> Value {
    let mut words = text.split_whitespace();
    let (name, policy) = (words.next().unwrap(), words.next().unwrap());
    let (mut starting, mut running) = (Vec::new(), Vec::new());
    for (number, word) in words.enumerate() {
        let (kind, amount) = word.split_once(':').unwrap_or(("", word));
        let amounts = json!({"cpu": amount, "memory": "1Gi"});
        let side = if kind == "burst" { "requests" } else { "limits" };
        let mut container = json!({"name": format!("c{number}"), "resources": {side: amounts}});
        if kind == "sidecar" {
            container["restartPolicy"] = "Always".into();
        }
        if ["init", "sidecar"].contains(&kind) { starting.push(container) } else { running.push(container) }
    }
    let mut annotations = Map::new();
    if policy != "-" {
        annotations.insert("volcano.sh/numa-topology-policy".into(), policy.into());
    }
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "d", "uid": name, "annotations": annotations,
            "creationTimestamp": "2026-11-27T10:00:00Z", "resourceVersion": (at + 1).to_string()},
        "spec": {"initContainers": starting, "containers": running}})
}

/// The plan of a rule: `POD NODE [NUMA-NODES] [(NUMBER REASON, ...)]`.
fn planned(objects: &str, rule: &str) -> Vec<String> {
    let mut command = program(&["plan", "--cluster", objects, "-o", "json", "--rule", rule]);
    command.env("COLUMNS", "110");
    let ended = finish(command);
    let report: Value =
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let pods = report["pods"].as_array().unwrap();
    assert_eq!(ended.code, Some(i32::from(pods.iter().any(|pod| pod["node"].is_null()))), "{ended:?}");
    let one = |pod: &Value| {
        let name = pod["pod"].as_str().unwrap().trim_start_matches("d/").to_owned();
        let mut words = vec![name, pod["node"].as_str().unwrap_or("-").to_owned()];
        words.extend(pod["numaNodes"].as_str().filter(|nodes| !nodes.is_empty()).map(str::to_owned));
        let refused = pod["refused"].as_array().unwrap().iter();
        let refused = refused.map(|one| format!("{} {}", one["count"], one["reason"].as_str().unwrap()));
        let refused = refused.collect::<Vec<_>>().join(", ");
        words.extend((!refused.is_empty()).then(|| format!("({refused})")));
        words.join(" ")
    };
    pods.iter().map(one).collect()
}

fn play(case: &ClusterCase) -> Vec<String> {
    let mut items: Vec<Value> = case.nodes.iter().flat_map(|text| node(text)).collect();
    items.extend(case.pods.iter().enumerate().map(|(at, text)| pod(text, at)));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), json!({"items": items}).to_string()).unwrap();
    let mut wrong = Vec::new();
    for (rule, expected) in [("volcano", &case.volcano), ("exact", &case.exact)] {
        let Some(expected) = expected else { continue };
        let found = planned(file.path().to_str().unwrap(), rule);
        if found != *expected {
            wrong.push(format!("{} ({}), {rule}:\n  {}", case.case, case.says, found.join("\n  ")));
        }
    }
    wrong
}

#[test]
fn pods_are_placed_over_nodes_as_the_cases_say() {
    let path = folder().join("cluster.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let cases: Vec<ClusterCase> = serde_saphyr::from_str(&text).unwrap();
    assert!(cases.iter().all(|case| case.volcano.is_some() || case.exact.is_some()));
    let wrong: Vec<String> = cases.iter().flat_map(play).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
