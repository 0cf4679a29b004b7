//! The product under load, over HTTP: latency of its answers, pods per second, memory, and a start.
//!
//! The stub of the API server and the driver share the machine with the product, so what is measured is an
//! upper bound. CPU time of the product is its own. A call is *cold* if no node has answered its kind of pod:
//! each has another amount of memory. It is *warm* if all have, and nothing has changed since.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use enforcer_test_api::ApiStub;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    Micros,
    cache::{NodeSums, sums_of},
    draw::Draw,
    http::HttpClient,
    kubelet::{SimulatedKubelet, ZoneAmounts},
    product::{ProductProcess, STATES, ServedCluster, pod_path, put_lease, put_node, put_state},
    report::percentile,
    workload::{NAMESPACE, PodShape, planted},
};

/// Pods without CPUs of their own for each node, in a cluster that is as large as Kubernetes supports.
const SMALL_PODS: usize = 27;
/// Part of its CPUs that a node has given to pods.
const FULL: u64 = 80;
/// Time between two states of a node that changes.
const BETWEEN_STATES: Duration = Duration::from_millis(500);

/// Real times of calls.
#[derive(Debug, Clone, Default)]
pub struct CallTimes(Vec<Micros>);

impl CallTimes {
    fn note(&mut self, took: Duration) {
        self.0.push(Micros::try_from(took.as_micros()).unwrap_or(Micros::MAX));
    }

    fn to_json(&self) -> Value {
        let at = |percent| percentile(&self.0, percent) as f64 / 1e3;
        json!({"calls": self.0.len(), "p50Ms": at(50), "p99Ms": at(99), "maxMs": at(100)})
    }
}

/// A cluster of so many nodes whose CPUs are given to pods for the most part.
fn fill(stub: &ApiStub, nodes: usize, small_pods: usize) -> Result<(Vec<String>, usize)> {
    let mut draw = Draw::new(7);
    let now = Timestamp::now().to_string();
    let (mut names, mut pods) = (Vec::new(), 0);
    for number in 0..nodes {
        let name = format!("node-{number:04}.cluster.example");
        let mut kubelet = SimulatedKubelet::new("single-numa-node")?;
        for (at, shape) in planted(1, &[14, 16], FULL, &mut draw).into_iter().enumerate() {
            let pod = format!("exclusive-{number:04}-{at}");
            if kubelet.admit(&shape.request(&pod)).is_ok() {
                stub.put(&pod_path(&pod), running(shape.object(&pod), &name));
                pods += 1;
            }
        }
        for at in 0..small_pods {
            let pod = format!("small-{number:04}-{at}");
            stub.put(&pod_path(&pod), running(small_pod(&pod), &name));
            pods += 1;
        }
        put_node(stub, &name, &kubelet.state())?;
        put_lease(stub, &name, &now);
        names.push(name);
        // Nothing watches yet, so no change is to be told, and each would be a copy of its object.
        stub.compact();
    }
    Ok((names, pods))
}

fn running(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeName"] = json!(node);
    pod["status"]["phase"] = json!("Running");
    pod
}

/// A pod with requests that are less than its limits, as large as those of small services.
fn small_pod(name: &str) -> Value {
    let container = |at: usize| {
        json!({
            "name": format!("c{at}"), "image": "registry.invalid/team/app:1.2.3",
            "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "LOG_LEVEL", "value": "info"}],
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "250m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": true}],
        })
    };
    json!({
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "shop", "pod-template-hash": "5d59d67564", "version": "v12"},
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": "0123456789abcdef0123456789abcdef"},
        },
        "spec": {
            "schedulerName": "default-scheduler", "serviceAccountName": "default",
            "containers": [container(0), container(1)],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
            "volumes": [{"name": "token", "projected": {"sources": []}}],
        },
        "status": {
            "phase": "Running", "qosClass": "Burstable",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"}],
        },
    })
}

/// Latency with so many nodes, memory, and the time until it is ready.
///
/// # Errors
/// If the product does not answer.
pub fn latency(program: &Path, nodes: usize, small_pods: bool, calls: usize) -> Result<Value> {
    let stub = ApiStub::start(&[STATES]);
    let (names, pods) = fill(&stub, nodes, if small_pods { SMALL_PODS } else { 0 })?;
    let began = Instant::now();
    let process = ProductProcess::start(program, &stub.url(), &[])?;
    process.becomes_ready()?;
    let (ready, cpu_until_ready) = (began.elapsed(), process.cpu_time()?);
    let (peak, settled) = (process.memory("VmHWM")?, process.memory("VmRSS")?);
    let mut client = HttpClient::new(process.address);
    let (mut cold, mut warm, mut scored) = (CallTimes::default(), CallTimes::default(), CallTimes::default());
    let mut ask = |path: &str, object: &Value, times: &mut CallTimes| -> Result<()> {
        let body = json!({"Pod": object, "Nodes": null, "NodeNames": names}).to_string();
        let answer = client.send("POST", path, &body)?;
        ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.body);
        ensure!(answer.body.contains("node-"), "no node passes: {}", answer.body);
        times.note(answer.took);
        Ok(())
    };
    let shape = PodShape { containers: vec![2] };
    for at in 0..calls {
        let mut object = shape.object(&format!("cold-{at}"));
        let amounts = json!({"cpu": "2", "memory": format!("{}Mi", 1_024 + at)});
        object["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
        ask("/v1/filter", &object, &mut cold)?;
    }
    let object = shape.object("warm");
    ask("/v1/filter", &object, &mut CallTimes::default())?;
    for _ in 0..calls {
        ask("/v1/filter", &object, &mut warm)?;
        ask("/v1/prioritize", &object, &mut scored)?;
    }
    Ok(json!({
        "nodes": nodes, "pods": pods, "readyMs": ready.as_secs_f64() * 1e3,
        "cpuUntilReadyMs": cpu_until_ready.as_secs_f64() * 1e3,
        "rssMb": settled as f64 / 1e6, "peakRssMb": peak as f64 / 1e6,
        "rssAfterCallsMb": process.memory("VmRSS")? as f64 / 1e6,
        "filterCold": cold.to_json(), "filterWarm": warm.to_json(), "prioritizeWarm": scored.to_json(),
    }))
}

/// A node that admits what is bound, and publishes.
struct LoadedNode {
    kubelet: SimulatedKubelet,
    sums: NodeSums,
    is_changed: bool,
    published: Instant,
}

/// Pods per second of a driver that filters, scores and binds without a pause, while nodes publish and pods
/// end.
///
/// # Errors
/// If the product does not answer.
pub fn throughput(program: &Path, nodes: usize, pods: usize, filter_only: bool) -> Result<Value> {
    let names: Vec<String> = (0..nodes).map(|number| format!("node-{number:04}")).collect();
    let empty = SimulatedKubelet::new("single-numa-node")?;
    let zones = empty.free();
    let sum = |of: fn(&ZoneAmounts) -> u64| zones.iter().map(of).sum();
    let all = ZoneAmounts { cpus: sum(|zone| zone.cpus), memory: sum(|zone| zone.memory) };
    let mut loaded = Vec::new();
    for _ in 0..nodes {
        let kubelet = SimulatedKubelet::new("single-numa-node")?;
        let published = Instant::now();
        loaded.push(LoadedNode { kubelet, sums: NodeSums::new(all), is_changed: false, published });
    }
    let mut cluster = ServedCluster::start(program, &names, &empty.state(), filter_only)?;
    let mut draw = Draw::new(11);
    let shapes = planted(nodes.max(50), &[14, 16], 100, &mut draw);
    let numbers: BTreeMap<&str, usize> =
        names.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    let (mut filters, mut landed, mut refused, mut without, mut errors) = (CallTimes::default(), 0, 0, 0, 0);
    let mut waits: VecDeque<(usize, PodShape)> = VecDeque::new();
    let mut chosen: BTreeMap<String, PodShape> = BTreeMap::new();
    let mut runs: VecDeque<(String, PodShape, usize)> = VecDeque::new();
    let (began, cpu_before) = (Instant::now(), cluster.process().cpu_time()?);
    let (mut created, mut taken) = (0, 0_u64);
    while landed < pods {
        // A cycle.
        let (number, shape) = waits.pop_front().unwrap_or_else(|| {
            let shape = shapes[draw.below(shapes.len())].clone();
            cluster.create(&format!("pod-{created}"), &shape);
            created += 1;
            (created - 1, shape)
        });
        let name = format!("pod-{number}");
        let object = shape.object(&name);
        let fitting: Vec<&str> = names
            .iter()
            .zip(&loaded)
            .filter(|(_, node)| node.sums.fits(sums_of(&shape)))
            .map(|(name, _)| name.as_str())
            .collect();
        let (passed, took) = cluster.filter(&object, &fitting)?;
        filters.note(took);
        let passed = passed.unwrap_or_default();
        let names: Vec<&str> = passed.iter().map(String::as_str).collect();
        let best = if cluster.weight().is_some() && names.len() > 1 {
            let (scores, _) = cluster.prioritize(&object, &names)?;
            scores.into_iter().max_by_key(|(_, score)| *score).map(|(host, _)| host)
        } else {
            passed.first().cloned()
        };
        if let Some((host, node)) = best.as_deref().and_then(|host| Some((host, *numbers.get(host)?))) {
            loaded[node].sums.take(sums_of(&shape));
            taken += shape.cpus();
            cluster.bind(number, &name, host)?;
            chosen.insert(name, shape);
        } else {
            without += 1;
            waits.push_back((number, shape));
        }
        let mut makes_room = best.is_none();
        while let Some(reply) = cluster.reply(Duration::ZERO) {
            if reply.error.is_some() {
                errors += 1;
            }
        }
        for binding in cluster.stub().bindings_from(landed) {
            landed += 1;
            let node = *numbers.get(binding.node.as_str()).context("a node that is not there")?;
            let shape = chosen.remove(&binding.pod).context("a pod that was not chosen")?;
            loaded[node].is_changed = true;
            match loaded[node].kubelet.admit(&shape.request(&binding.pod)) {
                Ok(_) => runs.push_back((binding.pod, shape, node)),
                Err(_) => refused += 1,
            }
        }
        // The oldest pods end, so that there is room. A pod that no node has whole would wait for ever
        // on nodes that stay below `FULL`, and with it those behind.
        while makes_room || taken * 100 > nodes as u64 * all.cpus * FULL {
            makes_room = false;
            let Some((pod, shape, node)) = runs.pop_front() else { break };
            taken -= shape.cpus();
            loaded[node].sums.give_back(sums_of(&shape));
            loaded[node].kubelet.end(&shape.request(&pod));
            loaded[node].is_changed = true;
            cluster.stub().remove(&pod_path(&pod));
        }
        for (name, node) in numbers.iter().map(|(name, at)| (name, *at)) {
            let node = &mut loaded[node];
            if node.is_changed && node.published.elapsed() > BETWEEN_STATES {
                (node.is_changed, node.published) = (false, Instant::now());
                put_state(cluster.stub(), name, &node.kubelet.state())?;
            }
        }
    }
    let (took, cpu) = (began.elapsed(), cluster.process().cpu_time()?.saturating_sub(cpu_before));
    Ok(json!({
        "nodes": nodes, "podsBound": landed, "filterOnly": filter_only,
        "podsPerSecond": landed as f64 / took.as_secs_f64(),
        "productCpuMsPerPod": cpu.as_secs_f64() * 1e3 / landed as f64,
        "filter": filters.to_json(), "refused": refused, "withoutNode": without, "errors": errors,
        "rssMb": cluster.process().memory("VmRSS")? as f64 / 1e6,
    }))
}
