//! The parts of a turn, each one line of JSON: `{"policy":{...}}`.
//!
//! Which are there, and in which order, is the recorder's and the reader's business. The names are the format: with another meaning
//! of one of them the version of recordings changes. A kind that is not known is an error, since what was decided from is then not
//! all there.

use std::collections::BTreeSet;

use enforcer_core::{
    decide::{Decision, History, Partitioned, Widened},
    owner::Facts,
    place::{Allocations, Containers},
    plan::Outcome,
    policy::Policy,
    rebalance,
    replay::Terms,
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
    pub(super) terms: Terms,
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
    Decision(&'a Decision),
    Rebalanced(Option<&'a rebalance::Turn>),
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

impl PartRef<'_> {
    /// Its place among those that last from one turn to the next, if it is one of them.
    pub(super) const fn lasting(&self) -> Option<usize> {
        match self {
            Self::Machine(_) => Some(0),
            Self::Policy(_) => Some(1),
            Self::Facts(_) => Some(2),
            Self::Workloads(_) => Some(3),
            Self::Containers(_) => Some(4),
            Self::Allocations(_) => Some(5),
            Self::History(_) => Some(6),
            Self::Widened(_) => Some(7),
            Self::Written(_) => Some(8),
            Self::Partitioned(_) => Some(9),
            _ => None,
        }
    }
}

/// How many last.
pub(super) const LASTING: usize = 10;

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
    Decision(Box<Decision>),
    Rebalanced(Option<Box<rebalance::Turn>>),
    Outcomes(Vec<Outcome>),
}
