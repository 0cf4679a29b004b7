//! The limits of the API on slices, written again from resource/v1/types.go and the server's validation.

use std::collections::BTreeSet;

use numa_topology::quantity;
use serde_json::Value;

/// The first limit that slices of one pool break.
pub(super) fn broken(slices: &[Value]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for slice in slices {
        let spec = &slice["spec"];
        dns_subdomain(text(&spec["driver"])?, 63)?;
        text(&spec["pool"]["name"])?.split('/').try_for_each(|part| dns_subdomain(part, 253))?;
        check(spec["pool"]["resourceSliceCount"] == slices.len(), "resourceSliceCount")?;
        check(
            spec["nodeName"].is_string() && spec["nodeSelector"].is_null(),
            "exactly one of the node fields",
        )?;
        let devices = spec["devices"].as_array().ok_or("devices")?;
        check(devices.len() <= 128, "at most 128 devices")?;
        for device in devices {
            let name = text(&device["name"])?;
            dns_label(name)?;
            check(names.insert(name.to_owned()), "names are unique in the pool")?;
            check_device(device).map_err(|problem| format!("{name}: {problem}"))?;
        }
    }
    Ok(())
}

fn check_device(device: &Value) -> Result<(), String> {
    let attributes = device["attributes"].as_object().ok_or("attributes")?;
    let none = serde_json::Map::new();
    let capacity = device["capacity"].as_object().unwrap_or(&none);
    check(attributes.len() + capacity.len() <= 32, "at most 32 attributes and capacities")?;
    for (name, value) in attributes {
        qualified_name(name)?;
        let fields = value.as_object().ok_or("attribute")?;
        check(fields.len() == 1, "an attribute has exactly one value")?;
        let (kind, value) = fields.iter().next().ok_or("attribute")?;
        match kind.as_str() {
            "int" => check(value.is_i64(), "int")?,
            "bool" => check(value.is_boolean(), "bool")?,
            "string" => check(text(value)?.len() <= 64, "a text of at most 64 bytes")?,
            "version" => semantic_version(text(value)?)?,
            _ => return Err(format!("{kind} is no kind of attribute")),
        }
    }
    let is_shared = device["allowMultipleAllocations"] == true;
    for (key, value) in capacity {
        check(key.contains('/'), "capacities are fully qualified")?;
        qualified_name(key)?;
        let amount = amount(&value["value"])?;
        let policy = &value["requestPolicy"];
        if policy.is_null() {
            continue;
        }
        check(is_shared, "a policy needs allowMultipleAllocations")?;
        check_policy(policy, amount).map_err(|problem| format!("{key}: {problem}"))?;
    }
    for (name, mapping) in device["nodeAllocatableResourceMappings"].as_object().unwrap_or(&none) {
        native_resource(name)?;
        check(capacity.contains_key(text(&mapping["capacityKey"])?), "the key of a mapping is a capacity")?;
    }
    for (name, resource) in device["nodeAllocatableResources"].as_object().unwrap_or(&none) {
        native_resource(name)?;
        let mapping = &resource["mapping"];
        check(capacity.contains_key(text(&mapping["capacityKey"])?), "the key of a mapping is a capacity")?;
        check(amount(&mapping["capacityMultiplier"])? > 0, "a mapping has a multiplier")?;
    }
    Ok(())
}

/// As `validateRequestPolicyRange`, which divides by the step in whole units.
fn check_policy(policy: &Value, value: u64) -> Result<(), String> {
    let range = &policy["validRange"];
    let (default, min) = (amount(&policy["default"])?, amount(&range["min"])?);
    let max = if range["max"].is_null() { value } else { amount(&range["max"])? };
    check(min <= default && default <= max && max <= value, "min <= default <= max <= value")?;
    if !range["step"].is_null() {
        let step = amount(&range["step"])?;
        check(step > 0, "a step of 0 is a division by zero in the server")?;
        check(min + step <= value, "min + step <= value")?;
        check((default - min).is_multiple_of(step), "default is a number of steps from min")?;
        let has_max = !range["max"].is_null();
        check(!has_max || (max - min).is_multiple_of(step), "max is a number of steps from min")?;
    }
    Ok(())
}

/// What a scheduler notes as consumed for a request (`roundUpRange`), as the text of the object; none if it
/// gives nothing.
pub(super) fn consumed(capacity: &Value, asked: u64, taken: u64) -> Option<String> {
    let range = &capacity["requestPolicy"]["validRange"];
    let min = amount(&range["min"]).ok()?;
    let mut rounded = asked.max(min);
    if let Ok(step) = amount(&range["step"]) {
        rounded = min + (rounded - min).div_ceil(step) * step;
    }
    let left = amount(&capacity["value"]).ok()?.checked_sub(taken)?;
    (rounded <= left).then(|| crate::cluster::exported::quantity::of_bytes(rounded))
}

fn check(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{value} is no text"))
}

fn amount(value: &Value) -> Result<u64, String> {
    quantity::exact(text(value)?).ok_or_else(|| format!("{value} is no quantity"))
}

fn dns_label(name: &str) -> Result<(), String> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_fit = !name.is_empty() && name.len() <= 63 && name.bytes().all(is_inner);
    check(is_fit && !name.starts_with('-') && !name.ends_with('-'), &format!("{name} is no DNS label"))
}

fn dns_subdomain(name: &str, most: usize) -> Result<(), String> {
    check(name.len() <= most, "DNS subdomain")?;
    name.split('.').try_for_each(dns_label)
}

fn qualified_name(name: &str) -> Result<(), String> {
    let (domain, id) = name.split_once('/').map_or((None, name), |(domain, id)| (Some(domain), id));
    domain.map_or(Ok(()), |domain| dns_subdomain(domain, 63))?;
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_id = (1..=32).contains(&id.len()) && id.bytes().all(is_fit);
    check(is_id && !id.starts_with(|c: char| c.is_ascii_digit()), &format!("{id} is no C identifier"))
}

fn native_resource(name: &str) -> Result<(), String> {
    let is_native = matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    check(is_native, &format!("{name} is no native resource"))
}

fn semantic_version(version: &str) -> Result<(), String> {
    let (core, _) = version.split_once('-').unwrap_or((version, ""));
    let is_number = |part: &str| part.parse::<u64>().is_ok_and(|number| number.to_string() == part);
    let parts: Vec<&str> = core.split('.').collect();
    check(version.len() <= 64 && parts.len() == 3 && parts.into_iter().all(is_number), "semantic version")
}
