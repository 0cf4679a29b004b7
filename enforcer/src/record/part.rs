//! The parts of a turn, each one line of JSON: `{"policy":{...}}`.
//!
//! The recorder and the reader decide which parts there are, and their order. The names are the format: a new
//! meaning of one changes the version of recordings. An unknown kind is an error, because the inputs of the
//! decision would be incomplete.

use std::collections::BTreeSet;

use enforcer_core::{
    hosted::Containers,
    owner::OwnershipFacts,
    plan::Outcome,
    policy::Policy,
    rebalance,
    sample::Sample,
    turn::{Decision, History, Partitioned, SelfPlacedWorkloads, TurnLimits, Widened},
    workload::{CgroupPath, Workload},
};
use numa_placement::Allocations;
use numa_topology::Topology;
use serde::{Deserialize, Serialize, Serializer};

/// Time and terms of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TurnPart {
    /// Version of the daemon, in its first frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) daemon: Option<String>,
    /// A key frame: earlier frames do not count.
    pub(super) key: bool,
    /// Turns dropped before it.
    pub(super) dropped: u64,
    /// Monotonic time in nanoseconds.
    pub(super) now_ns: u64,
    /// Its terms.
    #[serde(flatten)]
    pub(super) terms: TurnLimits,
}

/// A part to write.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PartRef<'a> {
    Turn(&'a TurnPart),
    Machine(&'a Topology),
    Policy(&'a Policy),
    Facts(&'a OwnershipFacts),
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

/// Cgroups of a sample with cpusets that were ever set by us.
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

/// Parts that last until a later turn replaces them; a decision needs all of them.
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

/// Kinds of parts; a turn has at most one of each.
pub(super) const KINDS: usize = 17;

/// Name of the part in a line; empty without one.
pub(super) fn name(line: &[u8]) -> &[u8] {
    let rest = line.strip_prefix(b"{\"").unwrap_or_default();
    rest.split(|byte| *byte == b'"').next().unwrap_or_default()
}

/// Index in [`LASTING`] of the part in a line, if it lasts.
pub(super) fn lasting(line: &[u8]) -> Option<usize> {
    LASTING.iter().position(|lasting| lasting.as_bytes() == name(line))
}

/// A part that was read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum RecordedPart {
    Turn(TurnPart),
    Machine(Box<Topology>),
    Policy(Box<Policy>),
    Facts(Box<OwnershipFacts>),
    Workloads(Vec<Workload>),
    Before(Option<Box<Sample>>),
    Sample(Box<Sample>),
    Containers(Box<Containers>),
    Allocations(Box<Allocations>),
    History(Box<History>),
    Widened(Widened),
    Written(BTreeSet<CgroupPath>),
    Partitioned(Partitioned),
    /// Of this turn only; absent if empty.
    SelfPlaced(SelfPlacedWorkloads),
    Decision(Box<Decision>),
    Rebalanced(Option<Box<rebalance::RebalanceTurn>>),
    Outcomes(Vec<Outcome>),
}
