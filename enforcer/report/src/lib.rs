//! report: findings, plans and the machine, for people and for programs.
//!
//! Output is a pure function of the report and the [`style::Style`]: equal input gives equal bytes. Nothing
//! here reads the host or the environment. Every text that came from outside (cgroup names, device names,
//! kernel text) goes through [`text::escape`] before it is shown.

pub mod checks;
pub mod claims;
pub mod cluster;
pub mod cluster_check;
pub mod cluster_plan;
mod columns;
pub mod counters;
pub mod decision;
pub mod demotion;
#[cfg(any(test, feature = "testing"))]
#[expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "only tests use it")]
pub mod fixture;
pub mod interrupts;
pub mod json;
pub mod junit;
pub mod metrics;
pub mod page;
pub mod plan_table;
pub mod pod_explanation;
pub mod rebalance_text;
pub mod replay_text;
pub mod rule_text;
pub mod runtime;
pub mod sarif;
pub mod status;
pub mod style;
pub mod table;
pub mod text;
pub mod tick;
pub mod top;
pub mod tree;
pub mod turn_events;
pub mod units;
mod view;
pub mod widening;
