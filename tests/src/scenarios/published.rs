//! What the shipped pod publishes of its node is what the node does.
//!
//! The pod is that of the chart with `cluster.publish` and `cluster.events`, of the image of a release, with
//! the account that a kubelet mounts. It reaches Kubernetes' own server for custom resources, with our
//! definition, and a stub for other kinds. The state covers the containers of the node; a plan from it
//! predicts the CPUs of the next pod; both hold again after the server was killed and containers came and
//! went meanwhile. A container without a place is an event of its pod. The roles of the chart allow each
//! request.
//!
//! Controls: without its account the pod publishes nothing and names what is missing; without
//! `cluster.publish` it asks the server nothing.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    image::{IMAGE, PresetPod, after_turns, prepare, told},
    pods::{CONFIG, LIMIT, MEBIBYTES, alone, plan},
};
use crate::{
    api::{Api, NODE},
    check::Checks,
    cluster::{NODE_UID, bound, manifest, node, node_path, pod_path},
    containerd::Containerd,
    cri::{Amounts, Container, Cri, NAMESPACE, Pod},
    ids::Ids,
    kubelet::PlayedKubelet,
    preset::{self, Preset},
    process, product,
    rights::not_allowed,
    wait,
};

/// The definition of the kind, as the chart installs it.
const DEFINITION: &str = include_str!("../../../deploy/helm/numa-enforcer/files/node-state-definition.yaml");

/// States, and that of the node.
const STATES: &str = "/apis/numa-enforcer.io/v1alpha1/numanodestates";

/// Namespace of the daemon's account, and so of its lease.
const OF_DAEMON: &str = "numa-enforcer";

/// Name of the container of each pod but the daemon's, and that of the daemon's.
const MAIN: &str = "main";
const DAEMON: &str = "numa-enforcer";

/// Time in which nothing is published where nothing is to be.
const CONTROL: Duration = Duration::from_secs(5);

/// Configuration of daemons that are controls: to load the kernel side takes long, and changes nothing there.
const CONTROL_CONFIG: &str = "[sample]\nbpf = false\n";

/// What kubectl would print, and the manifest of the next pod.
const CLUSTER: &str = "/tmp/cluster.json";
const NEXT: &str = "/tmp/next.json";

/// Exclusive CPUs by pod and container.
type Held = BTreeMap<String, BTreeMap<String, String>>;

pub(super) fn by_the_shipped_pod(checks: &mut Checks) -> Result<()> {
    told(checks, story)
}

/// A node of a cluster.
struct PublishedNode<'a> {
    api: &'a Api,
    cri: &'a Cri,
}

fn story(checks: &mut Checks, printed: &mut String) -> Result<()> {
    let api = Api::join()?;
    api.define(DEFINITION, STATES)?;
    let _kubelet = PlayedKubelet::start(api.secure)?;
    let configuration = json!({
        "cpuManagerPolicy": "none", "memoryManagerPolicy": "None", "topologyManagerPolicy": "none",
        "topologyManagerScope": "container",
    });
    api.kubelet_answers("/configz", &json!({"kubeletconfig": configuration}))?;
    let (mut publishing, mut enforce) = (Preset::publishing()?, Preset::enforce()?);
    for preset in [&mut publishing, &mut enforce] {
        preset.daemon.environment.extend(api.service_variables());
    }
    prepare(&[publishing.clone(), enforce.clone()])?;
    api.write_account(Path::new(preset::ACCOUNT), OF_DAEMON)?;
    write_config(CONTROL_CONFIG)?;
    let (containerd, cri) = Containerd::start()?;
    Containerd::import(&cri, IMAGE)?;
    // Some seconds after the start of the kubelet, which the report has to be of.
    api.apply(&node_path(), &node(0)?)?;
    api.apply(&pod_path(DAEMON), &bound(&plan(DAEMON, &publishing.daemon.amounts), &[DAEMON])?)?;

    let node = PublishedNode { api: &api, cri: &cri };
    let mut without = publishing.clone();
    without.daemon = publishing.without_account();
    let PresetPod { pod, daemon } = PresetPod::start(checks, &cri, &without)?;
    let outcome = node.without_account(checks);
    *printed = daemon.printed().unwrap_or_default();
    outcome?;
    checks.equal("without its account: exit status", 0, daemon.end()?);
    daemon.remove()?;

    write_config("")?;
    let daemon = pod.start_spec(&publishing.daemon)?;
    let outcome = node.while_it_publishes(checks);
    *printed = daemon.printed().unwrap_or_default();
    outcome?;
    node.when_it_has_ended(checks, daemon)?;

    write_config(CONTROL_CONFIG)?;
    let daemon = pod.start_spec(&enforce.daemon)?;
    let outcome = node.without_publishing(checks);
    *printed = daemon.printed().unwrap_or_default();
    outcome?;
    PresetPod { pod, daemon }.end(checks, "without cluster.publish")?;
    containerd.stop()
}

impl PublishedNode<'_> {
    /// The control: a pod that no kubelet has given a token.
    fn without_account(&self, checks: &mut Checks) -> Result<()> {
        checks.comes_to_hold("without its account: publish is degraded, with the file", LIMIT, || {
            let turn = product::latest_turn()?.context("no turn yet")?;
            let reason = turn.reason("publish").map(str::to_owned);
            Ok((reason.as_ref().is_some_and(|reason| reason.contains("serviceaccount/")), reason))
        })?;
        self.publishes_nothing(checks, "without its account");
        checks.equal("without its account: requests", Vec::new(), self.api.requests()?);
        Ok(())
    }

    fn while_it_publishes(&self, checks: &mut Checks) -> Result<()> {
        let started = Instant::now();
        let first = self.state_comes(checks, "the first state is exact", |state| state["exact"] == true)?;
        checks.note("seconds from the start to the first exact state", &started.elapsed().as_secs());
        checks.equal("which engine decides", &json!("numa-enforcer"), &first["decidedBy"]);
        checks.equal("source of the kubelet's settings", &json!("configz"), &first["kubelet"]["configFrom"]);
        let object = self.api.object(&state_path())?.context("no state")?;
        let metadata = &object["metadata"];
        let annotation = |name: &str| metadata["annotations"][format!("numa-enforcer.io/{name}")].clone();
        checks.equal("namespace of the lease", json!(OF_DAEMON), annotation("lease-namespace"));
        let boot = node(0)?["status"]["nodeInfo"]["bootID"].clone();
        checks.equal("boot of the machine", boot, annotation("boot-id"));
        checks.equal("owner of the state", &json!(NODE_UID), &metadata["ownerReferences"][0]["uid"]);
        checks.comes_to_hold("a lease of the daemon", LIMIT, || {
            let lease = self.api.object(&lease_path())?;
            Ok((lease.as_ref().is_some_and(|lease| lease["spec"]["holderIdentity"] == NODE), lease))
        })?;

        let guaranteed = [2, 1].map(|cpus| Amounts::guaranteed(cpus, MEBIBYTES));
        let (_pod_two, two) = self.start("two", &guaranteed[0])?;
        let (pod_one, one) = self.start("one", &guaranteed[1])?;
        let (_pod_shared, shared) = self.start("shared", &Amounts::burstable(500, MEBIBYTES))?;
        let mut running = vec![("two", &two), ("one", &one)];
        let state = self.covers(checks, "the state covers the containers", &running, &["shared"])?;
        let inputs = unpacked(&state)?;
        let named = ["two", "one", "shared"].iter().all(|name| inputs.contains(&format!("\"{name}\"")));
        checks.holds("the engine's inputs have them", named, inputs.len());
        checks.holds("the shared one has CPUs", !shared.cgroup.ids("cpuset.cpus.effective")?.is_empty(), "");

        let next = self.is_predicted(checks, "next", &guaranteed[0])?;
        running.push(("next", &next.1));

        // The server is gone, and the node goes on.
        let late = plan("late", &guaranteed[1]);
        self.api.apply(&pod_path("late"), &bound(&late, &[MAIN])?)?;
        self.api.kill()?;
        checks.comes_to_hold("without the server publish is degraded", LIMIT, || {
            let degraded = product::served_sum("numa_enforcer_degraded", &[("feature", "publish")]);
            Ok((degraded == Some(1.0), degraded))
        })?;
        one.stop()?;
        pod_one.remove()?;
        running.retain(|(name, _)| *name != "one");
        let (_pod_late, late) = alone(self.cri, "late", &guaranteed[1])?;
        checks.equal("without the server: CPUs of a new container", 1, late.first_look()?.cpus.len());
        running.push(("late", &late));
        self.api.delete(&pod_path("one"))?;
        self.api.resume()?;
        let resumed = Instant::now();
        self.covers(checks, "with the server the state is right again", &running, &["shared"])?;
        checks.note("seconds from the server's return to the right state", &resumed.elapsed().as_secs());
        checks.comes_to_hold("with the server publish is not degraded", LIMIT, || {
            let degraded = product::served_sum("numa_enforcer_degraded", &[("feature", "publish")]);
            Ok((degraded == Some(0.0), degraded))
        })?;

        self.refusal_is_told(checks)?;
        let requests = self.api.requests()?;
        checks.above("requests of the daemon", 10.0, u32::try_from(requests.len()).ok().map(f64::from));
        checks.equal(
            "requests that the chart's roles do not allow",
            Vec::new(),
            not_allowed(&requests, &preset::rights()?),
        );
        Ok(())
    }

    /// A plan from what kubectl prints says which CPUs a pod gets, and the pod gets them.
    fn is_predicted(
        &self,
        checks: &mut Checks,
        name: &str,
        amounts: &Amounts,
    ) -> Result<(Pod<'_>, Container<'_>)> {
        let predicted = self.planned(name, amounts)?;
        let pod = &predicted["pods"][0];
        checks.equal("node of the plan", &json!(NODE), &pod["node"]);
        let started = self.start(name, amounts)?;
        let cgroup = &started.1.cgroup;
        let text = |ids: Ids| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let list = |value: &Value| crate::ids::parse(value.as_str().unwrap_or_default()).map(text);
        let container = &pod["containers"][0];
        let planned = (list(&container["cpus"])?, list(&container["mems"])?);
        let given = (text(cgroup.ids("cpuset.cpus")?), text(cgroup.ids("cpuset.mems")?));
        checks.equal("CPUs and memory nodes as they were predicted", planned, given);
        Ok(started)
    }

    /// The plan for a pod, from the state, the node and the pods of now.
    fn planned(&self, name: &str, amounts: &Amounts) -> Result<Value> {
        self.write_cluster(&[])?;
        fs::write(NEXT, manifest(&plan(name, amounts), &[MAIN]).to_string()).context("write a manifest")?;
        let output = product::run(&["plan", NEXT, "--cluster", CLUSTER, "-o", "json"])?;
        serde_json::from_str(&output.stdout).with_context(|| format!("the plan: {}", output.stderr))
    }

    /// What kubectl prints of states, nodes and pods, and of these objects.
    fn write_cluster(&self, more: &[Value]) -> Result<()> {
        let mut items = self.api.list(STATES)?;
        items.push(self.api.object(&node_path())?.context("no node")?);
        for mut pod in self.api.list("/api/v1/pods")? {
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            items.push(pod);
        }
        items.extend_from_slice(more);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        fs::write(CLUSTER, list.to_string()).context("write the objects of the cluster")
    }

    /// No node has four CPUs left.
    fn refusal_is_told(&self, checks: &mut Checks) -> Result<()> {
        let amounts = Amounts::guaranteed(4, MEBIBYTES);
        let plan = self.planned("large", &amounts)?;
        checks.equal("node of the plan of a large pod", &Value::Null, &plan["pods"][0]["node"]);
        let (_pod, _container) = self.start("large", &amounts)?;
        let events = format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events");
        let mut found = Value::Null;
        checks.comes_to_hold("its refusal is an event", LIMIT, || {
            let all = self.api.list(&events)?;
            let event = all.iter().find(|event| event["reason"] == "NumaPlacementRefused").cloned();
            found = event.unwrap_or_default();
            Ok((found.is_object(), all.iter().map(|event| event["reason"].clone()).collect::<Vec<_>>()))
        })?;
        checks.equal("object of the event", &json!("large"), &found["regarding"]["name"]);
        checks.equal(
            "controller of the event",
            &json!("numa-enforcer.io/agent"),
            &found["reportingController"],
        );
        checks.note("note of the event", &found["note"]);
        Ok(())
    }

    /// Nothing of it is left; its state stays, and counts no longer once its lease has run out.
    fn when_it_has_ended(&self, checks: &mut Checks, daemon: Container) -> Result<()> {
        checks.equal("exit status of the daemon", 0, daemon.end()?);
        daemon.remove()?;
        checks.equal("processes of the daemon that are left", Vec::<u32>::new(), processes_of(DAEMON)?);
        let lease = self.api.object(&lease_path())?.context("no lease")?;
        for (when, seconds, is_stale) in
            [("a moment later", 0, false), ("when its lease has run out", 120, true)]
        {
            self.api.apply(&node_path(), &node(seconds)?)?;
            self.write_cluster(std::slice::from_ref(&lease))?;
            let output = product::run(&["cluster", "check", CLUSTER, "-o", "json"])?;
            let found: Value = serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
            let findings = found["findings"].as_array().cloned().unwrap_or_default();
            let is_of_lease = |finding: &&Value| {
                finding["finding"] == "stale"
                    && finding["reason"].as_str().is_some_and(|why| why.contains("lease"))
            };
            let stale = findings.iter().find(is_of_lease).map(|finding| finding["reason"].clone());
            checks.holds(
                format!("{when}: is its state stale ({is_stale})"),
                stale.is_some() == is_stale,
                stale,
            );
        }
        self.api.delete(&state_path())
    }

    /// The control: the same daemon that is not to publish.
    fn without_publishing(&self, checks: &mut Checks) -> Result<()> {
        let before = self.api.requests()?.len();
        checks.comes_to_hold("without cluster.publish: it is connected to the runtime", LIMIT, || {
            let up = product::served_sum("numa_enforcer_nri_up", &[]);
            Ok((up == Some(1.0), up))
        })?;
        after_turns()?;
        self.publishes_nothing(checks, "without cluster.publish");
        checks.equal("without cluster.publish: requests", before, self.api.requests()?.len());
        Ok(())
    }

    fn publishes_nothing(&self, checks: &mut Checks, when: &str) {
        let published = wait::until("a state", CONTROL, || self.api.object(&state_path()));
        checks.holds(format!("{when}: there is no state"), published.is_err(), published.ok());
    }

    /// A pod with one container: bound to the node, and made there.
    fn start(&self, name: &str, amounts: &Amounts) -> Result<(Pod<'_>, Container<'_>)> {
        self.api.apply(&pod_path(name), &bound(&plan(name, amounts), &[MAIN])?)?;
        alone(self.cri, name, amounts)
    }

    /// The pods of the state come to be the daemon's and these, each container with the CPUs of its cgroup.
    fn covers(
        &self,
        checks: &mut Checks,
        what: &str,
        exclusive: &[(&str, &Container)],
        sharing: &[&str],
    ) -> Result<Value> {
        let mut expected: Held =
            [DAEMON].iter().chain(sharing).map(|&name| (name.into(), BTreeMap::new())).collect();
        for (name, container) in exclusive {
            let cpus = container.cgroup.read("cpuset.cpus")?;
            expected.insert((*name).into(), [(MAIN.to_owned(), cpus)].into());
        }
        let state =
            self.state_comes(checks, what, |state| state["exact"] == true && held(state) == expected)?;
        checks.equal(format!("{what}: exclusive CPUs by pod"), expected, held(&state));
        Ok(state)
    }

    fn state_comes(&self, checks: &mut Checks, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut latest = Value::Null;
        checks.comes_to_hold(what, LIMIT, || {
            latest =
                self.api.object(&state_path())?.map(|mut object| object["state"].take()).unwrap_or_default();
            Ok((is(&latest), (latest["exact"].clone(), latest["inexact"].clone(), held(&latest))))
        })?;
        Ok(latest)
    }
}

/// Gives the next daemon the configuration of a node with these lines more.
fn write_config(more: &str) -> Result<()> {
    let path = format!("{}/numa-enforcer.toml", preset::CONFIG);
    let config = format!("interval = \"2s\"\n{CONFIG}{more}");
    fs::write(&path, config).with_context(|| format!("write {path}"))
}

fn state_path() -> String {
    format!("{STATES}/{NODE}")
}

fn lease_path() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{OF_DAEMON}/leases/numa-enforcer-{NODE}")
}

fn held(state: &Value) -> Held {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let container = |one: &Value| (text(&one["name"]), text(&one["cpus"]));
    let pod = |one: &Value| (text(&one["name"]), list(&one["containers"]).iter().map(container).collect());
    list(&state["pods"]).iter().map(pod).collect()
}

/// The inputs of the engine, unpacked as docs/node-state.md says.
fn unpacked(state: &Value) -> Result<String> {
    let packed = state["ownEngine"]["inputs"].as_str().context("a state without the engine's inputs")?;
    let path = "/tmp/inputs";
    fs::write(path, packed).context("write the packed inputs")?;
    let mut command = Command::new("sh");
    command.args(["-c", "base64 -d < \"$0\" | zcat", path]).stdin(Stdio::null());
    let output = process::run(&mut command, LIMIT)?;
    ensure!(output.status == Some(0), "unpack the inputs: {}", output.stderr);
    Ok(output.stdout)
}

/// Numbers of processes of this name.
fn processes_of(name: &str) -> Result<Vec<u32>> {
    let entries = fs::read_dir("/proc").context("list processes")?.flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_one =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    Ok(pids.filter(is_one).collect())
}
