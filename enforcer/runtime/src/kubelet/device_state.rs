//! `kubelet_internal_checkpoint`, the device manager's file.
//!
//! It has the devices of containers by NUMA node (-1 for a device without one), and the healthy devices of
//! each resource. Before Kubernetes 1.20 the devices had no nodes; such a file is refused. The answer of the
//! device plugin (`AllocResp`) is read for the checksum only. Source:
//! `pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go`.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use enforcer_core::cluster::observed::{DeviceAssignments, DeviceGrant};
use numa_topology::set::NodeSet;
use serde::Deserialize;

use super::{
    checksum::Fnv32a,
    state::{MOST_CLAIMS, StateDamage, document, node_id, unknown_fields},
};

/// NUMA node of a device without one.
const NO_NODE: i64 = -1;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeviceCheckpoint {
    data: DeviceEntries,
    checksum: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeviceEntries {
    pod_device_entries: Option<Vec<DeviceEntry>>,
    registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(Debug, Deserialize)]
struct DeviceEntry {
    #[serde(rename = "PodUID")]
    pod: String,
    #[serde(rename = "ContainerName")]
    container: String,
    #[serde(rename = "ResourceName")]
    resource: String,
    #[serde(rename = "DeviceIDs")]
    ids: Option<BTreeMap<i64, Option<Vec<String>>>>,
    #[serde(rename = "AllocResp")]
    response: Option<String>,
}

/// Parses the text.
pub(super) fn parse(text: &str) -> Result<DeviceAssignments, StateDamage> {
    let DeviceCheckpoint { data, checksum } = document(text)?;
    if u64::from(data.hash()?) != checksum {
        return Err(StateDamage::Checksum(checksum));
    }
    let mut grants = Vec::new();
    for entry in data.pod_device_entries.into_iter().flatten() {
        if grants.len() == MOST_CLAIMS {
            return Err(StateDamage::TooMany);
        }
        grants.push(entry.grant()?);
    }
    let registered = data.registered_devices.into_iter().flatten();
    Ok(DeviceAssignments {
        grants,
        registered: registered
            .map(|(resource, ids)| (resource, ids.into_iter().flatten().collect()))
            .collect(),
        unknown_fields: unknown_fields(text, &["Data", "Checksum"])?,
    })
}

impl DeviceEntries {
    /// Hash of the text that the kubelet's type prints.
    fn hash(&self) -> Result<u32, StateDamage> {
        let mut hash = Fnv32a::new();
        // Writing to a hash cannot fail.
        let _ = hash.write_str("(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)");
        match &self.pod_device_entries {
            None => print(&mut hash, format_args!("<nil>")),
            Some(entries) => {
                print(&mut hash, format_args!("["));
                for (at, entry) in entries.iter().enumerate() {
                    print(&mut hash, format_args!("{}", if at > 0 { " " } else { "" }));
                    entry.print_to(&mut hash)?;
                }
                print(&mut hash, format_args!("]"));
            }
        }
        print(&mut hash, format_args!(" RegisteredDevices:(map[string][]string)"));
        print_map(&mut hash, self.registered_devices.as_ref());
        print(&mut hash, format_args!("}}"));
        Ok(hash.value())
    }
}

impl DeviceEntry {
    fn print_to(&self, hash: &mut Fnv32a) -> Result<(), StateDamage> {
        let Self { pod, container, resource, ids, response } = self;
        print(hash, format_args!("{{PodUID:(string){pod} ContainerName:(string){container}"));
        print(hash, format_args!(" ResourceName:(string){resource} DeviceIDs:(checkpoint.DevicesPerNUMA)"));
        print_map(hash, ids.as_ref());
        print(hash, format_args!(" AllocResp:([]uint8)"));
        match response {
            None => print(hash, format_args!("<nil>")),
            Some(response) => {
                let bytes = STANDARD.decode(response).map_err(|error| {
                    StateDamage::Form(format!(
                        "the answer of the plugin of {resource:?} is no base64: {error}"
                    ))
                })?;
                print_list(hash, &bytes);
            }
        }
        print(hash, format_args!("}}"));
        Ok(())
    }

    fn grant(self) -> Result<DeviceGrant, StateDamage> {
        let mut devices = BTreeMap::<String, NodeSet>::new();
        for (node, ids) in self.ids.into_iter().flatten() {
            let near = if node == NO_NODE { None } else { Some(node_id(node)?) };
            for id in ids.into_iter().flatten() {
                let nodes = devices.entry(id).or_default();
                if let Some(near) = near {
                    nodes.insert(near);
                }
            }
        }
        Ok(DeviceGrant { pod: self.pod, container: self.container, resource: self.resource, devices })
    }
}

fn print(hash: &mut Fnv32a, text: fmt::Arguments<'_>) {
    // Writing to a hash cannot fail.
    let _ = hash.write_fmt(text);
}

fn print_list<T: fmt::Display>(hash: &mut Fnv32a, list: &[T]) {
    for (at, one) in list.iter().enumerate() {
        print(hash, format_args!("{}{one}", if at > 0 { " " } else { "[" }));
    }
    print(hash, format_args!("{}", if list.is_empty() { "[]" } else { "]" }));
}

fn print_map<K: fmt::Display>(hash: &mut Fnv32a, map: Option<&BTreeMap<K, Option<Vec<String>>>>) {
    let Some(map) = map else { return print(hash, format_args!("<nil>")) };
    print(hash, format_args!("map["));
    for (at, (key, list)) in map.iter().enumerate() {
        print(hash, format_args!("{}{key}:", if at > 0 { " " } else { "" }));
        match list {
            Some(list) => print_list(hash, list),
            None => print(hash, format_args!("<nil>")),
        }
    }
    print(hash, format_args!("]"));
}
