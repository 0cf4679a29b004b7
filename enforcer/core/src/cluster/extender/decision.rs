//! The decision for a pod as an annotation of its binding: for people, for checks, and for a daemon that
//! places the containers itself.

use std::collections::BTreeMap;

use numa_placement::foreign::DECISION;
use serde::{Deserialize, Serialize};

use crate::{
    cluster::{state::Revision, view::PredictedPlace},
    hosted::{DecidedContainer, LONGEST_DECISION},
};

/// Where a pod was placed, and on which state that rests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacementDecision {
    /// The node.
    pub node: String,
    /// Revision of the node's state.
    pub revision: Revision,
    /// Containers with exclusive CPUs or memory nodes, by name.
    pub containers: BTreeMap<String, DecidedContainer>,
}

impl PlacementDecision {
    /// Annotation of a pod that has its decision.
    pub const ANNOTATION: &str = DECISION;

    pub(super) fn new(node: &str, revision: Revision, place: &PredictedPlace) -> Self {
        let containers = place.containers.iter().map(|container| {
            let decided = DecidedContainer { cpus: container.cpus.clone(), nodes: container.mems.clone() };
            (container.name.clone(), decided)
        });
        Self { node: node.to_owned(), revision, containers: containers.collect() }
    }

    /// The value of the annotation; `None` if it would be too long.
    pub fn to_annotation(&self) -> Option<String> {
        serde_json::to_string(self).ok().filter(|text| text.len() <= LONGEST_DECISION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::view::PredictedContainer;

    #[test]
    fn annotation_names_node_revision_and_containers() {
        let container = |name: &str| PredictedContainer {
            name: name.into(),
            cpus: "1,9".parse().unwrap(),
            mems: "0".parse().unwrap(),
        };
        let mut place = PredictedPlace { containers: vec![container("main")], ..PredictedPlace::default() };
        let decision = PlacementDecision::new("n", Revision { epoch: 7, counter: 2 }, &place);
        let text = decision.to_annotation().unwrap();
        let expected = r#"{"node":"n","revision":{"epoch":7,"counter":2},"containers":{"main":{"cpus":"1,9","nodes":"0"}}}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<PlacementDecision>(&text).unwrap(), decision);
        place.containers = (0..100).map(|at| container(&format!("container-{at}"))).collect();
        assert_eq!(PlacementDecision::new("n", Revision::default(), &place).to_annotation(), None);
    }
}
