//! Carries out plans, and undoes them.
//!
//! A [`plan`](enforcer_core::plan) goes through [`apply_plan`] to an [`Actuator`]; every file that is written
//! is first recorded in the [`Journal`], from which [`restore`](restore::restore) puts the original texts
//! back, also after the daemon was killed. Where a cgroup is a unit's, systemd is told as well ([`units`]).
//!
//! This stage decides nothing and knows nothing of samples and findings. It is the only one that
//! writes to the host, and the only user of cgroups-rs.

mod above;
pub mod actuator;
pub mod apply;
pub mod brake;
mod claims;
pub mod cpuset;
pub mod exposed;
#[cfg(any(test, feature = "testing"))]
#[expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests, of other crates too")]
pub mod fixture;
mod held_file;
pub mod in_the_making;
pub mod interrupts;
pub mod journal;
#[cfg(test)]
mod live_tests;
pub mod mems_file;
pub mod pages;
pub mod pins;
mod ready_socket;
mod reset;
pub mod restore;
mod roll_back;
pub mod scratch;
pub mod self_placed;
pub mod step_effect;
pub mod tiers;
#[cfg(test)]
mod transaction_tests;
pub mod units;

pub use actuator::{Actuator, DryRunActuator, LiveActuator};
pub use apply::{Applied, apply_plan, apply_plan_beside};
pub use claims::CurrentClaims;
pub use journal::Journal;
