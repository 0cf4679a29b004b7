//! Annotation keys: families, known names, and mistakes.
//!
//! An unknown key is usually misspelt, and its author believes that it works. It is reported, but only in the
//! known families.

use crate::{
    PodRequest,
    foreign::{OF_SCHEDULER, is_known},
};
use numa_topology::text::printable_within;

/// Key of the annotation with a copy of the exact resources.
pub(in super::super::super) const RESOURCES_KEY: &str = "noderesource.dev/resources";

/// Families of keys: the suffix of names, or their prefix before a `/`. Earlier ones take precedence.
pub(in super::super::super) const FAMILIES: [&str; 3] =
    ["numa-enforcer.io", "resource-policy.nri.io", "cri-resource-manager.intel.com"];

/// Former names below `cri-resource-manager.intel.com/`.
pub(super) const DEPRECATED: [&str; 4] =
    ["prefer-isolated-cpus", "prefer-shared-cpus", "memory-type", "cold-start"];

/// Names of the first family that select engine and policy; the module `choice` reads and reports them.
const OF_THE_CHOICE: [&str; 4] = ["engine", "policy", "scope", "options"];

/// Names after a family and a slash, for any family.
const BEHIND_THE_FAMILY: [&str; 2] = ["affinity", "anti-affinity"];

/// Is the value of this annotation YAML or JSON?
pub(in super::super) fn is_document(key: &str) -> bool {
    let base = key.split_once('/').map_or(key, |(base, _)| base);
    let name = name_of_key(key);
    key == RESOURCES_KEY || name == Some("cold-start") || name.is_some() && FAMILIES.contains(&base)
}

/// The name in a key, in any of its forms, whether or not such a name exists.
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

/// The name in `NAME.FAMILY`, and the index of the family.
pub(super) fn named(base: &str) -> Option<(&str, usize)> {
    FAMILIES.iter().enumerate().find_map(|(index, family)| {
        let name = base.strip_suffix(family)?.strip_suffix('.')?;
        Some((name, index))
    })
}

/// Warnings about the keys of a pod's annotations, regardless of their values: unknown names, and containers
/// that the pod does not have.
pub(crate) fn mistaken_keys(pod: &PodRequest) -> Vec<String> {
    let of_author = pod.annotations.keys().filter(|key| !OF_SCHEDULER.contains(&key.as_str()));
    let of_ours = of_author.filter_map(|key| {
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

/// Untrusted text, cut and escaped.
pub(super) fn shown(text: &str) -> String {
    printable_within(text, 80)
}

/// Error of a document, which may quote all of it.
pub(in super::super) fn shown_problem(problem: &str) -> String {
    printable_within(problem, 300)
}
