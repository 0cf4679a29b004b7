//! Our own short form of a workload: one container in one pod, without the ceremony of a manifest.
//!
//! ```yaml
//! workloads:
//!   - name: db
//!     cpus: 4
//!     memory: 8GiB
//!     devices: { vendor.com/nic: 1 }
//!     policy: single-numa-node
//! ```
//!
//! The same in TOML is `[[workloads]]`. Amounts are requests and limits at once, so a workload with CPUs
//! and memory is Guaranteed. `engine`, `policy`, `scope` and `options` become the annotations of these
//! names. A key that is not known is refused.

use std::collections::BTreeMap;

use enforcer_core::{parse::quantity, policy::ByteSize};
use numa_placement::{ContainerKind, PodName, Resources};

use super::{
    container::{self, RequestsAndLimits},
    kinds::ManifestPods,
    pod::{self, ManifestPod},
    source::ManifestProblem,
    tree::TreeNode,
};

/// Key of the list in a file.
pub(super) const LIST: &str = "workloads";

const KEYS: [&str; 13] = [
    "name",
    "namespace",
    "replicas",
    "cpus",
    "memory",
    "hugepages",
    "devices",
    "labels",
    "annotations",
    "engine",
    "policy",
    "scope",
    "options",
];

/// Adds the workloads of a document.
pub(super) fn add(made: &mut ManifestPods, document: &TreeNode) -> Result<(), ManifestProblem> {
    document.only("a workload file", &[LIST])?;
    for node in document.must("a workload file", LIST)?.list(LIST)? {
        node.only("a workload", &KEYS)?;
        let pod = workload(node)?;
        match node.get("replicas") {
            None => made.push(pod, node.at)?,
            Some(replicas) => {
                for number in 0..replicas.count("replicas")? {
                    made.push(pod.named(format!("{}-{number}", pod.request.name.name)), node.at)?;
                }
            }
        }
    }
    Ok(())
}

fn workload(node: &TreeNode) -> Result<ManifestPod, ManifestProblem> {
    let name = node.must("a workload", "name")?.scalar("name")?.into_owned();
    if name.is_empty() {
        return Err(ManifestProblem::new(node.at, "a workload needs a name"));
    }
    let namespace = node
        .get("namespace")
        .map_or_else(|| Ok("default".to_owned()), |node| Ok(node.scalar("namespace")?.into_owned()))?;
    let mut warnings = Vec::new();
    let labels = pod::texts(Some(node), "labels", &mut warnings)?;
    let mut annotations = pod::texts(Some(node), "annotations", &mut warnings)?;
    for key in ["engine", "policy", "scope", "options"] {
        if let Some(value) = node.get(key) {
            annotations.insert(format!("{key}.numa-enforcer.io"), value.text(key)?.to_owned());
        }
    }
    let container = container::request(name.clone(), ContainerKind::App, amounts(node)?);
    Ok(pod::request(PodName::new(namespace, name), labels, annotations, vec![container], warnings))
}

fn amounts(node: &TreeNode) -> Result<RequestsAndLimits, ManifestProblem> {
    let milli_cpus = node.get("cpus").map(|cpus| {
        let text = cpus.scalar("cpus")?;
        quantity::milli_cpus(&text).ok_or_else(|| cpus.not("cpus", "a number of CPUs like 4 or 500m"))
    });
    let mut devices = BTreeMap::new();
    for entry in node.get("devices").map_or(Ok(&[][..]), |node| node.map("devices"))? {
        let count = entry.node.count(&entry.key)?;
        if count > 0 {
            devices.insert(entry.key.clone(), count);
        }
    }
    let mut hugepages = BTreeMap::new();
    for entry in node.get("hugepages").map_or(Ok(&[][..]), |node| node.map("hugepages"))? {
        let size = container::page_size(&format!("hugepages-{}", entry.key)).ok_or_else(|| {
            ManifestProblem::new(entry.at, "hugepages: a page size like 2Mi or 1Gi is expected as key")
        })?;
        let amount = bytes(&entry.node, &entry.key)?;
        if !amount.is_multiple_of(size) {
            return Err(entry.node.not(&entry.key, "a whole number of pages"));
        }
        hugepages.insert(size, amount);
    }
    let requests = Resources {
        milli_cpus: milli_cpus.transpose()?,
        memory_bytes: node.get("memory").map(|memory| bytes(memory, "memory")).transpose()?,
        hugepages,
    };
    Ok(RequestsAndLimits { limits: requests.clone(), requests, devices })
}

/// `8GiB` as in the configuration, or `8Gi` as in a manifest.
fn bytes(node: &TreeNode, what: &str) -> Result<u64, ManifestProblem> {
    let text = node.scalar(what)?;
    let size = quantity::whole(&text).or_else(|| text.parse::<ByteSize>().ok().map(|size| size.0));
    size.ok_or_else(|| node.not(what, "an amount of memory like 8GiB or 8Gi"))
}
