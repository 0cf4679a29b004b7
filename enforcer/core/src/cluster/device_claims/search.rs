//! Devices for claims on one node, as the structured allocator of Kubernetes 1.36 finds them.
//!
//! Idea: depth first over claims, requests, alternatives and devices in their order; the first that fits.
//! Checks of a device in order: in use, selectors, capacity, counters, taints, constraints.

use std::collections::{BTreeMap, BTreeSet};

use super::objects::{Alternative, AttributeOfDevice, Capacity, ClaimSpec, Counters, Device, DeviceClass};
use crate::cluster::objects::PodScheduling;

/// Most devices that are looked at for one pod on one node.
const STEPS: usize = 100_000;
/// Most devices of a claim (`AllocationResultsMaxSize`).
const MAX_RESULTS: usize = 32;
/// One of a quantity.
pub(super) const ONE: u128 = 1_000_000_000;

/// Driver, pool and name of a device.
pub(super) type DeviceId = (String, String, String);
/// Amounts by capacity.
pub(super) type CapacityAmounts = BTreeMap<String, u128>;

/// What claims have.
#[derive(Debug, Clone, Default)]
pub(super) struct Taken {
    pub(super) whole: BTreeSet<DeviceId>,
    pub(super) shares: BTreeMap<DeviceId, CapacityAmounts>,
}

/// A device that the node can use.
#[derive(Debug)]
pub(super) struct Offered<'a> {
    pub(super) id: DeviceId,
    pub(super) device: &'a Device,
    /// Whether no other node can use it.
    pub(super) is_of_node: bool,
}

/// A device for a request.
#[derive(Debug, Clone)]
pub(super) struct Pick {
    pub(super) claim: usize,
    pub(super) request: usize,
    pub(super) alternative: usize,
    /// Position among those that are offered.
    pub(super) at: usize,
    pub(super) consumed: CapacityAmounts,
}

/// A claim to find devices for.
pub(super) struct Wanted<'a> {
    /// Its name in the pod.
    pub(super) label: &'a str,
    pub(super) spec: &'a ClaimSpec,
}

/// See the module.
pub(super) struct Search<'a> {
    pub(super) claims: Vec<Wanted<'a>>,
    pub(super) classes: &'a BTreeMap<String, DeviceClass>,
    pub(super) devices: Vec<Offered<'a>>,
    /// What is left of the counters of each driver's pool.
    pub(super) counters: BTreeMap<(String, String), Counters>,
    pub(super) taken: &'a Taken,
    pub(super) picks: Vec<Pick>,
    pub(super) steps: usize,
    /// The furthest request that no device was found for, with the reason.
    pub(super) furthest: Option<((usize, usize), String)>,
}

/// Why a device is not taken, in the order of the checks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    InUse,
    Selector,
    Capacity(String),
    Counter(String),
    Taint(String),
    Constraint(String),
}

impl Lack {
    fn words(&self) -> String {
        match self {
            Self::InUse => "no device is free".into(),
            Self::Selector => "no free device matches".into(),
            Self::Capacity(key) => format!("not enough {key} on one device"),
            Self::Counter(name) => format!("not enough of the shared counter {name}"),
            Self::Taint(key) => format!("device(s) had untolerated taint {key}"),
            Self::Constraint(attribute) => format!("no device satisfies the constraint on {attribute}"),
        }
    }
}

impl Search<'_> {
    /// The devices of all claims, or the reason for none.
    pub(super) fn run(&mut self) -> Result<(), String> {
        if self.claim(0)? {
            return Ok(());
        }
        let none = || "DRA: no devices for all claims together".to_owned();
        Err(self.furthest.take().map_or_else(none, |(_, reason)| reason))
    }

    fn claim(&mut self, claim: usize) -> Result<bool, String> {
        if claim == self.claims.len() { Ok(true) } else { self.request(claim, 0) }
    }

    fn request(&mut self, claim: usize, request: usize) -> Result<bool, String> {
        let spec = self.claims[claim].spec;
        let Some(wanted) = spec.requests.get(request) else { return self.claim(claim + 1) };
        for (at, alternative) in wanted.alternatives.iter().enumerate() {
            let found = match alternative.count {
                Some(count) => self.devices(claim, request, at, count, 0)?,
                None => self.all(claim, request, at)?,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `left` more devices from position `from` on, then the next request.
    fn devices(
        &mut self,
        claim: usize,
        request: usize,
        alternative: usize,
        left: usize,
        from: usize,
    ) -> Result<bool, String> {
        if left == 0 {
            return self.request(claim, request + 1);
        }
        let mut lacks = BTreeSet::new();
        for at in from..self.devices.len() {
            let pick = Pick { claim, request, alternative, at, consumed: CapacityAmounts::new() };
            match self.check(&pick)? {
                Err(lack) => drop(lacks.insert(lack)),
                Ok(consumed) => {
                    self.picks.push(Pick { consumed, ..pick });
                    if self.devices(claim, request, alternative, left - 1, at + 1)? {
                        return Ok(true);
                    }
                    self.picks.pop();
                }
            }
        }
        let has_some = self.picks.iter().any(|pick| (pick.claim, pick.request) == (claim, request));
        let lack = lacks.pop_last().filter(|lack| !has_some || *lack > Lack::Selector);
        self.note(claim, request, lack.map(|lack| lack.words()));
        Ok(false)
    }

    /// All devices that match, each of them free, then the next request.
    fn all(&mut self, claim: usize, request: usize, alternative: usize) -> Result<bool, String> {
        let before = self.picks.len();
        let spec = self.claims[claim].spec;
        let Some(wanted) = spec.requests[request].alternatives.get(alternative) else { return Ok(false) };
        let mut lack = None;
        for at in 0..self.devices.len() {
            if !self.matches(claim, wanted, at)? {
                continue;
            }
            let pick = Pick { claim, request, alternative, at, consumed: CapacityAmounts::new() };
            match self.check(&pick)? {
                Ok(consumed) => self.picks.push(Pick { consumed, ..pick }),
                Err(found) => {
                    lack = Some(format!("all devices are asked for: {}", found.words()));
                    break;
                }
            }
        }
        if lack.is_none() && self.picks.len() > before && self.request(claim, request + 1)? {
            return Ok(true);
        }
        self.picks.truncate(before);
        self.note(claim, request, lack);
        Ok(false)
    }

    fn note(&mut self, claim: usize, request: usize, lack: Option<String>) {
        if self.furthest.as_ref().is_none_or(|(at, _)| *at < (claim, request)) {
            let Wanted { label, spec } = &self.claims[claim];
            let name = spec.requests.get(request).map_or("", |request| request.name.as_str());
            let lack = lack.unwrap_or_else(|| "too few devices".into());
            self.furthest = Some(((claim, request), format!("DRA: claim {label}, request {name}: {lack}")));
        }
    }

    fn matches(&mut self, claim: usize, wanted: &Alternative, at: usize) -> Result<bool, String> {
        let Offered { id: (driver, ..), device, .. } = &self.devices[at];
        let label = self.claims[claim].label;
        let reason = |problem: &str| format!("DRA: claim {label}, request {}: {problem}", wanted.name);
        let class = self.classes.get(&wanted.class);
        let class =
            class.ok_or_else(|| reason(&format!("no DeviceClass {}", super::shown(&wanted.class))))?;
        for selector in class.selectors.iter().chain(&wanted.selectors) {
            let selector = selector.as_ref().map_err(|problem| reason(problem))?;
            let holds = selector.holds(driver, device);
            let holds = holds.map_err(|error| {
                reason(&format!(
                    "selector {} of device {}: {error}",
                    super::shown(selector.text()),
                    device.name
                ))
            })?;
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What the device would give to a pick; the outer error ends the search.
    fn check(&mut self, pick: &Pick) -> Result<Result<CapacityAmounts, Lack>, String> {
        self.steps += 1;
        if self.steps > STEPS {
            return Err("DRA: too many combinations of devices".into());
        }
        let spec = self.claims[pick.claim].spec;
        let request = &spec.requests[pick.request];
        let wanted = &request.alternatives[pick.alternative];
        let (id, device) = (self.devices[pick.at].id.clone(), self.devices[pick.at].device);
        let of_claim = self.picks.iter().filter(|other| other.claim == pick.claim).count();
        if of_claim >= MAX_RESULTS {
            return Err(format!(
                "DRA: claim {}: more than {MAX_RESULTS} devices",
                self.claims[pick.claim].label
            ));
        }
        let is_picked = self.picks.iter().any(|other| other.at == pick.at && !self.is_admin(other));
        let is_in_use = self.taken.whole.contains(&id)
            || (!device.allows_multiple && (is_picked || self.taken.shares.contains_key(&id)));
        if is_in_use && !wanted.is_admin {
            return Ok(Err(Lack::InUse));
        }
        if !self.matches(pick.claim, wanted, pick.at)? {
            return Ok(Err(Lack::Selector));
        }
        let consumed = match self.capacity(wanted, pick.at, &id) {
            Ok(consumed) => consumed,
            Err(key) => return Ok(Err(Lack::Capacity(key))),
        };
        if let Some(short) = self.short_counter(&id, device).filter(|_| !wanted.is_admin) {
            return Ok(Err(Lack::Counter(short)));
        }
        let tolerating =
            PodScheduling { tolerations: wanted.tolerations.clone(), ..PodScheduling::default() };
        let hard = |effect: &str| matches!(effect, "NoSchedule" | "NoExecute");
        let taints: Vec<_> = device.taints.iter().filter(|taint| hard(&taint.effect)).cloned().collect();
        if let Some(taint) = tolerating.untolerated(&taints) {
            return Ok(Err(Lack::Taint(taint.key.clone())));
        }
        for constraint in spec.constraints.iter().filter(|one| one.is_of(&request.name, &wanted.name)) {
            let own = attribute_of(device, &id.0, &constraint.attribute);
            let of_others = self.picks.iter().filter(|other| {
                let request = spec.requests.get(other.request);
                let is_of = |request: &super::objects::Request| {
                    let alternative = request.alternatives.get(other.alternative);
                    constraint.is_of(&request.name, alternative.map_or("", |one| one.name.as_str()))
                };
                other.claim == pick.claim && request.is_some_and(is_of)
            });
            let holds = own.is_some_and(|own| {
                !matches!(own, AttributeOfDevice::List(_))
                    && of_others.into_iter().all(|other| {
                        let Offered { id, device, .. } = &self.devices[other.at];
                        let other = attribute_of(device, &id.0, &constraint.attribute);
                        (other == Some(own)) != constraint.is_distinct
                    })
            });
            if !holds {
                return Ok(Err(Lack::Constraint(constraint.attribute.clone())));
            }
        }
        Ok(Ok(consumed))
    }

    fn is_admin(&self, pick: &Pick) -> bool {
        let request = self.claims[pick.claim].spec.requests.get(pick.request);
        request.and_then(|one| one.alternatives.get(pick.alternative)).is_some_and(|one| one.is_admin)
    }

    /// The counter of which too little is left for a device. A device that has a share already has its
    /// counters too.
    fn short_counter(&self, id: &DeviceId, device: &Device) -> Option<String> {
        let (driver, pool, _) = id;
        let picked: BTreeSet<usize> =
            self.picks.iter().filter(|pick| !self.is_admin(pick)).map(|pick| pick.at).collect();
        let has_it = |at: &usize| self.devices[*at].id == *id;
        if self.taken.shares.contains_key(id) || picked.iter().any(has_it) {
            return None;
        }
        let left = self.counters.get(&(driver.clone(), pool.clone()));
        let in_pool = |at: &&usize| (&self.devices[**at].id.0, &self.devices[**at].id.1) == (driver, pool);
        let amount = |counters: &Counters, set: &str, name: &str| {
            counters.get(set).and_then(|counters| counters.get(name)).copied().unwrap_or(0)
        };
        let mut all = device.counters.iter().flat_map(|(set, counters)| {
            counters.iter().map(move |(name, wanted)| (set.as_str(), name.as_str(), *wanted))
        });
        all.find(|(set, name, wanted)| {
            let used = picked.iter().filter(in_pool).fold(*wanted, |sum, at| {
                sum.saturating_add(amount(&self.devices[*at].device.counters, set, name))
            });
            used > left.map_or(0, |left| amount(left, set, name))
        })
        .map(|(set, name, _)| format!("{set}/{name}"))
    }

    /// What the request takes of each capacity, or the one that is short or unknown.
    fn capacity(&self, wanted: &Alternative, at: usize, id: &DeviceId) -> Result<CapacityAmounts, String> {
        let device = self.devices[at].device;
        if let Some(unknown) = wanted.amounts.keys().find(|key| !device.capacity.contains_key(*key)) {
            return Err(unknown.clone());
        }
        let mut consumed = CapacityAmounts::new();
        for (key, capacity) in &device.capacity {
            let asked = wanted.amounts.get(key).copied();
            let amount = consumption(asked, capacity).ok_or_else(|| key.clone())?;
            let of = |amounts: &CapacityAmounts| amounts.get(key).copied().unwrap_or(0);
            let mut used = 0_u128;
            if device.allows_multiple && !wanted.is_admin {
                let picked = self.picks.iter().filter(|pick| pick.at == at && !self.is_admin(pick));
                used = self.taken.shares.get(id).map_or(0, of);
                used = picked.fold(used, |sum, pick| sum.saturating_add(of(&pick.consumed)));
            }
            if used.saturating_add(amount) > capacity.value {
                return Err(key.clone());
            }
            if device.allows_multiple {
                consumed.insert(key.clone(), amount);
            }
        }
        Ok(consumed)
    }
}

/// An attribute by its full name; one of the driver's own may be published without the domain.
fn attribute_of<'a>(device: &'a Device, driver: &str, name: &str) -> Option<&'a AttributeOfDevice> {
    let own = || {
        let (domain, bare) = name.split_once('/')?;
        device.attributes.get(bare).filter(|_| domain == driver)
    };
    device.attributes.get(name).or_else(own)
}

/// What is taken for a request, by the policy of the capacity; `None` if the policy refuses it.
fn consumption(asked: Option<u128>, capacity: &Capacity) -> Option<u128> {
    let Some(asked) = asked else { return Some(capacity.default.unwrap_or(capacity.value)) };
    if let Some((least, greatest, step)) = capacity.range {
        let whole = |amount: u128| amount.div_ceil(ONE);
        let rounded = match step {
            _ if asked < least => least,
            None => asked,
            Some(step) => {
                let (step, least) = (whole(step), whole(least));
                let steps = whole(asked).saturating_sub(least).div_ceil(step);
                least.saturating_add(steps.saturating_mul(step)).saturating_mul(ONE)
            }
        };
        return Some(rounded).filter(|amount| greatest.is_none_or(|greatest| *amount <= greatest));
    }
    if capacity.values.is_empty() {
        return Some(asked);
    }
    capacity.values.iter().copied().filter(|value| *value >= asked).min()
}
