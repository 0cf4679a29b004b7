//! Virtual machines with NUMA topologies, under QEMU's own emulation: no KVM is needed.
//!
//! A topology is a file, a boot takes two to five seconds (of arm64 ten) and a resume from a snapshot half of
//! one, and what comes back is the job's lines and its exit status. Placement, distances, tiers and page
//! migration in such a guest are real; latency and bandwidth are not, so nothing here may be used to
//! measure a benefit.

pub(crate) mod command;
mod console;
mod disk;
mod guest;
mod machine;
mod monitor;
mod platform;
mod qemu;
mod snapshot;
mod snapshots;
pub(crate) mod topology;
mod watch;

pub(crate) use disk::inject_image;
pub(crate) use guest::{Guest, GuestReport};
pub(crate) use snapshot::Snapshot;
pub(crate) use snapshots::Snapshots;
pub(crate) use watch::Ending;
