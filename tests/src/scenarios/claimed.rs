//! A claim for a NUMA place is what its container gets, and nothing else gets it.
//!
//! The pod is that of the chart with `dra.enabled`, of the image of a release. A kubelet that is played finds
//! the driver in its registry, has claims prepared and given up; the scheduler's part is written into the
//! claims on Kubernetes' own server. The runtime hands claims to containers by the Container Device
//! Interface. A container with a claim starts on the claim's CPUs and memory node, and stays there over an
//! update of the runtime and a restart of the daemon, also while the server is away. Containers that share
//! leave the CPUs, and get them back when the claim is given up. The roles of the chart allow each request.
//!
//! Controls: the same container without a claim is elsewhere; one that names the claim of another pod gets
//! none of its CPUs.

use std::{fs, path::Path};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use super::{
    image::{IMAGE, PresetPod, prepare, told},
    pods::{LIMIT, MEBIBYTES, alone, plan},
};
use crate::{
    api::{Api, NODE},
    check::Checks,
    cluster::{NODE_UID, node, node_path},
    containerd::Containerd,
    cri::{Amounts, Container, Cri, Pod},
    dra::{self, ClaimedDevice, RegisteredDriver},
    ids::{self, Ids},
    kubelet::PlayedKubelet,
    preset::{self, Preset},
    rights::not_allowed,
};

/// Slices of all drivers.
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
/// Claims of all namespaces.
const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
/// Namespace of the daemon's account.
const OF_DAEMON: &str = "numa-enforcer";
/// Where the runtime finds what claims give.
const CDI: &str = "/var/run/cdi";
/// Policy of containers without claims.
const POLICY: &str = "[placement.hints]\npolicy = \"none\"\n";
/// The claim, and its container's pod.
const CLAIM: &str = "place";
const CLAIMING: &str = "claiming";

pub(super) fn by_containers(checks: &mut Checks) -> Result<()> {
    told(checks, story)
}

fn story(checks: &mut Checks, printed: &mut String) -> Result<()> {
    let api = Api::join()?;
    api.define(&definition("resourceslices", "ResourceSlice", "Cluster"), SLICES)?;
    api.define(&definition("resourceclaims", "ResourceClaim", "Namespaced"), CLAIMS)?;
    let _kubelet = PlayedKubelet::start(api.secure)?;
    let mut claims = Preset::claims()?;
    claims.daemon.environment.extend(api.service_variables());
    prepare(std::slice::from_ref(&claims))?;
    api.write_account(Path::new(preset::ACCOUNT), OF_DAEMON)?;
    let config = format!("interval = \"2s\"\n{}\n{POLICY}", preset::claim_config()?);
    fs::write(format!("{}/numa-enforcer.toml", preset::CONFIG), config).context("write the configuration")?;
    let (containerd, cri) = Containerd::start()?;
    Containerd::import(&cri, IMAGE)?;
    api.apply(&node_path(), &node(0)?)?;

    let PresetPod { pod, daemon } = PresetPod::start(checks, &cri, &claims)?;
    let node = ClaimedNode { api: &api, cri: &cri };
    let outcome = node.with_a_driver(checks);
    *printed = daemon.printed().unwrap_or_default();
    let prepared = outcome?;
    checks.equal("exit status of the daemon", 0, daemon.end()?);
    daemon.remove()?;

    let daemon = pod.start_spec(&claims.daemon)?;
    let outcome = node.after_a_restart(checks, prepared);
    *printed = daemon.printed().unwrap_or_default();
    outcome?;
    let requests = api.requests()?;
    checks.equal(
        "requests that the chart's roles do not allow",
        Vec::new(),
        not_allowed(&requests, &preset::claim_rights()?),
    );
    PresetPod { pod, daemon }.end(checks, "claims")?;
    containerd.stop()
}

/// A node with a driver for claims.
struct ClaimedNode<'a> {
    api: &'a Api,
    cri: &'a Cri,
}

/// What is left when the daemon restarts.
struct PreparedScene<'a> {
    uid: String,
    devices: Vec<ClaimedDevice>,
    cpus: Ids,
    claiming: Container<'a>,
    sharing: Container<'a>,
    _pods: [Pod<'a>; 2],
}

impl<'a> ClaimedNode<'a> {
    fn with_a_driver(&self, checks: &mut Checks) -> Result<PreparedScene<'a>> {
        let driver = RegisteredDriver::find()?;
        checks.equal("name of the driver", "numa-enforcer.io", driver.name.as_str());
        self.offers_the_nodes(checks)?;
        let (sharing_pod, sharing) = alone(self.cri, "sharing", &Amounts::burstable(500, MEBIBYTES))?;
        let everywhere = sharing.first_look()?.cpus;
        let control = self.start_control(checks, &everywhere)?;

        let unknown = driver.prepare(("unknown", "5c5f3c5e-0000-4000-8000-00000000000b"))?;
        checks.holds("a claim that the server does not have is refused", unknown.is_err(), &unknown);
        let amounts = json!({
            "numa-enforcer.io/cpu": "2", "numa-enforcer.io/memory": format!("{MEBIBYTES}Mi"),
        });
        let amounts_of_pod = two();
        let pod_plan = plan(CLAIMING, &amounts_of_pod);
        let claim = dra::allocated(CLAIM, ("ne-numa1", &amounts), (CLAIMING, &pod_plan.uid()));
        self.api.apply(&dra::claim_path(CLAIM), &claim)?;
        let stored = self.api.object(&dra::claim_path(CLAIM))?.context("no claim")?;
        let uid = stored["metadata"]["uid"].as_str().context("a claim without a uid")?.to_owned();
        let devices =
            driver.prepare((CLAIM, &uid))?.map_err(|error| anyhow!("{CLAIM} is refused: {error}"))?;
        checks.equal("devices of the claim", 1, devices.len());
        let device = devices.first().context("no device")?.device.clone();
        checks.equal("its device", (NODE.to_owned(), "ne-numa1".to_owned()), device);
        checks.holds("the runtime has a file of the claim", has_file(&uid), files());

        // Not even the claim's own container is there yet.
        let of_claim = cpus_of_file(&uid)?;
        checks.comes_to_hold("the sharing container leaves the CPUs of the claim", LIMIT, || {
            let cpus = sharing.cgroup.ids("cpuset.cpus.effective")?;
            Ok((cpus == everywhere.difference(&of_claim).copied().collect(), (cpus, &of_claim)))
        })?;
        let pod = Pod::run(self.cri, &pod_plan)?;
        let cdi: Vec<String> = devices.iter().flat_map(|device| device.cdi_ids.clone()).collect();
        let claiming = pod.start_with("main", &two(), &cdi, &[])?;
        let look = claiming.first_look()?;
        checks.equal("memory nodes that it sees first", Ids::from([1]), look.mems);
        checks.equal("CPUs that it sees first", &of_claim, &look.cpus);
        checks.equal("number of these", 2, look.cpus.len());
        checks.holds("they are of node 1", look.cpus.iter().all(|cpu| (4..8).contains(cpu)), &look.cpus);

        // A variable that the author of a pod writes.
        let name = format!("NUMA_ENFORCER_CLAIM_{uid}");
        let thief_pod = Pod::run(self.cri, &plan("thief", &two()))?;
        let thief = thief_pod.start_with("main", &two(), &[], &[(&name, "0-7;0-1")])?;
        let stolen = thief.first_look()?.cpus;
        checks.holds("another pod gets none of them", stolen.is_disjoint(&look.cpus), &stolen);
        thief.stop()?;
        thief_pod.remove()?;

        // A kubelet's update knows of no cpuset.
        let own = claiming.cgroup.cpuset()?;
        claiming.update(&two())?;
        checks.equal("its cpuset after an update", own, claiming.cgroup.cpuset()?);
        control.0.stop()?;
        control.1.remove()?;
        Ok(PreparedScene { uid, devices, cpus: look.cpus, claiming, sharing, _pods: [pod, sharing_pod] })
    }

    /// The claim is known, from a server that is away.
    fn after_a_restart(&self, checks: &mut Checks, scene: PreparedScene) -> Result<()> {
        let PreparedScene { uid, devices, cpus, claiming, sharing, _pods } = scene;
        let driver = RegisteredDriver::find()?;
        self.api.kill()?;
        let again = driver.prepare((CLAIM, &uid))?;
        checks.equal("the same claim after a restart, without a server", Ok(devices), again);
        checks.equal("CPUs of its container", &cpus, &claiming.cgroup.ids("cpuset.cpus")?);
        self.api.resume()?;

        claiming.stop()?;
        driver.unprepare((CLAIM, &uid))?;
        driver.unprepare((CLAIM, &uid))?;
        checks.holds("the runtime has no file of the claim any more", !has_file(&uid), files());
        checks.comes_to_hold("the sharing container gets the CPUs back", LIMIT, || {
            let now = sharing.cgroup.ids("cpuset.cpus.effective")?;
            Ok((cpus.is_subset(&now), now))
        })
    }

    /// Each NUMA node is a device that claims share out.
    fn offers_the_nodes(&self, checks: &mut Checks) -> Result<()> {
        let mut found = Value::Null;
        checks.comes_to_hold("the devices are published", LIMIT, || {
            found = self.api.list(SLICES)?.pop().unwrap_or_default();
            Ok((found["spec"]["devices"].as_array().is_some_and(|all| all.len() == 2), found.clone()))
        })?;
        checks.equal("owner of the slice", &json!(NODE_UID), &found["metadata"]["ownerReferences"][0]["uid"]);
        let spec = &found["spec"];
        checks.equal("node of the slice", &json!(NODE), &spec["nodeName"]);
        for (number, device) in spec["devices"].as_array().into_iter().flatten().enumerate() {
            checks.equal("name of a device", json!(format!("ne-numa{number}")), device["name"].clone());
            let node = &device["attributes"]["resource.kubernetes.io/numaNode"]["int"];
            checks.equal("its node", &json!(number), node);
            // Three quarters of four CPUs.
            let cpus = &device["capacity"]["numa-enforcer.io/cpu"]["value"];
            checks.equal("its exclusive CPUs", &json!("3"), cpus);
            checks.equal("may claims share it", &json!(true), &device["allowMultipleAllocations"]);
        }
        Ok(())
    }

    /// The control: a container that asks for as much, without a claim.
    fn start_control(&self, checks: &mut Checks, everywhere: &Ids) -> Result<(Container<'a>, Pod<'a>)> {
        let (pod, control) = alone(self.cri, "control", &Amounts::burstable(2000, MEBIBYTES))?;
        let look = control.first_look()?.cpus;
        checks.holds("without a claim it shares CPUs", look == *everywhere, look);
        ensure!(files().is_empty(), "a claim is prepared: {:?}", files());
        Ok((control, pod))
    }
}

fn two() -> Amounts {
    Amounts::guaranteed(2, MEBIBYTES)
}

fn files() -> Vec<String> {
    let entries = fs::read_dir(CDI).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn has_file(uid: &str) -> bool {
    files().iter().any(|name| name.contains(uid))
}

/// The CPUs that the file of a claim names.
fn cpus_of_file(uid: &str) -> Result<Ids> {
    let name = files().into_iter().find(|name| name.contains(uid)).context("no file")?;
    let file: Value = serde_json::from_str(&fs::read_to_string(Path::new(CDI).join(name))?)?;
    let variable = file["devices"][0]["containerEdits"]["env"][0].as_str().context("no variable")?;
    let (_, value) = variable.split_once('=').context("no value")?;
    ids::parse(value.split(';').next().unwrap_or_default())
}

/// The definition of a kind of DRA, which keeps every field.
fn definition(plural: &str, kind: &str, scope: &str) -> String {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": any, "status": any}});
    let spec_of_slices = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "driver": {"type": "string"}, "nodeName": {"type": "string"},
    }});
    let is_of_slices = plural == "resourceslices";
    let mut schema = schema;
    if is_of_slices {
        schema["properties"]["spec"] = spec_of_slices;
    }
    let fields = if is_of_slices {
        json!([{"jsonPath": ".spec.driver"}, {"jsonPath": ".spec.nodeName"}])
    } else {
        json!([])
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.resource.k8s.io"),
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"},
        },
        "spec": {
            "group": "resource.k8s.io", "scope": scope,
            "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "selectableFields": fields,
            }],
        },
    });
    definition.to_string()
}
