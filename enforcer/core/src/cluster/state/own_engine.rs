//! What this daemon's own engine decides from, in the published state of a node where it places containers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits;

/// Inputs of the engine that a runtime asks through NRI.
///
/// The grants of shared containers decide as well as those of exclusive ones, and a node has hundreds. So
/// they are packed: `base64 -d | zcat` shows them as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnEngine {
    /// Version of the form of `inputs`; a reader that does not know it calls the node inexact.
    pub format: u32,
    /// Machine, settings and grants: JSON, as one gzip member, in base64.
    #[schemars(length(max = limits::ENGINE_INPUTS))]
    pub inputs: String,
}
