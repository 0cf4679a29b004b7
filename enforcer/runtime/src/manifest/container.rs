//! One container of a manifest as a request.
//!
//! Amounts are those of Kubernetes (`resources.requests` and `resources.limits`): what has a limit and
//! no request requests its limit; a name with a slash is a device; `hugepages-SIZE` is that many bytes
//! of huge pages; anything else (`ephemeral-storage`) has no place on a NUMA node and is passed over. What a
//! cluster refuses is refused: devices in parts, and devices or huge pages that are requested and limited
//! differently.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::parse::quantity;
use numa_placement::{ContainerKind, ContainerRequest, DeviceCounts, Resources, device_counts};

use super::{
    source::ManifestProblem,
    tree::{MapEntry, TreeNode, cut},
};

/// Warning of a plan without a cluster, in which claims for devices have no part.
pub(super) const CLAIMS_NOT_COUNTED: &str = "resource claims are not counted";

/// Fields of a container (`Container` in staging/src/k8s.io/api/core/v1/types.go, 1.36): a slip of the hand
/// would leave its amounts out without a word.
const FIELDS: [&str; 25] = [
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resizePolicy",
    "resources",
    "restartPolicy",
    "restartPolicyRules",
    "securityContext",
    "startupProbe",
    "stdin",
    "stdinOnce",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tty",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
];

/// Most containers of one pod: no node could start a larger one.
const CONTAINERS_LIMIT: usize = 1_000;

/// The containers of a pod's specification: init containers and sidecars, then the others.
pub(super) fn containers(
    spec: &TreeNode,
    warnings: &mut Vec<String>,
) -> Result<Vec<ContainerRequest>, ManifestProblem> {
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    for (field, is_init) in [("initContainers", true), ("containers", false)] {
        let Some(list) = spec.get(field) else { continue };
        for node in list.list(field)? {
            let container = container(node, is_init, warnings)?;
            if !names.insert(container.name.clone()) {
                let problem = format!("container `{}` is there twice", cut(&container.name));
                return Err(ManifestProblem::new(node.at, problem));
            }
            if names.len() > CONTAINERS_LIMIT {
                let problem = format!("a pod with more than {CONTAINERS_LIMIT} containers");
                return Err(ManifestProblem::new(node.at, problem));
            }
            found.push(container);
        }
    }
    if found.iter().all(|container| container.kind != ContainerKind::App) {
        return Err(ManifestProblem::new(spec.at, "a pod needs at least one container in `containers`"));
    }
    Ok(found)
}

/// Containers and the claims that they name (`resources.claims`), in order.
pub(super) fn named_claims(spec: &TreeNode) -> Result<Vec<(String, String)>, ManifestProblem> {
    let mut named = Vec::new();
    for field in ["initContainers", "containers"] {
        let Some(list) = spec.get(field) else { continue };
        for node in list.list(field)? {
            let Some(claims) = node.get("resources").and_then(|resources| resources.get("claims")) else {
                continue;
            };
            let container = node.must("a container", "name")?.scalar("name")?.into_owned();
            for claim in claims.list("claims")? {
                let claim = claim.must("a claim", "name")?.scalar("name")?.into_owned();
                named.push((container.clone(), claim));
                if named.len() > CONTAINERS_LIMIT {
                    let problem = format!("a pod whose containers name more than {CONTAINERS_LIMIT} claims");
                    return Err(ManifestProblem::new(node.at, problem));
                }
            }
        }
    }
    Ok(named)
}

fn container(
    node: &TreeNode,
    is_init: bool,
    warnings: &mut Vec<String>,
) -> Result<ContainerRequest, ManifestProblem> {
    let name = node.must("a container", "name")?.scalar("name")?.into_owned();
    if name.is_empty() {
        return Err(ManifestProblem::new(node.at, "a container needs a name"));
    }
    let always = node.get("restartPolicy").is_some_and(|policy| policy.text("").is_ok_and(|p| p == "Always"));
    let kind = match (is_init, always) {
        (true, true) => ContainerKind::Sidecar,
        (true, false) => ContainerKind::Init,
        (false, _) => ContainerKind::App,
    };
    for entry in node.map("a container")?.iter().filter(|entry| !FIELDS.contains(&entry.key.as_str())) {
        warnings.push(format!("container {name}: a container has no field `{}`, ignored", cut(&entry.key)));
    }
    let amounts = amounts(&name, node.get("resources"), warnings)?;
    Ok(request(name, kind, amounts))
}

/// A container with only its amounts known.
pub(super) fn request(name: String, kind: ContainerKind, amounts: RequestsAndLimits) -> ContainerRequest {
    ContainerRequest {
        name,
        kind,
        requests: amounts.requests,
        limits: amounts.limits,
        devices: amounts.devices,
        ..ContainerRequest::default()
    }
}

/// Requests and limits of a container.
#[derive(Debug, Default)]
pub(super) struct RequestsAndLimits {
    pub(super) requests: Resources,
    pub(super) limits: Resources,
    pub(super) devices: DeviceCounts,
}

fn amounts(
    name: &str,
    resources: Option<&TreeNode>,
    warnings: &mut Vec<String>,
) -> Result<RequestsAndLimits, ManifestProblem> {
    let Some(resources) = resources else { return Ok(RequestsAndLimits::default()) };
    let mut sides = [Side::default(), Side::default()];
    for entry in resources.map("resources")? {
        match entry.key.as_str() {
            "limits" => sides[0] = side(entry)?,
            "requests" => sides[1] = side(entry)?,
            "claims" => warnings.push(format!("container {name}: {CLAIMS_NOT_COUNTED}")),
            other => {
                let problem = format!("`resources` has no field `{}`; expected requests, limits", cut(other));
                return Err(ManifestProblem::new(entry.at, problem));
            }
        }
    }
    let [limits, mut requests] = sides;
    if let Some(resource) = requests.amounts.keys().find(|resource| {
        is_never_overcommitted(resource) && limits.amounts.get(*resource) != requests.amounts.get(*resource)
    }) {
        let problem = format!("container {name}: the limit of {} must be its request", cut(resource));
        return Err(ManifestProblem::new(resources.at, problem));
    }
    let is_huge = |side: &Side| side.amounts.keys().any(|resource| resource.starts_with("hugepages-"));
    let has_more = |side: &Side| ["cpu", "memory"].iter().any(|one| side.amounts.contains_key(*one));
    if (is_huge(&limits) || is_huge(&requests)) && !has_more(&limits) && !has_more(&requests) {
        let problem = format!("container {name}: huge pages need an amount of cpu or memory beside them");
        return Err(ManifestProblem::new(resources.at, problem));
    }
    for (resource, amount) in &limits.amounts {
        match requests.amounts.get(resource) {
            Some(request) if request > amount => {
                let problem = format!("container {name} requests more {resource} than its limit");
                return Err(ManifestProblem::new(resources.at, problem));
            }
            Some(_) => {}
            None => {
                requests.amounts.insert(resource.clone(), *amount);
            }
        }
    }
    Ok(RequestsAndLimits {
        devices: device_counts(&requests.amounts),
        requests: Resources::of_amounts(&requests.amounts),
        limits: Resources::of_amounts(&limits.amounts),
    })
}

/// Whether the resource needs a limit equal to its request, like devices and huge pages.
fn is_never_overcommitted(resource: &str) -> bool {
    resource.contains('/') || resource.starts_with("hugepages-")
}

/// Would a cluster take this name of a resource (`IsStandardContainerResourceName` and
/// `IsExtendedResourceName` in pkg/apis/core/helper)?
fn is_resource(name: &str) -> bool {
    name.contains('/')
        || name.starts_with("hugepages-")
        || matches!(name, "cpu" | "memory" | "ephemeral-storage" | "storage")
}

/// Amounts by resource: thousandths of CPUs, bytes, devices.
#[derive(Debug, Default)]
struct Side {
    amounts: BTreeMap<String, u64>,
}

fn side(entry: &MapEntry) -> Result<Side, ManifestProblem> {
    let mut side = Side::default();
    for MapEntry { key, node, at } in entry.node.map(&entry.key)? {
        if node.is_null() {
            continue;
        }
        if !is_resource(key) {
            let problem = format!(
                "a container has no resource `{}`; a name without a slash is cpu, memory, ephemeral-storage or \
                 hugepages-SIZE",
                cut(key)
            );
            return Err(ManifestProblem::new(*at, problem));
        }
        let text = node.scalar(key)?;
        let amount = if key == "cpu" { quantity::milli_cpus(&text) } else { quantity::whole(&text) };
        let amount = amount.ok_or_else(|| node.not(key, "a quantity like 500m, 2 or 4Gi"))?;
        if key.starts_with("hugepages-") {
            let size = page_size(key);
            let problem =
                || ManifestProblem::new(node.at, format!("`{}` is no size of huge pages", cut(key)));
            if !amount.is_multiple_of(size.ok_or_else(problem)?) {
                return Err(node.not(key, "a whole number of pages"));
            }
        }
        if key.contains('/') && quantity::milli_cpus(&text).is_none_or(|thousandths| thousandths % 1000 != 0)
        {
            return Err(node.not(key, "a whole number of devices"));
        }
        side.amounts.insert(key.clone(), amount);
    }
    Ok(side)
}

/// Bytes of one page, for `hugepages-2Mi`.
pub(super) fn page_size(resource: &str) -> Option<u64> {
    resource.strip_prefix("hugepages-").and_then(quantity::whole).filter(|size| size.is_power_of_two())
}
