//! Objects of a cluster as its API has them: the node of this guest, and pods.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    api::{HOST, NODE},
    cri::{Amounts, NAMESPACE, Plan, Qos},
    memory, process,
};

/// Version of the kubelet that the node names.
const KUBELET: &str = "v1.36.2";

/// Uid of the node.
pub const NODE_UID: &str = "5c5f3c5e-0000-4000-8000-000000000001";

/// Path of the node.
pub fn node_path() -> String {
    format!("/api/v1/nodes/{NODE}")
}

/// Path of a pod of this name.
pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}")
}

/// The node, as its kubelet reports it so many seconds from now.
pub fn node(seconds: i64) -> Result<Value> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("read the id of the boot")?;
    let cpus = std::thread::available_parallelism().context("count CPUs")?;
    let amounts = json!({"cpu": cpus.to_string(), "memory": format!("{}Mi", memory::total_mebibytes()?), "pods": "110"});
    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": at(seconds)?});
    Ok(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "uid": NODE_UID},
        "status": {
            "capacity": amounts, "allocatable": amounts, "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": HOST.to_string()}],
            "nodeInfo": {"kubeletVersion": KUBELET, "bootID": boot.trim(), "operatingSystem": "linux"},
        },
    }))
}

/// A pod of a manifest, with containers of these names.
pub fn manifest(plan: &Plan, names: &[&str]) -> Value {
    let container =
        |(name, amounts): (&&str, &Amounts)| json!({"name": name, "resources": resources(amounts)});
    let containers: Vec<_> = names.iter().zip(plan.containers).map(container).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": plan.name, "namespace": NAMESPACE},
        "spec": {"restartPolicy": "Always", "containers": containers},
    })
}

/// The same pod once it is bound to the node.
pub fn bound(plan: &Plan, names: &[&str]) -> Result<Value> {
    let class = match Qos::of(plan.containers) {
        Qos::Guaranteed => "Guaranteed",
        Qos::Burstable => "Burstable",
        Qos::BestEffort => "BestEffort",
    };
    let now = at(0)?;
    let mut pod = manifest(plan, names);
    pod["metadata"]["uid"] = json!(plan.uid());
    pod["metadata"]["creationTimestamp"] = json!(now);
    pod["spec"]["nodeName"] = json!(NODE);
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now});
    pod["status"] = json!({"phase": "Pending", "qosClass": class, "conditions": [scheduled]});
    Ok(pod)
}

fn resources(amounts: &Amounts) -> Value {
    let list = |cpu: i64, memory: i64| {
        let mut list = json!({});
        if cpu > 0 {
            list["cpu"] = json!(format!("{cpu}m"));
        }
        if memory > 0 {
            list["memory"] = json!(format!("{memory}Mi"));
        }
        list
    };
    json!({
        "requests": list(amounts.cpu_request, amounts.memory_request),
        "limits": list(amounts.cpu_limit, amounts.memory_limit),
    })
}

/// A time so many seconds from now, as the API writes it.
fn at(seconds: i64) -> Result<String> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let at = i64::try_from(now.context("the clock is before 1970")?.as_secs())? + seconds;
    let mut date = Command::new("date");
    date.args(["-u", "-d", &format!("@{at}"), "+%Y-%m-%dT%H:%M:%SZ"]);
    let output = process::run(&mut date, Duration::from_secs(10))?;
    ensure!(output.status == Some(0), "date: {}", output.stderr);
    Ok(output.stdout.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_that_is_bound_has_the_class_and_the_uid_of_its_containers() {
        let amounts = [Amounts::guaranteed(2, 64), Amounts::burstable(500, 16)];
        let plan = Plan { name: "web", annotations: &[], containers: &amounts };
        let pod = bound(&plan, &["main", "side"]).unwrap();
        assert_eq!(pod["status"]["qosClass"], "Burstable");
        assert_eq!(pod["metadata"]["uid"], plan.uid());
        let limits = |at: usize| pod["spec"]["containers"][at]["resources"]["limits"].clone();
        assert_eq!(limits(0), json!({"cpu": "2000m", "memory": "64Mi"}));
        assert_eq!(limits(1), json!({}));
        let time = pod["metadata"]["creationTimestamp"].as_str().unwrap();
        assert_eq!(time.len(), "2026-11-28T05:00:00Z".len(), "{time}");
    }
}
