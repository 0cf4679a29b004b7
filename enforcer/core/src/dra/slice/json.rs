//! Slices as objects of `resource.k8s.io/v1`.

use numa_topology::quantity;
use serde_json::{Value, json};

use super::{AttributeValue, DeviceCapacity, MAX_DEVICES, ResourceSlice, SliceDevice};
use crate::{
    cluster::exported::quantity::of_bytes,
    dra::{
        NodeAllocatableShape,
        field::{Field, FieldError, shown},
    },
};

/// Most attributes and capacities of a device, each.
const MAX_ENTRIES: usize = 48;
/// Longest name.
const MAX_NAME: usize = 253;
/// Characters that the API server adds to `generateName`.
const RANDOM: usize = 5;
/// Most owners of an object that are looked at.
const MAX_OWNERS: usize = 64;
/// Fields with the mapping to amounts of the node, of 1.36 and 1.37.
const MAPPINGS: &str = "nodeAllocatableResourceMappings";
const RESOURCES: &str = "nodeAllocatableResources";

impl ResourceSlice {
    /// The object for the API server, without a name: the server makes one of `generateName`. `index` is the
    /// position of the slice among those of the pool.
    pub fn to_json(&self, index: usize) -> Value {
        let first = format!("{index:05x}-{}-", self.driver);
        // The name of a node may be as long as that of a slice, which has more parts.
        let most = MAX_NAME.saturating_sub(first.len() + 1 + RANDOM);
        let node: String = self.node.chars().take(most).collect();
        let node = node.trim_end_matches(['.', '-']);
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "generateName": format!("{first}{node}-"),
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.node_uid,
                    "controller": true,
                }],
            },
            "spec": self.spec_json(),
        })
    }

    /// Its specification alone, for an update of a stored object.
    pub fn spec_json(&self) -> Value {
        json!({
            "driver": self.driver,
            "nodeName": self.node,
            "pool": {
                "name": self.node,
                "generation": self.generation,
                "resourceSliceCount": self.slice_count,
            },
            "devices": self.devices.iter().map(device_json).collect::<Vec<_>>(),
        })
    }

    /// Reads a stored slice of this driver. Fields that the driver never writes are passed over.
    ///
    /// # Errors
    /// If a field is not as the driver writes it, whatever wrote it.
    pub fn read(slice: &Value) -> Result<Self, FieldError> {
        let root = Field::root(slice);
        let spec = root.need("spec")?;
        let pool = spec.need("pool")?;
        let owners = root.need("metadata")?.list_of("ownerReferences", MAX_OWNERS)?;
        let mut node_uid = "";
        for owner in &owners {
            if owner.text_of("kind", MAX_NAME)? == "Node" {
                node_uid = owner.text_of("uid", MAX_NAME)?;
            }
        }
        let devices = spec.list_of("devices", MAX_DEVICES)?;
        Ok(Self {
            driver: spec.need("driver")?.text(MAX_NAME)?.to_owned(),
            node: spec.text_of("nodeName", MAX_NAME)?.to_owned(),
            node_uid: node_uid.to_owned(),
            generation: pool.need("generation")?.number()?,
            slice_count: pool.need("resourceSliceCount")?.number()?,
            devices: devices.iter().map(read_device).collect::<Result<_, _>>()?,
        })
    }
}

fn device_json(device: &SliceDevice) -> Value {
    let attribute = |(name, value): (&String, &AttributeValue)| {
        let value = match value {
            AttributeValue::Int(number) => json!({"int": number}),
            AttributeValue::Bool(flag) => json!({"bool": flag}),
            AttributeValue::Text(text) => json!({"string": text}),
            AttributeValue::Version(text) => json!({"version": text}),
        };
        (name.clone(), value)
    };
    let capacity = |(key, capacity): (&String, &DeviceCapacity)| {
        let mut value = json!({"value": of_bytes(capacity.value)});
        if let Some(step) = capacity.step.filter(|step| *step > 0) {
            value["requestPolicy"] =
                json!({"default": "0", "validRange": {"min": "0", "step": of_bytes(step)}});
        }
        (key.clone(), value)
    };
    let mut object = json!({"name": device.name});
    let attributes: serde_json::Map<_, _> = device.attributes.iter().map(attribute).collect();
    object["attributes"] = Value::Object(attributes);
    if device.allow_multiple {
        object["allowMultipleAllocations"] = json!(true);
    }
    if !device.capacity.is_empty() {
        object["capacity"] = Value::Object(device.capacity.iter().map(capacity).collect());
    }
    let allocatable = device.node_allocatable.iter();
    match device.node_allocatable_shape {
        _ if device.node_allocatable.is_empty() => {}
        NodeAllocatableShape::Absent => {}
        NodeAllocatableShape::Mappings => {
            let mapping = |(name, key): (&String, &String)| (name.clone(), json!({"capacityKey": key}));
            object[MAPPINGS] = Value::Object(allocatable.map(mapping).collect());
        }
        NodeAllocatableShape::Resources => {
            let mapping = |(name, key): (&String, &String)| {
                (name.clone(), json!({"mapping": {"capacityKey": key, "capacityMultiplier": "1"}}))
            };
            object[RESOURCES] = Value::Object(allocatable.map(mapping).collect());
        }
    }
    object
}

fn read_device(field: &Field<'_>) -> Result<SliceDevice, FieldError> {
    let mut device = SliceDevice {
        name: field.need("name")?.text(MAX_NAME)?.to_owned(),
        allow_multiple: field.flag_of("allowMultipleAllocations")?,
        ..SliceDevice::default()
    };
    for (name, value) in field.entries_of("attributes", MAX_ENTRIES)? {
        device.attributes.insert(name.to_owned(), read_attribute(&value)?);
    }
    for (key, value) in field.entries_of("capacity", MAX_ENTRIES)? {
        device.capacity.insert(key.to_owned(), read_capacity(&value)?);
    }
    for (name, mapping) in field.entries_of(MAPPINGS, MAX_ENTRIES)? {
        device.node_allocatable_shape = NodeAllocatableShape::Mappings;
        device.node_allocatable.insert(name.to_owned(), mapping.text_of("capacityKey", MAX_NAME)?.to_owned());
    }
    for (name, resource) in field.entries_of(RESOURCES, MAX_ENTRIES)? {
        device.node_allocatable_shape = NodeAllocatableShape::Resources;
        let mapping = resource.need("mapping")?;
        device.node_allocatable.insert(name.to_owned(), mapping.text_of("capacityKey", MAX_NAME)?.to_owned());
    }
    Ok(device)
}

fn read_attribute(field: &Field<'_>) -> Result<AttributeValue, FieldError> {
    if let Some(number) = field.get("int")? {
        let number = number.value().as_i64().ok_or_else(|| number.error("a whole number is expected"))?;
        return Ok(AttributeValue::Int(number));
    }
    if let Some(text) = field.get("string")? {
        return Ok(AttributeValue::Text(text.text(MAX_NAME)?.to_owned()));
    }
    if let Some(text) = field.get("version")? {
        return Ok(AttributeValue::Version(text.text(MAX_NAME)?.to_owned()));
    }
    field.need("bool")?;
    Ok(AttributeValue::Bool(field.flag_of("bool")?))
}

fn read_capacity(field: &Field<'_>) -> Result<DeviceCapacity, FieldError> {
    let amount = |field: &Field<'_>| {
        let text = field.text(MAX_NAME)?;
        quantity::exact(text).ok_or_else(|| field.error(format!("{} is no whole amount", shown(text))))
    };
    let value = amount(&field.need("value")?)?;
    let Some(policy) = field.get("requestPolicy")? else { return Ok(DeviceCapacity { value, step: None }) };
    let range = policy.need("validRange")?;
    for zero in [policy.need("default")?, range.need("min")?] {
        if amount(&zero)? != 0 {
            return Err(zero.error("0 is expected"));
        }
    }
    Ok(DeviceCapacity { value, step: range.get("step")?.map(|step| amount(&step)).transpose()? })
}
