//! What a `ResourceClaim` has been allocated of this driver's devices.
//!
//! Problem: a kubelet names a claim, and the driver reads the object itself. It may be another object of the
//! same name, allocated elsewhere, by a server that has dropped fields, or by other drivers as well. Idea:
//! one reader turns it into amounts by device, or into an error that names the field. Invariants: amounts
//! that are missing are never zero; a device that the driver never publishes is an error; results of other
//! drivers are passed over, whatever they hold.
//!
//! The shell gets the object from the API server as JSON and calls [`ClaimAllocation::read`] with the uid of
//! the kubelet's request.

use numa_topology::quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::{
    ClaimCapacity, ClaimIrqs, ClaimOptions, ClaimUid, DeviceName, PlaceAmounts,
    field::{Field, FieldError, shown},
};

mod config;
#[cfg(test)]
mod tests;

/// Most results of a claim (`AllocationResultsMaxSize` of resource/v1/types.go).
pub(super) const MAX_RESULTS: usize = 32;
/// Most consumers of a claim (`ResourceClaimReservedForMaxSize`).
pub(super) const MAX_CONSUMERS: usize = 256;
/// Most attributes and capacities of a device (`ResourceSliceMaxAttributesAndCapacitiesPerDevice`).
const MAX_CAPACITIES: usize = 32;
/// Longest name of an object or a pool.
pub(super) const MAX_NAME: usize = 253;
/// Longest name of a request, with that of its alternative: two labels and a slash.
pub(super) const MAX_REQUEST: usize = 127;
/// Annotation with the name in the pod of a claim that a template made.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Longest quantity.
const MAX_QUANTITY: usize = 64;
/// Longest share id: a uuid.
pub(super) const MAX_SHARE: usize = 36;

/// What the reader compares a claim with.
#[derive(Debug, Clone, Copy)]
pub struct ClaimContext<'a> {
    /// Name of the driver.
    pub driver: &'a str,
    /// Pool of this node, which is the name of the node.
    pub pool: &'a str,
    /// Uid in the kubelet's request.
    pub uid: &'a str,
    /// What a device without amounts means.
    pub missing: MissingAmounts,
}

/// What it means that a device with amounts was allocated without any: the server has dropped them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MissingAmounts {
    /// The claim has the whole device.
    WholeDevice,
    /// The claim is refused.
    Refuse,
}

/// A claim with what it has of this driver's devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimAllocation {
    /// Its uid.
    pub uid: ClaimUid,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its name in the pod, of a claim that a template made.
    pub pod_claim: Option<String>,
    /// Which pods may use it.
    pub consumers: Vec<ClaimConsumer>,
    /// Its results of this driver, in their order; never empty.
    pub results: Vec<ClaimResult>,
}

/// A pod, or a group of pods, that a claim is reserved for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimConsumer {
    /// The pod with this uid and this name.
    Pod {
        /// Its uid.
        uid: String,
        /// Its name.
        name: String,
    },
    /// Something with pods of its own: the kubelet says which.
    Other {
        /// Its resource: `podgroups`.
        resource: String,
        /// Its uid.
        uid: String,
    },
}

/// One device of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimResult {
    /// Request, with its alternative: `place` or `place/two-nodes`.
    pub request: String,
    /// Name of the device.
    pub device: DeviceName,
    /// Share of the device.
    pub share_id: Option<String>,
    /// Whether it is for administration, which takes nothing.
    pub is_admin: bool,
    /// What it takes of the device.
    pub consumed: ConsumedAmounts,
    /// Its options.
    pub options: ClaimOptions,
}

/// What a result takes of its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsumedAmounts {
    /// These amounts; all zero means its location alone.
    Amounts(PlaceAmounts),
    /// The whole device.
    Whole,
}

/// Why a claim cannot be prepared as it is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ClaimError {
    /// A field of it is wrong.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Another claim has its name now.
    #[error(
        "metadata.uid: the claim was replaced, the kubelet asks for uid {asked} and the API server has {found}"
    )]
    Replaced {
        /// Uid in the kubelet's request.
        asked: String,
        /// Uid of the object.
        found: String,
    },
}

impl ClaimResult {
    /// Name of its request without that of the alternative, as a kubelet expects it.
    pub fn base_request(&self) -> &str {
        self.request.split('/').next().unwrap_or_default()
    }
}

impl ConsumedAmounts {
    /// The amounts, if it is not the whole device.
    pub const fn amounts(&self) -> Option<&PlaceAmounts> {
        match self {
            Self::Amounts(amounts) => Some(amounts),
            Self::Whole => None,
        }
    }
}

impl ClaimAllocation {
    /// Does it take CPUs exclusively?
    pub(super) fn takes_cpus(&self) -> bool {
        let takes = |result: &ClaimResult| result.consumed.amounts().is_none_or(|amounts| amounts.cpus > 0);
        self.results.iter().any(takes)
    }

    /// Does it want interrupts of devices kept off its CPUs?
    pub fn wants_no_interrupts(&self) -> bool {
        self.takes_cpus() && self.results.iter().any(|result| result.options.irqs() == ClaimIrqs::Away)
    }

    /// Can several pods use it?
    pub(super) fn may_have_several_pods(&self) -> bool {
        let is_other = |one: &ClaimConsumer| matches!(one, ClaimConsumer::Other { .. });
        self.consumers.len() > 1 || self.consumers.iter().any(is_other)
    }

    /// Reads a `ResourceClaim` of `resource.k8s.io/v1`.
    ///
    /// # Errors
    /// If it is not the claim that the kubelet asks for, is not allocated, has nothing of this driver, or has
    /// a field that cannot be understood.
    pub fn read(claim: &Value, context: &ClaimContext<'_>) -> Result<Self, ClaimError> {
        let root = Field::root(claim);
        let metadata = root.need("metadata")?;
        let field = metadata.need("uid")?;
        let found = field.text(MAX_NAME)?;
        if found != context.uid {
            return Err(ClaimError::Replaced { asked: context.uid.to_owned(), found: found.to_owned() });
        }
        let uid = ClaimUid::parse(found).ok_or_else(|| field.error(format!("{} is no uid", shown(found))))?;
        let status = root.need("status")?;
        let allocation = status.need("allocation")?;
        let devices = allocation.need("devices")?;
        let configs = config::read(&devices, context.driver)?;
        let mut results = Vec::new();
        for field in devices.list_of("results", MAX_RESULTS)? {
            if field.need("driver")?.text(MAX_NAME)? == context.driver {
                results.push(result(&field, &configs, context)?);
            }
        }
        if results.is_empty() {
            let problem = format!("no device of {} is among them", context.driver);
            return Err(devices.need("results")?.error(problem).into());
        }
        let annotations = metadata.get("annotations")?;
        let pod_claim = annotations.map(|field| field.text_of(POD_CLAIM, MAX_REQUEST)).transpose()?;
        Ok(Self {
            uid,
            pod_claim: pod_claim.filter(|name| !name.is_empty()).map(str::to_owned),
            namespace: metadata.need("namespace")?.text(MAX_NAME)?.to_owned(),
            name: metadata.need("name")?.text(MAX_NAME)?.to_owned(),
            consumers: consumers(&status)?,
            results,
        })
    }
}

fn consumers(status: &Field<'_>) -> Result<Vec<ClaimConsumer>, FieldError> {
    let consumer = |field: Field<'_>| {
        let resource = field.need("resource")?.text(MAX_NAME)?;
        let group = field.text_of("apiGroup", MAX_NAME)?;
        let uid = field.need("uid")?.text(MAX_NAME)?.to_owned();
        if group.is_empty() && resource == "pods" {
            return Ok(ClaimConsumer::Pod { uid, name: field.need("name")?.text(MAX_NAME)?.to_owned() });
        }
        Ok(ClaimConsumer::Other { resource: resource.to_owned(), uid })
    };
    status.list_of("reservedFor", MAX_CONSUMERS)?.into_iter().map(consumer).collect()
}

fn result(
    field: &Field<'_>,
    configs: &[config::Configuration],
    context: &ClaimContext<'_>,
) -> Result<ClaimResult, FieldError> {
    let request = field.need("request")?.text(MAX_REQUEST)?.to_owned();
    let pool = field.need("pool")?;
    let found = pool.text(MAX_NAME)?;
    if found != context.pool {
        return Err(pool.error(format!("{} is not the pool of this node, {}", shown(found), context.pool)));
    }
    let device = field.need("device")?;
    let name = device.text(MAX_NAME)?;
    let parsed = DeviceName::parse(name);
    let parsed =
        parsed.ok_or_else(|| device.error(format!("{} is no device of this driver", shown(name))))?;
    let is_admin = field.flag_of("adminAccess")?;
    let share_id = field.get("shareID")?.map(|share| share.text(MAX_SHARE).map(str::to_owned)).transpose()?;
    let consumed = match (field.get("consumedCapacity")?, parsed) {
        _ if is_admin => ConsumedAmounts::Amounts(PlaceAmounts::default()),
        (Some(amounts), DeviceName::Node(_)) => ConsumedAmounts::Amounts(consumed(&amounts)?),
        (_, DeviceName::Core(_)) => ConsumedAmounts::Whole,
        (None, DeviceName::Node(_)) if context.missing == MissingAmounts::WholeDevice => {
            ConsumedAmounts::Whole
        }
        (None, DeviceName::Node(_)) => {
            let problem = "it is missing: the API server drops it (DRAConsumableCapacity is off), \
                           and a whole node is not given for it";
            return Err(FieldError { field: field.path_of("consumedCapacity"), problem: problem.into() });
        }
    };
    let options = config::options_of(configs, &request, field)?;
    Ok(ClaimResult { request, device: parsed, share_id, is_admin, consumed, options })
}

/// Amounts by capacity; a key that is not of this driver's is an error, as its meaning is not known.
fn consumed(amounts: &Field<'_>) -> Result<PlaceAmounts, FieldError> {
    let mut consumed = PlaceAmounts::default();
    for (key, field) in amounts.entries(MAX_CAPACITIES)? {
        let capacity = ClaimCapacity::parse(key);
        let capacity = capacity.ok_or_else(|| field.error("it is no capacity of this driver"))?;
        let text = field.text(MAX_QUANTITY)?;
        let amount = quantity::exact(text);
        let amount = amount.ok_or_else(|| field.error(format!("{} is no whole amount", shown(text))))?;
        consumed.set(capacity, amount);
    }
    Ok(consumed)
}
