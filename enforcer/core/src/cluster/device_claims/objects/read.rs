//! Reading of slices, classes and claims.
//!
//! Shapes of `resource.k8s.io/v1`, `v1beta2` and `v1beta1` are read: the last has `basic` around a device's
//! fields and no `exactly` around a request's.

use std::{collections::BTreeMap, sync::Arc};

use numa_topology::quantity;
use serde_json::Value;

use super::{
    AllocatedDevice, Allocation, Alternative, AttributeOfDevice, Capacity, Claim, ClaimSpec, Constraint,
    Counters, Device, DeviceNodes, MAX_NAME, Request, Selection, Slice,
};
use crate::{
    cluster::{
        device_claims::{
            cel::{self, Selector},
            shown,
        },
        objects::{Taint, Toleration},
    },
    dra::{
        DRIVER,
        field::{Field, FieldError},
    },
};

/// Bounds of resource/v1/types.go.
const MAX_LIST: usize = 32;
const MAX_DEVICES: usize = 128;
const MAX_ENTRIES: usize = 64;
const MAX_CONFIGS: usize = 64;
const MAX_PODS: usize = 256;
/// Longest opaque configuration, in bytes.
const MAX_CONFIG: usize = 12 << 10;

/// A slice of its specification.
pub(in crate::cluster::device_claims) fn read_slice(
    name: String,
    spec: &Field<'_>,
) -> Result<Slice, FieldError> {
    let pool = spec.need("pool")?;
    let devices = spec.list_of("devices", MAX_DEVICES)?;
    let nodes =
        if spec.flag_of("perDeviceNodeSelection")? { DeviceNodes::ByDevice } else { read_nodes(spec)? };
    Ok(Slice {
        name,
        driver: spec.need("driver")?.text(MAX_NAME)?.to_owned(),
        pool: pool.need("name")?.text(MAX_NAME)?.to_owned(),
        generation: pool.get("generation")?.map_or(Ok(0), |field| field.number())?,
        of_pool: pool.get("resourceSliceCount")?.map_or(Ok(1), |field| field.number())?,
        nodes,
        devices: devices.iter().map(read_device).collect::<Result<_, _>>()?,
        counters: read_counters(spec, "sharedCounters", "name")?,
    })
}

fn read_nodes(field: &Field<'_>) -> Result<DeviceNodes, FieldError> {
    let node = field.text_of("nodeName", MAX_NAME)?;
    let is_for_all = field.flag_of("allNodes")?;
    Ok(match node {
        "" if is_for_all => DeviceNodes::All,
        "" => DeviceNodes::Unknown,
        node => DeviceNodes::One(node.to_owned()),
    })
}

/// Counters by set, whose name is in the field `set`.
fn read_counters(field: &Field<'_>, list: &str, set: &str) -> Result<Counters, FieldError> {
    let mut counters = Counters::new();
    for field in field.list_of(list, MAX_LIST)? {
        let of_set = counters.entry(field.need(set)?.text(MAX_NAME)?.to_owned()).or_default();
        for (name, counter) in field.entries_of("counters", MAX_ENTRIES)? {
            of_set.insert(name.to_owned(), amount(&counter.need("value")?)?);
        }
    }
    Ok(counters)
}

fn read_device(field: &Field<'_>) -> Result<Device, FieldError> {
    let name = field.need("name")?.text(MAX_NAME)?.to_owned();
    let basic = field.get("basic")?;
    let field = basic.as_ref().unwrap_or(field);
    let mut device = Device {
        name,
        allows_multiple: field.flag_of("allowMultipleAllocations")?,
        counters: read_counters(field, "consumesCounters", "counterSet")?,
        nodes: read_nodes(field)?,
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
pub(in crate::cluster::device_claims) fn read_device_for_tests(device: &Value) -> Device {
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
    quantity::nano(&text).ok_or_else(|| field.error(format!("`{}` is no quantity", shown(&text))))
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

pub(super) fn read_selectors(field: &Field<'_>) -> Result<Vec<Selection>, FieldError> {
    let mut selectors = Vec::new();
    for selector in field.list_of("selectors", MAX_LIST)? {
        let text = selector.need("cel")?.need("expression")?.text(cel::MAX_LENGTH)?;
        selectors.push(Selector::parse(text).map_err(|not_understood| not_understood.to_string()));
    }
    Ok(selectors)
}

/// The opaque configurations for this project's driver, as they are.
pub(super) fn read_configs(field: &Field<'_>) -> Result<Vec<Value>, FieldError> {
    let mut configs = Vec::new();
    for config in field.list_of("config", MAX_CONFIGS)? {
        let Some(opaque) = config.get("opaque")? else { continue };
        if opaque.text_of("driver", MAX_NAME)? != DRIVER {
            continue;
        }
        if opaque.value().to_string().len() > MAX_CONFIG {
            return Err(opaque.error(format!("longer than {MAX_CONFIG} bytes")));
        }
        configs.push(config.value().clone());
    }
    Ok(configs)
}

pub(super) fn read_claim_object(
    root: &Field<'_>,
    metadata: &Field<'_>,
    spec: &Field<'_>,
) -> Result<Claim, FieldError> {
    let status = root.get("status")?;
    let allocation = status.as_ref().map_or(Ok(None), |status| status.get("allocation"))?;
    let mut pods = Vec::new();
    for consumer in
        status.as_ref().map_or(Ok(Vec::new()), |status| status.list_of("reservedFor", MAX_PODS))?
    {
        let text = |name: &str| consumer.text_of(name, MAX_NAME).map(str::to_owned);
        if consumer.text_of("resource", MAX_NAME)? == "pods" {
            pods.push((text("uid")?, text("name")?));
        }
    }
    Ok(Claim {
        uid: metadata.text_of("uid", MAX_NAME)?.to_owned(),
        spec: Arc::new(read_claim(spec)?),
        allocation: allocation.map(|field| read_allocation(&field)).transpose()?,
        pods,
    })
}

pub(super) fn read_claim(spec: &Field<'_>) -> Result<ClaimSpec, FieldError> {
    let mut claim = ClaimSpec::default();
    let Some(devices) = spec.get("devices")? else { return Ok(claim) };
    claim.configs = read_configs(&devices)?;
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
    allocation.configs = read_configs(&devices)?;
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
