//! The kubelet's settings as settings of the placement engine.
//!
//! Every setting of the kubelet that affects where it puts a pod is either translated or named as a
//! reason why a prediction is inexact. Versions and gates whose defaults are not known are named here
//! too, so that readers judge every state by their own knowledge. Rules and annotations of this project
//! have no part in it.

use std::{collections::BTreeMap, ops::RangeInclusive};

use numa_placement::settings::{
    CpuAmount, CpuChoice, HintsSettings, KubeletDeviceHints, MemoryManagerPolicy, PlacementSettings, Profile,
    Scope, TopologyPolicy,
};
use numa_topology::set::CpuSet;

use super::state::{InexactSource, KubeletProfile};
use crate::workload::printable_within;

/// Limit of NUMA nodes for every policy except `none`, if no option raises it.
const DEFAULT_MAX_NODES: usize = 8;

/// Minor versions of Kubernetes whose defaults and rules are known.
const KNOWN_MINOR_VERSIONS: RangeInclusive<u32> = 27..=36;

/// Feature gates that change the rules in a way that the engine does not have.
const UNKNOWN_RULES: [&str; 3] = [
    "PodLevelResourceManagers",
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
];

/// Settings of the engine for a kubelet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TranslatedProfile {
    /// The settings.
    pub(super) settings: PlacementSettings,
    /// Whether the CPU manager gives exclusive CPUs.
    pub(super) gives_cpus: bool,
    /// Settings that have no translation.
    pub(super) inexact: Vec<InexactSource>,
}

impl TranslatedProfile {
    /// Translates the settings of a kubelet on a machine with that many NUMA nodes.
    pub(super) fn new(kubelet: &KubeletProfile, reserved_cpus: &CpuSet, nodes: usize) -> Self {
        let mut inexact = Vec::new();
        let mut unknown = |key: &str, value: &str| {
            let reason = format!("{value:?} is not known, so its rules are not applied");
            inexact.push(InexactSource::new(format!("kubelet:{key}"), reason));
        };
        let mut hints = HintsSettings::default();
        hints.profile = Profile::Kubelet;
        hints.policy = match kubelet.topology_policy.as_str() {
            "none" => TopologyPolicy::None,
            "best-effort" => TopologyPolicy::BestEffort,
            "restricted" => TopologyPolicy::Restricted,
            "single-numa-node" => TopologyPolicy::SingleNumaNode,
            other => {
                unknown("topologyManagerPolicy", other);
                TopologyPolicy::Restricted
            }
        };
        hints.scope = match kubelet.topology_scope.as_str() {
            "container" => Scope::Container,
            "pod" => Scope::Pod,
            other => {
                unknown("topologyManagerScope", other);
                Scope::Container
            }
        };
        hints.memory_manager_policy = match kubelet.memory_policy.as_str() {
            "None" => MemoryManagerPolicy::None,
            "Static" => MemoryManagerPolicy::Static,
            other => {
                unknown("memoryManagerPolicy", other);
                MemoryManagerPolicy::Static
            }
        };
        let gives_cpus = match kubelet.cpu_policy.as_str() {
            "none" => false,
            "static" => true,
            other => {
                unknown("cpuManagerPolicy", other);
                true
            }
        };
        hints.kubelet_device_hints = match minor_version(&kubelet.version) {
            Some(minor) if minor >= (1, 36) => KubeletDeviceHints::DeviceNodes,
            Some(_) => KubeletDeviceHints::AllNodes,
            // Named below.
            None => KubeletDeviceHints::DeviceNodes,
        };
        let mut max_nodes = DEFAULT_MAX_NODES;
        for (name, value) in &kubelet.topology_options {
            match (name.as_str(), value.as_str()) {
                ("max-allowable-numa-nodes", value) => match value.parse() {
                    Ok(limit) => max_nodes = limit,
                    Err(_not_a_number) => {
                        unknown("topologyManagerPolicyOptions.max-allowable-numa-nodes", value);
                    }
                },
                ("prefer-closest-numa-nodes", "true" | "false") => {
                    hints.prefer_closest_numa_nodes = Some(value == "true");
                }
                _ => unknown(&format!("topologyManagerPolicyOptions.{name}"), value),
            }
        }
        for (name, value) in &kubelet.cpu_options {
            let known = CPU_OPTIONS.contains(&name.as_str()).then(|| hints.switch(name)).flatten();
            match (known, value.as_str()) {
                (Some(switch), "true" | "false") => *switch = value == "true",
                _ => unknown(&format!("cpuManagerPolicyOptions.{name}"), value),
            }
        }
        inexact.extend(unknown_version(&kubelet.version));
        inexact.extend(unknown_group_of_gates(&kubelet.gates));
        for gate in UNKNOWN_RULES.into_iter().filter(|gate| kubelet.gates.get(*gate) == Some(&true)) {
            let reason = "the gate is on, and its rules are not known here".to_owned();
            inexact.push(InexactSource::new(format!("kubelet:featureGates.{gate}"), reason));
        }
        if nodes > max_nodes && hints.policy != TopologyPolicy::None {
            let reason = format!("a kubelet with this policy does not start on {nodes} NUMA nodes");
            inexact.push(InexactSource::new("kubelet:topologyManagerPolicy", reason));
        }
        let mut settings = PlacementSettings::default();
        settings.hints = hints;
        if !reserved_cpus.is_empty() {
            settings.reserved.cpus = Some(CpuAmount::Named(CpuChoice::Only(reserved_cpus.clone())));
        }
        Self { settings, gives_cpus, inexact }
    }
}

/// Options of the CPU manager in Kubernetes 1.36.
const CPU_OPTIONS: [&str; 6] = [
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    "distribute-cpus-across-cores",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
];

/// Gates that set all others of a stage, whose names and defaults differ by version.
fn unknown_group_of_gates(gates: &BTreeMap<String, bool>) -> Option<InexactSource> {
    // Features of stage alpha are off without it, too.
    let set = [("AllAlpha", true), ("AllBeta", true), ("AllBeta", false)];
    let (gate, value) = set.into_iter().find(|(gate, value)| gates.get(*gate) == Some(value))?;
    let reason =
        format!("it is {value}; the features that it switches differ by version and are not known here");
    Some(InexactSource::new(format!("kubelet:featureGates.{gate}"), reason))
}

/// Why the defaults and the rules of a version are not known, if they are not.
fn unknown_version(version: &str) -> Option<InexactSource> {
    let is_known = minor_version(version)
        .is_some_and(|(major, minor)| major == 1 && KNOWN_MINOR_VERSIONS.contains(&minor));
    let reason = if version.is_empty() {
        "it is not known, so the kubelet's rules and defaults are not".to_owned()
    } else {
        let (first, last) = (KNOWN_MINOR_VERSIONS.start(), KNOWN_MINOR_VERSIONS.end());
        let version = printable_within(version, 64);
        format!("the rules and defaults of {version} are not known, only 1.{first} to 1.{last}")
    };
    (!is_known).then(|| InexactSource::new("kubelet:version", reason))
}

/// Major and minor version: `v1.36.2+k3s1` is (1, 36).
fn minor_version(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?;
    let digits = minor.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> KubeletProfile {
        KubeletProfile {
            version: "v1.36.2".into(),
            cpu_policy: "static".into(),
            memory_policy: "Static".into(),
            topology_policy: "single-numa-node".into(),
            topology_scope: "pod".into(),
            ..KubeletProfile::default()
        }
    }

    fn translated(kubelet: &KubeletProfile) -> TranslatedProfile {
        TranslatedProfile::new(kubelet, &CpuSet::new(), 2)
    }

    #[test]
    fn every_known_setting_is_translated() {
        let mut kubelet = profile();
        for option in CPU_OPTIONS {
            kubelet.cpu_options.insert(option.into(), "true".into());
        }
        kubelet.topology_options.insert("prefer-closest-numa-nodes".into(), "true".into());
        kubelet.topology_options.insert("max-allowable-numa-nodes".into(), "16".into());
        let translated = translated(&kubelet);
        assert_eq!(translated.inexact, []);
        let hints = &translated.settings.hints;
        assert!(hints.full_pcpus_only && hints.distribute_cpus_across_numa && hints.align_by_socket);
        assert!(hints.distribute_cpus_across_cores && hints.strict_cpu_reservation);
        assert!(hints.prefer_align_cpus_by_uncore_cache && hints.prefer_closest());
        assert_eq!((hints.policy, hints.scope), (TopologyPolicy::SingleNumaNode, Scope::Pod));
        assert!(translated.settings.predicts_kubelet() && translated.gives_cpus);
    }

    #[test]
    fn an_unknown_setting_is_named_and_never_ignored() {
        let named = |change: &dyn Fn(&mut KubeletProfile)| {
            let mut kubelet = profile();
            change(&mut kubelet);
            translated(&kubelet).inexact.into_iter().map(|one| one.source).collect::<Vec<_>>()
        };
        let options = |kubelet: &mut KubeletProfile| {
            kubelet.cpu_options.insert("new-option".into(), "true".into());
            kubelet.cpu_options.insert("full-pcpus-only".into(), "perhaps".into());
            kubelet.topology_options.insert("strict_memory_groups".into(), "true".into());
        };
        assert_eq!(
            named(&options),
            [
                "kubelet:topologyManagerPolicyOptions.strict_memory_groups",
                "kubelet:cpuManagerPolicyOptions.full-pcpus-only",
                "kubelet:cpuManagerPolicyOptions.new-option",
            ]
        );
        assert_eq!(named(&|kubelet| kubelet.cpu_policy = "dynamic".into()), ["kubelet:cpuManagerPolicy"]);
        assert_eq!(named(&|kubelet| kubelet.version = String::new()), ["kubelet:version"]);
        assert_eq!(
            named(&|kubelet| kubelet.topology_policy = String::new()),
            ["kubelet:topologyManagerPolicy"]
        );
        let gate = |kubelet: &mut KubeletProfile| {
            kubelet.gates.insert("PodLevelResourceManagers".into(), true);
        };
        assert_eq!(named(&gate), ["kubelet:featureGates.PodLevelResourceManagers"]);
    }

    #[test]
    fn versions_with_unknown_rules_are_named() {
        for (version, is_known) in [
            ("v1.36.2", true),
            ("v1.27.0+k3s1", true),
            ("1.30", true),
            ("v1.36+", true),
            ("v1.37.0-alpha.1", false),
            ("v1.26.9", false),
            ("v2.30.0", false),
            ("v1", false),
            ("latest", false),
            ("", false),
        ] {
            let inexact = translated(&KubeletProfile { version: version.into(), ..profile() }).inexact;
            let named: Vec<_> = inexact.iter().map(|one| one.source.as_str()).collect();
            let expected: &[&str] = if is_known { &[] } else { &["kubelet:version"] };
            assert_eq!(named, expected, "{version}");
        }
    }

    #[test]
    fn groups_of_gates_are_named() {
        for (gate, value, is_named) in [
            ("AllAlpha", true, true),
            ("AllBeta", true, true),
            ("AllBeta", false, true),
            ("AllAlpha", false, false),
        ] {
            let kubelet = KubeletProfile { gates: [(gate.to_owned(), value)].into(), ..profile() };
            assert_eq!(translated(&kubelet).inexact.len(), usize::from(is_named), "{gate} {value}");
        }
    }

    #[test]
    fn device_hints_follow_the_version() {
        for (version, hints) in [
            ("v1.36.0", KubeletDeviceHints::DeviceNodes),
            ("v1.37.0-alpha.1", KubeletDeviceHints::DeviceNodes),
            ("v1.36+", KubeletDeviceHints::DeviceNodes),
            ("1.35.4+k3s1", KubeletDeviceHints::AllNodes),
            ("v2.0.0", KubeletDeviceHints::DeviceNodes),
        ] {
            let kubelet = KubeletProfile { version: version.into(), ..profile() };
            assert_eq!(translated(&kubelet).settings.hints.kubelet_device_hints, hints, "{version}");
        }
    }

    #[test]
    fn a_kubelet_does_not_start_on_more_nodes_than_its_limit() {
        let inexact = |kubelet: &KubeletProfile| TranslatedProfile::new(kubelet, &CpuSet::new(), 9).inexact;
        assert_eq!(inexact(&profile()).len(), 1);
        assert_eq!(inexact(&KubeletProfile { topology_policy: "none".into(), ..profile() }), []);
    }
}
