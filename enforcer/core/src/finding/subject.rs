//! Input of a rule: one workload with everything known about it.

use std::{cell::OnceCell, collections::BTreeSet};

use super::{
    Evidence, Finding, Rule, Severity,
    files::{self, CgroupFiles},
    short_nodes::NodeSharers,
    threads::Threads,
};
use crate::{
    decide::{Advice, EarlierAdvice, Obstacle, advise, near_memory},
    model::{WorkloadModel, accessed_bytes},
    owner::Ownership,
    policy::Policy,
    sample::{NodeBytes, PolicyExtent, Sample},
    turn::{Decision, Inputs},
    words::{count, size},
    workload::{Origin, Workload},
};
use numa_placement::{Allocations, Inventory};
use numa_topology::{Locality, id::NodeId, set::NodeSet};

pub(super) struct Subject<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) locality: &'a Locality,
    pub(super) workload: &'a Workload,
    pub(super) figures: &'a WorkloadModel,
    pub(super) sample: &'a Sample,
    pub(super) policy: &'a Policy,
    pub(super) owner: Option<&'a Ownership>,
    pub(super) threads: &'a Threads<'a>,
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) decision: &'a Decision,
    pub(super) allocations: &'a Allocations,
    /// Workloads on nodes that are short, as they are asked for.
    pub(super) sharers: &'a NodeSharers,
    /// Advice to earlier workloads.
    pub(super) earlier: &'a EarlierAdvice,
    /// Advice that several rules share; it takes a whole placement to find.
    pub(super) advice: OnceCell<Result<Advice, Obstacle>>,
}

impl Subject<'_> {
    /// A finding about this workload.
    pub(super) fn finding(
        &self,
        rule: Rule,
        severity: Severity,
        words: FindingWords,
        evidence: Vec<Evidence>,
    ) -> Finding {
        Finding {
            id: format!("{rule}:{}", self.workload.object()),
            rule,
            severity,
            object: self.workload.cgroup.clone(),
            summary: words.summary,
            evidence,
            impact: words.impact,
            obstacle: words.remedy.as_ref().err().cloned(),
            remedy: words.remedy.ok(),
        }
    }

    /// The cpuset files of this workload, and the partition that has taken CPUs which its own file names.
    pub(super) fn cpuset_evidence(&self) -> Vec<Evidence> {
        files::cpuset_evidence(self.sample, &self.workload.cgroup)
    }

    /// Paths of its files.
    pub(super) fn files(&self) -> CgroupFiles<'_> {
        CgroupFiles::of(self.sample)
    }

    /// Its memory by node, file by file. Nodes without any are left out, and there may be many.
    pub(super) fn residency_evidence(&self) -> Vec<Evidence> {
        let Some(bytes) = self.figures.bytes_by_node.as_ref() else { return Vec::new() };
        let in_cgroup = !matches!(self.workload.origin, Origin::Process { .. });
        let seen = self.sample.cgroups.get(&self.workload.cgroup).filter(|_| in_cgroup);
        let hugetlb = seen.map(|seen| &seen.hugetlb_by_file);
        // Huge pages are in the sum, and in a file of their own.
        let huge = |node: &NodeId| {
            let files = hugetlb.into_iter().flatten();
            files
                .filter_map(|(_, by_node)| by_node.get(node))
                .fold(0u64, |sum, bytes| sum.saturating_add(*bytes))
        };
        let parts = bytes.iter().filter_map(|(node, bytes)| {
            let anon = bytes.anon.saturating_sub(huge(node));
            (anon > 0 || bytes.file > 0).then(|| format!("N{node} anon={anon} file={}", bytes.file))
        });
        let value = parts.collect::<Vec<_>>().join(", ");
        let source = match self.workload.origin {
            Origin::Process { pid, .. } => format!("/proc/{pid}/numa_maps"),
            _ => self.files().memory(&self.workload.cgroup, "memory.numa_stat"),
        };
        let of_huge = hugetlb.into_iter().flatten().filter_map(|(file, by_node)| {
            let some = by_node.iter().filter(|(_, bytes)| **bytes > 0);
            let value = some.map(|(node, bytes)| format!("N{node}={bytes}")).collect::<Vec<_>>().join(" ");
            let source = self.files().memory(&self.workload.cgroup, file);
            (!value.is_empty()).then_some(Evidence { source, value })
        });
        let plain = (!value.is_empty()).then_some(Evidence { source, value });
        plain.into_iter().chain(of_huge).collect()
    }

    /// Processes that bind memory away from the workload's CPUs: the nodes, the size of the mappings, and the
    /// evidence.
    pub(super) fn bound_away(&self) -> Option<BoundAway> {
        let pids: BTreeSet<u32> = self.threads.of(self.workload).into_iter().map(|task| task.pid).collect();
        let mut bound = BoundAway { nodes: NodeSet::new(), bytes: 0, evidence: Vec::new() };
        for pid in pids {
            for extent in self.sample.policies_by_process.get(&pid).into_iter().flatten() {
                let Some(nodes) = extent.policy.bound_to() else { continue };
                // A policy that names only memory of a GPU is meant for the GPU.
                if !nodes.iter().any(|node| self.locality.is_far(node, &self.figures.cpu_nodes))
                    || nodes.iter().any(|node| self.locality.is_near(node, &self.figures.cpu_nodes))
                {
                    continue;
                }
                bound.nodes = bound.nodes.union(nodes);
                bound.bytes = bound.bytes.saturating_add(extent.bytes);
                if bound.evidence.len() < BOUND_NAMED {
                    bound.evidence.push(policy_evidence(pid, extent));
                }
            }
        }
        (bound.bytes > 0).then_some(bound)
    }

    /// Bytes of its memory that are far from its CPUs, and their nodes. For CPUs without memory of their own
    /// the nearest allowed memory counts as near.
    pub(super) fn remote_memory(&self) -> (NodeSet, u64) {
        self.far(accessed_bytes)
    }

    /// Nodes far from its CPUs with their bytes, as `count` sees them.
    pub(super) fn far(&self, count: impl Fn(&NodeBytes) -> u64) -> (NodeSet, u64) {
        let near = near_memory(self.inputs, self.workload, &self.figures.cpu_nodes);
        self.figures.ordinary_bytes_outside(&self.inventory.machine, &near, count)
    }

    /// Its ordinary memory in bytes, without that on GPUs; `None` if unknown.
    pub(super) fn memory(&self) -> Option<u64> {
        self.figures.ordinary_bytes(&self.inventory.machine)
    }

    /// Has it enough memory to judge its place?
    pub(super) fn has_memory(&self) -> bool {
        self.memory().is_some_and(|bytes| bytes >= self.policy.thresholds.min_memory.0)
    }

    /// The only CPU node to which at least this share of its memory on one node is local.
    pub(super) fn dominant_node(&self, share_percent: u64) -> Option<NodeId> {
        let total = self.memory()?;
        let bytes = self.figures.bytes_by_node.as_ref()?;
        let ordinary = bytes.iter().filter(|(node, _)| !self.locality.is_gpu(**node));
        let (node, most) =
            ordinary.max_by_key(|(node, bytes)| (accessed_bytes(bytes), std::cmp::Reverse(**node)))?;
        let dominates =
            u128::from(accessed_bytes(most)) * 100 >= u128::from(total) * u128::from(share_percent);
        let near = self.locality.near_cpu_nodes(*node);
        near.first().filter(|_| near.len() == 1 && total > 0 && dominates)
    }

    /// Does its cpuset keep it from some CPU that others may use?
    pub(super) fn is_pinned(&self) -> bool {
        self.figures.cpus.as_ref().is_some_and(|cpus| !self.inventory.machine.online_cpus().is_subset(cpus))
    }

    /// Advice that would bring it together, or the obstacle; see [`advise`].
    pub(super) fn advice(&self) -> Result<&Advice, &Obstacle> {
        let find = || advise(self.inputs, self.decision, self.allocations, self.earlier, self.workload);
        self.advice.get_or_init(find).as_ref()
    }

    /// Policies by which its processes spread memory, as evidence.
    pub(super) fn spread_evidence(&self) -> Vec<Evidence> {
        let pids: BTreeSet<u32> = self.threads.of(self.workload).into_iter().map(|task| task.pid).collect();
        let of = |pid: u32| {
            let extents = self.sample.policies_by_process.get(&pid).into_iter().flatten();
            extents.filter(|extent| extent.policy.spreads()).map(move |extent| policy_evidence(pid, extent))
        };
        pids.into_iter().flat_map(of).take(BOUND_NAMED).collect()
    }
}

/// Limit of policies named in the evidence of a finding.
const BOUND_NAMED: usize = 3;

/// Memory that a workload binds to nodes away from its CPUs.
pub(super) struct BoundAway {
    pub(super) nodes: NodeSet,
    /// Size of the mappings; not all of it need be in memory.
    pub(super) bytes: u64,
    pub(super) evidence: Vec<Evidence>,
}

fn policy_evidence(pid: u32, extent: &PolicyExtent) -> Evidence {
    let mappings = usize::try_from(extent.mappings).unwrap_or(usize::MAX);
    let all = format!("{} for {} in {}", extent.policy, size(extent.bytes), count(mappings, "mapping"));
    let kinds = [(extent.shared_bytes, "shared"), (extent.huge_bytes, "of huge pages")];
    let parts =
        kinds.iter().filter(|(bytes, _)| *bytes > 0).map(|(bytes, kind)| format!("{} {kind}", size(*bytes)));
    let value = [all].into_iter().chain(parts).collect::<Vec<_>>().join(", ");
    Evidence { source: format!("/proc/{pid}/numa_maps policy"), value }
}

/// Texts of a finding.
pub(super) struct FindingWords {
    pub(super) summary: String,
    pub(super) impact: String,
    /// The command, or the obstacle.
    pub(super) remedy: Result<String, String>,
}
