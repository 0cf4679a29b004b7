//! Settings of the engine `hints`.
//!
//! Keys are the kubelet's options in snake case; the kubelet's own spelling (`prefer-closest-numa-nodes`) is
//! an alias. Conflicts between options are found when the configuration is read.

use super::{
    PolicyError,
    refusal::{Relation, at_odds, quoted, refused},
};

/// Options that cannot be combined.
const EXCLUSIVE: [(&str, &str); 4] = [
    ("full_pcpus_only", "distribute_cpus_across_cores"),
    ("distribute_cpus_across_numa", "distribute_cpus_across_cores"),
    ("prefer_align_cpus_by_uncore_cache", "distribute_cpus_across_cores"),
    ("prefer_align_cpus_by_uncore_cache", "distribute_cpus_across_numa"),
];

/// Settings of the engine `hints`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields, default)
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(transform = super::aliases::of_hints))]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, with the name people know")]
#[non_exhaustive]
pub struct HintsSettings {
    /// Rules by which sets of nodes are offered, compared and given.
    pub profile: Profile,
    /// Condition for admitting a pod.
    #[cfg_attr(feature = "serde", serde(alias = "topologyManagerPolicy"))]
    pub policy: TopologyPolicy,
    /// Unit of alignment.
    #[cfg_attr(feature = "serde", serde(alias = "topologyManagerScope"))]
    pub scope: Scope,
    /// Whether memory affects the choice of nodes. `none`: only CPUs and devices do, as with the kubelet's
    /// `memoryManagerPolicy: None`.
    #[cfg_attr(feature = "serde", serde(alias = "memoryManagerPolicy"))]
    pub memory_manager_policy: MemoryManagerPolicy,
    /// Among sets of equally many nodes, take the one with the smallest average distance. Absent: true,
    /// false under the profile `kubelet`.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "prefer-closest-numa-nodes", skip_serializing_if = "Option::is_none")
    )]
    pub prefer_closest_numa_nodes: Option<bool>,
    /// Nodes that device hints include under the profile `kubelet`; it differs by kubelet version.
    pub kubelet_device_hints: KubeletDeviceHints,
    /// Accepted for compatibility, at least 8; there is no limit.
    #[cfg_attr(
        feature = "serde",
        serde(
            alias = "max-allowable-numa-nodes",
            skip_serializing_if = "Option::is_none",
            deserialize_with = "super::whole::optional::<_, _, 8, { super::whole::MOST_32 }>"
        )
    )]
    #[cfg_attr(feature = "schemars", schemars(range(min = 8)))]
    pub max_allowable_numa_nodes: Option<u32>,
    /// Tie-break between equally suitable sets of nodes.
    #[cfg_attr(feature = "serde", serde(alias = "numa-allocation-strategy"))]
    pub numa_allocation_strategy: NumaAllocationStrategy,
    /// Exclusive CPUs are whole cores.
    #[cfg_attr(feature = "serde", serde(alias = "full-pcpus-only"))]
    pub full_pcpus_only: bool,
    /// Exclusive CPUs come in equal parts from as few nodes as possible.
    #[cfg_attr(feature = "serde", serde(alias = "distribute-cpus-across-numa"))]
    pub distribute_cpus_across_numa: bool,
    /// Exclusive CPUs come from different cores.
    #[cfg_attr(feature = "serde", serde(alias = "distribute-cpus-across-cores"))]
    pub distribute_cpus_across_cores: bool,
    /// CPUs are aligned by socket instead of by node.
    #[cfg_attr(feature = "serde", serde(alias = "align-by-socket"))]
    pub align_by_socket: bool,
    /// Exclusive CPUs come from as few last-level caches as possible.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "prefer-align-cpus-by-uncorecache", alias = "prefer_align_cpus_by_uncorecache")
    )]
    pub prefer_align_cpus_by_uncore_cache: bool,
    /// No container runs on reserved CPUs, not even in the shared pool.
    #[cfg_attr(feature = "serde", serde(alias = "strict-cpu-reservation"))]
    pub strict_cpu_reservation: bool,
    /// A node holds memory either of single nodes or of groups of nodes, never both: the kubelet's rule. Off:
    /// any set of nodes with enough room.
    pub strict_memory_groups: bool,
    /// Pods of other `QoS` classes than Guaranteed also get the shared CPUs and the memory of as few nodes as
    /// possible. Off: the whole shared pool, as with the kubelet.
    pub align_all_qos: bool,
}

/// Rules of the engine `hints`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Profile {
    /// Rules of this project: memory nodes include those of the CPUs, memory-only nodes belong to the nearest
    /// CPU nodes.
    #[default]
    Enforcer,
    /// Rules of the kubelet's managers including their defects, to predict what a kubelet does. Rules,
    /// annotations and entries for pods have no effect.
    Kubelet,
}

/// Whether memory affects the choice of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(transform = super::aliases::of_memory_manager))]
pub enum MemoryManagerPolicy {
    /// It does not. The profile `kubelet` then sets no memory nodes.
    #[cfg_attr(feature = "serde", serde(alias = "None"))]
    None,
    /// It does.
    #[default]
    #[cfg_attr(feature = "serde", serde(alias = "Static"))]
    Static,
}

/// Nodes that the kubelet's device hints include.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum KubeletDeviceHints {
    /// Nodes with a device of the resource, free or not: since 1.36.
    #[default]
    DeviceNodes,
    /// Of all nodes of the machine: before 1.36.
    AllNodes,
}

/// Condition for admitting a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum TopologyPolicy {
    /// Always; nothing is aligned.
    None,
    /// Always; aligned as far as possible.
    #[default]
    BestEffort,
    /// If it is aligned as well as on an empty machine.
    Restricted,
    /// If everything is on one node.
    #[cfg_attr(feature = "serde", serde(rename = "single-numa-node"))]
    SingleNumaNode,
    /// The older NUMA Manager: the first common set of nodes in order of width. Without one, a Guaranteed pod
    /// is rejected and others run unaligned.
    NumaManager,
    /// As `numa-manager`, but without a common set every pod runs unaligned.
    NumaManagerBestEffort,
}

impl TopologyPolicy {
    /// Every policy.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::BestEffort,
        Self::Restricted,
        Self::SingleNumaNode,
        Self::NumaManager,
        Self::NumaManagerBestEffort,
    ];

    /// Name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
            Self::NumaManager => "numa-manager",
            Self::NumaManagerBestEffort => "numa-manager-best-effort",
        }
    }
}

/// Unit of alignment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Scope {
    /// Each container separately.
    #[default]
    Container,
    /// All containers of a pod together.
    Pod,
}

/// Tie-break between equally suitable sets of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum NumaAllocationStrategy {
    /// The set with the lowest ids.
    #[default]
    None,
    /// The fullest set, so that other nodes stay empty.
    MostAllocated,
    /// The emptiest set, so that all nodes are used evenly.
    LeastAllocated,
}

impl Default for HintsSettings {
    fn default() -> Self {
        Self {
            profile: Profile::Enforcer,
            policy: TopologyPolicy::BestEffort,
            scope: Scope::Container,
            memory_manager_policy: MemoryManagerPolicy::Static,
            prefer_closest_numa_nodes: None,
            kubelet_device_hints: KubeletDeviceHints::DeviceNodes,
            max_allowable_numa_nodes: None,
            numa_allocation_strategy: NumaAllocationStrategy::None,
            full_pcpus_only: false,
            distribute_cpus_across_numa: false,
            distribute_cpus_across_cores: false,
            align_by_socket: false,
            prefer_align_cpus_by_uncore_cache: false,
            strict_cpu_reservation: false,
            strict_memory_groups: false,
            align_all_qos: true,
        }
    }
}

impl HintsSettings {
    /// Is it the profile `kubelet`?
    pub(crate) const fn is_kubelet(&self) -> bool {
        matches!(self.profile, Profile::Kubelet)
    }

    /// Do distances decide between sets of equally many nodes?
    pub fn prefer_closest(&self) -> bool {
        self.prefer_closest_numa_nodes.unwrap_or(!self.is_kubelet())
    }

    /// The settings that the profile prescribes, regardless of other settings.
    #[must_use]
    pub fn under_profile(self) -> Self {
        if !self.is_kubelet() {
            return self;
        }
        let numa_allocation_strategy = NumaAllocationStrategy::None;
        Self { numa_allocation_strategy, strict_memory_groups: true, align_all_qos: false, ..self }
    }

    /// A switch by its name in this project or in the kubelet.
    pub fn switch(&mut self, name: &str) -> Option<&mut bool> {
        match name.replace('-', "_").as_str() {
            "prefer_closest_numa_nodes" => {
                let default = self.prefer_closest();
                Some(self.prefer_closest_numa_nodes.get_or_insert(default))
            }
            "full_pcpus_only" => Some(&mut self.full_pcpus_only),
            "distribute_cpus_across_numa" => Some(&mut self.distribute_cpus_across_numa),
            "distribute_cpus_across_cores" => Some(&mut self.distribute_cpus_across_cores),
            "align_by_socket" => Some(&mut self.align_by_socket),
            "prefer_align_cpus_by_uncore_cache" | "prefer_align_cpus_by_uncorecache" => {
                Some(&mut self.prefer_align_cpus_by_uncore_cache)
            }
            "strict_cpu_reservation" => Some(&mut self.strict_cpu_reservation),
            "strict_memory_groups" => Some(&mut self.strict_memory_groups),
            "align_all_qos" => Some(&mut self.align_all_qos),
            _ => None,
        }
    }

    /// Sets an option as an annotation names it: `full-pcpus-only`, `align-by-socket=false`. Returns whether
    /// there is such an option with such a value.
    pub fn set_option(&mut self, option: &str) -> bool {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name.trim(), Some(value.trim())));
        if name.replace('-', "_") == "numa_allocation_strategy" {
            let strategy = value.and_then(|value| value.parse().ok());
            return strategy.map(|strategy| self.numa_allocation_strategy = strategy).is_some();
        }
        let on = match value {
            None | Some("true") => true,
            Some("false") => false,
            Some(_) => return false,
        };
        self.switch(name).map(|switch| *switch = on).is_some()
    }

    /// Checks that the options can be combined; `section` is the section of the keys in the file.
    ///
    /// # Errors
    /// The first two settings that exclude each other.
    pub fn validate(&self, section: &str) -> Result<(), PolicyError> {
        let key_of = |key: &str| format!("{section}.{key}");
        if let Some(limit) = self.max_allowable_numa_nodes.filter(|limit| *limit < 8) {
            return Err(refused(key_of("max_allowable_numa_nodes"), limit, "it must not be less than 8"));
        }
        let mut own = self.clone();
        let mut is_on = |name: &str| own.switch(name).is_some_and(|switch| *switch);
        if let Some((one, other)) = EXCLUSIVE.into_iter().find(|(one, other)| is_on(one) && is_on(other)) {
            let relation = Relation::excludes("");
            return Err(at_odds((key_of(one), true), relation, (key_of(other), true)));
        }
        if self.align_by_socket && self.policy == TopologyPolicy::SingleNumaNode {
            let policy = (key_of("policy"), quoted(self.policy.as_str()));
            let relation = Relation::excludes("a socket is not always one node");
            return Err(at_odds((key_of("align_by_socket"), true), relation, policy));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_contradict_each_other_are_named() {
        let names = [
            "full-pcpus-only",
            "distribute-cpus-across-numa",
            "prefer-align-cpus-by-uncorecache",
            "distribute-cpus-across-cores",
            "align-by-socket",
        ];
        let mut refused = Vec::new();
        for (at, one) in names.iter().enumerate() {
            for other in &names[at..] {
                let mut settings = HintsSettings::default();
                for name in [one, other] {
                    *settings.switch(name).unwrap() = true;
                }
                refused.extend(settings.validate("s").err().map(|error| error.to_string()));
            }
        }
        let pairs: Vec<bool> = EXCLUSIVE
            .iter()
            .map(|(one, other)| {
                let said = format!("{one} = true: it cannot be used with s.{other}, which is true");
                refused.iter().any(|error| error.contains(&said))
            })
            .collect();
        assert_eq!(pairs, [true; 4], "{refused:?}");
        assert_eq!(refused.len(), 4, "{refused:?}");
    }
}
