//! `cpu_manager_state`.
//!
//! Versions: 1 (before Kubernetes 1.18) names containers by id alone and is not used. 2 names them by pod and
//! name. 3 adds CPUs of whole pods. 4 repeats all of it as a text with a checksum of its own, and that text
//! counts. One form reads them. Sources: `pkg/kubelet/cm/cpumanager/state/checkpoint.go` at v1.10, v1.18 and
//! of 2026.

use std::collections::BTreeMap;

use enforcer_core::cluster::observed::CpuAssignments;
use numa_topology::set::CpuSet;
use serde::Deserialize;

use super::{
    checksum,
    state::{MOST_CLAIMS, StateDamage, cpus, document, unknown_fields},
};

/// Name of its Go type.
const TYPE: &str = "CPUManagerCheckpoint";

/// Fields of all versions.
const FIELDS: [&str; 7] =
    ["policyName", "defaultCpuSet", "entries", "podEntries", "checksum", "data", "dataChecksum"];

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
pub(super) fn parse(text: &str) -> Result<CpuAssignments, StateDamage> {
    let outer: CpuCheckpoint = document(text)?;
    let Some(data) = &outer.data else {
        if !outer.is_whole()? {
            return Err(StateDamage::Checksum(outer.checksum));
        }
        let state = outer.state()?;
        return Ok(CpuAssignments { unknown_fields: unknown_fields(text, &FIELDS)?, ..state });
    };
    if !checksum::matches_text(outer.data_checksum, data) {
        return Err(StateDamage::Checksum(outer.data_checksum));
    }
    let state = document::<CpuCheckpoint>(data)?.state()?;
    let unknown = [unknown_fields(text, &FIELDS)?, unknown_fields(data, &FIELDS)?].concat();
    Ok(CpuAssignments { unknown_fields: unknown, ..state })
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

    fn state(self) -> Result<CpuAssignments, StateDamage> {
        if self.policy_name.is_empty() {
            return Err(StateDamage::NoPolicy);
        }
        let default_cpus = cpus(&self.default_cpu_set, || "the shared pool".to_owned())?;
        let mut state =
            CpuAssignments { policy: self.policy_name, default_cpus, ..CpuAssignments::default() };
        let mut count = 0;
        let mut parsed = |pod: &str, container: Option<&str>, list: &str| {
            let holder = || format!("{} of pod {pod}", container.unwrap_or("everything"));
            let cpus = cpus(list, holder)?;
            count += 1;
            if count > MOST_CLAIMS { Err(StateDamage::TooMany) } else { Ok(cpus) }
        };
        for (pod, entry) in self.pod_entries.into_iter().flatten() {
            let cpus = parsed(&pod, None, &entry.cpus)?;
            state.pods.insert(pod, cpus);
        }
        for (pod, entry) in self.entries.into_iter().flatten() {
            let CpuStateEntry::Pod(containers) = entry else { return Err(StateDamage::TooOld) };
            let mut of = BTreeMap::new();
            for (container, list) in containers {
                let cpus = parsed(&pod, Some(&container), &list)?;
                of.insert(container, cpus);
            }
            state.containers.insert(pod, of);
        }
        apart(&state)?;
        Ok(state)
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
fn apart(state: &CpuAssignments) -> Result<(), StateDamage> {
    let mut by_pod: BTreeMap<&String, CpuSet> =
        state.pods.iter().map(|(pod, of)| (pod, of.clone())).collect();
    for (pod, containers) in &state.containers {
        for cpus in containers.values() {
            by_pod.entry(pod).or_default().extend(cpus);
        }
    }
    let mut taken = state.default_cpus.clone();
    for cpus in by_pod.values() {
        let twice = cpus.intersection(&taken);
        if !twice.is_empty() {
            return Err(StateDamage::Twice(twice));
        }
        taken.extend(cpus);
    }
    Ok(())
}
