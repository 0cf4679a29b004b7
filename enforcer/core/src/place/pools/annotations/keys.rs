//! Names of annotations: the families, what is known, and what is a mistake.
//!
//! A key that nobody knows is most often a misspelt one that its author believes to work: it is
//! reported, but only within the families that are ours to know.

use super::{super::request::RESOURCES_KEY, shown};
use crate::place::{PodRequest, foreign::is_known};

/// The families of keys: what names end with, or begin with before a `/`. The first counts first.
pub(in super::super::super) const FAMILIES: [&str; 3] =
    ["numa-enforcer.io", "resource-policy.nri.io", "cri-resource-manager.intel.com"];

/// Names below `cri-resource-manager.intel.com/`, as they were once.
pub(super) const DEPRECATED: [&str; 4] =
    ["prefer-isolated-cpus", "prefer-shared-cpus", "memory-type", "cold-start"];

/// Names of the first family that choose engine and policy: read, and reported, where that is done.
const OF_THE_CHOICE: [&str; 4] = ["engine", "policy", "scope", "options"];

/// Names behind a family and a slash, whatever the family.
const BEHIND_THE_FAMILY: [&str; 2] = ["affinity", "anti-affinity"];

/// Is the value of this annotation YAML or JSON?
pub(in super::super) fn is_document(key: &str) -> bool {
    let base = key.split_once('/').map_or(key, |(base, _)| base);
    let name = name_of_key(key);
    key == RESOURCES_KEY || name == Some("cold-start") || name.is_some() && FAMILIES.contains(&base)
}

/// The name of a key, in whichever of its forms it is written, whether or not there is such a name.
pub(in super::super::super) fn name_of_key(key: &str) -> Option<&str> {
    let (base, about) = key.split_once('/').unwrap_or((key, ""));
    match named(base) {
        Some((name, _)) if BEHIND_THE_FAMILY.contains(&name) => None,
        Some((name, family)) if family > 0 && OF_THE_CHOICE.contains(&name) => None,
        Some((name, _)) => Some(name),
        None if FAMILIES.contains(&base) && BEHIND_THE_FAMILY.contains(&about) => Some(about),
        None if base == FAMILIES[2] && DEPRECATED.contains(&about) => Some(about),
        None => None,
    }
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
            let unknown = FAMILIES.contains(&base) && about.is_some() && name_of_key(key).is_none();
            return unknown.then(|| format!("annotation {}: there is no such key, ignored", shown(key)));
        };
        if family == 0 && OF_THE_CHOICE.contains(&name) {
            return None;
        }
        let problem = match (about, about.and_then(|about| about.strip_prefix("container."))) {
            _ if !is_known(key) => "there is no such key",
            (None | Some("pod"), _) => return None,
            (_, Some(container)) if pod.container(container).is_some() => return None,
            (_, Some(_)) => "the pod has no such container",
            (_, None) => "/pod or /container.NAME is expected behind the slash",
        };
        Some(format!("annotation {}: {problem}, ignored", shown(key)))
    });
    of_ours.collect()
}
