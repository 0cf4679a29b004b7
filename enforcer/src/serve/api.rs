//! What goes over the control socket beside reports: requests, short answers, problems.
//!
//! JSON, camelCase; docs/control.md has every path. Used by the daemon and by the commands that ask it.

use enforcer_core::{
    audit::{AUDIT_SCHEMA_VERSION, Audit},
    policy::Mode,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use enforcer_report::{
    decision::{EXPLANATION_SCHEMA_VERSION, Explanation},
    status::{Paused, STATUS_SCHEMA_VERSION, StatusReport},
    top::{TOP_SCHEMA_VERSION, TopReport},
};

/// How the daemon fares.
pub const STATUS: &str = "/v1/status";
/// Decisions about one workload; `?workload=NAME`.
pub const EXPLAIN: &str = "/v1/explain";
/// What `top` shows.
pub const TOP: &str = "/v1/top";
/// The audit of the latest turn; on the port for reports alone.
pub const AUDIT: &str = "/v1/audit";
/// Stop enforcing.
pub const PAUSE: &str = "/v1/pause";
/// Go on.
pub const RESUME: &str = "/v1/resume";
/// What the log tells.
pub const LOG_LEVEL: &str = "/v1/log-level";

/// Longest pause with an end, in seconds.
pub const LONGEST_PAUSE: u64 = 24 * 60 * 60;

/// Something that the socket answers.
pub trait SocketAnswer: DeserializeOwned {
    /// Which version of it this program knows; none where it has no versions.
    const SCHEMA_VERSION: Option<u32> = None;
}

impl SocketAnswer for StatusReport {
    const SCHEMA_VERSION: Option<u32> = Some(STATUS_SCHEMA_VERSION);
}

impl SocketAnswer for Explanation {
    const SCHEMA_VERSION: Option<u32> = Some(EXPLANATION_SCHEMA_VERSION);
}

impl SocketAnswer for TopReport {
    const SCHEMA_VERSION: Option<u32> = Some(TOP_SCHEMA_VERSION);
}

impl SocketAnswer for Audit {
    const SCHEMA_VERSION: Option<u32> = Some(AUDIT_SCHEMA_VERSION);
}

impl SocketAnswer for PauseAnswer {}
impl SocketAnswer for LogLevelText {}

/// Everything that the socket answers, for the schema.
#[derive(Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "its schema is all that is used of it")]
pub struct Control {
    /// `GET /v1/status`.
    status: StatusReport,
    /// `GET /v1/explain?workload=NAME`.
    explanation: Explanation,
    /// `GET /v1/top`.
    top: TopReport,
    /// Body of `POST /v1/pause`.
    pause_request: PauseRequest,
    /// `POST /v1/pause` and `POST /v1/resume`.
    pause: PauseAnswer,
    /// `GET /v1/log-level`, body and answer of `PUT /v1/log-level`.
    log_level: LogLevelText,
    /// Any answer that is not 200.
    problem: Problem,
}

/// For how long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct PauseRequest {
    /// Seconds, 1 to 86400; until it is resumed when absent.
    #[schemars(range(min = 1, max = 86_400))]
    pub for_seconds: Option<u64>,
}

/// What is so now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PauseAnswer {
    /// The pause; `null` for none.
    pub paused: Option<Paused>,
    /// Was it paused before?
    pub was_paused: bool,
    /// May the daemon write when it is not paused? `null` before its first turn.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// Nothing is being written any more; `false` when the plan of a turn is still being carried out.
    pub settled: bool,
    /// Why a daemon that is started again would not know of this; `null` where it would.
    #[serde(default)]
    pub unrecorded: Option<String>,
}

/// A level: `off`, `error`, `warn`, `info`, `debug`, `trace`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogLevelText {
    /// In an answer also the directives that the daemon was started with.
    pub level: String,
}

/// Why a request was not answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Kind of problem.
    pub code: ProblemCode,
    /// In one sentence.
    pub message: String,
    /// Workloads that may have been meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<String>,
}

/// Kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemCode {
    /// The request makes no sense.
    BadRequest,
    /// The peer may not do this.
    Forbidden,
    /// No such path or method.
    NotFound,
    /// No workload of that name.
    UnknownWorkload,
    /// Several.
    AmbiguousWorkload,
    /// The daemon's own fault.
    Failed,
}
