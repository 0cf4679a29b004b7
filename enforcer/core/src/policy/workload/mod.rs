//! `[[workload]]`: an entry of the configuration, with the workloads it selects and the settings it declares
//! for them.
//!
//! An entry selects the workloads that all of its matchers match; of several matching entries the first in
//! the file applies. Declared settings are defaults: annotations of a pod take precedence if they would also
//! be valid without the entry.
//!
//! Terminology: a *matcher* is a key that selects workloads; all other keys declare settings.
//!
//! Invariant: a name that a container chose for itself can only match, see [`RuleSubject`].

mod check;
mod subject;
#[cfg(test)]
mod tests;
mod wider;

use std::{collections::BTreeMap, num::NonZeroU32};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use self::check::validate;
pub use self::subject::{PodNames, RuleSubject, WorkloadKind};
use super::{
    ByteSize, CgroupGlob, DeclaredClass, NameGlob,
    placement::{HintsOptions, HintsSettings, MemoryTypes, PlacementEngine, TopologyPolicy},
    whole,
};
use crate::{
    interrupts::OwnInterrupts,
    partition::Partition,
    self_placement::SelfPlacement,
    workload::{CgroupPath, identify, system_unit},
};
use numa_topology::set::NodeSet;

/// An entry of the configuration for workloads. It needs at least one matcher.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadRule {
    /// Display name.
    pub name: String,
    /// Matcher: glob over cgroup paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupGlob>,
    /// Matcher: glob over names of systemd's units, as in `redis*.service`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<NameGlob>,
    /// Matcher: glob over the names (`comm`, at most 15 bytes) of its processes, of which one must match.
    /// Never matches pods; matches other containers only together with `cgroup` or `unit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<NameGlob>,
    /// Matcher: glob over namespaces of pods, as the runtime reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NameGlob>,
    /// Matcher: glob over names of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<NameGlob>,
    /// Matcher: glob over names of containers in pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<NameGlob>,
    /// Matcher: labels that the pod must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Number of CPUs that each workload needs; for a container of a pod its own request when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole::cpus")]
    pub cpus: Option<NonZeroU32>,
    /// Memory that each workload needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// Nodes that it may use; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<NodeSet>,
    /// Devices, by bus address (`0000:3b:00.0`) or name (`eth0`), with preferred nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Where interrupts of these devices should be handled: `node` on CPUs of its nodes that no workload has
    /// exclusively, `cpus` on its own exclusive CPUs; `node` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<OwnInterrupts>,
    /// Kinds of memory; only for the engine `pools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_types: Option<MemoryTypes>,
    /// Engine. When absent: `hints` for cgroups, that of `placement` for pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<PlacementEngine>,
    /// Policy of the engine `hints`. When absent: `single-numa-node` for cgroups, that of `placement` for
    /// pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<TopologyPolicy>,
    /// Options of the engine `hints` for its exclusive CPUs, as in `placement.hints`: `full-pcpus-only`,
    /// `distribute-cpus-across-cores`, `prefer-align-cpus-by-uncorecache`, `align-by-socket=false`.
    #[serde(default, skip_serializing_if = "HintsOptions::is_empty")]
    pub options: HintsOptions,
    /// Use of its CPUs. When absent: exclusive for cgroups, by `QoS` class for pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<DeclaredClass>,
    /// Cpuset partition for its exclusive CPUs: `root` or `isolated` keeps all other processes of the host
    /// off them. Requires cgroup v2 and Linux 6.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
    /// `true` keeps it on its memory nodes even if they are nearly full, instead of adding one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict_memory: bool,
    /// Whether slower memory may be added when its memory nodes are nearly full; that of `memory.widening`
    /// when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_tiers: Option<bool>,
    /// `false` leaves the workload alone: it gets findings, but is never placed or corrected.
    #[serde(default = "yes")]
    pub enforce: bool,
    /// Treatment of its processes that have set memory policies or CPU affinities themselves; the top-level
    /// `self_placement` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_placement: Option<SelfPlacement>,
    /// Whether its cold pages go to slower memory; `memory.demotion.enabled` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demotion: Option<bool>,
}

fn yes() -> bool {
    true
}

/// Settings of the engine `hints` for cgroups, before an entry changes them.
pub fn hints_of_cgroups() -> HintsSettings {
    let mut hints = HintsSettings::default();
    hints.policy = TopologyPolicy::SingleNumaNode;
    hints
}

impl WorkloadRule {
    /// Does the entry select this workload?
    pub fn is_about(&self, subject: &RuleSubject<'_>) -> bool {
        let cgroup = self.cgroup.as_ref();
        cgroup.is_none_or(|glob| subject.cgroup.is_some_and(|path| glob.matches(path)))
            && self.unit.as_ref().is_none_or(|glob| subject.unit().is_some_and(|unit| glob.matches(unit)))
            && self.command.as_ref().is_none_or(|glob| self.is_about_command(glob, subject))
            && (!self.names_pods() || subject.pod.as_ref().is_some_and(|names| self.is_about_pod(names)))
    }

    /// Could the entry select this cgroup? Only its path is known yet.
    pub fn may_be_about(&self, cgroup: &CgroupPath) -> bool {
        let standing = WorkloadKind::from(&identify(cgroup).origin);
        let subject = RuleSubject { cgroup: Some(cgroup), standing, pod: None, commands: &[] };
        self.cgroup.as_ref().is_none_or(|glob| glob.matches(cgroup))
            && self.unit.as_ref().is_none_or(|glob| subject.unit().is_some_and(|unit| glob.matches(unit)))
            && (!self.names_pods() || standing == WorkloadKind::Pod)
            && (self.command.is_none() || standing != WorkloadKind::Pod)
    }

    /// Could the entry select a descendant of this cgroup?
    pub fn may_be_about_one_below(&self, cgroup: &CgroupPath) -> bool {
        // All cgroups below a unit belong to the unit; units are only below slices.
        let is_unit = |glob: &NameGlob| match system_unit(cgroup) {
            Some(unit) => glob.matches(unit),
            None => cgroup
                .relative()
                .split('/')
                .all(|name| name.is_empty() || name.strip_suffix(".slice").is_some()),
        };
        self.cgroup.as_ref().is_none_or(|glob| glob.may_match_below(cgroup))
            && self.unit.as_ref().is_none_or(is_unit)
    }

    /// Does it match only pods or containers of pods?
    pub fn names_pods(&self) -> bool {
        self.namespace.is_some() || self.pod.is_some() || self.container.is_some() || !self.labels.is_empty()
    }

    /// The author of a container image chooses the names of its processes.
    fn is_about_command(&self, glob: &NameGlob, subject: &RuleSubject<'_>) -> bool {
        let trusted = match subject.standing {
            WorkloadKind::Pod => false,
            WorkloadKind::Container => self.cgroup.is_some() || self.unit.is_some(),
            WorkloadKind::Other => true,
        };
        trusted && subject.commands.iter().any(|command| glob.matches(command))
    }

    fn is_about_pod(&self, names: &PodNames<'_>) -> bool {
        let named = |glob: &Option<NameGlob>, name| glob.as_ref().is_none_or(|glob| glob.matches(name));
        named(&self.namespace, names.namespace)
            && named(&self.pod, names.pod)
            && named(&self.container, names.container)
            && self.labels.iter().all(|(key, value)| names.labels.get(key) == Some(value))
    }

    /// Its matchers as written: entries with equal matchers select the same workloads.
    fn matchers(&self) -> Matchers<'_> {
        let names = [&self.unit, &self.command, &self.namespace, &self.pod, &self.container];
        let names = names.map(|glob| glob.as_ref().map(NameGlob::as_str));
        (self.cgroup.as_ref().map(CgroupGlob::as_str), names, &self.labels)
    }
}

/// The cgroup, the names and the labels.
type Matchers<'a> = (Option<&'a str>, [Option<&'a str>; 5], &'a BTreeMap<String, String>);
