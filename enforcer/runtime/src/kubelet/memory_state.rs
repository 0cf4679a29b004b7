//! `memory_manager_state`.
//!
//! Versions: 1 (since Kubernetes 1.21) has the memory of containers, and what every node has left. 2 adds the
//! memory of whole pods. 3 repeats all of it as a text with a checksum of its own. Sources:
//! `pkg/kubelet/cm/memorymanager/state/checkpoint.go` and `state.go`.

use std::collections::BTreeMap;

use enforcer_core::{
    cluster::observed::{MemoryAmounts, MemoryAssignments, NumaMemoryAccount},
    owner::MemoryBlock,
};
use numa_topology::set::NodeSet;
use serde::Deserialize;

use super::{
    checksum,
    state::{MOST_CLAIMS, StateDamage, document, node_id, unknown_fields},
};

/// Name of its Go type.
const TYPE: &str = "MemoryManagerCheckpoint";

/// Fields of all versions.
const FIELDS: [&str; 7] =
    ["policyName", "machineState", "entries", "podEntries", "checksum", "data", "dataChecksum"];

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MemoryCheckpoint {
    policy_name: String,
    machine_state: BTreeMap<u32, NumaMemoryEntry>,
    entries: Option<BTreeMap<String, BTreeMap<String, Vec<Block>>>>,
    pod_entries: Option<BTreeMap<String, MemoryPodEntry>>,
    checksum: u64,
    data: Option<String>,
    data_checksum: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NumaMemoryEntry {
    number_of_assignments: i64,
    memory_map: Option<BTreeMap<String, MemoryTable>>,
    cells: Option<Vec<i64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MemoryTable {
    total: u64,
    system_reserved: u64,
    allocatable: u64,
    reserved: u64,
    free: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Block {
    numa_affinity: Option<Vec<u32>>,
    r#type: String,
    size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MemoryPodEntry {
    memory_blocks: Option<Vec<Block>>,
}

/// Parses the text.
pub(super) fn parse(text: &str) -> Result<MemoryAssignments, StateDamage> {
    let outer: MemoryCheckpoint = document(text)?;
    let Some(data) = &outer.data else {
        if !outer.is_whole() {
            return Err(StateDamage::Checksum(outer.checksum));
        }
        let state = outer.state()?;
        return Ok(MemoryAssignments { unknown_fields: unknown_fields(text, &FIELDS)?, ..state });
    };
    if !checksum::matches_text(outer.data_checksum, data) {
        return Err(StateDamage::Checksum(outer.data_checksum));
    }
    let state = document::<MemoryCheckpoint>(data)?.state()?;
    let unknown = [unknown_fields(text, &FIELDS)?, unknown_fields(data, &FIELDS)?].concat();
    Ok(MemoryAssignments { unknown_fields: unknown, ..state })
}

impl MemoryCheckpoint {
    /// Whether the checksum fits.
    fn is_whole(&self) -> bool {
        let Self { policy_name, machine_state, entries, pod_entries, .. } = self;
        let ids: Vec<String> = machine_state.keys().map(u32::to_string).collect();
        let nodes = checksum::map(
            ids.iter().map(String::as_str).zip(machine_state.values().map(NumaMemoryEntry::printed)),
        );
        let entries = checksum::map(entries.iter().flatten().map(|(pod, of)| {
            let of = of.iter().map(|(name, blocks)| (name.as_str(), printed_blocks(Some(blocks))));
            (pod.as_str(), checksum::map(of))
        }));
        let fields = format!(
            "PolicyName:(string){policy_name} MachineState:(state.NUMANodeMap){nodes} \
             Entries:(state.ContainerMemoryAssignments){entries}"
        );
        let pods = checksum::map(pod_entries.iter().flatten().map(|(pod, entry)| {
            let blocks = printed_blocks(entry.memory_blocks.as_ref());
            (pod.as_str(), format!("{{MemoryBlocks:([]state.Block){blocks}}}"))
        }));
        let with_pods = format!("{fields} PodEntries:(state.PodMemoryAssignments){pods}");
        let is_none = self.checksum == checksum::NONE;
        let without = pod_entries.is_none() && (is_none || checksum::matches(self.checksum, TYPE, &fields));
        // A version 2 without pods prints the field and does not write it.
        without || checksum::matches(self.checksum, TYPE, &with_pods)
    }

    fn state(self) -> Result<MemoryAssignments, StateDamage> {
        if self.policy_name.is_empty() {
            return Err(StateDamage::NoPolicy);
        }
        let mut count = 0;
        let mut memory = |blocks: Vec<Block>| {
            count += 1;
            if count > MOST_CLAIMS {
                return Err(StateDamage::TooMany);
            }
            blocks.into_iter().map(Block::memory).collect::<Result<Vec<_>, _>>()
        };
        let mut state = MemoryAssignments { policy: self.policy_name, ..MemoryAssignments::default() };
        for (pod, entry) in self.pod_entries.into_iter().flatten() {
            state.pods.insert(pod, memory(entry.memory_blocks.unwrap_or_default())?);
        }
        for (pod, containers) in self.entries.into_iter().flatten() {
            let mut of = BTreeMap::new();
            for (container, blocks) in containers {
                of.insert(container, memory(blocks)?);
            }
            state.containers.insert(pod, of);
        }
        for (id, entry) in self.machine_state {
            state.nodes.insert(node_id(i64::from(id))?, entry.account()?);
        }
        Ok(state)
    }
}

impl NumaMemoryEntry {
    fn printed(&self) -> String {
        let tables = self.memory_map.as_ref().map_or_else(nil, |tables| {
            checksum::map(tables.iter().map(|(resource, table)| (resource.as_str(), table.printed())))
        });
        let cells = printed_numbers(self.cells.as_ref());
        format!(
            "<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable){tables} Cells:([]int){cells}}}",
            self.number_of_assignments
        )
    }

    fn account(self) -> Result<NumaMemoryAccount, StateDamage> {
        let number = self.number_of_assignments;
        let assignments = u64::try_from(number)
            .map_err(|_negative| StateDamage::Form(format!("{number} assignments of a NUMA node")))?;
        let cells: Result<NodeSet, StateDamage> = self.cells.into_iter().flatten().map(node_id).collect();
        let amounts = self.memory_map.into_iter().flatten();
        let amounts = amounts.map(|(resource, table)| (resource, table.amounts()));
        Ok(NumaMemoryAccount { assignments, amounts: amounts.collect(), cells: cells? })
    }
}

impl MemoryTable {
    fn printed(&self) -> String {
        let Self { total, system_reserved, allocatable, reserved, free } = self;
        format!(
            "<*>{{TotalMemSize:(uint64){total} SystemReserved:(uint64){system_reserved} \
             Allocatable:(uint64){allocatable} Reserved:(uint64){reserved} Free:(uint64){free}}}"
        )
    }

    const fn amounts(&self) -> MemoryAmounts {
        let Self { total, system_reserved, allocatable, reserved, free } = *self;
        MemoryAmounts { total, system_reserved, allocatable, reserved, free }
    }
}

impl Block {
    fn printed(&self) -> String {
        let Self { numa_affinity, r#type, size } = self;
        let nodes = printed_numbers(numa_affinity.as_ref());
        format!("{{NUMAAffinity:([]int){nodes} Type:(v1.ResourceName){type} Size:(uint64){size}}}")
    }

    fn memory(self) -> Result<MemoryBlock, StateDamage> {
        let nodes = self.numa_affinity.into_iter().flatten().map(|node| node_id(i64::from(node)));
        let nodes = nodes.collect::<Result<NodeSet, _>>()?;
        Ok(MemoryBlock { kind: self.r#type, nodes, bytes: self.size })
    }
}

fn printed_blocks(blocks: Option<&Vec<Block>>) -> String {
    blocks.map_or_else(nil, |blocks| listed(blocks.iter().map(Block::printed)))
}

fn printed_numbers<T: ToString>(numbers: Option<&Vec<T>>) -> String {
    numbers.map_or_else(nil, |numbers| listed(numbers.iter().map(T::to_string)))
}

fn listed(elements: impl Iterator<Item = String>) -> String {
    format!("[{}]", elements.collect::<Vec<_>>().join(" "))
}

/// A map or a list that is absent.
fn nil() -> String {
    "<nil>".to_owned()
}
