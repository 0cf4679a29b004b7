//! `[cluster]`: what the daemon tells the cluster that its node belongs to.

use std::{collections::BTreeSet, path::PathBuf};

use numa_placement::settings::refusal::{Relation, at_odds, quoted, refused};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{KubeletSettings, PolicyError, can_be_opened};
use crate::cluster::exported::ExportedKind;

/// What the daemon tells the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSettings {
    /// Publish the state of the node as the object `NumaNodeState` with the node's name.
    pub publish: bool,
    /// Objects of other schedulers that are published beside it: `nrt`, the `NodeResourceTopology` of
    /// scheduler-plugins, and `numatopology`, that of Volcano.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub also_publish: BTreeSet<ExportedKind>,
    /// Write events of the node and its pods (`kubectl describe`).
    pub events: bool,
    /// Feature file of node-feature-discovery, in its directory `features.d`; without it, none is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature_file: Option<PathBuf>,
    /// Name of the node in the cluster; without it, the host's name in lower case, as a kubelet does it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Kubeconfig of an account that may write the object; without it, the service account of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
}

impl ClusterSettings {
    /// Checks the name and the paths, and that there is something to publish.
    pub(super) fn validate(&self, kubelet: &KubeletSettings) -> Result<(), PolicyError> {
        if let Some(name) = self.node_name.as_deref().filter(|name| !is_subdomain(name)) {
            let expected = "the name of a node is expected: at most 253 of a-z, 0-9, - and .";
            return Err(refused("cluster.node_name", quoted(name), expected));
        }
        if let Some(path) = &self.kubeconfig {
            let path_of = || quoted(&path.to_string_lossy());
            can_be_opened(path).map_err(|problem| refused("cluster.kubeconfig", path_of(), problem))?;
        }
        if let Some(path) = &self.feature_file {
            let is_hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
            let problem = "the path of a file that is not hidden is expected";
            let usable = can_be_opened(path).and(if is_hidden { Err(problem) } else { Ok(()) });
            let path_of = || quoted(&path.to_string_lossy());
            usable.map_err(|problem| refused("cluster.feature_file", path_of(), problem))?;
        }
        if self.publish && !kubelet.enabled {
            let relation =
                Relation::excludes("what the kubelet gives away is not read, so there is no state");
            return Err(at_odds(("cluster.publish", true), relation, ("kubelet.enabled", false)));
        }
        Ok(())
    }
}

/// Names of objects (RFC 1123): words of letters and digits, with dashes inside, between dots.
fn is_subdomain(name: &str) -> bool {
    let is_word = |word: &str| {
        word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !word.is_empty()
            && !word.starts_with('-')
            && !word.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_relations_are_checked() {
        let kubelet = KubeletSettings::default();
        let named = |name: &str| ClusterSettings { node_name: Some(name.into()), ..Default::default() };
        for name in ["a", "node-1.example.org", "10-0-0-1"] {
            assert_eq!(named(name).validate(&kubelet), Ok(()), "{name}");
        }
        for name in ["", "A", "a..b", "-a", "a-", "a/../b", "a?x", &"a".repeat(254)] {
            let refused = named(name).validate(&kubelet).unwrap_err().to_string();
            assert!(refused.contains("cluster.node_name"), "{name}: {refused}");
        }
        let relative = ClusterSettings { kubeconfig: Some("config".into()), ..Default::default() };
        assert!(relative.validate(&kubelet).unwrap_err().to_string().contains("cluster.kubeconfig"));

        for path in ["features.d/x", "/features.d/.x", "/", "/a\0b"] {
            let hidden = ClusterSettings { feature_file: Some(path.into()), ..Default::default() };
            let refused = hidden.validate(&kubelet).unwrap_err().to_string();
            assert!(refused.contains("cluster.feature_file"), "{path:?}: {refused}");
        }
        let visible = ClusterSettings { feature_file: Some("/features.d/x".into()), ..Default::default() };
        assert_eq!(visible.validate(&kubelet), Ok(()));

        let publishes = ClusterSettings { publish: true, ..Default::default() };
        assert_eq!(publishes.validate(&kubelet), Ok(()));
        let unread = KubeletSettings { enabled: false, ..kubelet };
        let refused = publishes.validate(&unread).unwrap_err().to_string();
        assert!(refused.contains("cluster.publish") && refused.contains("kubelet.enabled"), "{refused}");
    }
}
