//! Slices, classes, templates and claims, as far as a plan reads them.
//!
//! Objects of a cluster and of files come together: those of files are what is tried, and count instead.

mod read;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

#[cfg(test)]
pub(super) use self::read::read_device_for_tests;
pub(super) use self::read::read_slice;
use self::read::{read_claim, read_claim_object, read_configs, read_selectors};
use super::cel::Selector;
use crate::{
    cluster::objects::{Taint, Toleration},
    dra::field::{Field, FieldError},
};

/// Most objects and most devices of a plan.
const MAX_OBJECTS: usize = 200_000;
/// Longest name that is read.
const MAX_NAME: usize = 512;

/// Objects of `resource.k8s.io`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceObjects {
    pub(super) slices: Vec<Slice>,
    pub(super) classes: BTreeMap<String, DeviceClass>,
    pub(super) templates: BTreeMap<(String, String), Arc<ClaimSpec>>,
    pub(super) claims: BTreeMap<(String, String), Claim>,
    read: usize,
}

/// A `DeviceClass`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DeviceClass {
    pub(super) selectors: Vec<Selection>,
    /// Opaque configurations for this project's driver.
    pub(super) configs: Vec<Value>,
}

/// A `ResourceSlice`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slice {
    pub(super) name: String,
    pub(super) driver: String,
    pub(super) pool: String,
    pub(super) generation: u64,
    pub(super) of_pool: u64,
    pub(super) nodes: DeviceNodes,
    pub(super) devices: Vec<Device>,
    /// Amounts that devices of the pool share out, by set and counter.
    pub(super) counters: Counters,
}

/// Amounts by counter set and counter.
pub(super) type Counters = BTreeMap<String, BTreeMap<String, u128>>;

/// Nodes that can use a device.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum DeviceNodes {
    /// All of them.
    All,
    /// The one with this name.
    One(String),
    /// Each device of the slice says so itself.
    ByDevice,
    /// Chosen by labels, which is not understood.
    #[default]
    Unknown,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) attributes: BTreeMap<String, AttributeOfDevice>,
    pub(super) capacity: BTreeMap<String, Capacity>,
    pub(super) allows_multiple: bool,
    pub(super) taints: Vec<Taint>,
    /// What it takes of the counters of its pool.
    pub(super) counters: Counters,
    /// Its own nodes, in a slice of [`DeviceNodes::ByDevice`].
    pub(super) nodes: DeviceNodes,
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
    pub(super) uid: String,
    pub(super) spec: Arc<ClaimSpec>,
    pub(super) allocation: Option<Allocation>,
    /// Uids and names of the pods that it is reserved for.
    pub(super) pods: Vec<(String, String)>,
}

/// What a claim has.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Allocation {
    /// Nodes that can use it; `None` for all.
    pub(super) nodes: Option<Vec<String>>,
    pub(super) results: Vec<AllocatedDevice>,
    /// Opaque configurations for this project's driver, with their sources.
    pub(super) configs: Vec<Value>,
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
    /// Opaque configurations for this project's driver.
    pub(super) configs: Vec<Value>,
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
    /// These objects, and those of a cluster that these do not replace: by name, and slices by pool.
    #[must_use]
    pub fn over(self, mut cluster: Self) -> Self {
        let is_of =
            |slice: &Slice, other: &Slice| (&slice.driver, &slice.pool) == (&other.driver, &other.pool);
        cluster.slices.retain(|slice| !self.slices.iter().any(|own| is_of(own, slice)));
        cluster.append(self);
        cluster
    }

    /// Are there none?
    pub const fn is_empty(&self) -> bool {
        self.read == 0
    }

    /// Adds the objects of another part of the same list.
    pub fn append(&mut self, other: Self) {
        self.slices.extend(other.slices);
        self.classes.extend(other.classes);
        self.templates.extend(other.templates);
        self.claims.extend(other.claims);
        self.read += other.read;
    }

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
            "DeviceClass" => {
                let class = DeviceClass { selectors: read_selectors(&spec)?, configs: read_configs(&spec)? };
                is_twice = self.classes.insert(name, class).is_some();
            }
            "ResourceClaimTemplate" => {
                let spec = Arc::new(read_claim(&spec.need("spec")?)?);
                is_twice = self.templates.insert(key, spec).is_some();
            }
            _ => {
                let claim = read_claim_object(root, &metadata, &spec)?;
                is_twice = self.claims.insert(key, claim).is_some();
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
