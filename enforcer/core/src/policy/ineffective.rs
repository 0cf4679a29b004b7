//! Valid settings that have no effect because of other settings.
//!
//! Problem: the author of an accepted setting without effect believes that it works. Idea: one list of such
//! settings, each with the condition under which it has no effect. The core does not know which keys the file
//! has: the reader of the file looks up the listed keys and reports those that it finds.
//!
//! Invariants: every listed key is a key of the configuration; a setting that equals the actual behaviour is
//! not listed; nothing is refused here.

use std::fmt;

use super::{Brake, Mode, Policy, RunTimeSource, WorkloadRule, covering::Effort};
use crate::{
    interrupts::InterruptMode,
    policy::placement::{HINTS_KEYS, NumaAllocationStrategy, PlacementEngine, TopologyPolicy},
};

/// A setting that has no effect if the configuration has its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ineffective {
    /// Key, as in the file; `[N]` after the name of a list is its N-th entry, from 0.
    pub key: String,
    /// Why it has no effect, or what it does instead.
    pub reason: String,
    /// Key of the setting that causes this, if a flag may have set that one.
    pub decided_by: Option<String>,
}

impl Ineffective {
    /// Why it has no effect, by the flag that causes it if there is one; `flag` returns the flag of a key.
    pub fn reason_with(&self, flag: impl Fn(&str) -> Option<String>) -> String {
        let flag = self.decided_by.as_deref().and_then(flag);
        flag.map_or_else(|| self.reason.clone(), |flag| format!("no effect: {flag}"))
    }
}

impl fmt::Display for Ineffective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)
    }
}

/// Keys of `placement.pools`.
const POOLS: [&str; 9] = [
    "pin_cpu",
    "pin_memory",
    "prefer_isolated_cpus",
    "prefer_shared_cpus",
    "reserved_pool_namespaces",
    "colocate_pods",
    "colocate_namespaces",
    "unlimited_burstable",
    "default_cpu_priority",
];

/// Sections that `enabled = false` turns off as a whole, and their keys without effect then.
/// `memory.demotion` is not among them: entries may turn it on.
const SWITCHED: [(&str, &[&str]); 6] = [
    ("metrics", &["listen", "reports", "token_file", "workload_counters"]),
    ("nri", &["place", "expose", "honour_marks", "socket", "index"]),
    ("kubelet", &["root_dir", "podresources"]),
    ("control", &["socket"]),
    (
        "dra",
        &[
            "fallback",
            "accounting",
            "exclusive_percent",
            "dedicated_cpus",
            "full_cores",
            "overlap",
            "reserve_memory",
            "share_exclusive",
            "without_amounts",
            "kubevirt_variable",
            "require_nri",
            "claim_conditions",
            "device_metadata",
            "cdi_dir",
            "node",
        ],
    ),
    (
        "memory.widening",
        &[
            "widen_percent",
            "arm_percent",
            "release_percent",
            "min_headroom",
            "lower_tiers",
            "narrow_after",
            "brake",
        ],
    ),
];

/// Keys of `memory.demotion` beside `enabled`.
const DEMOTION: [&str; 3] = ["idle", "bytes_per_second", "backend"];

/// Keys without effect in an entry with `enforce = false`.
const ENFORCED: [&str; 13] = [
    "cpus",
    "memory",
    "numa_nodes",
    "devices",
    "interrupts",
    "memory_types",
    "engine",
    "policy",
    "options",
    "class",
    "partition",
    "strict_memory",
    "lower_tiers",
];

/// Why a setting about writes has no effect.
const OBSERVES: &str = "no effect: mode is observe, which never writes";

/// Why an entry that names pods matches none.
const NO_NAMES: &str = "it matches nothing: nri.enabled is false, and the container runtime alone tells \
                        namespaces, names and labels of pods";

impl Policy {
    /// Settings without effect, whether the file has them or not.
    pub fn ineffective(&self) -> Vec<Ineffective> {
        self.ineffective_within(&mut Effort::default())
    }

    /// The same, with `effort` for all comparisons of entries.
    fn ineffective_within(&self, effort: &mut Effort) -> Vec<Ineffective> {
        let mut list = IneffectiveList::default();
        self.check_switched(&mut list);
        self.check_publishing(&mut list);
        self.check_observing(&mut list);
        self.check_enforcing(&mut list);
        self.check_daemon(&mut list);
        self.check_memory(&mut list);
        self.check_hints(&mut list);
        self.check_engines(&mut list);
        self.check_rules(&mut list, effort);
        for (index, rule) in self.workloads.iter().enumerate() {
            let section = format!("workload[{index}]");
            let mut earlier = self.workloads.iter().take(index);
            match earlier.position(|earlier| earlier.is_about_all_of(rule, effort)) {
                Some(before) => {
                    let before = self.workloads.get(before).map_or("", |before| &before.name);
                    let reason = format!(
                        "no effect: [[workload]] {before:?} comes first and matches everything that \
                         {:?} matches",
                        rule.name
                    );
                    list.add(section, reason);
                }
                None => self.check_entry(&section, rule, &mut list),
            }
        }
        list.0
    }

    /// Sections that are turned off.
    fn check_switched(&self, list: &mut IneffectiveList) {
        for (section, keys) in SWITCHED {
            let is_on = match section {
                "metrics" => self.metrics.enabled,
                "nri" => self.nri.enabled,
                "kubelet" => self.kubelet.enabled,
                "control" => self.control.enabled,
                "dra" => self.dra.enabled,
                _ => self.memory.widening.enabled,
            };
            if !is_on {
                for key in keys {
                    let off = format!("no effect: {section}.enabled is false");
                    list.add_because(format!("{section}.enabled"), format!("{section}.{key}"), off);
                }
            }
        }
    }

    /// Settings without effect where nothing is published.
    fn check_publishing(&self, list: &mut IneffectiveList) {
        if !self.cluster.publish {
            for key in ["cluster.also_publish", "cluster.events", "cluster.feature_file"] {
                list.add_because("cluster.publish", key, "no effect: cluster.publish is false");
            }
        }
        if !self.cluster.publish && !self.dra.enabled {
            for key in ["cluster.node_name", "cluster.kubeconfig"] {
                list.add_because("cluster.publish", key, "no effect: cluster.publish is false");
            }
        }
    }

    /// Settings without effect in observe mode.
    fn check_observing(&self, list: &mut IneffectiveList) {
        if self.mode != Mode::Observe {
            return;
        }
        let Self { memory, nri, .. } = self;
        for (is_on, key) in [
            (memory.demotion.enabled, "memory.demotion.enabled"),
            (memory.widening.enabled && memory.widening.brake != Brake::Off, "memory.widening.brake"),
            (nri.enabled && nri.place, "nri.place"),
            (self.dra.enabled, "dra.enabled"),
            (self.interrupts.mode == InterruptMode::Enforce, "interrupts.mode"),
        ] {
            if is_on {
                list.add_because("mode", key, OBSERVES);
            }
        }
    }

    /// Enforce mode without anything to enforce.
    fn check_enforcing(&self, list: &mut IneffectiveList) {
        let Self { mode, nri, workloads, .. } = self;
        let is_declared = workloads.iter().any(|rule| rule.enforce || rule.demotion == Some(true));
        if *mode != Mode::Enforce || is_declared || (nri.enabled && nri.place) {
            return;
        }
        let entries = if workloads.is_empty() {
            "there is no [[workload]] entry"
        } else {
            "every [[workload]] entry has enforce = false"
        };
        let switch = if nri.enabled { "nri.place" } else { "nri.enabled" };
        list.add("mode", format!("no effect: {entries} and {switch} is false, so nothing is written"));
    }

    fn check_daemon(&self, list: &mut IneffectiveList) {
        let Self { interval, idle_interval, sample, nri, .. } = self;
        if idle_interval < interval {
            list.add("idle_interval", format!("no effect: it is shorter than interval ({interval})"));
        }
        if !sample.bpf {
            let off = "no effect: sample.bpf is false";
            list.add_if(sample.bpf_log, "sample.bpf_log", off);
            list.add_if(sample.run_time == RunTimeSource::Switches, "sample.run_time", off);
        }
        if nri.enabled && !nri.place {
            let off = "no effect: it is for containers that nri.place places, which is false";
            list.add_if(nri.expose, "nri.expose", off);
        }
    }

    fn check_memory(&self, list: &mut IneffectiveList) {
        let demotion = &self.memory.demotion;
        if self.workloads.iter().any(|rule| demotion.is_for(rule)) {
            return;
        }
        if demotion.enabled && self.mode == Mode::Enforce {
            let none =
                "no effect: it is for declared workloads that are not left alone, and there is no such entry";
            list.add("memory.demotion.enabled", none);
        } else if !demotion.enabled {
            let off = "no effect: memory.demotion.enabled is false, and no entry has demotion = true";
            for key in DEMOTION {
                list.add(format!("memory.demotion.{key}"), off);
            }
        }
    }

    fn check_hints(&self, list: &mut IneffectiveList) {
        let hints = &self.placement.hints;
        let no_limit = "no effect: it is accepted for compatibility, and there is no limit to lift";
        list.add("placement.hints.max_allowable_numa_nodes", no_limit);
        if !self.placement.predicts_kubelet() {
            let kubelet = "no effect: it counts under the profile kubelet alone";
            list.add("placement.hints.kubelet_device_hints", kubelet);
            return;
        }
        let prescribed = |what: &str| format!("no effect: under the profile kubelet {what}, as in a kubelet");
        if !hints.strict_memory_groups {
            let always = "a node serves memory of single nodes or of groups, never of both";
            list.add("placement.hints.strict_memory_groups", prescribed(always));
        }
        if hints.align_all_qos {
            let always = "pods that are not Guaranteed have all shared CPUs";
            list.add("placement.hints.align_all_qos", prescribed(always));
        }
        if hints.numa_allocation_strategy != NumaAllocationStrategy::None {
            let always = "the nodes with the lowest ids are taken";
            list.add("placement.hints.numa_allocation_strategy", prescribed(always));
        }
        let policy = hints.policy;
        if matches!(policy, TopologyPolicy::NumaManager | TopologyPolicy::NumaManagerBestEffort) {
            let policy = policy.as_str();
            list.add(
                "placement.hints.policy",
                format!("no kubelet has the policy {policy}, so what is placed by it predicts none"),
            );
        }
        if policy == TopologyPolicy::None {
            let none = "no effect: the policy is none, so nothing is aligned";
            for key in ["scope", "prefer_closest_numa_nodes", "kubelet_device_hints"] {
                list.add(format!("placement.hints.{key}"), none);
            }
        }
    }

    /// Settings of an engine that places no pod.
    fn check_engines(&self, list: &mut IneffectiveList) {
        let placement = &self.placement;
        let wanted = |engine: PlacementEngine| {
            let of_rule = placement.rules.iter().any(|rule| rule.engine == Some(engine));
            let of_entry = self.workloads.iter().any(|rule| rule.engine == Some(engine));
            placement.engine == engine || of_rule || of_entry
        };
        let by_annotation = |engine: &str| {
            format!(
                "it counts for pods with the annotation engine.numa-enforcer.io: {engine} alone, since nothing \
                 here names the engine {engine}"
            )
        };
        if placement.predicts_kubelet() {
            if !self.workloads.iter().any(|rule| rule.engine == Some(PlacementEngine::Pools)) {
                for key in POOLS {
                    let no_pools = "no effect: under the profile kubelet the engine pools places no pod";
                    list.add(format!("placement.pools.{key}"), no_pools);
                }
            }
        } else if !wanted(PlacementEngine::Pools) {
            for key in POOLS {
                list.add(format!("placement.pools.{key}"), by_annotation("pools"));
            }
        }
        if !wanted(PlacementEngine::Hints) {
            for key in HINTS_KEYS {
                list.add(format!("placement.hints.{key}"), by_annotation("hints"));
            }
        }
    }

    fn check_rules(&self, list: &mut IneffectiveList, effort: &mut Effort) {
        let rules = &self.placement.rules;
        for (index, rule) in rules.iter().enumerate() {
            let section = format!("placement.rule[{index}]");
            let before =
                rules.iter().take(index).position(|earlier| earlier.is_about_all_of(rule, &mut *effort));
            if self.placement.predicts_kubelet() {
                list.add(
                    section,
                    "no effect: a kubelet has one policy for all pods, and the profile is kubelet",
                );
            } else if let Some(before) = before {
                let reason =
                    format!("no effect: placement.rule[{before}] is about the same pods and comes first");
                list.add(section, reason);
            } else if rule.engine == Some(PlacementEngine::Pools) {
                for key in rule.keys_of_hints() {
                    let pools = "no effect: it is of the engine hints, and the engine of this rule is pools";
                    list.add(format!("{section}.{key}"), pools);
                }
            }
        }
    }

    fn check_entry(&self, section: &str, rule: &WorkloadRule, list: &mut IneffectiveList) {
        let Self { nri, .. } = self;
        if self.mode == Mode::Observe && rule.demotion == Some(true) {
            list.add_because("mode", format!("{section}.demotion"), OBSERVES);
        }
        if !rule.enforce {
            self.check_left_alone(section, rule, list);
            return;
        }
        if rule.strict_memory && rule.lower_tiers == Some(true) {
            let key = format!("{section}.lower_tiers");
            list.add(key, "no effect: with strict_memory = true no memory node is added");
        }
        if !self.memory.widening.enabled {
            let off = "no effect: memory.widening.enabled is false";
            list.add_if(rule.strict_memory, format!("{section}.strict_memory"), off);
            list.add_if(rule.lower_tiers.is_some(), format!("{section}.lower_tiers"), off);
        }
        if !rule.names_pods() {
            return;
        }
        if !nri.enabled {
            list.add(section, NO_NAMES);
        } else if self.placement.predicts_kubelet() && nri.place {
            let kubelet = "no effect on the place of pods: no kubelet reads it, and the profile is kubelet";
            list.add(section, kubelet);
        } else if !nri.place && rule.cpus.is_none() {
            let cpus =
                "its containers are never placed: nri.place is false, and without it an entry needs cpus";
            list.add(section, cpus);
        }
    }
}

impl Policy {
    /// An entry that leaves its workloads alone.
    fn check_left_alone(&self, section: &str, rule: &WorkloadRule, list: &mut IneffectiveList) {
        if rule.names_pods() && !self.nri.enabled {
            list.add(section, NO_NAMES);
            return;
        }
        let off = "no effect: enforce = false leaves the workload alone";
        for key in ENFORCED {
            let agrees = key == "strict_memory" && !rule.strict_memory;
            list.add_if(!agrees, format!("{section}.{key}"), off);
        }
        // Another entry may select processes below it.
        let is_heard = self.workloads.iter().any(|other| other.enforce && other.self_placement.is_none());
        list.add_if(!is_heard, format!("{section}.self_placement"), off);
    }
}

#[derive(Default)]
struct IneffectiveList(Vec<Ineffective>);

impl IneffectiveList {
    fn add(&mut self, key: impl Into<String>, reason: impl Into<String>) {
        self.0.push(Ineffective { key: key.into(), reason: reason.into(), decided_by: None });
    }

    /// The same, because of another setting that flags can also set.
    fn add_because(
        &mut self,
        decided_by: impl Into<String>,
        key: impl Into<String>,
        reason: impl Into<String>,
    ) {
        let decided_by = Some(decided_by.into());
        self.0.push(Ineffective { key: key.into(), reason: reason.into(), decided_by });
    }

    fn add_if(&mut self, applies: bool, key: impl Into<String>, reason: &str) {
        if applies {
            self.add(key, reason);
        }
    }
}

#[cfg(test)]
mod tests;
