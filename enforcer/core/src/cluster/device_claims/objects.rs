//! Slices, classes, templates and claims, as far as a plan reads them.
//!
//! Shapes of `resource.k8s.io/v1`, `v1beta2` and `v1beta1` are read: the last has `basic` around a device's
//! fields and no `exactly` around a request's.

use std::{collections::BTreeMap, sync::Arc};

use numa_topology::quantity;
use serde_json::Value;

use super::cel::Selector;
use crate::{
    cluster::objects::{Taint, Toleration},
    dra::field::{Field, FieldError},
};

/// Most objects and most devices of a plan.
const MAX_OBJECTS: usize = 200_000;
/// Bounds of resource/v1/types.go.
const MAX_LIST: usize = 32;
const MAX_DEVICES: usize = 128;
const MAX_ENTRIES: usize = 64;
const MAX_NAME: usize = 512;

/// Objects of `resource.k8s.io`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceObjects {
    pub(super) slices: Vec<Slice>,
    pub(super) classes: BTreeMap<String, Vec<Selection>>,
    pub(super) templates: BTreeMap<(String, String), Arc<ClaimSpec>>,
    pub(super) claims: BTreeMap<(String, String), Claim>,
    read: usize,
}

/// A `ResourceSlice`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slice {
    pub(super) name: String,
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) generation: u64,
    pub(super) of_pool: u64,
    /// Its node; `None` for all nodes.
    pub(super) node: Option<String>,
    /// Whether its nodes are chosen in a way that is not understood.
    pub(super) has_other_nodes: bool,
    pub(super) devices: Vec<Device>,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) attributes: BTreeMap<String, AttributeOfDevice>,
    pub(super) capacity: BTreeMap<String, Capacity>,
    pub(super) allows_multiple: bool,
    pub(super) taints: Vec<Taint>,
    /// Whether it has fields that decide and are not understood: counters.
    pub(super) has_counters: bool,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AttributeOfDevice {
    Int(i64),
    Bool(bool),
    Text(String),
    Version(String),
    List(Vec<AttributeOfDevice>),
}

/// A capacity, in thousand-millionths.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Capacity {
    pub(super) value: u128,
    pub(super) default: Option<u128>,
    pub(super) values: Vec<u128>,
    /// Least, greatest and step.
    pub(super) range: Option<(u128, Option<u128>, Option<u128>)>,
}

/// A selector, or why it is not understood.
pub(super) type Selection = Result<Selector, String>;

/// A claim, and the devices that it has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Claim {
    pub(super) spec: Arc<ClaimSpec>,
    pub(super) allocation: Option<Allocation>,
}

/// What a claim has.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Allocation {
    /// Nodes that can use it; `None` for all.
    pub(super) nodes: Option<Vec<String>>,
    pub(super) results: Vec<AllocatedDevice>,
}

/// A device of a claim.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AllocatedDevice {
    pub(super) request: String,
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) device: String,
    pub(super) is_admin: bool,
    pub(super) is_share: bool,
    pub(super) consumed: BTreeMap<String, u128>,
}

/// What a claim asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ClaimSpec {
    pub(super) requests: Vec<Request>,
    pub(super) constraints: Vec<Constraint>,
}

/// A request: one of its alternatives, the first that can be had.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) alternatives: Vec<Alternative>,
}

/// Devices of one class.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Alternative {
    /// `gpu`, or `gpu/large`.
    pub(super) name: String,
    pub(super) class: String,
    pub(super) selectors: Vec<Selection>,
    /// Number of devices; `None` for all.
    pub(super) count: Option<usize>,
    pub(super) is_admin: bool,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) amounts: BTreeMap<String, u128>,
}

/// What the devices of some requests have in common, or not.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Constraint {
    /// The requests; all if empty.
    pub(super) requests: Vec<String>,
    pub(super) attribute: String,
    pub(super) is_distinct: bool,
}

impl Constraint {
    pub(super) fn is_of(&self, request: &str, alternative: &str) -> bool {
        self.requests.is_empty() || self.requests.iter().any(|name| name == request || name == alternative)
    }
}

impl DeviceObjects {
    /// Adds an object; one of a kind that has no part is passed over.
    ///
    /// # Errors
    /// In words, if it cannot be understood or is there twice.
    pub fn add(&mut self, object: &Value) -> Result<(), String> {
        let root = Field::root(object);
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        self.add_one(&root, kind).map_err(|error| format!("{kind} {}: {error}", super::shown(name)))
    }

    fn add_one(&mut self, root: &Field<'_>, kind: &str) -> Result<(), FieldError> {
        if !matches!(kind, "ResourceSlice" | "DeviceClass" | "ResourceClaimTemplate" | "ResourceClaim") {
            return Ok(());
        }
        let metadata = root.need("metadata")?;
        let name = metadata.text_of("name", MAX_NAME)?.to_owned();
        let namespace = metadata.get("namespace")?.map_or(Ok("default"), |field| field.text(MAX_NAME))?;
        let key = (namespace.to_owned(), name.clone());
        let spec = root.need("spec")?;
        let is_twice;
        self.read += 1;
        match kind {
            "ResourceSlice" => {
                let slice = read_slice(name, &spec)?;
                self.read += slice.devices.len();
                is_twice = !slice.name.is_empty() && self.slices.iter().any(|one| one.name == slice.name);
                if !is_twice {
                    self.slices.push(slice);
                }
            }
            "DeviceClass" => is_twice = self.classes.insert(name, read_selectors(&spec)?).is_some(),
            "ResourceClaimTemplate" => {
                let spec = Arc::new(read_claim(&spec.need("spec")?)?);
                is_twice = self.templates.insert(key, spec).is_some();
            }
            _ => {
                let spec = Arc::new(read_claim(&spec)?);
                let status = root.get("status")?.and_then(|status| status.get("allocation").transpose());
                let allocation = status.transpose()?.map(|field| read_allocation(&field)).transpose()?;
                is_twice = self.claims.insert(key, Claim { spec, allocation }).is_some();
            }
        }
        if is_twice {
            return Err(root.error("it is there twice"));
        }
        if self.read > MAX_OBJECTS {
            return Err(root.error(format!("more than {MAX_OBJECTS} objects and devices")));
        }
        Ok(())
    }
}

/// A slice of its specification.
pub(super) fn read_slice(name: String, spec: &Field<'_>) -> Result<Slice, FieldError> {
    let pool = spec.need("pool")?;
    let node = spec.text_of("nodeName", MAX_NAME)?;
    let is_for_all = spec.flag_of("allNodes")?;
    let devices = spec.list_of("devices", MAX_DEVICES)?;
    Ok(Slice {
        name,
        driver: spec.need("driver")?.text(MAX_NAME)?.to_owned(),
        pool: pool.need("name")?.text(MAX_NAME)?.to_owned(),
        generation: pool.get("generation")?.map_or(Ok(0), |field| field.number())?,
        of_pool: pool.get("resourceSliceCount")?.map_or(Ok(1), |field| field.number())?,
        node: (!node.is_empty()).then(|| node.to_owned()),
        has_other_nodes: node.is_empty() && !is_for_all,
        devices: devices.iter().map(read_device).collect::<Result<_, _>>()?,
    })
}

fn read_device(field: &Field<'_>) -> Result<Device, FieldError> {
    let name = field.need("name")?.text(MAX_NAME)?.to_owned();
    let basic = field.get("basic")?;
    let field = basic.as_ref().unwrap_or(field);
    let mut device = Device {
        name,
        allows_multiple: field.flag_of("allowMultipleAllocations")?,
        has_counters: !field.list_of("consumesCounters", MAX_LIST)?.is_empty(),
        ..Device::default()
    };
    for (name, value) in field.entries_of("attributes", MAX_ENTRIES)? {
        let value =
            read_attribute(value.value()).ok_or_else(|| value.error("no value that is understood"))?;
        device.attributes.insert(name.to_owned(), value);
    }
    for (key, value) in field.entries_of("capacity", MAX_ENTRIES)? {
        device.capacity.insert(key.to_owned(), read_capacity(&value)?);
    }
    for taint in field.list_of("taints", MAX_LIST)? {
        let text = |name: &str| taint.text_of(name, MAX_NAME).map(str::to_owned);
        device.taints.push(Taint { key: text("key")?, value: text("value")?, effect: text("effect")? });
    }
    Ok(device)
}

/// A device for tests of selectors.
#[cfg(test)]
pub(super) fn read_device_for_tests(device: &Value) -> Device {
    read_device(&Field::root(device)).unwrap()
}

fn read_attribute(value: &Value) -> Option<AttributeOfDevice> {
    let (kind, value) = value.as_object()?.iter().next()?;
    let of = |kind: &str, value: &Value| {
        let text = || value.as_str().map(str::to_owned);
        match kind {
            "int" => value.as_i64().map(AttributeOfDevice::Int),
            "bool" => value.as_bool().map(AttributeOfDevice::Bool),
            "string" => text().map(AttributeOfDevice::Text),
            "version" => text().map(AttributeOfDevice::Version),
            _ => None,
        }
    };
    match (kind.strip_suffix('s'), value) {
        (Some(kind), Value::Array(values)) if values.len() <= MAX_ENTRIES => {
            values.iter().map(|value| of(kind, value)).collect::<Option<_>>().map(AttributeOfDevice::List)
        }
        _ => of(kind, value),
    }
}

/// A quantity; numbers are taken as such.
fn amount(field: &Field<'_>) -> Result<u128, FieldError> {
    let text = match field.value() {
        Value::Number(number) => number.to_string(),
        _ => field.text(MAX_NAME)?.to_owned(),
    };
    quantity::nano(&text).ok_or_else(|| field.error(format!("`{}` is no quantity", super::shown(&text))))
}

fn read_capacity(field: &Field<'_>) -> Result<Capacity, FieldError> {
    if !field.value().is_object() {
        return Ok(Capacity { value: amount(field)?, ..Capacity::default() });
    }
    let mut capacity = Capacity { value: amount(&field.need("value")?)?, ..Capacity::default() };
    let Some(policy) = field.get("requestPolicy")? else { return Ok(capacity) };
    let of = |field: &Field<'_>, name: &str| field.get(name)?.map(|field| amount(&field)).transpose();
    capacity.default = of(&policy, "default")?;
    for value in policy.list_of("validValues", MAX_LIST)? {
        capacity.values.push(amount(&value)?);
    }
    if let Some(range) = policy.get("validRange")? {
        let step = of(&range, "step")?.filter(|step| *step > 0);
        capacity.range = Some((of(&range, "min")?.unwrap_or(0), of(&range, "max")?, step));
    }
    Ok(capacity)
}

fn read_selectors(field: &Field<'_>) -> Result<Vec<Selection>, FieldError> {
    let mut selectors = Vec::new();
    for selector in field.list_of("selectors", MAX_LIST)? {
        let text = selector.need("cel")?.need("expression")?.text(super::cel::MAX_LENGTH)?;
        selectors.push(Selector::parse(text).map_err(|not_understood| not_understood.to_string()));
    }
    Ok(selectors)
}

fn read_claim(spec: &Field<'_>) -> Result<ClaimSpec, FieldError> {
    let mut claim = ClaimSpec::default();
    let Some(devices) = spec.get("devices")? else { return Ok(claim) };
    for field in devices.list_of("requests", MAX_LIST)? {
        let name = field.need("name")?.text(MAX_NAME)?.to_owned();
        let mut alternatives = Vec::new();
        for sub in field.list_of("firstAvailable", MAX_LIST)? {
            let sub_name = sub.need("name")?.text(MAX_NAME)?;
            alternatives.push(read_alternative(format!("{name}/{sub_name}"), &sub)?);
        }
        if alternatives.is_empty() {
            let exactly = field.get("exactly")?;
            alternatives.push(read_alternative(name.clone(), exactly.as_ref().unwrap_or(&field))?);
        }
        claim.requests.push(Request { name, alternatives });
    }
    for field in devices.list_of("constraints", MAX_LIST)? {
        let requests = field.list_of("requests", MAX_LIST)?;
        let requests = requests.iter().map(|name| name.text(MAX_NAME).map(str::to_owned));
        let is_distinct = field.get("distinctAttribute")?.is_some();
        let attribute = field.need(if is_distinct { "distinctAttribute" } else { "matchAttribute" })?;
        claim.constraints.push(Constraint {
            requests: requests.collect::<Result<_, _>>()?,
            attribute: attribute.text(MAX_NAME)?.to_owned(),
            is_distinct,
        });
    }
    Ok(claim)
}

fn read_alternative(name: String, field: &Field<'_>) -> Result<Alternative, FieldError> {
    let count = match field.text_of("allocationMode", MAX_NAME)? {
        "All" => None,
        "" | "ExactCount" => {
            let count = field.get("count")?.map_or(Ok(1), |count| count.number())?;
            Some(usize::try_from(count).unwrap_or(usize::MAX))
        }
        _ => return Err(field.error("allocationMode is not understood")),
    };
    let mut alternative = Alternative {
        name,
        class: field.need("deviceClassName")?.text(MAX_NAME)?.to_owned(),
        selectors: read_selectors(field)?,
        count,
        is_admin: field.flag_of("adminAccess")?,
        ..Alternative::default()
    };
    for toleration in field.list_of("tolerations", MAX_LIST)? {
        let text = |name: &str| toleration.text_of(name, MAX_NAME).map(str::to_owned);
        let (key, operator, value, effect) =
            (text("key")?, text("operator")?, text("value")?, text("effect")?);
        alternative.tolerations.push(Toleration { key, operator, value, effect });
    }
    if let Some(capacity) = field.get("capacity")? {
        for (key, field) in capacity.entries_of("requests", MAX_ENTRIES)? {
            alternative.amounts.insert(key.to_owned(), amount(&field)?);
        }
    }
    Ok(alternative)
}

fn read_allocation(field: &Field<'_>) -> Result<Allocation, FieldError> {
    let mut allocation = Allocation::default();
    if let Some(selector) = field.get("nodeSelector")? {
        let names = selector.value().pointer("/nodeSelectorTerms/0/matchFields/0/values");
        let names = names.and_then(Value::as_array);
        let names =
            names.ok_or_else(|| selector.error("nodes that are not chosen by name are not understood"))?;
        allocation.nodes = Some(names.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    }
    let Some(devices) = field.get("devices")? else { return Ok(allocation) };
    for result in devices.list_of("results", MAX_LIST)? {
        let text = |name: &str| result.text_of(name, MAX_NAME).map(str::to_owned);
        let mut consumed = BTreeMap::new();
        for (key, field) in result.entries_of("consumedCapacity", MAX_ENTRIES)? {
            consumed.insert(key.to_owned(), amount(&field)?);
        }
        allocation.results.push(AllocatedDevice {
            request: text("request")?,
            driver: text("driver")?,
            pool: text("pool")?,
            device: text("device")?,
            is_admin: result.flag_of("adminAccess")?,
            is_share: !text("shareID")?.is_empty(),
            consumed,
        });
    }
    Ok(allocation)
}
