//! The parts of a turn, each one line of JSON: `{"policy":{...}}`.
//!
//! Which are there, and in which order, is the recorder's and the reader's business. The names are the
//! format: with another meaning of one of them the version of recordings changes. A kind that is not known is
//! an error, since what was decided from is then not all there.

use std::collections::BTreeSet;

use enforcer_core::{
    decide::{Decision, History, Partitioned, SelfPlacedWorkloads, Widened},
    owner::Facts,
    place::{Allocations, Containers},
    plan::Outcome,
    policy::Policy,
    rebalance,
    replay::TurnLimits,
    sample::Sample,
    topology::Topology,
    workload::{CgroupPath, Workload},
};
use serde::{Deserialize, Serialize, Serializer};

/// When and on which terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TurnPart {
    /// Version of the daemon, in its first frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) daemon: Option<String>,
    /// Nothing of the frames before it counts.
    pub(super) key: bool,
    /// Turns before it that could not be written.
    pub(super) dropped: u64,
    /// Monotonic time in nanoseconds.
    pub(super) now_ns: u64,
    /// Its terms.
    #[serde(flatten)]
    pub(super) terms: TurnLimits,
}

/// One part, to be written.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PartRef<'a> {
    Turn(&'a TurnPart),
    Machine(&'a Topology),
    Policy(&'a Policy),
    Facts(&'a Facts),
    Workloads(&'a [Workload]),
    Before(Option<&'a Sample>),
    Sample(&'a Sample),
    Containers(&'a Containers),
    Allocations(&'a Allocations),
    History(&'a History),
    Widened(&'a Widened),
    Written(WrittenAmong<'a>),
    Partitioned(&'a Partitioned),
    SelfPlaced(&'a SelfPlacedWorkloads),
    Decision(&'a Decision),
    Rebalanced(Option<&'a rebalance::RebalanceTurn>),
    Outcomes(&'a [Outcome]),
}

/// Those of the cgroups of a sample that were ever set.
#[derive(Clone, Copy)]
pub(crate) struct WrittenAmong<'a> {
    pub(super) sample: &'a Sample,
    pub(super) has_set: &'a dyn Fn(&CgroupPath) -> bool,
}

impl Serialize for WrittenAmong<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.sample.cgroups.keys().filter(|cgroup| (self.has_set)(cgroup)))
    }
}

/// Parts that last from one turn to the next until another is written; nothing can be decided without one of
/// them.
pub(super) const LASTING: [&str; 10] = [
    "machine",
    "policy",
    "facts",
    "workloads",
    "containers",
    "allocations",
    "history",
    "widened",
    "written",
    "partitioned",
];

/// Kinds of parts; a turn has each once at most.
pub(super) const KINDS: usize = 17;

/// Name of the part that a line holds; empty where it holds none.
pub(super) fn name(line: &[u8]) -> &[u8] {
    let rest = line.strip_prefix(b"{\"").unwrap_or_default();
    rest.split(|byte| *byte == b'"').next().unwrap_or_default()
}

/// The place in [`LASTING`] of the part that a line holds, if it lasts.
pub(super) fn lasting(line: &[u8]) -> Option<usize> {
    LASTING.iter().position(|lasting| lasting.as_bytes() == name(line))
}

/// One part, as it was read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Part {
    Turn(TurnPart),
    Machine(Box<Topology>),
    Policy(Box<Policy>),
    Facts(Box<Facts>),
    Workloads(Vec<Workload>),
    Before(Option<Box<Sample>>),
    Sample(Box<Sample>),
    Containers(Box<Containers>),
    Allocations(Box<Allocations>),
    History(Box<History>),
    Widened(Widened),
    Written(BTreeSet<CgroupPath>),
    Partitioned(Partitioned),
    /// Of its turn alone; absent where there is none.
    SelfPlaced(SelfPlacedWorkloads),
    Decision(Box<Decision>),
    Rebalanced(Option<Box<rebalance::RebalanceTurn>>),
    Outcomes(Vec<Outcome>),
}
