//! Pods as Kubernetes tells of them: the container runtime (NRI), the kubelet, and manifests.
//!
//! Each of these speaks of the same pods in a format of its own, and each is read here into the values that
//! the engines place by. What comes from a socket or a file is bounded, and an error names what was read;
//! nothing is decided here.
//!
//! Must never write to a cgroup, and never start a thread: [`nri::keep_up`] and
//! [`kubelet::watch::Watch::keep_up`] are work for a thread that the daemon starts and takes privileges from.

pub mod kubelet;
pub mod manifest;
pub mod nri;
mod protobuf;
