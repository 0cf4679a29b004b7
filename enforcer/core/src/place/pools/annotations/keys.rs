//! Names of annotations: the families, what is known, and what is a mistake.
//!
//! A key that nobody knows is most often a misspelt one that its author believes to work: it is
//! reported, but only within the families that are ours to know.

use super::{super::request::RESOURCES_KEY, shown};
use crate::place::PodRequest;

/// The families of keys: what names end with, or begin with before a `/`. The first counts first.
pub(in super::super) const FAMILIES: [&str; 3] =
    ["numa-enforcer.io", "resource-policy.nri.io", "cri-resource-manager.intel.com"];

/// May a key be one that is read, or one that was meant to be? All others are of no use here.
pub fn is_placement_annotation(key: &str) -> bool {
    key == RESOURCES_KEY || FAMILIES.iter().any(|family| key.contains(family))
}

/// Names below `cri-resource-manager.intel.com/`, as they were once.
pub(super) const DEPRECATED: [&str; 4] =
    ["prefer-isolated-cpus", "prefer-shared-cpus", "memory-type", "cold-start"];

/// Names that are known, whether or not they say where a container goes.
const KNOWN: [&str; 24] = [
    "allow.topologyhints",
    "blockioclass",
    "cold-start",
    "cpu-class",
    "cpu.preserve",
    "deny.topologyhints",
    "hide-hyperthreads",
    "irq-affinity",
    "memory-type",
    "memory.preserve",
    "memory.strict",
    "pick-resources-by-hints",
    "prefer-cpu-priority",
    "prefer-isolated-cpus",
    "prefer-reserved-cpus",
    "prefer-shared-cpus",
    "rdtclass",
    "require-isolated-cpus",
    "scheduling-class",
    "strict.topologyhints",
    "test.topologyhints",
    "topologyhints",
    "toptierlimit",
    "unlimited-burstable",
];

/// Names of the first family that choose engine and policy: read, and reported, where that is done.
const OF_THE_CHOICE: [&str; 4] = ["engine", "policy", "scope", "options"];

/// Is the value of this annotation YAML or JSON?
pub(in super::super) fn is_document(key: &str) -> bool {
    let (base, rest) = key.split_once('/').unwrap_or((key, ""));
    key == RESOURCES_KEY
        || (FAMILIES.contains(&base) && matches!(rest, "affinity" | "anti-affinity"))
        || (base == FAMILIES[2] && DEPRECATED.contains(&rest))
        || named(base).is_some_and(|(name, _)| name == "cold-start")
}

/// The name in `NAME.FAMILY`, and which family it is.
pub(super) fn named(base: &str) -> Option<(&str, usize)> {
    FAMILIES.iter().enumerate().find_map(|(index, family)| {
        let name = base.strip_suffix(family)?.strip_suffix('.')?;
        Some((name, index))
    })
}

/// What is wrong with the keys of a pod's annotations, whatever their values: names that do not
/// exist, and containers that the pod does not have.
pub fn mistaken_keys(pod: &PodRequest) -> Vec<String> {
    let of_ours = pod.annotations.keys().filter_map(|key| {
        let (base, about) = key.split_once('/').map_or((key.as_str(), None), |(b, about)| (b, Some(about)));
        let Some((name, family)) = named(base) else {
            let unknown = FAMILIES.contains(&base) && about.is_some() && !is_document(key);
            return unknown.then(|| format!("annotation {}: there is no such key, ignored", shown(key)));
        };
        if family == 0 && OF_THE_CHOICE.contains(&name) {
            return None;
        }
        let problem = match (about, about.and_then(|about| about.strip_prefix("container."))) {
            _ if !KNOWN.contains(&name) => "there is no such key",
            (None | Some("pod"), _) => return None,
            (_, Some(container)) if pod.container(container).is_some() => return None,
            (_, Some(_)) => "the pod has no such container",
            (_, None) => "/pod or /container.NAME is expected behind the slash",
        };
        Some(format!("annotation {}: {problem}, ignored", shown(key)))
    });
    of_ours.collect()
}
