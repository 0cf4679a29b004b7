//! `cpu_manager_state`.
//!
//! Versions: 1 (before Kubernetes 1.18) names containers by id alone and is not used. 2 names them by pod and
//! name. 3 adds CPUs of whole pods. 4 repeats all of it as a text with a checksum of its own, and that text
//! counts. One form reads them. Sources: `pkg/kubelet/cm/cpumanager/state/checkpoint.go` at v1.10, v1.18 and
//! of 2026.

use std::collections::BTreeMap;

use enforcer_core::owner::{Claim, ClaimedPod};
use numa_topology::set::CpuSet;
use serde::Deserialize;

use super::{
    checksum,
    state::{MOST_CLAIMS, StateDamage, StateFile, cpus, document},
};

/// Name of its Go type.
const TYPE: &str = "CPUManagerCheckpoint";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CpuCheckpoint {
    policy_name: String,
    // Go reads keys without regard to case, and its own tests write this one.
    #[serde(alias = "defaultCPUSet")]
    default_cpu_set: String,
    entries: Option<BTreeMap<String, CpuStateEntry>>,
    pod_entries: Option<BTreeMap<String, CpuPodEntry>>,
    checksum: u64,
    data: Option<String>,
    data_checksum: u64,
}

/// CPUs of a container by its id (version 1, unusable), or of the containers of a pod.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum CpuStateEntry {
    Container(#[expect(dead_code, reason = "tells the version, and is not used")] String),
    Pod(BTreeMap<String, String>),
}

#[derive(Debug, Deserialize)]
struct CpuPodEntry {
    #[serde(rename = "cpuSet")]
    cpus: String,
}

/// Parses the text.
pub(super) fn parse(text: &str) -> Result<StateFile, StateDamage> {
    let outer: CpuCheckpoint = document(text)?;
    let Some(data) = &outer.data else {
        return if outer.is_whole()? { outer.state() } else { Err(StateDamage::Checksum(outer.checksum)) };
    };
    if !checksum::matches_text(outer.data_checksum, data) {
        return Err(StateDamage::Checksum(outer.data_checksum));
    }
    document::<CpuCheckpoint>(data)?.state()
}

impl CpuCheckpoint {
    /// Whether the checksum fits.
    fn is_whole(&self) -> Result<bool, StateDamage> {
        let Self { policy_name, default_cpu_set, entries, .. } = self;
        let mut printed = Vec::new();
        for (pod, entry) in entries.iter().flatten() {
            let CpuStateEntry::Pod(of) = entry else { return Err(StateDamage::TooOld) };
            let of = of.iter().map(|(name, cpus)| (name.as_str(), cpus.clone()));
            printed.push((pod.as_str(), checksum::map(of)));
        }
        let empty = printed.is_empty();
        let entries = checksum::map(printed);
        let head = format!("PolicyName:(string){policy_name} DefaultCPUSet:(string){default_cpu_set}");
        let fields = format!("{head} Entries:(map[string]map[string]string){entries}");
        let Some(pods) = &self.pod_entries else {
            // A version 3 without pods prints the field and does not write it; version 1 had another type.
            let of_3 = format!("{fields} PodEntries:(state.PodCPUAssignments)map[]");
            let of_1 = format!("{head} Entries:(map[string]string)map[]");
            let ours = |fields: &str| checksum::matches(self.checksum, TYPE, fields);
            let is_none = self.checksum == checksum::NONE;
            return Ok(is_none || ours(&fields) || ours(&of_3) || (empty && ours(&of_1)));
        };
        let pods = printed_pods(pods)?;
        let fields = format!("{fields} PodEntries:(state.PodCPUAssignments){pods}");
        Ok(checksum::matches(self.checksum, TYPE, &fields))
    }

    fn state(self) -> Result<StateFile, StateDamage> {
        if self.policy_name.is_empty() {
            return Err(StateDamage::NoPolicy);
        }
        let shared_cpus = cpus(&self.default_cpu_set, || "the shared pool".to_owned())?;
        let mut claims = Vec::new();
        let mut add = |pod: &String, container: Option<String>, list: &str| {
            let holder = || format!("{} of pod {pod}", container.as_deref().unwrap_or("everything"));
            let cpus = cpus(list, holder)?;
            if claims.len() == MOST_CLAIMS {
                return Err(StateDamage::TooMany);
            }
            claims.push(Claim { pod: ClaimedPod::Uid(pod.clone()), container, cpus, ..Claim::default() });
            Ok(())
        };
        for (pod, entry) in self.pod_entries.iter().flatten() {
            add(pod, None, &entry.cpus)?;
        }
        for (pod, entry) in self.entries.into_iter().flatten() {
            let CpuStateEntry::Pod(containers) = entry else { return Err(StateDamage::TooOld) };
            for (container, list) in containers {
                add(&pod, Some(container), &list)?;
            }
        }
        claims.retain(|claim| !claim.cpus.is_empty());
        apart(&shared_cpus, &claims)?;
        Ok(StateFile { policy: self.policy_name, shared_cpus, claims })
    }
}

fn printed_pods(pods: &BTreeMap<String, CpuPodEntry>) -> Result<String, StateDamage> {
    let mut printed = Vec::new();
    for (pod, entry) in pods {
        let set = cpus(&entry.cpus, || format!("everything of pod {pod}"))?;
        let ids: Vec<String> = set.iter().map(|cpu| cpu.to_string()).collect();
        let elements = checksum::map(ids.iter().map(|id| (id.as_str(), "{}".to_owned())));
        printed.push((
            pod.as_str(),
            format!("{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}}){elements}}}}}"),
        ));
    }
    Ok(checksum::map(printed))
}

/// Checks that no CPU belongs to two pods, or to a pod and the shared pool. Containers of a pod may share
/// some: those of an init container are reused.
fn apart(shared: &CpuSet, claims: &[Claim]) -> Result<(), StateDamage> {
    let mut by_pod = BTreeMap::<&ClaimedPod, CpuSet>::new();
    for claim in claims {
        by_pod.entry(&claim.pod).or_default().extend(&claim.cpus);
    }
    let mut taken = shared.clone();
    for cpus in by_pod.values() {
        let twice = cpus.intersection(&taken);
        if !twice.is_empty() {
            return Err(StateDamage::Twice(twice));
        }
        taken.extend(cpus);
    }
    Ok(())
}
