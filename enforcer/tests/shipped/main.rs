//! What is shipped beside the program: pages, units, objects of Kubernetes, rules and dashboards.
//!
//! Each is held against the program itself, so that none tells of an option, metric or object that is not
//! there.
#![expect(clippy::unwrap_used, reason = "only tests are here")]

mod book;
mod deploy;
mod kubernetes;
mod monitoring;
mod versions;
