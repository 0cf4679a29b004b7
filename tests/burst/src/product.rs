//! The product, which serves a simulated kube-scheduler over HTTP and watches a stub of an API server.
//!
//! Bindings are sent by several threads, as kube-scheduler's goroutines send them: to the product where it
//! binds, to the API server itself otherwise.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use enforcer_core::cluster::state::{GROUP, KIND, NodeState, PLURAL, VERSION};
use enforcer_test_api::{ApiStub, StubKind, cpu_time_of, memory_of};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    http::{HttpAnswer, HttpClient},
    workload::{NAMESPACE, PodShape},
};

/// The kind of published states.
pub const STATES: StubKind =
    StubKind { group: GROUP, version: VERSION, plural: PLURAL, kind: KIND, namespaced: false };
/// Namespace of the daemons, with their leases.
const DAEMONS: &str = "numa-enforcer";
/// Longest wait until the product answers calls.
const STARTS: Duration = Duration::from_mins(5);
/// Time between two looks at that.
const LOOK: Duration = Duration::from_millis(5);
/// Bindings that are sent at a time.
const BINDERS: usize = 8;

/// What `scheduler config` prints, as far as the driver obeys it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerConfiguration {
    /// Part of the nodes that a search looks for.
    pub percentage_of_nodes_to_score: usize,
    /// Longest backoff.
    pub pod_max_backoff_seconds: u64,
    extenders: Vec<ExtenderConfiguration>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExtenderConfiguration {
    url_prefix: String,
    filter_verb: String,
    prioritize_verb: String,
    bind_verb: String,
    weight: u64,
}

/// The product without a cluster behind it.
#[derive(Debug)]
pub struct ProductProcess {
    child: Child,
    /// Where it answers.
    pub address: SocketAddr,
    _files: TempDir,
}

impl ProductProcess {
    /// Starts `scheduler serve` with these arguments, for this API server.
    ///
    /// # Errors
    /// If it cannot be started, or ends at once.
    pub fn start(program: &Path, api: &str, further: &[&str]) -> Result<Self> {
        let files = tempfile::tempdir().context("make a folder")?;
        let path = files.path().join("kubeconfig");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": api}}],
            "users": [{"name": "c", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        });
        fs::write(&path, kubeconfig.to_string()).with_context(|| format!("write {}", path.display()))?;
        let mut command = Command::new(program);
        command.args(["scheduler", "serve", "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(&path);
        command.args(further).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("run {}", program.display()))?;
        let log = child.stderr.take().context("the product has no standard error")?;
        let mut lines = BufReader::new(log).lines().map_while(Result::ok);
        let address = lines.find_map(|line| {
            line.split_once("serving http://").and_then(|(_, rest)| rest.split('/').next()?.parse().ok())
        });
        // Its log has to be read, or it would wait for its reader.
        thread::spawn(move || lines.for_each(drop));
        let address = address.context("the product has ended before it served")?;
        Ok(Self { child, address, _files: files })
    }

    /// Waits until it answers calls; the time from now.
    ///
    /// # Errors
    /// If it does not.
    pub fn becomes_ready(&self) -> Result<Duration> {
        let (began, mut client) = (Instant::now(), HttpClient::new(self.address));
        loop {
            let answer = client.send("GET", "/ready", "")?;
            if answer.status == 200 {
                return Ok(began.elapsed());
            }
            ensure!(began.elapsed() < STARTS, "the product is not ready: {}", answer.body);
            thread::sleep(LOOK);
        }
    }

    /// A line of `/proc/PID/status` in bytes: `VmRSS`, `VmHWM`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn memory(&self, line: &str) -> Result<u64> {
        memory_of(self.child.id(), line)
    }

    /// CPU time that its threads have taken so far.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn cpu_time(&self) -> Result<Duration> {
        cpu_time_of(self.child.id())
    }
}

impl Drop for ProductProcess {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What became of a binding.
#[derive(Debug)]
pub struct BindReply {
    /// Number of the pod.
    pub pod: usize,
    /// The error in the words of the reply, if there was one.
    pub error: Option<String>,
    /// Time until the reply.
    pub took: Duration,
}

/// A binding to send: path, body, number of the pod.
type BindJob = (String, String, usize);

/// The product with a stub of an API server, as a kube-scheduler sees it.
#[derive(Debug)]
pub struct ServedCluster {
    process: ProductProcess,
    stub: ApiStub,
    /// Settings of the kube-scheduler beside it.
    pub configuration: SchedulerConfiguration,
    extender: ExtenderConfiguration,
    client: HttpClient,
    jobs: Sender<BindJob>,
    replies: Receiver<BindReply>,
}

/// The answer to a filter call.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct FilterResult {
    node_names: Option<Vec<String>>,
    error: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostScore {
    host: String,
    score: u64,
}

/// Path of a pod.
pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}")
}

/// Puts a node and its state.
///
/// # Errors
/// If the state cannot be written as JSON.
pub fn put_node(stub: &ApiStub, name: &str, state: &NodeState) -> Result<()> {
    let ready = json!({"type": "Ready", "status": "True"});
    let node = json!({
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "status": {"conditions": [ready], "nodeInfo": {"kubeletVersion": state.kubelet.version}},
    });
    stub.put(&format!("/api/v1/nodes/{name}"), node);
    put_state(stub, name, state)
}

/// Renews the lease of a node's daemon for a day.
pub fn put_lease(stub: &ApiStub, name: &str, now: &str) {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{DAEMONS}/leases/numa-enforcer-{name}");
    let labels = json!({"app.kubernetes.io/name": "numa-enforcer"});
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 86_400, "renewTime": now});
    stub.put(&path, json!({"metadata": {"labels": labels}, "spec": spec}));
}

/// Publishes the state of a node.
///
/// # Errors
/// If the state cannot be written as JSON.
pub fn put_state(stub: &ApiStub, name: &str, state: &NodeState) -> Result<()> {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": format!("uid-{name}")});
    let state = serde_json::to_value(state).context("write a state as JSON")?;
    let object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND,
        "metadata": {
            "name": name, "ownerReferences": [owner],
            "annotations": {"numa-enforcer.io/lease-namespace": DAEMONS},
        },
        "state": state,
    });
    stub.put(&format!("/apis/{GROUP}/{VERSION}/{PLURAL}/{name}"), object);
    Ok(())
}

/// The configuration of kube-scheduler that the product prints.
fn configuration(program: &Path, further: &[&str]) -> Result<SchedulerConfiguration> {
    let mut command = Command::new(program);
    command.args(["scheduler", "config", "-o", "json"]).args(further);
    let output = command.output().with_context(|| format!("run {}", program.display()))?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "scheduler config ended with {}: {words}", output.status);
    serde_json::from_slice(&output.stdout).context("read what scheduler config prints")
}

impl ServedCluster {
    /// Starts the product for nodes with these names and one state, and waits until it answers.
    ///
    /// # Errors
    /// If it does not.
    pub fn start(program: &Path, nodes: &[String], state: &NodeState, filter_only: bool) -> Result<Self> {
        let stub = ApiStub::start(&[STATES]);
        for name in nodes {
            put_node(&stub, name, state)?;
        }
        let configuration = configuration(program, if filter_only { &["--filter-only"] } else { &[] })?;
        let extender = configuration.extenders.first().cloned().context("no extender is configured")?;
        // Nothing was chosen before its start.
        let further: &[&str] = if filter_only { &["--filter-only", "--settles", "0s"] } else { &[] };
        let process = ProductProcess::start(program, &stub.url(), further)?;
        process.becomes_ready()?;
        let binds_at = if extender.bind_verb.is_empty() {
            stub.url().strip_prefix("http://").unwrap_or_default().parse().context("the stub's address")?
        } else {
            process.address
        };
        let (jobs, replies) = binders(binds_at);
        let client = HttpClient::new(process.address);
        Ok(Self { process, stub, configuration, extender, client, jobs, replies })
    }

    /// The stub of the API server.
    pub const fn stub(&self) -> &ApiStub {
        &self.stub
    }

    /// The product's process.
    pub const fn process(&self) -> &ProductProcess {
        &self.process
    }

    /// Weight of the product's scores; `None` if it gives none.
    pub fn weight(&self) -> Option<u64> {
        (!self.extender.prioritize_verb.is_empty()).then_some(self.extender.weight)
    }

    fn ask(&mut self, verb: &str, pod: &Value, nodes: &[&str]) -> Result<HttpAnswer> {
        let path = self.extender.url_prefix.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
        let path = format!("/{}/{verb}", path.map_or("", |(_, path)| path));
        let body = json!({"Pod": pod, "Nodes": null, "NodeNames": nodes}).to_string();
        self.client.send("POST", &path, &body)
    }

    /// Nodes that a pod may go to, or `None` after an error; and the time that the call took.
    ///
    /// # Errors
    /// If there is no answer, or one that kube-scheduler would not understand.
    pub fn filter(&mut self, pod: &Value, nodes: &[&str]) -> Result<(Option<Vec<String>>, Duration)> {
        let verb = self.extender.filter_verb.clone();
        let HttpAnswer { status, body, took } = self.ask(&verb, pod, nodes)?;
        if status != 200 {
            return Ok((None, took));
        }
        let FilterResult { node_names, error } =
            serde_json::from_str(&body).context("read a filter answer")?;
        Ok((node_names.filter(|_| error.is_empty()), took))
    }

    /// Scores by node, and the time that the call took; none after an error.
    ///
    /// # Errors
    /// If there is no answer, or one that kube-scheduler would not understand.
    pub fn prioritize(&mut self, pod: &Value, nodes: &[&str]) -> Result<(Vec<(String, u64)>, Duration)> {
        let verb = self.extender.prioritize_verb.clone();
        let HttpAnswer { status, body, took } = self.ask(&verb, pod, nodes)?;
        if status != 200 {
            return Ok((Vec::new(), took));
        }
        let scores: Vec<HostScore> = serde_json::from_str(&body).context("read scores")?;
        Ok((scores.into_iter().map(|HostScore { host, score }| (host, score)).collect(), took))
    }

    /// Sends a binding in the background.
    ///
    /// # Errors
    /// If no thread is left that sends it.
    pub fn bind(&self, pod: usize, name: &str, node: &str) -> Result<()> {
        let job = if self.extender.bind_verb.is_empty() {
            let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
            let metadata = json!({"name": name, "namespace": NAMESPACE, "uid": name});
            let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target});
            (format!("{}/binding", pod_path(name)), body)
        } else {
            let body = json!({"PodName": name, "PodNamespace": NAMESPACE, "PodUID": name, "Node": node});
            ("/v1/bind".to_owned(), body)
        };
        self.jobs.send((job.0, job.1.to_string(), pod)).context("send a binding")
    }

    /// A reply to a binding: one that is there, or within this time.
    pub fn reply(&self, within: Duration) -> Option<BindReply> {
        self.replies.recv_timeout(within).ok()
    }

    /// Creates a pod.
    pub fn create(&self, name: &str, shape: &PodShape) {
        self.stub.put(&pod_path(name), shape.object(name));
    }

    /// Sets the phase of a pod.
    pub fn set_phase(&self, name: &str, phase: &str) {
        let path = pod_path(name);
        if let Some(mut pod) = self.stub.object(&path) {
            pod["status"]["phase"] = json!(phase);
            self.stub.put(&path, pod);
        }
    }
}

/// Threads that send bindings to an address.
fn binders(address: SocketAddr) -> (Sender<BindJob>, Receiver<BindReply>) {
    let (jobs, waiting) = mpsc::channel::<BindJob>();
    let (reply, replies) = mpsc::channel();
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..BINDERS {
        let (waiting, reply) = (Arc::clone(&waiting), reply.clone());
        thread::spawn(move || {
            let mut client = HttpClient::new(address);
            loop {
                let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((path, body, pod)) = job else { return };
                let (error, took) = match client.send("POST", &path, &body) {
                    Ok(answer) => (error_of(&answer), answer.took),
                    Err(error) => (Some(format!("{error:#}")), Duration::ZERO),
                };
                if reply.send(BindReply { pod, error, took }).is_err() {
                    return;
                }
            }
        });
    }
    (jobs, replies)
}

/// The error of a reply of an extender, or of an API server.
fn error_of(answer: &HttpAnswer) -> Option<String> {
    match answer.status {
        201 => None,
        200 => {
            let reply: Value = serde_json::from_str(&answer.body).unwrap_or_default();
            let error = reply["Error"].as_str().unwrap_or("no reply of an extender");
            (!error.is_empty()).then(|| error.to_owned())
        }
        status => Some(format!("{status}: {}", answer.body.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reply_without_an_error_is_a_binding() {
        let answer = |status, body: &str| HttpAnswer { status, body: body.into(), took: Duration::ZERO };
        assert_eq!(error_of(&answer(200, r#"{"Error":""}"#)), None);
        assert_eq!(error_of(&answer(201, "{}")), None);
        assert_eq!(error_of(&answer(200, r#"{"Error":"NUMA: memory"}"#)).as_deref(), Some("NUMA: memory"));
        assert!(error_of(&answer(200, "x")).is_some());
        assert_eq!(error_of(&answer(503, "not ready\n")).as_deref(), Some("503: not ready"));
    }

    #[test]
    fn stub_tells_bindings_in_their_order() {
        let stub = ApiStub::start(&[STATES]);
        let (jobs, replies) = binders(stub.url().strip_prefix("http://").unwrap().parse().unwrap());
        let shape = PodShape { containers: vec![2] };
        for (at, name) in ["a", "b"].into_iter().enumerate() {
            stub.put(&pod_path(name), shape.object(name));
            let body = json!({"metadata": {"uid": name}, "target": {"name": "n"}}).to_string();
            jobs.send((format!("{}/binding", pod_path(name)), body, at)).unwrap();
            let reply = replies.recv().unwrap();
            assert_eq!((reply.pod, reply.error), (at, None));
        }
        let names: Vec<String> = stub.bindings_from(0).into_iter().map(|binding| binding.pod).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(stub.bindings_from(1)[0].node, "n");
    }
}
