//! Bursts of pods on simulated nodes: what kubelets refuse, by the scheduler that chose.
//!
//! Problem: a scheduler is right only if kubelets admit what it places, and that shows in bursts: pods that
//! are bound together, states of nodes that come late, capacity that is nearly used up. Idea: one
//! [simulation](burst) with a driver that behaves as kube-scheduler does, and kubelets that admit in the
//! order of the bindings with the engine under the kubelet's rules. Its [arms](Arm) differ in what the driver
//! asks. Those of the product ask the real program over HTTP, which watches a stub of an API server.
//!
//! Model of kube-scheduler 1.36 (`pkg/scheduler`): serial cycles on a cache of sums in which assumed pods
//! count, the sample of nodes, `NodeResourcesFit` and its balanced sibling as scores, bindings in the
//! background, and a queue with a backoff of 1 s that doubles. Model of the rest: `ReplicaSet`s replace a
//! failed pod, and events reach their watchers after a delay.
//!
//! Invariants: time is simulated and all draws come from a seed, so the arms without the product are
//! repeatable. With the product, simulated time does not run ahead of real time by more than a factor: its
//! watches lag as they do in a cluster. The kubelets know nothing of the arm.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

pub mod burst;
pub mod cache;
pub mod draw;
pub mod endurance;
pub mod http;
pub mod kubelet;
pub mod load;
pub mod nrt;
pub mod product;
pub mod queue;
pub mod report;
pub mod workload;

/// What chooses nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// kube-scheduler alone: sums.
    Default,
    /// `NodeResourceTopologyMatch` without a cache: the states as they were published.
    Nrt,
    /// `NodeResourceTopologyMatch` with its cache `OverReserve`.
    NrtOverReserve,
    /// The product, which binds.
    Binder,
    /// The product with `--filter-only`.
    FilterOnly,
}

impl Arm {
    /// All, in the order of reports.
    pub const ALL: [Self; 5] =
        [Self::Default, Self::Nrt, Self::NrtOverReserve, Self::Binder, Self::FilterOnly];

    /// Its name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Nrt => "nrt",
            Self::NrtOverReserve => "nrt-over-reserve",
            Self::Binder => "binder",
            Self::FilterOnly => "filter-only",
        }
    }

    /// Does it ask the product?
    pub const fn asks_product(self) -> bool {
        matches!(self, Self::Binder | Self::FilterOnly)
    }
}

/// Simulated time in microseconds.
pub type Micros = u64;

/// A millisecond.
pub const MS: Micros = 1_000;
/// A second.
pub const SECOND: Micros = 1_000_000;
