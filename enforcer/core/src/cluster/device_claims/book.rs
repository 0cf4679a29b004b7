//! Claims of a plan: which devices exist, which are taken, and what each claim has.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use numa_placement::{
    PodName,
    trial::{PlannedClaim, PlannedDevice},
};
use numa_topology::{
    id::{Id, NodeId},
    set::{CpuSet, NodeSet},
};

use serde_json::{Value, json};

use super::{
    objects::{
        AllocatedDevice, Allocation, AttributeOfDevice, ClaimSpec, Device, DeviceClass, DeviceNodes,
        DeviceObjects, Slice,
    },
    offered::{Offer, offered},
    own::{self, ClaimNode, DriverClaim, DriverOfNode, PlannedDriver},
    search::{DeviceId, ONE, Offered, Search, Taken, Wanted},
};
use crate::{
    cluster::{exported::quantity::of_bytes, objects::PodClaim},
    dra::{ClaimLedger, ClaimUid, DRIVER},
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

/// See the module.
#[derive(Debug, Clone)]
pub struct ClaimBook {
    objects: DeviceObjects,
    taken: Taken,
    /// What claims of the plan and of the cluster have.
    allocated: BTreeMap<(String, String), Held>,
    /// Whether devices of this project's driver are made from the states of nodes.
    makes_own: bool,
    driver: PlannedDriver,
    /// Drivers by node.
    drivers: BTreeMap<String, DriverOfNode>,
    /// Claims of the cluster with devices of this project's driver, and their uids, by pool.
    running: BTreeMap<String, Vec<RunningClaim>>,
    /// Number of claims that the plan has given devices.
    given: u64,
    /// Uids of pods with claims: the CPUs of their containers are not kept from claims.
    claimed: BTreeSet<String>,
}

/// Namespace and name of a claim of the cluster, and its uid.
type RunningClaim = ((String, String), String);

#[derive(Debug, Clone)]
struct Held {
    uid: String,
    allocation: Allocation,
    devices: Vec<PlannedDevice>,
    /// Uids and names of its pods.
    pods: Vec<(String, String)>,
}

/// The claims of a pod.
pub struct PodClaims {
    claims: Vec<PodClaimSpec>,
    /// Uid and name of the pod.
    pod: (String, String),
}

struct PodClaimSpec {
    label: String,
    key: (String, String),
    spec: Arc<ClaimSpec>,
}

/// What the claims of a pod get on a node.
pub struct ClaimPlace {
    node: String,
    /// By claim that has nothing yet: its uid, devices, and what they take.
    found: BTreeMap<(String, String), (String, Allocation)>,
    claims: Vec<PlannedClaim>,
    /// The claims that had devices already.
    shared: Vec<(String, String)>,
    pod: (String, String),
    /// Claims that the driver of the node has then.
    ledger: Option<ClaimLedger>,
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
            let class = || DeviceClass { selectors: vec![selector], configs: Vec::new() };
            objects.classes.entry(name.to_owned()).or_insert_with(class);
        }
        let makes_own = objects.slices.iter().all(|slice| slice.driver != DRIVER);
        let mut book = Self {
            taken: Taken::default(),
            allocated: BTreeMap::new(),
            makes_own,
            driver: PlannedDriver::default(),
            drivers: BTreeMap::new(),
            running: BTreeMap::new(),
            given: 0,
            claimed: BTreeSet::new(),
            objects: DeviceObjects::default(),
        };
        for (key, claim) in &mut objects.claims {
            if let Some(allocation) = claim.allocation.take() {
                let (uid, pods) = (claim.uid.clone(), std::mem::take(&mut claim.pods));
                let devices = book.take(&allocation);
                if let Some(own) = allocation.results.iter().find(|result| result.driver == DRIVER) {
                    book.running.entry(own.pool.clone()).or_default().push((key.clone(), uid.clone()));
                    book.claimed.extend(pods.iter().map(|(uid, _)| uid.clone()));
                }
                book.allocated.insert(key.clone(), Held { uid, allocation, devices, pods });
            }
        }
        book.objects = objects;
        book
    }

    /// The same book with the driver configured so.
    #[must_use]
    pub fn with_driver(self, driver: PlannedDriver) -> Self {
        Self { driver, ..self }
    }

    /// Counts devices as taken.
    fn take(&mut self, allocation: &Allocation) -> Vec<PlannedDevice> {
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
                numa_nodes: NodeSet::new(),
                consumed: some.map(|(key, amount)| (key.clone(), written(*amount))).collect(),
                cpus: CpuSet::new(),
                options: BTreeMap::new(),
            });
        }
        devices
    }

    /// The claims that a pod names.
    ///
    /// # Errors
    /// The reason why no node can take the pod.
    pub fn resolve(&self, pod: &PodName, named: &[PodClaim]) -> Result<PodClaims, String> {
        if named.len() > MAX_CLAIMS {
            return Err(format!("DRA: more than {MAX_CLAIMS} claims"));
        }
        let mut claims: Vec<PodClaimSpec> = Vec::new();
        for PodClaim { name, claim, template, .. } in named {
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
        let uid = if pod.uid.is_empty() { pod.to_string() } else { pod.uid.clone() };
        Ok(PodClaims { claims, pod: (uid, pod.name.clone()) })
    }

    /// What the claims would get on a node.
    ///
    /// # Errors
    /// The reason for nothing.
    pub fn find(&mut self, node: &ClaimNode<'_>, pod: &PodClaims) -> Result<ClaimPlace, String> {
        for claim in &pod.claims {
            let held = self.allocated.get(&claim.key).and_then(|held| held.allocation.nodes.as_ref());
            if held.is_some_and(|nodes| nodes.iter().all(|name| name != node.name)) {
                return Err(format!("DRA: claim {} has devices of another node", claim.label));
            }
        }
        self.ask_driver(node);
        let of_node = self.drivers.get(node.name);
        let own = of_node.filter(|_| self.makes_own).map_or(&[][..], |driver| driver.slices.as_slice());
        let Offer { devices, counters, lacks_devices } =
            offered(self.objects.slices.iter().chain(own), node.name, &self.taken);
        let open: Vec<&PodClaimSpec> =
            pod.claims.iter().filter(|claim| !self.allocated.contains_key(&claim.key)).collect();
        let mut search = Search {
            claims: open.iter().map(|claim| Wanted { label: &claim.label, spec: &claim.spec }).collect(),
            classes: &self.objects.classes,
            devices,
            counters,
            taken: &self.taken,
            picks: Vec::new(),
            steps: 0,
            furthest: None,
        };
        search.run().map_err(|reason| {
            let left_out = "; devices whose nodes are chosen by labels are left out";
            if lacks_devices { reason + left_out } else { reason }
        })?;
        let mut ledger = of_node.map(|driver| driver.ledger.clone());
        let mut found = BTreeMap::new();
        let mut planned = BTreeMap::new();
        for (at, claim) in open.iter().enumerate() {
            let (mut devices, mut allocation) = picked(&search, (at, claim), node.name);
            let uid = format!("plan-{}-{at}", self.given);
            allocation.configs = self.configs(&claim.spec, &allocation.results);
            let Allocation { results, configs, .. } = &allocation;
            if results.iter().any(|result| result.driver == DRIVER) {
                let pods = std::slice::from_ref(&pod.pod);
                let of_driver = DriverClaim { key: &claim.key, uid: &uid, results, configs, pods };
                let refused = |problem: String| format!("DRA: claim {}: {problem}", claim.label);
                match (of_node, &mut ledger) {
                    (Some(of_node), Some(ledger)) => {
                        let prepared = own::prepare(ledger, &of_driver, of_node.supply(), &self.driver);
                        if let Some(prepared) = prepared.map_err(refused)? {
                            own::note(prepared, &mut devices);
                        }
                    }
                    _ => own::check(&of_driver, node.name, &self.driver).map_err(refused)?,
                }
            }
            found.insert(claim.key.clone(), (uid, allocation));
            planned.insert(claim.key.clone(), devices);
        }
        let planned_claim = |claim: &PodClaimSpec| {
            let held = self.allocated.get(&claim.key).map(|held| self.devices_of(held, pod, node.name));
            PlannedClaim {
                name: claim.label.clone(),
                claim: claim.key.1.clone(),
                devices: held.or_else(|| planned.remove(&claim.key)).unwrap_or_default(),
            }
        };
        let claims = pod.claims.iter().map(planned_claim).collect();
        let keys = pod.claims.iter().map(|claim| &claim.key);
        let shared = keys.filter(|key| self.allocated.contains_key(*key)).cloned().collect();
        Ok(ClaimPlace { node: node.name.to_owned(), found, claims, shared, pod: pod.pod.clone(), ledger })
    }

    /// The opaque configurations of an allocation, as a scheduler puts them together: those of the class of
    /// each request, then those of the claim.
    fn configs(&self, spec: &ClaimSpec, results: &[AllocatedDevice]) -> Vec<Value> {
        let mut configs = Vec::new();
        let mut requests = BTreeSet::new();
        for result in results.iter().filter(|result| requests.insert(&result.request)) {
            let alternatives = spec.requests.iter().flat_map(|request| &request.alternatives);
            let of_result = alternatives.into_iter().find(|one| one.name == result.request);
            let class = of_result.and_then(|one| self.objects.classes.get(&one.class));
            for config in class.into_iter().flat_map(|class| &class.configs) {
                let mut config = config.clone();
                config["source"] = json!("FromClass");
                config["requests"] = json!([result.request]);
                configs.push(config);
            }
        }
        configs.extend(spec.configs.iter().map(|config| {
            let mut config = config.clone();
            config["source"] = json!("FromClaim");
            config
        }));
        configs
    }

    /// The devices of a claim that has some, for one more pod. A pod that came later has no share of
    /// exclusive CPUs.
    fn devices_of(&self, held: &Held, pod: &PodClaims, node: &str) -> Vec<PlannedDevice> {
        let mut devices = held.devices.clone();
        let uid = ClaimUid::parse(&held.uid);
        let prepared = uid.and_then(|uid| self.drivers.get(node)?.ledger.claim(&uid));
        let Some(prepared) = prepared.filter(|prepared| !prepared.is_recovered()) else { return devices };
        own::note(prepared, &mut devices);
        if !self.driver.share_exclusive() && held.pods.first().is_some_and(|first| *first != pod.pod) {
            for device in &mut devices {
                device.cpus = CpuSet::new();
            }
        }
        devices
    }

    /// Gives the claims of a pod what was found for them.
    pub fn give(&mut self, uid: &str, place: ClaimPlace) -> Vec<PlannedClaim> {
        self.claimed.insert(uid.to_owned());
        self.given += 1;
        if let (Some(driver), Some(ledger)) = (self.drivers.get_mut(&place.node), place.ledger) {
            driver.ledger = ledger;
        }
        for key in place.shared {
            if let Some(held) = self.allocated.get_mut(&key) {
                held.pods.push(place.pod.clone());
            }
        }
        for (key, (uid, allocation)) in place.found {
            self.take(&allocation);
            let devices = place.claims.iter().find(|claim| claim.claim == key.1);
            let devices = devices.map(|claim| claim.devices.clone()).unwrap_or_default();
            self.allocated.insert(key, Held { uid, allocation, devices, pods: vec![place.pod.clone()] });
        }
        place.claims
    }

    /// Takes back what only this pod has, as a cluster does when the pod is gone.
    pub(super) fn end(&mut self, uid: &str) {
        let mut ended = Vec::new();
        self.allocated.retain(|_, held| {
            let before = held.pods.len();
            held.pods.retain(|(pod, _)| pod != uid);
            let stays = before == held.pods.len() || !held.pods.is_empty();
            if !stays {
                ended.extend(ClaimUid::parse(&held.uid));
            }
            stays
        });
        for uid in ended {
            self.drivers.values_mut().for_each(|driver| drop(driver.ledger.unprepare(&uid)));
        }
        let held: Vec<Allocation> = self.allocated.values().map(|held| held.allocation.clone()).collect();
        self.taken = Taken::default();
        for allocation in &held {
            self.take(allocation);
        }
    }

    /// Uids of the claims of a pod that have these names in it.
    pub(super) fn uids_of(&self, pod: &PodName, named: &[PodClaim], labels: &[&str]) -> BTreeSet<ClaimUid> {
        let named: Vec<PodClaim> =
            named.iter().filter(|claim| labels.contains(&claim.name.as_str())).cloned().collect();
        let claims = self.resolve(pod, &named).map(|pod| pod.claims).unwrap_or_default();
        let held = claims.iter().filter_map(|claim| self.allocated.get(&claim.key));
        held.filter_map(|held| ClaimUid::parse(&held.uid)).collect()
    }

    /// The driver of a node that has been asked.
    pub(super) fn driver_of(&self, node: &str) -> Option<&DriverOfNode> {
        self.drivers.get(node)
    }

    /// The node that slices name, if all name the same or none.
    pub(super) fn only_node(&self) -> Option<&str> {
        let mut names = self.objects.slices.iter().filter_map(|slice| match &slice.nodes {
            DeviceNodes::One(name) => Some(name.as_str()),
            _ => None,
        });
        let first = names.next().unwrap_or("this-machine");
        names.all(|name| name == first).then_some(first)
    }

    /// Has the driver of the node know its machine, and the claims that run there.
    fn ask_driver(&mut self, node: &ClaimNode<'_>) {
        let Some(inventory) = node.inventory else { return };
        let claimed = |uid: &str| self.claimed.contains(uid);
        match self.drivers.entry(node.name.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut().follow(node, inventory, &self.driver, &claimed),
            Entry::Vacant(entry) => {
                let of_node = entry.insert(DriverOfNode::new(node, inventory, &self.driver, &claimed));
                for (key, uid) in self.running.get(node.name).into_iter().flatten() {
                    let Some(held) = self.allocated.get(key) else { continue };
                    let mut cpus = CpuSet::new();
                    for (pod, _) in &held.pods {
                        let of_pod = node.allocations.iter().filter(|(holder, _)| holder.pod().uid == *pod);
                        of_pod.for_each(|(_, grant)| cpus.extend(&grant.exclusive));
                    }
                    let Allocation { results, configs, .. } = &held.allocation;
                    let claim = DriverClaim { key, uid, results, configs, pods: &held.pods };
                    of_node.take_up(&claim, cpus, &self.driver);
                }
            }
        }
    }
}

/// What the search has found for a claim.
fn picked(
    search: &Search<'_>,
    (at, claim): (usize, &PodClaimSpec),
    node: &str,
) -> (Vec<PlannedDevice>, Allocation) {
    let mut allocation = Allocation::default();
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
            cpus: CpuSet::new(),
            options: BTreeMap::new(),
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
    (devices, allocation)
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
