//! How the link to the container runtime fares.

use std::{collections::BTreeMap, time::Duration};

use enforcer_core::call_times::CallTimes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The link, and what came over it since the daemon started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeReport {
    /// Is it there?
    pub link: RuntimeLink,
    /// Running containers that it reported.
    pub containers: usize,
    /// Containers that have no place, by id, and why.
    pub unplaced: BTreeMap<String, String>,
    /// Calls by kind.
    pub calls: BTreeMap<&'static str, u64>,
    /// Answers that came after the runtime had been told that nothing changes.
    pub late: u64,
    /// How long decisions took.
    pub deciding: AnswerTimes,
}

/// Time from the arrival of a call to its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerTimes {
    /// Sum of all calls.
    pub sum: Duration,
    /// The longest since the report before; `None` where there was no call.
    pub longest: Option<Duration>,
    /// Times of calls about new containers.
    pub creations: CallTimes,
}

/// Is a runtime connected?
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum RuntimeLink {
    /// Not tried yet.
    #[default]
    Untried,
    /// It is.
    Up {
        /// `containerd`, `cri-o`.
        name: String,
        /// Its version.
        version: String,
    },
    /// It is not; containers go on as they are.
    Down {
        /// Why.
        reason: String,
    },
}
