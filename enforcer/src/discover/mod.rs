//! discover: finds the machine's workloads and settings.
//!
//! Readers turn files below a [`enforcer_host::HostRoot`] into the values that the stages exchange. They
//! never write, and never import another stage.

pub mod host_facts;
pub mod sandboxes;
pub mod units;
pub mod workloads;
