//! Claims of a plan: which devices exist, which are taken, and what each claim has.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use numa_placement::PodName;
use numa_topology::{
    id::{Id, NodeId},
    set::{CpuSet, NodeSet},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    objects::{
        AllocatedDevice, Allocation, AttributeOfDevice, ClaimSpec, Device, DeviceObjects, Slice, read_slice,
    },
    search::{DeviceId, ONE, Offered, Search, Taken, Wanted},
};
use crate::{
    cluster::{exported::quantity::of_bytes, objects::PodClaim, view::NodeView},
    dra::{
        BudgetOptions, ClaimSupply, DRIVER, PublishOptions,
        field::Field,
        slice::{SliceOwner, slices},
    },
};

/// Most claims of a pod.
const MAX_CLAIMS: usize = 16;
/// Attributes with the NUMA node of a device, the standard one first.
const NUMA_NODE: [&str; 3] = ["resource.kubernetes.io/numaNode", "dra.net/numaNode", "dra.cpu/numaNodeID"];
/// Classes of the chart, which exist where the driver is installed.
const OWN_CLASSES: [(&str, &str); 3] = [
    ("numa-enforcer.io", r#"device.driver == "numa-enforcer.io""#),
    (
        "numa-enforcer.io-dram",
        r#"device.driver == "numa-enforcer.io" && device.attributes["numa-enforcer.io"].memoryKind == "dram" && !device.attributes["numa-enforcer.io"].cpuless"#,
    ),
    (
        "numa-enforcer.io-far",
        r#"device.driver == "numa-enforcer.io" && device.attributes["numa-enforcer.io"].cpuless"#,
    ),
];

/// What a claim of a pod has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedClaim {
    /// Its name in the pod.
    pub name: String,
    /// Name of the claim; of one that a template makes, without what the cluster appends.
    pub claim: String,
    /// Its devices, in the order of its requests.
    pub devices: Vec<PlannedDevice>,
}

/// A device of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedDevice {
    /// Request, with its alternative: `place` or `place/two-nodes`.
    pub request: String,
    /// Driver of the device.
    pub driver: String,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// NUMA nodes that it names; empty if it names none.
    pub numa_nodes: NodeSet,
    /// What is taken of a device that claims share, by capacity; without amounts of 0.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed: BTreeMap<String, String>,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct ClaimBook {
    objects: DeviceObjects,
    taken: Taken,
    /// What claims of the plan and of the cluster have.
    allocated: BTreeMap<(String, String), Held>,
    /// Whether devices of this project's driver are made from the states of nodes.
    makes_own: bool,
    own: BTreeMap<String, (u64, Vec<Slice>)>,
    /// Uids of pods with claims: the CPUs of their containers are not kept from claims.
    claimed: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Held {
    nodes: Option<Vec<String>>,
    devices: Vec<PlannedDevice>,
}

/// The claims of a pod.
pub(in crate::cluster) struct PodClaims {
    claims: Vec<PodClaimSpec>,
}

struct PodClaimSpec {
    label: String,
    key: (String, String),
    spec: Arc<ClaimSpec>,
}

/// What the claims of a pod get on a node.
pub(in crate::cluster) struct ClaimPlace {
    /// By claim that has nothing yet, in their order: devices, and what they take.
    found: BTreeMap<(String, String), Allocation>,
    claims: Vec<PlannedClaim>,
}

impl ClaimBook {
    /// The book of these objects: what their claims have is taken.
    pub fn new(mut objects: DeviceObjects) -> Self {
        objects.slices.sort_by(|one, other| {
            let key = |slice: &Slice| (slice.driver.clone(), slice.pool.clone(), slice.name.clone());
            key(one).cmp(&key(other))
        });
        for (name, selector) in OWN_CLASSES {
            let selector = super::cel::Selector::parse(selector).map_err(|problem| problem.to_string());
            objects.classes.entry(name.to_owned()).or_insert_with(|| vec![selector]);
        }
        let makes_own = objects.slices.iter().all(|slice| slice.driver != DRIVER);
        let mut book = Self {
            taken: Taken::default(),
            allocated: BTreeMap::new(),
            makes_own,
            own: BTreeMap::new(),
            claimed: BTreeSet::new(),
            objects: DeviceObjects::default(),
        };
        for (key, claim) in &mut objects.claims {
            if let Some(allocation) = claim.allocation.take() {
                let devices = book.take(&allocation, |_| NodeSet::new());
                book.allocated.insert(key.clone(), Held { nodes: allocation.nodes, devices });
            }
        }
        book.objects = objects;
        book
    }

    /// Counts devices as taken.
    fn take(
        &mut self,
        allocation: &Allocation,
        nodes_of: impl Fn(&AllocatedDevice) -> NodeSet,
    ) -> Vec<PlannedDevice> {
        let mut devices = Vec::new();
        for result in &allocation.results {
            let id: DeviceId = (result.driver.clone(), result.pool.clone(), result.device.clone());
            if !result.is_admin {
                if result.is_share {
                    let share = self.taken.shares.entry(id).or_default();
                    for (key, amount) in &result.consumed {
                        let sum = share.entry(key.clone()).or_default();
                        *sum = sum.saturating_add(*amount);
                    }
                } else {
                    self.taken.whole.insert(id);
                }
            }
            let some = result.consumed.iter().filter(|(_, amount)| **amount > 0);
            devices.push(PlannedDevice {
                request: result.request.clone(),
                driver: result.driver.clone(),
                pool: result.pool.clone(),
                device: result.device.clone(),
                numa_nodes: nodes_of(result),
                consumed: some.map(|(key, amount)| (key.clone(), written(*amount))).collect(),
            });
        }
        devices
    }

    /// The claims that a pod names.
    ///
    /// # Errors
    /// The reason why no node can take the pod.
    pub(in crate::cluster) fn resolve(&self, pod: &PodName, named: &[PodClaim]) -> Result<PodClaims, String> {
        if named.len() > MAX_CLAIMS {
            return Err(format!("DRA: more than {MAX_CLAIMS} claims"));
        }
        let mut claims: Vec<PodClaimSpec> = Vec::new();
        for PodClaim { name, claim, template } in named {
            let of = |name: &str| (pod.namespace.clone(), name.to_owned());
            let (key, spec) = match (claim, template) {
                (Some(claim), _) => (of(claim), self.objects.claims.get(&of(claim)).map(|claim| &claim.spec)),
                (None, Some(template)) => {
                    (of(&format!("{}-{name}", pod.name)), self.objects.templates.get(&of(template)))
                }
                (None, None) => return Err(format!("DRA: claim {} names no claim", super::shown(name))),
            };
            let wanted = claim.as_ref().or(template.as_ref()).map_or("", String::as_str);
            let kind = if claim.is_some() { "ResourceClaim" } else { "ResourceClaimTemplate" };
            let spec = spec.ok_or_else(|| format!("DRA: no {kind} {}", super::shown(wanted)))?;
            // Two names in the pod may be of one claim.
            if claims.iter().any(|other| other.key == key) {
                continue;
            }
            claims.push(PodClaimSpec { label: name.clone(), key, spec: Arc::clone(spec) });
        }
        Ok(PodClaims { claims })
    }

    /// What the claims would get on a node.
    ///
    /// # Errors
    /// The reason for nothing.
    pub(in crate::cluster) fn find(
        &mut self,
        node: &str,
        view: &NodeView,
        pod: &PodClaims,
    ) -> Result<ClaimPlace, String> {
        for claim in &pod.claims {
            let held = self.allocated.get(&claim.key).and_then(|held| held.nodes.as_ref());
            if held.is_some_and(|nodes| nodes.iter().all(|name| name != node)) {
                return Err(format!("DRA: claim {} has devices of another node", claim.label));
            }
        }
        self.make_own(node, view);
        let own = self.own.get(node).map_or(&[][..], |(_, slices)| slices.as_slice());
        let devices = offered(self.objects.slices.iter().chain(own), node);
        let open: Vec<&PodClaimSpec> =
            pod.claims.iter().filter(|claim| !self.allocated.contains_key(&claim.key)).collect();
        let mut search = Search {
            claims: open.iter().map(|claim| Wanted { label: &claim.label, spec: &claim.spec }).collect(),
            classes: &self.objects.classes,
            devices,
            taken: &self.taken,
            picks: Vec::new(),
            steps: 0,
            furthest: None,
        };
        search.run()?;
        let mut found = BTreeMap::new();
        let mut planned = BTreeMap::new();
        for (at, claim) in open.iter().enumerate() {
            let mut allocation = Allocation { nodes: None, results: Vec::new() };
            let mut devices = Vec::new();
            let mut is_local = false;
            for pick in search.picks.iter().filter(|pick| pick.claim == at) {
                let Offered { id, device, is_of_node } = &search.devices[pick.at];
                let alternative = claim.spec.requests.get(pick.request);
                let alternative = alternative.and_then(|one| one.alternatives.get(pick.alternative));
                let Some(alternative) = alternative else { continue };
                is_local |= is_of_node;
                let (driver, pool, name) = id.clone();
                let some = pick.consumed.iter().filter(|(_, amount)| **amount > 0);
                devices.push(PlannedDevice {
                    request: alternative.name.clone(),
                    driver: driver.clone(),
                    pool: pool.clone(),
                    device: name.clone(),
                    numa_nodes: numa_nodes(device, &driver),
                    consumed: some.map(|(key, amount)| (key.clone(), written(*amount))).collect(),
                });
                allocation.results.push(AllocatedDevice {
                    request: alternative.name.clone(),
                    driver,
                    pool,
                    device: name,
                    is_admin: alternative.is_admin,
                    is_share: device.allows_multiple,
                    consumed: pick.consumed.clone(),
                });
            }
            allocation.nodes = is_local.then(|| vec![node.to_owned()]);
            found.insert(claim.key.clone(), allocation);
            planned.insert(claim.key.clone(), devices);
        }
        let planned_claim = |claim: &PodClaimSpec| {
            let held = self.allocated.get(&claim.key).map(|held| held.devices.clone());
            PlannedClaim {
                name: claim.label.clone(),
                claim: claim.key.1.clone(),
                devices: held.or_else(|| planned.remove(&claim.key)).unwrap_or_default(),
            }
        };
        let claims = pod.claims.iter().map(planned_claim).collect();
        Ok(ClaimPlace { found, claims })
    }

    /// Gives the claims of a pod what was found for them.
    pub(in crate::cluster) fn give(&mut self, uid: &str, place: ClaimPlace) -> Vec<PlannedClaim> {
        self.claimed.insert(uid.to_owned());
        for (key, allocation) in place.found {
            self.take(&allocation, |_| NodeSet::new());
            let devices = place.claims.iter().find(|claim| claim.claim == key.1);
            let devices = devices.map(|claim| claim.devices.clone()).unwrap_or_default();
            self.allocated.insert(key, Held { nodes: allocation.nodes, devices });
        }
        place.claims
    }

    /// Makes the devices that the driver of this project would publish on a node.
    fn make_own(&mut self, node: &str, view: &NodeView) {
        if !self.makes_own || self.own.get(node).is_some_and(|(version, _)| *version == view.version()) {
            return;
        }
        let Some(model) = view.model() else { return };
        let mut given = CpuSet::new();
        for (holder, grant) in view.allocations().iter() {
            if !self.claimed.contains(&holder.pod().uid) {
                given.extend(&grant.exclusive);
            }
        }
        let supply = ClaimSupply::new(&model.inventory, &BudgetOptions::default(), &given);
        let options = PublishOptions { version: env!("CARGO_PKG_VERSION"), ..PublishOptions::default() };
        let owner = SliceOwner { driver: DRIVER, node, node_uid: "", generation: 1 };
        let made = slices(&model.inventory, &supply, &options, &owner);
        let read = made.iter().enumerate().filter_map(|(at, slice)| {
            let spec = slice.spec_json();
            read_slice(format!("{at:05}"), &Field::root(&spec)).ok()
        });
        self.own.insert(node.to_owned(), (view.version(), read.collect()));
    }
}

/// Devices for the node, of complete pools of the newest generation, in the order of the scheduler.
fn offered<'a>(slices: impl Iterator<Item = &'a Slice>, node: &str) -> Vec<Offered<'a>> {
    let mut pools: BTreeMap<(&str, &str), Vec<&Slice>> = BTreeMap::new();
    for slice in slices {
        pools.entry((&slice.driver, &slice.pool)).or_default().push(slice);
    }
    let mut devices = Vec::new();
    for of_pool in pools.values() {
        let newest = of_pool.iter().map(|slice| slice.generation).max().unwrap_or(0);
        let of_pool: Vec<_> = of_pool.iter().filter(|slice| slice.generation == newest).collect();
        let mut names = BTreeSet::new();
        let is_whole = of_pool.iter().all(|slice| slice.of_pool == of_pool.len() as u64)
            && of_pool.iter().flat_map(|slice| &slice.devices).all(|device| names.insert(&device.name));
        for slice in of_pool {
            let is_here = slice.node.as_deref().is_none_or(|name| name == node) && !slice.has_other_nodes;
            if !is_whole || !is_here {
                continue;
            }
            devices.extend(slice.devices.iter().map(|device| Offered {
                id: (slice.driver.clone(), slice.pool.clone(), device.name.clone()),
                device,
                is_of_node: slice.node.is_some(),
            }));
        }
    }
    devices
}

fn numa_nodes(device: &Device, driver: &str) -> NodeSet {
    let own = format!("{driver}/numaNode");
    let names = NUMA_NODE.into_iter().chain([own.as_str(), "numaNode"]);
    let node = |number: i64| u32::try_from(number).ok().filter(|id| *id <= NodeId::GREATEST).map(NodeId);
    for name in names {
        match device.attributes.get(name) {
            Some(AttributeOfDevice::Int(number)) => return node(*number).into_iter().collect(),
            Some(AttributeOfDevice::List(values)) => {
                let number = |value: &AttributeOfDevice| match value {
                    AttributeOfDevice::Int(number) => node(*number),
                    _ => None,
                };
                return values.iter().filter_map(number).collect();
            }
            _ => {}
        }
    }
    NodeSet::new()
}

/// A quantity as Kubernetes writes it.
fn written(nano: u128) -> String {
    match (u64::try_from(nano / ONE), nano % ONE) {
        (Ok(whole), 0) => of_bytes(whole),
        _ => format!("{}m", nano.div_ceil(ONE / 1000)),
    }
}
