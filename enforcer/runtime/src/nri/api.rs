//! Messages of NRI that a plugin for cpusets needs, and of ttrpc around them.
//!
//! Field numbers are those of `pkg/api/api.proto` of containerd/nri, the same from 0.6.1 to 0.12.1; other
//! fields are skipped. `Optional` messages of the protocol separate 0 from absent, so they are messages here
//! too. The author of a pod chooses its strings: they are compared, never trusted.

use std::collections::BTreeMap;

use prost::Message;

/// What the plugin serves.
pub const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// What the runtime serves.
pub const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// Codes of [`TtrpcStatus`] (`google.rpc.Code`).
pub mod code {
    /// It went well.
    pub const OK: i32 = 0;
    /// There is no such method.
    pub const UNIMPLEMENTED: i32 = 12;
}

/// A question of ttrpc.
#[derive(Clone, PartialEq, Message)]
pub struct TtrpcRequest {
    /// Service of the method.
    #[prost(string, tag = "1")]
    pub service: String,
    /// Name of the method.
    #[prost(string, tag = "2")]
    pub method: String,
    /// Its argument.
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
    /// Time that there is for the answer, in ns; 0 for any.
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
}

/// An answer of ttrpc.
#[derive(Clone, PartialEq, Message)]
pub struct TtrpcResponse {
    /// How it went; absent is well.
    #[prost(message, optional, tag = "1")]
    pub status: Option<TtrpcStatus>,
    /// The result.
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

/// How a call went.
#[derive(Clone, PartialEq, Message)]
pub struct TtrpcStatus {
    /// One of [`code`].
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// The plugin names itself.
#[derive(Clone, PartialEq, Message)]
pub struct RegisterPluginRequest {
    /// Its name.
    #[prost(string, tag = "1")]
    pub plugin_name: String,
    /// Two digits: plugins are called in ascending order.
    #[prost(string, tag = "2")]
    pub plugin_idx: String,
}

/// The runtime names itself.
#[derive(Clone, PartialEq, Message)]
pub struct ConfigureRequest {
    /// `containerd`, `cri-o`.
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// Its version.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    /// Time for a registration in ms; 0 where it is not told.
    #[prost(int64, tag = "4")]
    pub registration_timeout: i64,
    /// Time for an answer in ms; 0 where it is not told.
    #[prost(int64, tag = "5")]
    pub request_timeout: i64,
    /// Version of NRI; since 0.12.
    #[prost(string, tag = "6")]
    pub nri_version: String,
}

/// What the plugin wants to be told.
#[derive(Clone, PartialEq, Message)]
pub struct ConfigureResponse {
    /// Bit n - 1 for event n.
    #[prost(int32, tag = "2")]
    pub events: i32,
}

/// What there is already.
#[derive(Clone, PartialEq, Message)]
pub struct SynchronizeRequest {
    /// Pods.
    #[prost(message, repeated, tag = "1")]
    pub pods: Vec<PodSandbox>,
    /// Containers that have not ended.
    #[prost(message, repeated, tag = "2")]
    pub containers: Vec<Container>,
    /// The rest follows in another request.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// What shall change of it.
#[derive(Clone, PartialEq, Message)]
pub struct SynchronizeResponse {
    /// Changes, in the answer to the last part only.
    #[prost(message, repeated, tag = "1")]
    pub update: Vec<ContainerUpdate>,
    /// As in the request.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// The argument of `CreateContainer`, `UpdateContainer`, `StopContainer` and, with another first field, of
/// `StateChange`.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerCall {
    /// Its pod.
    #[prost(message, optional, tag = "1")]
    pub pod: Option<PodSandbox>,
    /// The container.
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
    /// What it shall have; of `UpdateContainer`.
    #[prost(message, optional, tag = "3")]
    pub linux_resources: Option<LinuxResources>,
}

/// Something happened.
#[derive(Clone, PartialEq, Message)]
pub struct StateChangeEvent {
    /// Which event.
    #[prost(int32, tag = "1")]
    pub event: i32,
    /// The pod.
    #[prost(message, optional, tag = "2")]
    pub pod: Option<PodSandbox>,
    /// The container, for an event about one.
    #[prost(message, optional, tag = "3")]
    pub container: Option<Container>,
}

/// How a new container shall be.
#[derive(Clone, PartialEq, Message)]
pub struct CreateContainerResponse {
    /// It.
    #[prost(message, optional, tag = "1")]
    pub adjust: Option<ContainerAdjustment>,
    /// Others.
    #[prost(message, repeated, tag = "2")]
    pub update: Vec<ContainerUpdate>,
}

/// The answer to `UpdateContainer` and `StopContainer`, and the argument of `UpdateContainers`.
#[derive(Clone, PartialEq, Message)]
pub struct Updates {
    /// What changes.
    #[prost(message, repeated, tag = "1")]
    pub update: Vec<ContainerUpdate>,
}

/// A pod.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandbox {
    /// Id of its sandbox.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its uid.
    #[prost(string, tag = "3")]
    pub uid: String,
    /// Its namespace.
    #[prost(string, tag = "4")]
    pub namespace: String,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
    /// Its cgroup.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandbox>,
}

/// A pod's cgroup, and what it asks for.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxPodSandbox {
    /// What all its containers ask for together, as the kubelet reckons it.
    #[prost(message, optional, tag = "2")]
    pub pod_resources: Option<LinuxResources>,
    /// Cgroup of the pod, which tells its `QoS` class.
    #[prost(string, tag = "3")]
    pub cgroup_parent: String,
}

/// A container.
#[derive(Clone, PartialEq, Message)]
pub struct Container {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Id of its pod's sandbox.
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// Its name in the pod.
    #[prost(string, tag = "3")]
    pub name: String,
    /// 1 created, 2 paused, 3 running, 4 stopped.
    #[prost(int32, tag = "4")]
    pub state: i32,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
    /// Its environment, `NAME=VALUE`.
    #[prost(string, repeated, tag = "8")]
    pub env: Vec<String>,
    /// Its resources.
    #[prost(message, optional, tag = "11")]
    pub linux: Option<LinuxContainer>,
    /// Its first process; 0 before it runs.
    #[prost(uint32, tag = "12")]
    pub pid: u32,
    /// Its CDI devices; runtimes of before NRI 0.10 do not tell them.
    #[prost(message, repeated, tag = "20")]
    pub cdi_devices: Vec<CdiDevice>,
}

/// A device of the Container Device Interface.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CdiDevice {
    /// Its id: `VENDOR/CLASS=NAME`.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// The part of a container that is of Linux.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxContainer {
    /// Limits.
    #[prost(message, optional, tag = "3")]
    pub resources: Option<LinuxResources>,
    /// The kubelet's trace of a memory request.
    #[prost(message, optional, tag = "4")]
    pub oom_score_adj: Option<OptionalInt>,
    /// Its cgroup: a path, or `SLICE:PREFIX:NAME`.
    #[prost(string, tag = "5")]
    pub cgroups_path: String,
}

/// Limits of a container.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxResources {
    /// Of memory.
    #[prost(message, optional, tag = "1")]
    pub memory: Option<LinuxMemory>,
    /// Of CPUs.
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<LinuxCpu>,
    /// Of huge pages.
    #[prost(message, repeated, tag = "3")]
    pub hugepage_limits: Vec<HugepageLimit>,
}

/// A limit of huge pages.
#[derive(Clone, PartialEq, Message)]
pub struct HugepageLimit {
    /// Size of a page: `2MB`.
    #[prost(string, tag = "1")]
    pub page_size: String,
    /// Limit in bytes.
    #[prost(uint64, tag = "2")]
    pub limit: u64,
}

/// Limits of memory.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxMemory {
    /// `memory.max` in bytes; none or below 0 for no limit.
    #[prost(message, optional, tag = "1")]
    pub limit: Option<OptionalInt>,
}

/// CPU time and cpuset.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxCpu {
    /// `cpu.shares`.
    #[prost(message, optional, tag = "1")]
    pub shares: Option<OptionalUint>,
    /// `cpu.cfs_quota_us`; below 0 for no limit.
    #[prost(message, optional, tag = "2")]
    pub quota: Option<OptionalInt>,
    /// `cpu.cfs_period_us`.
    #[prost(message, optional, tag = "3")]
    pub period: Option<OptionalUint>,
    /// `cpuset.cpus`; empty leaves it as it is.
    #[prost(string, tag = "6")]
    pub cpus: String,
    /// `cpuset.mems`; empty leaves it as it is.
    #[prost(string, tag = "7")]
    pub mems: String,
}

/// A number that may be absent.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct OptionalInt {
    /// The number.
    #[prost(int64, tag = "1")]
    pub value: i64,
}

/// A number that may be absent.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct OptionalUint {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// What a plugin changes of a new container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerAdjustment {
    /// What is mounted into it beside what it asks for.
    #[prost(message, repeated, tag = "3")]
    pub mounts: Vec<Mount>,
    /// Of Linux.
    #[prost(message, optional, tag = "6")]
    pub linux: Option<LinuxChange>,
}

/// A mount in a container.
#[derive(Clone, PartialEq, Message)]
pub struct Mount {
    /// Where in the container.
    #[prost(string, tag = "1")]
    pub destination: String,
    /// `bind`, or a file system.
    #[prost(string, tag = "2")]
    pub r#type: String,
    /// What of the host.
    #[prost(string, tag = "3")]
    pub source: String,
    /// Options of mount(8).
    #[prost(string, repeated, tag = "4")]
    pub options: Vec<String>,
}

/// What a plugin changes of a container that is there.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerUpdate {
    /// Id of the container.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Of Linux; its resources are field 1 here.
    #[prost(message, optional, tag = "2")]
    pub linux: Option<LinuxUpdate>,
    /// A failure of this update is no failure of the call.
    #[prost(bool, tag = "3")]
    pub ignore_failure: bool,
}

/// Resources of a new container.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxChange {
    /// The resources.
    #[prost(message, optional, tag = "2")]
    pub resources: Option<LinuxResources>,
}

/// Resources of a container that is there.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxUpdate {
    /// The resources.
    #[prost(message, optional, tag = "1")]
    pub resources: Option<LinuxResources>,
}
