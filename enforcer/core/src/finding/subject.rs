//! What a rule judges: one workload with everything known about it.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use super::{Evidence, Finding, Rule, Severity, files::CgroupFiles, threads::Threads};
use crate::{
    id::NodeId,
    model::{WorkloadModel, accessed_bytes, nearest_effective},
    owner::Ownership,
    place::{Allocations, CgroupRequest, Inventory},
    policy::Policy,
    sample::{CgroupSample, PolicyExtent, Sample},
    set::{CpuSet, NodeSet},
    topology::Locality,
    words::{count, size},
    workload::{CgroupPath, Origin, Workload},
};

pub(super) struct Subject<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) locality: &'a Locality,
    pub(super) workload: &'a Workload,
    pub(super) figures: &'a WorkloadModel,
    pub(super) sample: &'a Sample,
    pub(super) policy: &'a Policy,
    pub(super) owner: Option<&'a Ownership>,
    pub(super) threads: &'a Threads<'a>,
    /// What several rules ask for, and takes a whole placement to find.
    pub(super) place: OnceCell<Option<(CpuSet, NodeSet)>>,
}

impl Subject<'_> {
    /// A finding about this workload.
    pub(super) fn finding(
        &self,
        rule: Rule,
        severity: Severity,
        words: Words,
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
            remedy: words.remedy,
        }
    }

    /// The cpuset files that hold for this workload: its own or those of the nearest cgroup above.
    pub(super) fn cpuset_evidence(&self) -> Vec<Evidence> {
        let cpus = self.effective(|cgroup| cgroup.cpus_effective.as_ref().map(ToString::to_string));
        let mems = self.effective(|cgroup| cgroup.mems_effective.as_ref().map(ToString::to_string));
        let files = self.files();
        let cpus = cpus.map(|(cgroup, value)| Evidence { source: files.effective_cpus(&cgroup), value });
        let mems = mems.map(|(cgroup, value)| Evidence { source: files.effective_mems(&cgroup), value });
        cpus.into_iter().chain(mems).collect()
    }

    /// Where its files are and how they are called.
    pub(super) fn files(&self) -> CgroupFiles<'_> {
        CgroupFiles::of(self.sample)
    }

    fn effective(&self, pick: impl Fn(&CgroupSample) -> Option<String>) -> Option<(CgroupPath, String)> {
        nearest_effective(self.sample, &self.workload.cgroup, pick)
    }

    /// `memory.numa_stat`: where the memory is. Nodes that have none of it say nothing, and there may be
    /// many.
    pub(super) fn residency_evidence(&self) -> Option<Evidence> {
        let bytes = self.figures.bytes_by_node.as_ref()?;
        let some = bytes.iter().filter(|(_, bytes)| bytes.anon > 0 || bytes.file > 0);
        let parts = some.map(|(node, bytes)| format!("N{node} anon={} file={}", bytes.anon, bytes.file));
        let source = match self.workload.origin {
            Origin::Process { pid, .. } => format!("/proc/{pid}/numa_maps"),
            _ => self.files().numa_stat(&self.workload.cgroup),
        };
        Some(Evidence { source, value: parts.collect::<Vec<_>>().join(", ") })
    }

    /// Its processes that keep memory away from its CPUs themselves: the nodes that they bind it to, how much
    /// address space, and what says so.
    pub(super) fn bound_away(&self) -> Option<BoundAway> {
        let pids: BTreeSet<u32> = self.threads.of(self.workload).into_iter().map(|task| task.pid).collect();
        let mut bound = BoundAway { nodes: NodeSet::new(), bytes: 0, evidence: Vec::new() };
        for pid in pids {
            for extent in self.sample.policies_by_process.get(&pid).into_iter().flatten() {
                let Some(nodes) = extent.policy.bound_to() else { continue };
                // Who names memory of a GPU alone means it for the GPU.
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

    /// Bytes of its memory that are local to none of its CPUs' nodes, and the nodes they are on.
    pub(super) fn remote_memory(&self) -> (NodeSet, u64) {
        let away = self.figures.bytes_by_node.iter().flatten().filter(|(node, bytes)| {
            accessed_bytes(bytes) > 0 && self.locality.is_far(**node, &self.figures.cpu_nodes)
        });
        away.fold((NodeSet::new(), 0u64), |(mut nodes, total), (node, bytes)| {
            nodes.insert(*node);
            (nodes, total.saturating_add(accessed_bytes(bytes)))
        })
    }

    /// Its ordinary memory in bytes, without that on GPUs; none where it is not known.
    pub(super) fn memory(&self) -> Option<u64> {
        self.figures.ordinary_bytes(&self.inventory.machine)
    }

    /// Has it enough memory to be judged by where that is?
    pub(super) fn has_memory(&self) -> bool {
        self.memory().is_some_and(|bytes| bytes >= self.policy.thresholds.min_memory.0)
    }

    /// The one CPU node that at least this share of its memory on one node is local to.
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

    /// CPUs and memory nodes that would mend it: as many CPUs as it is pinned to, on the node that
    /// has room and most of its memory; all CPUs of that node for a workload that nobody pinned.
    pub(super) fn better_place(&self) -> Option<&(CpuSet, NodeSet)> {
        self.place.get_or_init(|| self.find_place()).as_ref()
    }

    fn find_place(&self) -> Option<(CpuSet, NodeSet)> {
        let pinned = self.is_pinned();
        let cpus = if pinned { self.figures.cpus.as_ref()?.len() } else { self.busy_cpus() };
        let request = CgroupRequest {
            cgroup: &self.workload.cgroup,
            cpus: u32::try_from(cpus).ok()?,
            memory_bytes: None,
            now: Some(self.figures),
            nodes: None,
            bounds: None,
            available_bytes: BTreeMap::new(),
            wished: None,
        };
        let machine = &self.inventory.machine;
        let grant = request.place(self.inventory, &mut Allocations::default()).ok()?;
        let all = machine.cpus_of(&grant.mems).difference(&machine.isolated_cpus);
        Some((if pinned { grant.exclusive } else { all }, grant.mems))
    }

    /// Whole CPUs that it keeps busy, at least one.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates")]
    fn busy_cpus(&self) -> usize {
        self.figures.cpus_used.map_or(1, |cpus| cpus.ceil() as usize).max(1)
    }
}

/// Policies named in the evidence of a finding.
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

/// The sentences of a finding.
pub(super) struct Words {
    pub(super) summary: String,
    pub(super) impact: String,
    pub(super) remedy: String,
}
