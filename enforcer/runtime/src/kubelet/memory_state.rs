//! `memory_manager_state`.
//!
//! Versions: 1 (since Kubernetes 1.21) has the memory of containers, and what every node has left. 2 adds the
//! memory of whole pods. 3 repeats all of it as a text with a checksum of its own. What nodes have left is
//! read for the checksum only. Sources: `pkg/kubelet/cm/memorymanager/state/checkpoint.go` and `state.go`.

use std::collections::BTreeMap;

use enforcer_core::owner::{Claim, ClaimedPod, MemoryBlock};
use numa_topology::id::NodeId;
use serde::Deserialize;

use super::{
    checksum,
    state::{MOST_CLAIMS, StateDamage, StateFile, document},
};

/// Name of its Go type.
const TYPE: &str = "MemoryManagerCheckpoint";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MemoryCheckpoint {
    policy_name: String,
    machine_state: BTreeMap<u32, NodeState>,
    entries: Option<BTreeMap<String, BTreeMap<String, Vec<Block>>>>,
    pod_entries: Option<BTreeMap<String, MemoryPodEntry>>,
    checksum: u64,
    data: Option<String>,
    data_checksum: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeState {
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
pub(super) fn parse(text: &str) -> Result<StateFile, StateDamage> {
    let outer: MemoryCheckpoint = document(text)?;
    let Some(data) = &outer.data else {
        return if outer.is_whole() { outer.state() } else { Err(StateDamage::Checksum(outer.checksum)) };
    };
    if !checksum::matches_text(outer.data_checksum, data) {
        return Err(StateDamage::Checksum(outer.data_checksum));
    }
    document::<MemoryCheckpoint>(data)?.state()
}

impl MemoryCheckpoint {
    /// Whether the checksum fits.
    fn is_whole(&self) -> bool {
        let Self { policy_name, machine_state, entries, pod_entries, .. } = self;
        let ids: Vec<String> = machine_state.keys().map(u32::to_string).collect();
        let nodes =
            checksum::map(ids.iter().map(String::as_str).zip(machine_state.values().map(NodeState::printed)));
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

    fn state(self) -> Result<StateFile, StateDamage> {
        if self.policy_name.is_empty() {
            return Err(StateDamage::NoPolicy);
        }
        let mut claims = Vec::new();
        let mut add = |pod: &String, container: Option<String>, blocks: Vec<Block>| {
            if claims.len() == MOST_CLAIMS {
                return Err(StateDamage::TooMany);
            }
            let memory: Vec<MemoryBlock> = blocks.into_iter().filter_map(Block::memory).collect();
            if !memory.is_empty() {
                let pod = ClaimedPod::Uid(pod.clone());
                claims.push(Claim { pod, container, memory, ..Claim::default() });
            }
            Ok(())
        };
        for (pod, entry) in self.pod_entries.into_iter().flatten() {
            add(&pod, None, entry.memory_blocks.unwrap_or_default())?;
        }
        for (pod, containers) in self.entries.into_iter().flatten() {
            for (container, blocks) in containers {
                add(&pod, Some(container), blocks)?;
            }
        }
        Ok(StateFile { policy: self.policy_name, claims, ..StateFile::default() })
    }
}

impl NodeState {
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
}

impl MemoryTable {
    fn printed(&self) -> String {
        let Self { total, system_reserved, allocatable, reserved, free } = self;
        format!(
            "<*>{{TotalMemSize:(uint64){total} SystemReserved:(uint64){system_reserved} \
             Allocatable:(uint64){allocatable} Reserved:(uint64){reserved} Free:(uint64){free}}}"
        )
    }
}

impl Block {
    fn printed(&self) -> String {
        let Self { numa_affinity, r#type, size } = self;
        let nodes = printed_numbers(numa_affinity.as_ref());
        format!("{{NUMAAffinity:([]int){nodes} Type:(v1.ResourceName){type} Size:(uint64){size}}}")
    }

    /// `None` without nodes, or with a node that no machine has.
    fn memory(self) -> Option<MemoryBlock> {
        let nodes = self.numa_affinity.unwrap_or_default().into_iter().filter(|node| *node < MOST_NODES);
        let nodes = nodes.map(NodeId).collect::<numa_topology::set::NodeSet>();
        (!nodes.is_empty()).then_some(MemoryBlock { kind: self.r#type, nodes, bytes: self.size })
    }
}

/// `MAX_NUMNODES` of the kernel at its largest (`CONFIG_NODES_SHIFT` of 10).
pub(super) const MOST_NODES: u32 = 1 << 10;

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
