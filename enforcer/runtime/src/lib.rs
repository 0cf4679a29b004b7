//! Pods as Kubernetes describes them: the container runtime (NRI), the kubelet, and manifests.
//!
//! Each of these describes the same pods in a format of its own, which is converted here to the values that
//! the engines place by. Input from a socket or a file is bounded, and an error names what was read; nothing
//! is decided here.
//!
//! Invariants: no cgroup is written, and no thread is started. [`nri::keep_up`] and
//! [`kubelet::watch::KubeletWatch::keep_up`] are work for unprivileged threads that the daemon starts.

pub mod dra;
pub mod kubelet;
pub mod manifest;
pub mod nri;
mod protobuf;
mod raw_messages;
