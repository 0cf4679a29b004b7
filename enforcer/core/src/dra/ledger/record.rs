//! The ledger as a text, for the state file.
//!
//! Form: a line with the version of the form and the checksum of all that follows it, then one JSON object.
//! Idea: a text is used whole or not at all, and an error says what is wrong with it. The shell keeps a
//! damaged file aside and goes on with an empty ledger; it gives no CPUs away that a CDI file of an unknown
//! claim names, because the kubelet does not ask again for a pod that runs.
//!
//! The boot in which the kubelet asked for a claim last stands with each claim. After a restart of the
//! machine no container of it runs, so [`ClaimLedger::release_orphans`] need not look for one; its CPUs stay
//! its own all the same until the kubelet has given it back, for it may ask again.

use std::{collections::BTreeMap, sync::Arc};

use numa_topology::{
    id::{Id, NodeId},
    set::CpuSet,
};
use serde_json::{Value, json};
use thiserror::Error;
use twox_hash::XxHash64;

use super::{
    ClaimConsumer, ClaimLedger, ClaimResult, ClaimUid, ConsumedAmounts, DeviceName, MAX_CLAIMS, PlaceAmounts,
    PreparedClaim, PreparedResult,
};
use crate::dra::{
    ClaimCapacity, ClaimOptions,
    claim::{MAX_CONSUMERS, MAX_NAME, MAX_REQUEST, MAX_RESULTS, MAX_SHARE},
    field::{Field, FieldError, shown},
};

/// Version of the form.
const VERSION: u64 = 1;
/// Longest state file; a full ledger is shorter.
const MAX_BYTES: usize = 64 << 20;
/// Most amounts of a result.
const MAX_AMOUNTS: usize = 32;
/// Longest list of CPUs: every second one of the most that a kernel has.
const MAX_CPU_LIST: usize = 40_960;

/// What is wrong with a state file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordDamage {
    /// It is longer than any ledger.
    #[error("it has {0} bytes, at most {MAX_BYTES} are expected")]
    TooLong(usize),
    /// It has no first line, or that is no JSON, or the rest is none.
    #[error("{part}: {problem}")]
    NotJson {
        /// First line or rest.
        part: &'static str,
        /// What the reader of JSON says.
        problem: String,
    },
    /// It is of another version of the program.
    #[error("version: {0} is unknown, {VERSION} is expected")]
    OtherVersion(u64),
    /// It was cut off or changed.
    #[error("checksum: {found} is expected for what follows, the first line has {noted}")]
    Checksum {
        /// Checksum in the first line.
        noted: String,
        /// Checksum of the rest.
        found: String,
    },
    /// It is of another node.
    #[error("node: it is the state of node {found}, this is {expected}")]
    OtherNode {
        /// Node of the file.
        found: String,
        /// This node.
        expected: String,
    },
    /// A field is wrong.
    #[error(transparent)]
    Field(#[from] FieldError),
}

impl ClaimLedger {
    /// The ledger as a text; equal ledgers give equal texts.
    pub fn to_text(&self) -> String {
        // Claim by claim: the tree of all of them would be many times as large as the text.
        let mut body =
            format!("{{\"bootId\":{},\"node\":{},\"claims\":[", json!(self.boot_id), json!(self.node));
        for (at, claim) in self.claims().enumerate() {
            body.push_str(if at == 0 { "" } else { "," });
            body.push_str(&claim_json(claim).to_string());
        }
        body.push_str("]}");
        format!("{}\n{body}\n", json!({"version": VERSION, "checksum": checksum(&body)}))
    }

    /// Reads a text of [`Self::to_text`], of this boot or an earlier one. Call [`Self::settle`] after it:
    /// CPUs may be other ones now.
    ///
    /// # Errors
    /// If the text is damaged, of another version, or of another node.
    pub fn from_text(text: &str, node: &str, boot_id: &str) -> Result<Self, RecordDamage> {
        if text.len() > MAX_BYTES {
            return Err(RecordDamage::TooLong(text.len()));
        }
        let (head, body) = text.split_once('\n').unwrap_or((text, ""));
        let body = body.trim_end_matches('\n');
        let parsed = |part, text: &str| {
            let not_json =
                |error: serde_json::Error| RecordDamage::NotJson { part, problem: error.to_string() };
            serde_json::from_slice::<Value>(text.as_bytes()).map_err(not_json)
        };
        let head = parsed("first line", head)?;
        let head = Field::root(&head);
        let version = head.need("version")?.number()?;
        if version != VERSION {
            return Err(RecordDamage::OtherVersion(version));
        }
        let (noted, found) = (head.need("checksum")?.text(MAX_NAME)?.to_owned(), checksum(body));
        if noted != found {
            return Err(RecordDamage::Checksum { noted, found });
        }
        let body = parsed("rest", body)?;
        let body = Field::root(&body);
        let found = body.need("node")?.text(MAX_NAME)?;
        if found != node {
            return Err(RecordDamage::OtherNode { found: found.to_owned(), expected: node.to_owned() });
        }
        let mut ledger = Self::new(node, boot_id);
        let mut owners = BTreeMap::new();
        for field in body.need("claims")?.list(MAX_CLAIMS)? {
            let claim = read_claim(&field)?;
            let cpus = claim.results.iter().flat_map(|result| result.cpus.iter().collect::<Vec<_>>());
            for cpu in cpus {
                if let Some(other) = owners.insert(cpu, claim.uid.clone()) {
                    return Err(field.error(format!("CPU {cpu} is in claim {other} already")).into());
                }
            }
            if let Some(other) = ledger.claims.insert(claim.uid.clone(), Arc::new(claim)) {
                return Err(field.error(format!("claim {} is there twice", other.uid)).into());
            }
        }
        Ok(ledger)
    }
}

pub(super) fn checksum(body: &str) -> String {
    format!("{:016x}", XxHash64::oneshot(0, body.as_bytes()))
}

fn claim_json(claim: &PreparedClaim) -> Value {
    let consumer = |consumer: &ClaimConsumer| match consumer {
        ClaimConsumer::Pod { uid, name } => json!({"resource": "pods", "uid": uid, "name": name}),
        ClaimConsumer::Other { resource, uid } => json!({"resource": resource, "uid": uid, "other": true}),
    };
    json!({
        "uid": claim.uid.as_str(),
        "namespace": claim.namespace,
        "name": claim.name,
        "podClaim": claim.pod_claim,
        "consumers": claim.consumers.iter().map(consumer).collect::<Vec<_>>(),
        "results": claim.results.iter().map(result_json).collect::<Vec<_>>(),
        "bootId": claim.boot_id,
        "preparedAt": claim.prepared_at,
    })
}

fn result_json(prepared: &PreparedResult) -> Value {
    let result = &prepared.result;
    let amounts = prepared.amounts.capacities().into_iter();
    let amounts = amounts.map(|capacity| (capacity.key(), json!(prepared.amounts.of(capacity)))).collect();
    json!({
        "request": result.request,
        "device": result.device.to_string(),
        "shareId": result.share_id,
        "isAdmin": result.is_admin,
        "isWhole": result.consumed == ConsumedAmounts::Whole,
        "amounts": Value::Object(amounts),
        "options": result.options.to_json(),
        "node": prepared.node.0,
        "cpus": prepared.cpus.to_string(),
    })
}

fn read_claim(field: &Field<'_>) -> Result<PreparedClaim, FieldError> {
    let text = |name| Ok(field.need(name)?.text(MAX_NAME)?.to_owned());
    let uid_field = field.need("uid")?;
    let uid = uid_field.text(MAX_NAME)?;
    let consumers = field.need("consumers")?.list(MAX_CONSUMERS)?;
    let results = field.need("results")?.list(MAX_RESULTS)?;
    Ok(PreparedClaim {
        uid: ClaimUid::parse(uid).ok_or_else(|| uid_field.error(format!("{} is no uid", shown(uid))))?,
        namespace: text("namespace")?,
        name: text("name")?,
        pod_claim: field
            .get("podClaim")?
            .map(|name| name.text(MAX_REQUEST).map(str::to_owned))
            .transpose()?,
        consumers: consumers.iter().map(read_consumer).collect::<Result<_, _>>()?,
        results: results.iter().map(read_result).collect::<Result<_, _>>()?,
        boot_id: text("bootId")?,
        prepared_at: field.need("preparedAt")?.number()?,
    })
}

fn read_consumer(field: &Field<'_>) -> Result<ClaimConsumer, FieldError> {
    let text = |name| Ok(field.need(name)?.text(MAX_NAME)?.to_owned());
    if field.flag_of("other")? {
        return Ok(ClaimConsumer::Other { resource: text("resource")?, uid: text("uid")? });
    }
    Ok(ClaimConsumer::Pod { uid: text("uid")?, name: text("name")? })
}

fn read_result(field: &Field<'_>) -> Result<PreparedResult, FieldError> {
    let device = field.need("device")?;
    let name = device.text(MAX_NAME)?;
    let device =
        DeviceName::parse(name).ok_or_else(|| device.error(format!("{} is no device", shown(name))))?;
    let mut amounts = PlaceAmounts::default();
    for (key, amount) in field.need("amounts")?.entries(MAX_AMOUNTS)? {
        let capacity = ClaimCapacity::parse(key).ok_or_else(|| amount.error("it is no capacity"))?;
        amounts.set(capacity, amount.number()?);
    }
    let is_whole = field.flag_of("isWhole")?;
    let consumed = if is_whole { ConsumedAmounts::Whole } else { ConsumedAmounts::Amounts(amounts.clone()) };
    let share_id = field.get("shareId")?.map(|share| share.text(MAX_SHARE).map(str::to_owned)).transpose()?;
    let node = field.need("node")?;
    let id = u32::try_from(node.number()?).ok().filter(|id| *id <= NodeId::GREATEST);
    let cpus = field.need("cpus")?;
    let set: CpuSet = cpus.text(MAX_CPU_LIST)?.parse().map_err(|error| cpus.error(format!("{error}")))?;
    if set.len() as u64 > amounts.cpus {
        return Err(cpus.error(format!("{} CPUs, but {} were promised", set.len(), amounts.cpus)));
    }
    Ok(PreparedResult {
        result: ClaimResult {
            request: field.need("request")?.text(MAX_REQUEST)?.to_owned(),
            device,
            share_id,
            is_admin: field.flag_of("isAdmin")?,
            consumed,
            options: ClaimOptions::read_recorded(&field.need("options")?)?,
        },
        node: id.map(NodeId).ok_or_else(|| node.error("it is no NUMA node"))?,
        amounts,
        cpus: set,
    })
}
