//! Annotations of pods whose values are documents.

use std::collections::BTreeMap;

use numa_placement::pools::{self, Documents};

use super::yaml;

/// The values of a pod's annotations that are documents (YAML or JSON), parsed.
pub fn annotation_documents(annotations: &BTreeMap<String, String>) -> Documents {
    pools::documents(annotations, yaml::parse)
}
