//! `ResourceSlice`s: what the driver publishes, and how it is compared with what the API server has.
//!
//! Types of our own, because the generated ones know one version of the API each and lose the fields of the
//! others. The shell, as the publisher:
//! - makes [`slices`] after each change of the [`ClaimSupply`] or the node, and writes those for which
//!   [`difference`] with the stored object is not `None`, at most once in 10 s, by
//!   [`ResourceSlice::to_json`];
//! - probes with a dry run which fields the server keeps: [`dropped`] of what it sent and of the answer;
//! - reads stored objects with [`ResourceSlice::read`]; an error of that is a difference too.
//!
//! Invariant: nothing here depends on what claims hold, so an allocation writes no slice.

mod json;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use numa_placement::Inventory;

use super::{ClaimSupply, NodeAllocatableShape, PublishOptions, devices::devices};

/// Most devices of a slice (`ResourceSliceMaxDevices` of resource/v1/types.go).
const MAX_DEVICES: usize = 128;

/// A `ResourceSlice`, as far as it is ours to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSlice {
    /// Name of the driver.
    pub driver: String,
    /// Name of the node, and of the pool.
    pub node: String,
    /// Uid of the Node, which owns the slice.
    pub node_uid: String,
    /// Generation of the pool.
    pub generation: u64,
    /// Number of slices of the pool.
    pub slice_count: u64,
    /// Its devices.
    pub devices: Vec<SliceDevice>,
}

/// A device of a slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SliceDevice {
    /// Its name.
    pub name: String,
    /// Its attributes by name.
    pub attributes: BTreeMap<String, AttributeValue>,
    /// Its capacities by key.
    pub capacity: BTreeMap<String, DeviceCapacity>,
    /// Whether several claims share it.
    pub allow_multiple: bool,
    /// Keys of the capacities that are amounts of the node, by resource of the node.
    pub node_allocatable: BTreeMap<String, String>,
    /// Field that has them.
    pub node_allocatable_shape: NodeAllocatableShape,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// A whole number.
    Int(i64),
    /// A flag.
    Bool(bool),
    /// A text of at most 64 bytes.
    Text(String),
    /// A semantic version.
    Version(String),
}

/// Capacity of a device. Requests for it are at least 0 and by default 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceCapacity {
    /// Amount of the device.
    pub value: u64,
    /// What requests are rounded up to multiples of; none if the policy of requests is absent.
    pub step: Option<u64>,
}

/// Of which node and pool slices are.
#[derive(Debug, Clone, Copy)]
pub struct SliceOwner<'a> {
    /// Name of the driver.
    pub driver: &'a str,
    /// Name of the node.
    pub node: &'a str,
    /// Uid of the Node.
    pub node_uid: &'a str,
    /// Generation of the pool: one more than that of stored slices if more than one write is needed.
    pub generation: u64,
}

/// Fields that an API server has dropped: their feature is off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DroppedFields {
    /// `allowMultipleAllocations` or `requestPolicy`: `DRAConsumableCapacity`.
    pub consumable_capacity: bool,
    /// The mapping to amounts of the node: `DRANodeAllocatableResources`, or another version of it.
    pub node_allocatable: bool,
}

/// The slices of the node: one, but for a machine with very many cores as devices. A node without anything to
/// give has one empty slice.
pub fn slices(
    inventory: &Inventory,
    supply: &ClaimSupply,
    options: &PublishOptions<'_>,
    owner: &SliceOwner<'_>,
) -> Vec<ResourceSlice> {
    let devices = devices(inventory, supply, options);
    let parts: Vec<&[SliceDevice]> =
        if devices.is_empty() { vec![&[]] } else { devices.chunks(MAX_DEVICES).collect() };
    let slice_count = parts.len() as u64;
    let slice = |part: &&[SliceDevice]| ResourceSlice {
        driver: owner.driver.to_owned(),
        node: owner.node.to_owned(),
        node_uid: owner.node_uid.to_owned(),
        generation: owner.generation,
        slice_count,
        devices: part.to_vec(),
    };
    parts.iter().map(slice).collect()
}

/// What of the stored slice is not as wanted, in one sentence; quantities are compared as numbers, and the
/// generation is not compared.
pub fn difference(wanted: &ResourceSlice, stored: &ResourceSlice) -> Option<String> {
    let fields = [
        ("spec.driver", wanted.driver != stored.driver),
        ("spec.nodeName", wanted.node != stored.node),
        ("metadata.ownerReferences", wanted.node_uid != stored.node_uid),
        ("spec.pool.resourceSliceCount", wanted.slice_count != stored.slice_count),
        ("spec.devices: their number", wanted.devices.len() != stored.devices.len()),
    ];
    if let Some((field, _)) = fields.into_iter().find(|(_, differs)| *differs) {
        return Some(field.to_owned());
    }
    wanted.devices.iter().zip(&stored.devices).find_map(|(wanted, stored)| {
        let fields = [
            ("its name", wanted.name != stored.name),
            ("allowMultipleAllocations", wanted.allow_multiple != stored.allow_multiple),
            ("attributes", wanted.attributes != stored.attributes),
            ("capacity", wanted.capacity != stored.capacity),
            ("amounts of the node", wanted.node_allocatable != stored.node_allocatable),
        ];
        let (field, _) = fields.into_iter().find(|(_, differs)| *differs)?;
        Some(format!("device {}: {field}", wanted.name))
    })
}

/// Which fields of the sent slice the answer lacks.
pub fn dropped(sent: &ResourceSlice, kept: &ResourceSlice) -> DroppedFields {
    let mut dropped = DroppedFields::default();
    for (sent, kept) in sent.devices.iter().zip(&kept.devices) {
        let has_lost_policy = |(key, sent): (&String, &DeviceCapacity)| {
            sent.step.is_some() && kept.capacity.get(key).is_none_or(|kept| kept.step.is_none())
        };
        dropped.consumable_capacity |= sent.allow_multiple && !kept.allow_multiple;
        dropped.consumable_capacity |= sent.capacity.iter().any(has_lost_policy);
        dropped.node_allocatable |= !sent.node_allocatable.is_empty() && kept.node_allocatable.is_empty();
    }
    dropped
}
