//! `[[workload]]`: whom an entry of the configuration is about, and what it declares for them.
//!
//! An entry is about whatever all of its matchers hold for, and of several entries the first in the file
//! counts. What it declares are defaults: the annotations of a pod win where they could say the same without
//! it.
//!
//! Terminology. A *matcher* is one of the keys that say whom an entry is about; all others say what is
//! declared.
//!
//! Must never let a name that a container chose for itself do more than match: see [`Subject`].

mod check;
mod subject;
#[cfg(test)]
mod tests;
mod wider;

use std::{collections::BTreeMap, num::NonZeroU32};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use self::check::validate;
pub use self::subject::{PodNames, Standing, Subject};
use super::{
    ByteSize, CgroupGlob, NameGlob,
    placement::{Engine, MemoryTypes, TopologyPolicy},
    whole,
};
use crate::{
    partition::Partition,
    self_placement::SelfPlacement,
    set::NodeSet,
    workload::{CgroupPath, identify, system_unit},
};

/// A `[[workload]]` of the configuration. It needs one matcher at least.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadRule {
    /// What people call it.
    pub name: String,
    /// Matcher: glob over cgroup paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupGlob>,
    /// Matcher: glob over names of systemd's units, as in `redis*.service`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<NameGlob>,
    /// Matcher: glob over the names (`comm`, at most 15 bytes) of the processes in it, of which one must
    /// match. Not of pods; of other containers only where `cgroup` or `unit` is there, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<NameGlob>,
    /// Matcher: glob over namespaces of pods, as the runtime tells them.
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
    /// CPUs that each of them needs; of a container of a pod what it asks for when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole::cpus")]
    pub cpus: Option<NonZeroU32>,
    /// Memory that each of them needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// Nodes that may be chosen; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_nodes: Option<NodeSet>,
    /// Devices, by bus address (`0000:3b:00.0`) or name (`eth0`), whose nodes are preferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Kinds of memory; of the engine `pools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_types: Option<MemoryTypes>,
    /// Engine; `hints` for cgroups, and for pods as `placement` has it, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// Policy of the engine `hints`; `single-numa-node` for cgroups, and for pods as `placement` has it, when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<TopologyPolicy>,
    /// How its CPUs are used; exclusively for cgroups, and for pods by their `QoS` class, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<DeclaredClass>,
    /// Partition of the kernel for those of its CPUs that are its own: `root` or `isolated` keeps everything
    /// else of the host off them too. cgroup v2, Linux 6.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<Partition>,
    /// `true` keeps it on its memory nodes when these are nearly full, instead of adding one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict_memory: bool,
    /// May slower memory be added when its memory nodes are nearly full? As `memory.widening` has it when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_tiers: Option<bool>,
    /// `false` leaves the workload alone: it is judged, but never placed or corrected.
    #[serde(default = "yes")]
    pub enforce: bool,
    /// What is done about processes in it that have set memory policies or CPU affinities themselves; as
    /// `self_placement` of the whole file has it when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_placement: Option<SelfPlacement>,
    /// Its cold pages go to slower memory; as `memory.demotion.enabled` has it when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demotion: Option<bool>,
}

fn yes() -> bool {
    true
}

/// How CPUs are used, as people declare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeclaredClass {
    /// Alone.
    Exclusive,
    /// Together with others.
    Shared,
    /// Alone, on CPUs of `isolcpus=` where there are enough; of the engine `pools`.
    Isolated,
    /// On those set aside for the system; of the engine `pools`.
    Reserved,
}

impl WorkloadRule {
    /// Is it about this?
    pub fn is_about(&self, subject: &Subject<'_>) -> bool {
        let cgroup = self.cgroup.as_ref();
        cgroup.is_none_or(|glob| subject.cgroup.is_some_and(|path| glob.matches(path)))
            && self.unit.as_ref().is_none_or(|glob| subject.unit().is_some_and(|unit| glob.matches(unit)))
            && self.command.as_ref().is_none_or(|glob| self.is_about_command(glob, subject))
            && (!self.names_pods() || subject.pod.as_ref().is_some_and(|names| self.is_about_pod(names)))
    }

    /// May it be about a cgroup of which only the path is known yet?
    pub fn may_be_about(&self, cgroup: &CgroupPath) -> bool {
        let standing = Standing::from(&identify(cgroup).origin);
        let subject = Subject { cgroup: Some(cgroup), standing, pod: None, commands: &[] };
        self.cgroup.as_ref().is_none_or(|glob| glob.matches(cgroup))
            && self.unit.as_ref().is_none_or(|glob| subject.unit().is_some_and(|unit| glob.matches(unit)))
            && (!self.names_pods() || standing == Standing::Pod)
            && (self.command.is_none() || standing != Standing::Pod)
    }

    /// May it be about a cgroup below this one?
    pub fn may_be_about_one_below(&self, cgroup: &CgroupPath) -> bool {
        // Below a unit everything belongs to it; units are below slices alone.
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

    /// Does it name pods, or containers of pods?
    pub fn names_pods(&self) -> bool {
        self.namespace.is_some() || self.pod.is_some() || self.container.is_some() || !self.labels.is_empty()
    }

    /// Whoever writes the image of a container chooses what its processes are called.
    fn is_about_command(&self, glob: &NameGlob, subject: &Subject<'_>) -> bool {
        let trusted = match subject.standing {
            Standing::Pod => false,
            Standing::Container => self.cgroup.is_some() || self.unit.is_some(),
            Standing::Other => true,
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

    /// Its matchers as written: two entries with the same are about the same.
    fn matchers(&self) -> Matchers<'_> {
        let names = [&self.unit, &self.command, &self.namespace, &self.pod, &self.container];
        let names = names.map(|glob| glob.as_ref().map(NameGlob::as_str));
        (self.cgroup.as_ref().map(CgroupGlob::as_str), names, &self.labels)
    }
}

/// The cgroup, the names and the labels.
type Matchers<'a> = (Option<&'a str>, [Option<&'a str>; 5], &'a BTreeMap<String, String>);
