//! The fields of a `KubeletConfiguration` that affect where the kubelet puts a pod.
//!
//! Invariants: a field of a wrong type is a fault, because a kubelet does not start with it, so the running
//! one has read something else. `null` and a missing field are the same.

use std::collections::BTreeMap;

use enforcer_core::workload::printable_within;
use numa_topology::quantity;
use serde::Serialize;
use serde_json::{Map, Value};
use thiserror::Error;

use super::command_line::{CommandLine, boolean, pairs, single_pairs};

/// Most entries of one map or list, and most bytes of one text; a configuration has a tenth of it.
const ENTRIES: usize = 1_024;
const LONGEST_TEXT: usize = 4_096;

/// Signal of hard eviction that reserves memory.
const MEMORY_SIGNAL: &str = "memory.available";
/// Its threshold where nothing sets one (`pkg/kubelet/eviction/defaults_linux.go`).
const DEFAULT_MEMORY_THRESHOLD: &str = "100Mi";

/// A field that the kubelet would refuse.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct FieldFault {
    /// Path of the field, or the flag.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl FieldFault {
    fn new(field: &str, problem: impl Into<String>) -> Self {
        Self { field: printable_within(field, 80), problem: problem.into() }
    }
}

/// Memory that the kubelet reserves on a NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReservedNodeMemory {
    /// The NUMA node.
    pub node: u32,
    /// Bytes by resource: `memory` or `hugepages-SIZE`.
    pub limits: BTreeMap<String, u64>,
}

/// Fields of a configuration; absent ones are `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Configuration {
    pub(super) cpu_policy: Option<String>,
    pub(super) cpu_options: BTreeMap<String, String>,
    pub(super) memory_policy: Option<String>,
    pub(super) topology_policy: Option<String>,
    pub(super) topology_scope: Option<String>,
    pub(super) topology_options: BTreeMap<String, String>,
    pub(super) gates: BTreeMap<String, bool>,
    pub(super) reserved_cpus: Option<String>,
    pub(super) kube_reserved: BTreeMap<String, String>,
    pub(super) system_reserved: BTreeMap<String, String>,
    pub(super) reserved_memory: Vec<ReservedNodeMemory>,
    pub(super) eviction_hard: Option<BTreeMap<String, String>>,
    merge_default_eviction: bool,
    pub(super) max_pods: Option<u32>,
    pub(super) port: Option<u16>,
    pub(super) tls_certificate: Option<String>,
}

impl Configuration {
    /// Reads the fields of a document. A number of 0 is one that is not set.
    ///
    /// # Errors
    /// The first field of a wrong type, or beyond the limits.
    pub(super) fn from_fields(fields: &Map<String, Value>) -> Result<Self, FieldFault> {
        let configuration = Self {
            cpu_policy: text(fields, "cpuManagerPolicy")?,
            cpu_options: texts(fields, "cpuManagerPolicyOptions")?.unwrap_or_default(),
            memory_policy: text(fields, "memoryManagerPolicy")?,
            topology_policy: text(fields, "topologyManagerPolicy")?,
            topology_scope: text(fields, "topologyManagerScope")?,
            topology_options: texts(fields, "topologyManagerPolicyOptions")?.unwrap_or_default(),
            gates: map(fields, "featureGates", |_, value| value.as_bool().ok_or("not a boolean"))?
                .unwrap_or_default(),
            reserved_cpus: text(fields, "reservedSystemCPUs")?,
            kube_reserved: texts(fields, "kubeReserved")?.unwrap_or_default(),
            system_reserved: texts(fields, "systemReserved")?.unwrap_or_default(),
            reserved_memory: reserved_memory(fields)?,
            eviction_hard: texts(fields, "evictionHard")?,
            merge_default_eviction: switch(fields, "mergeDefaultEvictionSettings")?.unwrap_or(false),
            max_pods: number(fields, "maxPods")?.filter(|count| *count != 0),
            port: number(fields, "port")?.filter(|port| *port != 0),
            tls_certificate: text(fields, "tlsCertFile")?,
        };
        Ok(configuration)
    }

    /// Sets what the command line sets, and returns the flags that could not be read. A kubelet that runs has
    /// read them, so their fields are not known.
    pub(super) fn apply_flags(&mut self, flags: &CommandLine) -> Vec<FieldFault> {
        let plain = |field: &mut Option<String>, name| {
            if let Some(value) = flags.value(name) {
                *field = Some(value.to_owned());
            }
        };
        plain(&mut self.cpu_policy, "cpu-manager-policy");
        plain(&mut self.memory_policy, "memory-manager-policy");
        plain(&mut self.topology_policy, "topology-manager-policy");
        plain(&mut self.topology_scope, "topology-manager-scope");
        plain(&mut self.reserved_cpus, "reserved-cpus");
        plain(&mut self.tls_certificate, "tls-cert-file");
        let too_long = |flag: &&'static str| FieldFault::new(&format!("--{flag}"), "longer than is kept");
        let mut faults: Vec<FieldFault> = flags.too_long.iter().map(too_long).collect();
        let mut apply = |name: &str, set: &mut dyn FnMut(&[String]) -> Result<(), String>| {
            if let Some(values) = flags.all(name)
                && let Err(part) = set(values)
            {
                let problem = format!("{:?} has another form", printable_within(&part, 80));
                faults.push(FieldFault::new(&format!("--{name}"), problem));
            }
        };
        apply("cpu-manager-policy-options", &mut |values| {
            self.cpu_options = single_pairs(values)?;
            Ok(())
        });
        apply("topology-manager-policy-options", &mut |values| {
            self.topology_options = single_pairs(values)?;
            Ok(())
        });
        apply("kube-reserved", &mut |values| {
            self.kube_reserved = pairs(values, '=')?;
            Ok(())
        });
        apply("system-reserved", &mut |values| {
            self.system_reserved = pairs(values, '=')?;
            Ok(())
        });
        apply("eviction-hard", &mut |values| {
            self.eviction_hard = Some(pairs(values, '<')?);
            Ok(())
        });
        apply("feature-gates", &mut |values| {
            for (gate, value) in pairs(values, '=')? {
                let value = boolean(&value).ok_or(value)?;
                self.gates.insert(gate, value);
            }
            Ok(())
        });
        apply("reserved-memory", &mut |values| {
            self.reserved_memory = reserved_memory_of_flags(values)?;
            Ok(())
        });
        apply("max-pods", &mut |values| {
            self.max_pods = Some(last_number(values)?);
            Ok(())
        });
        apply("port", &mut |values| {
            self.port = Some(last_number(values)?);
            Ok(())
        });
        faults
    }

    /// Sets the defaults of the fields that are not set, which are equal in all versions from 1.27 to 1.36
    /// (`pkg/kubelet/apis/config/v1beta1/defaults.go`).
    pub(super) fn fill_defaults(&mut self) {
        let fill = |field: &mut Option<String>, default: &str| {
            if field.as_deref().unwrap_or_default().is_empty() {
                *field = Some(default.to_owned());
            }
        };
        fill(&mut self.cpu_policy, "none");
        fill(&mut self.memory_policy, "None");
        fill(&mut self.topology_policy, "none");
        fill(&mut self.topology_scope, "container");
        self.max_pods.get_or_insert(110);
        self.port.get_or_insert(10_250);
    }

    /// Threshold of hard eviction by memory, in the kubelet's spelling: an amount, or a percentage of the
    /// node's memory. `None` if there is none.
    pub(super) fn memory_threshold(&self) -> Option<&str> {
        let set = self.eviction_hard.as_ref().and_then(|signals| signals.get(MEMORY_SIGNAL));
        let default = self.merge_default_eviction.then_some(DEFAULT_MEMORY_THRESHOLD);
        set.map(String::as_str).or(default)
    }
}

/// Sets the default of `evictionHard`, which the kubelet sets as soon as it has read the file of `--config`:
/// a drop-in that names one signal keeps the others (`loadConfigFile` of `cmd/kubelet/app/server.go`). Only
/// the signal that reserves memory is set.
pub(super) fn fill_eviction(fields: &mut Map<String, Value>) {
    let field = fields.entry("evictionHard").or_insert(Value::Null);
    if field.is_null() {
        let signals = [(MEMORY_SIGNAL.to_owned(), DEFAULT_MEMORY_THRESHOLD.into())];
        *field = Value::Object(signals.into_iter().collect());
    }
}

fn present<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn bounded_text(value: &Value) -> Result<String, &'static str> {
    match value.as_str() {
        Some(text) if text.len() <= LONGEST_TEXT => Ok(text.to_owned()),
        Some(_) => Err("longer than any text of a configuration"),
        None => Err("not a text"),
    }
}

fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, FieldFault> {
    let text = present(fields, name).map(bounded_text).transpose();
    text.map_err(|problem| FieldFault::new(name, problem))
}

fn switch(fields: &Map<String, Value>, name: &str) -> Result<Option<bool>, FieldFault> {
    let boolean = |value: &Value| value.as_bool().ok_or_else(|| FieldFault::new(name, "not a boolean"));
    present(fields, name).map(boolean).transpose()
}

fn number<T: TryFrom<u64>>(fields: &Map<String, Value>, name: &str) -> Result<Option<T>, FieldFault> {
    let fits = |value: &Value| value.as_u64().and_then(|value| T::try_from(value).ok());
    let checked = |value| fits(value).ok_or_else(|| FieldFault::new(name, "not a number in range"));
    present(fields, name).map(checked).transpose()
}

fn texts(fields: &Map<String, Value>, name: &str) -> Result<Option<BTreeMap<String, String>>, FieldFault> {
    map(fields, name, |_, value| bounded_text(value))
}

/// A map; an absent one is `None`.
fn map<T>(
    fields: &Map<String, Value>,
    name: &str,
    mut read: impl FnMut(&str, &Value) -> Result<T, &'static str>,
) -> Result<Option<BTreeMap<String, T>>, FieldFault> {
    let Some(value) = present(fields, name) else { return Ok(None) };
    let entries = value.as_object().ok_or_else(|| FieldFault::new(name, "not a map"))?;
    if entries.len() > ENTRIES {
        return Err(FieldFault::new(name, format!("more than {ENTRIES} entries")));
    }
    let mut map = BTreeMap::new();
    for (key, value) in entries {
        let fault = |problem| FieldFault::new(&format!("{name}.{key}"), problem);
        if key.len() > LONGEST_TEXT {
            return Err(fault("a key that is longer than any of a configuration"));
        }
        map.insert(key.clone(), read(key, value).map_err(fault)?);
    }
    Ok(Some(map))
}

fn reserved_memory(fields: &Map<String, Value>) -> Result<Vec<ReservedNodeMemory>, FieldFault> {
    const NAME: &str = "reservedMemory";
    let Some(value) = present(fields, NAME) else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| FieldFault::new(NAME, "not a list"))?;
    if list.len() > ENTRIES {
        return Err(FieldFault::new(NAME, format!("more than {ENTRIES} entries")));
    }
    let mut reserved = Vec::new();
    for element in list {
        let fields =
            element.as_object().ok_or_else(|| FieldFault::new(NAME, "an entry that is not a map"))?;
        let node = number(fields, "numaNode")?.unwrap_or(0);
        let limits = map(fields, "limits", |_, value| bytes(value).ok_or("not an amount"))?;
        reserved.push(ReservedNodeMemory { node, limits: limits.unwrap_or_default() });
    }
    reserved.sort();
    Ok(reserved)
}

/// An amount: a text, or a number, as Go's `Quantity` accepts it.
fn bytes(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| quantity::whole(value.as_str()?))
}

/// `NODE:TYPE=AMOUNT,...`, several of them apart by `;` (`ReservedMemoryVar` of `pkg/util/flag/flags.go`).
fn reserved_memory_of_flags(values: &[String]) -> Result<Vec<ReservedNodeMemory>, String> {
    let mut reserved = Vec::new();
    for part in values.iter().flat_map(|value| value.split(';')) {
        let (node, limits) = part.split_once(':').ok_or(part)?;
        let node = node.parse().map_err(|_not_a_number| part)?;
        let mut by_resource = BTreeMap::new();
        for limit in limits.split(',') {
            let (resource, amount) = limit.split_once('=').ok_or(part)?;
            by_resource.insert(resource.to_owned(), quantity::whole(amount).ok_or(part)?);
        }
        reserved.push(ReservedNodeMemory { node, limits: by_resource });
    }
    reserved.sort();
    Ok(reserved)
}

fn last_number<T: std::str::FromStr>(values: &[String]) -> Result<T, String> {
    let last = values.last().map(String::as_str).unwrap_or_default();
    last.parse().map_err(|_not_a_number| last.to_owned())
}
