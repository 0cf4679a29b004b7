//! The effective settings of a kubelet, as they are published.
//!
//! Invariants: every text and map fits the bounds of the published state; what does not fit, and what
//! was not read, is named in `inexact`. Which versions and values are known is the business of the
//! state's readers (`enforcer_core::cluster::model`), whose findings are in the state too. Equal
//! settings have an equal hash, whatever source they were read from, and in every version of this
//! program: it is FNV-1a with 64 bits over the settings as JSON with ordered keys.

use std::collections::BTreeMap;

use enforcer_core::{
    cluster::state::{ConfigurationSource, InexactSource, KubeletProfile},
    workload::printable_within,
};
use numa_topology::set::CpuSet;
use serde::Serialize;

use super::configuration::{Configuration, ReservedNodeMemory};

/// Feature gates that affect where a kubelet puts a pod, or what a pod requests.
const PLACEMENT_GATES: [&str; 19] = [
    "AllAlpha",
    "AllBeta",
    "CPUManager",
    "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions",
    "CPUManagerPolicyOptions",
    "DRAExtendedResource",
    "DynamicResourceAllocation",
    "InPlacePodVerticalScaling",
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
    "MemoryManager",
    "PodLevelResourceManagers",
    "PodLevelResources",
    "SidecarContainers",
    "TopologyManager",
    "TopologyManagerPolicyAlphaOptions",
    "TopologyManagerPolicyBetaOptions",
    "TopologyManagerPolicyOptions",
];

/// Most sources of inexactness that are named; the published state has room for 16 of all its inputs.
const MOST_NAMED: usize = 8;

/// What a kubelet keeps back from pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletReservations {
    /// `reservedMemory`, by node.
    pub memory: Vec<ReservedNodeMemory>,
    /// `reservedSystemCPUs`; `None` if it is not set.
    pub cpus: Option<CpuSet>,
    /// `kubeReserved`, as it is written.
    pub kube: BTreeMap<String, String>,
    /// `systemReserved`, as it is written.
    pub system: BTreeMap<String, String>,
    /// `memory.available` of `evictionHard`, as it is written: an amount, or a percentage of the memory.
    pub eviction_memory: Option<String>,
    /// `maxPods`; `None` if it is not known.
    pub max_pods: Option<u32>,
}

/// Effective settings of a kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectiveKubelet {
    /// The settings that place.
    pub profile: KubeletProfile,
    /// What it keeps back. The CPUs and bytes of each node follow from its state files and its socket, and
    /// not from this.
    pub reservations: KubeletReservations,
    /// Why the settings are not all known.
    pub inexact: Vec<InexactSource>,
}

/// The settings, out of one source.
pub(super) fn settings(
    configuration: &Configuration,
    source: ConfigurationSource,
    version: Option<&str>,
    mut inexact: Vec<InexactSource>,
) -> EffectiveKubelet {
    let mut bounded = BoundedFields { inexact: &mut inexact };
    let text = |field: &Option<String>| field.as_deref().unwrap_or_default().to_owned();
    let mut profile = KubeletProfile {
        version: bounded.text("version", version.unwrap_or_default(), 64),
        started_at: None,
        config_hash: String::new(),
        config_from: Some(source),
        cpu_policy: bounded.text("cpuManagerPolicy", &text(&configuration.cpu_policy), 32),
        cpu_options: bounded.options("cpuManagerPolicyOptions", &configuration.cpu_options),
        memory_policy: bounded.text("memoryManagerPolicy", &text(&configuration.memory_policy), 32),
        topology_policy: bounded.text("topologyManagerPolicy", &text(&configuration.topology_policy), 32),
        topology_scope: bounded.text("topologyManagerScope", &text(&configuration.topology_scope), 32),
        topology_options: bounded.options("topologyManagerPolicyOptions", &configuration.topology_options),
        gates: placement_gates(&configuration.gates),
    };
    let reserved_cpus = configuration.reserved_cpus.as_deref().filter(|list| !list.trim().is_empty());
    let reservations = KubeletReservations {
        memory: configuration.reserved_memory.clone(),
        cpus: reserved_cpus.and_then(|list| bounded.cpus("reservedSystemCPUs", list)),
        kube: configuration.kube_reserved.clone(),
        system: configuration.system_reserved.clone(),
        eviction_memory: configuration.memory_threshold().map(str::to_owned),
        max_pods: configuration.max_pods,
    };
    profile.config_hash = hash(&profile, &reservations);
    limit(&mut inexact);
    EffectiveKubelet { profile, reservations, inexact }
}

/// Holds fields to the bounds of the published state.
struct BoundedFields<'a> {
    inexact: &'a mut Vec<InexactSource>,
}

impl BoundedFields<'_> {
    fn exceeds(&mut self, field: &str, reason: String) {
        self.inexact.push(source(field, reason));
    }

    fn text(&mut self, field: &str, text: &str, longest: usize) -> String {
        let shown = printable_within(text, longest.saturating_sub(4));
        if shown != text {
            self.exceeds(field, "longer than any value that is known, or not printable".to_owned());
        }
        shown
    }

    fn options(&mut self, field: &str, options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        const MOST: usize = 16;
        if options.len() > MOST {
            self.exceeds(field, format!("more than {MOST} options; the others are not published"));
        }
        let mut kept = BTreeMap::new();
        for (name, value) in options.iter().take(MOST) {
            kept.insert(self.text(field, name, 64), self.text(field, value, 64));
        }
        kept
    }

    fn cpus(&mut self, field: &str, list: &str) -> Option<CpuSet> {
        let cpus = list.parse();
        if cpus.is_err() {
            self.exceeds(field, format!("{:?} is not a list of CPUs", printable_within(list, 80)));
        }
        cpus.ok()
    }
}

/// An entry for a setting of the kubelet.
pub(super) fn source(setting: &str, reason: impl AsRef<str>) -> InexactSource {
    let setting = printable_within(&format!("kubelet:{setting}"), 100);
    InexactSource::new(setting, printable_within(reason.as_ref(), 400))
}

fn placement_gates(gates: &BTreeMap<String, bool>) -> BTreeMap<String, bool> {
    let set = PLACEMENT_GATES.into_iter().filter_map(|gate| Some((gate.to_owned(), *gates.get(gate)?)));
    set.collect()
}

/// At most [`MOST_NAMED`], each once.
pub(super) fn limit(inexact: &mut Vec<InexactSource>) {
    let mut named = std::collections::BTreeSet::new();
    inexact.retain(|one| named.insert(one.clone()));
    if inexact.len() > MOST_NAMED {
        let others = inexact.len() + 1 - MOST_NAMED;
        inexact.truncate(MOST_NAMED - 1);
        inexact.push(source("configuration", format!("{others} more sources are not named")));
    }
}

/// Everything that the hash is about. A further field changes the hashes, which costs one new revision.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HashedSettings<'a> {
    cpu_policy: &'a str,
    cpu_options: &'a BTreeMap<String, String>,
    memory_policy: &'a str,
    topology_policy: &'a str,
    topology_scope: &'a str,
    topology_options: &'a BTreeMap<String, String>,
    gates: &'a BTreeMap<String, bool>,
    reservations: &'a KubeletReservations,
}

fn hash(profile: &KubeletProfile, reservations: &KubeletReservations) -> String {
    let hashed = HashedSettings {
        cpu_policy: &profile.cpu_policy,
        cpu_options: &profile.cpu_options,
        memory_policy: &profile.memory_policy,
        topology_policy: &profile.topology_policy,
        topology_scope: &profile.topology_scope,
        topology_options: &profile.topology_options,
        gates: &profile.gates,
        reservations,
    };
    // These types have no value that JSON cannot have.
    let text = serde_json::to_vec(&hashed).unwrap_or_default();
    format!("{:016x}", fnv1a(&text))
}

/// FNV-1a with 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // Vectors of the FNV reference.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn the_list_of_sources_is_bounded() {
        let mut inexact: Vec<_> = (0..20).map(|index| source("x", index.to_string())).collect();
        inexact.push(source("x", "0"));
        limit(&mut inexact);
        assert_eq!(inexact.len(), MOST_NAMED);
        assert_eq!(inexact[MOST_NAMED - 1].reason, "13 more sources are not named");
    }
}
