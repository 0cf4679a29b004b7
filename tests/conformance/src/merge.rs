//! Vectors of the merge, under the profile `kubelet`.

use std::collections::BTreeMap;

use enforcer_core::policy::placement::{HintsSettings, Profile, TopologyPolicy};
use numa_placement::hints::{
    HintMasks, MaskHint, NodeIndex, Offer,
    merge::{MergeOptions, merge},
};
use serde::Deserialize;

use crate::{
    machine::{Shown, VectorHint, VectorNodes},
    vector::same,
};

/// Hints of a provider by resource; a resource without a list has no preference.
type Provider = BTreeMap<String, Option<Vec<VectorHint>>>;

#[derive(Debug, Deserialize)]
pub(crate) struct Vector {
    numa_nodes: VectorNodes,
    distances: Option<Vec<Vec<u32>>>,
    policy: TopologyPolicy,
    prefer_closest: bool,
    providers: Vec<Option<Provider>>,
    expect: ExpectedMerge,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedMerge {
    nodes: Option<VectorNodes>,
    preferred: bool,
    admit: bool,
}

/// Merges the hints of the providers.
pub(crate) fn check(vector: &Vector) -> Result<(), String> {
    let mut index = NodeIndex::new(&vector.numa_nodes.set()).with_lists();
    if let Some(distances) = &vector.distances {
        index = index.with_distances(distances.clone());
    }
    let offers = offers(&vector.providers, &mut HintMasks::new(&index))?;
    let mut settings = HintsSettings::default();
    settings.profile = Profile::Kubelet;
    settings.policy = vector.policy;
    settings.prefer_closest_numa_nodes = Some(vector.prefer_closest);
    let options = MergeOptions::from(&settings.under_profile());
    let merged = merge(&index, &offers, options);
    let admitted = admits(vector.policy, merged.preferred)?;
    let shown = |hint: &Shown, admit: bool| format!("{hint} {}", if admit { "admitted" } else { "rejected" });
    let ExpectedMerge { nodes, preferred, admit } = &vector.expect;
    let expected = Shown::from(&VectorHint { nodes: nodes.clone(), preferred: *preferred });
    let actual = Shown::ours(&index, merged.mask, merged.preferred);
    same(&shown(&expected, *admit), &shown(&actual, admitted))
}

/// Policies of vectors: all but `best-effort` require a preferred hint.
fn admits(policy: TopologyPolicy, preferred: bool) -> Result<bool, String> {
    match policy {
        TopologyPolicy::BestEffort => Ok(true),
        TopologyPolicy::Restricted | TopologyPolicy::SingleNumaNode => Ok(preferred),
        other => Err(format!("a merge has no policy {other:?}")),
    }
}

/// One offer per resource; a provider without resources has no preference.
fn offers(providers: &[Option<Provider>], masks: &mut HintMasks<'_>) -> Result<Vec<Offer>, String> {
    let mut offers = Vec::new();
    for provider in providers {
        match provider {
            Some(provider) if !provider.is_empty() => {
                for hints in provider.values() {
                    offers.push(match hints {
                        Some(hints) => Offer::Listed(
                            hints.iter().map(|hint| translated(hint, masks)).collect::<Result<_, _>>()?,
                        ),
                        None => Offer::NoPreference,
                    });
                }
            }
            _ => offers.push(Offer::NoPreference),
        }
    }
    Ok(offers)
}

fn translated(hint: &VectorHint, masks: &mut HintMasks<'_>) -> Result<MaskHint, String> {
    let mask = match &hint.nodes {
        Some(nodes) => Some(masks.mask(&nodes.set()).ok_or("more nodes than fit into one mask")?),
        None => None,
    };
    Ok(MaskHint { mask, preferred: hint.preferred, score: 0 })
}
