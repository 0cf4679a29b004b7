//! discover: what the machine is and what runs on it.
//!
//! Readers of this stage turn files below a [`enforcer_host::HostRoot`] into the values that the other
//! stages exchange. They must never write, and never import another stage.

pub mod host_facts;
pub mod sandboxes;
pub mod units;
pub mod workloads;
