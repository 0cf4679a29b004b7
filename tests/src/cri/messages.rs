//! The messages of the container runtime interface, as far as scenarios send and read them.
//!
//! Names and tags are those of Kubernetes' `cri-api/pkg/apis/runtime/v1/api.proto`, written by hand so that
//! no build needs `protoc`. Unused fields are left out: they are absent on the wire then.

use std::collections::HashMap;

use prost::Message;

/// `NamespaceMode`: what a namespace is shared with.
pub(super) const POD: i32 = 0;
/// The container alone.
pub(super) const CONTAINER: i32 = 1;
/// The machine.
pub(super) const NODE: i32 = 2;

/// `ContainerState` of a container with a running process.
pub(super) const RUNNING: i32 = 1;
/// The same without one: it has ended.
pub(super) const EXITED: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionResponse {
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    #[prost(string, tag = "3")]
    pub runtime_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NamespaceOption {
    #[prost(int32, tag = "1")]
    pub network: i32,
    #[prost(int32, tag = "2")]
    pub pid: i32,
    #[prost(int32, tag = "3")]
    pub ipc: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxSandboxSecurityContext {
    #[prost(message, optional, tag = "1")]
    pub namespace_options: Option<NamespaceOption>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxContainerResources {
    #[prost(int64, tag = "1")]
    pub cpu_period: i64,
    #[prost(int64, tag = "2")]
    pub cpu_quota: i64,
    #[prost(int64, tag = "3")]
    pub cpu_shares: i64,
    #[prost(int64, tag = "4")]
    pub memory_limit_in_bytes: i64,
    #[prost(int64, tag = "5")]
    pub oom_score_adj: i64,
    #[prost(string, tag = "6")]
    pub cpuset_cpus: String,
    #[prost(string, tag = "7")]
    pub cpuset_mems: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxPodSandboxConfig {
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    pub security_context: Option<LinuxSandboxSecurityContext>,
    #[prost(message, optional, tag = "5")]
    pub resources: Option<LinuxContainerResources>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    #[prost(string, tag = "3")]
    pub log_directory: String,
    #[prost(map = "string, string", tag = "6")]
    pub labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "7")]
    pub annotations: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub config: Option<PodSandboxConfig>,
}

/// Also what stops and removes a pod, and what is answered when one has been made.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSandboxId {
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub image: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A variable of the environment.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Mount {
    #[prost(string, tag = "1")]
    pub container_path: String,
    #[prost(string, tag = "2")]
    pub host_path: String,
    #[prost(bool, tag = "3")]
    pub readonly: bool,
    #[prost(int32, tag = "5")]
    pub propagation: i32,
}

/// `MountPropagation` of what is mounted as it is.
pub(super) const PRIVATE: i32 = 0;
/// The container sees what the machine mounts later.
pub(super) const FROM_HOST: i32 = 1;

/// Names of capabilities, without `CAP_`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Capability {
    #[prost(string, repeated, tag = "1")]
    pub add_capabilities: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub drop_capabilities: Vec<String>,
}

/// `ProfileType` of the runtime's own profile.
pub(super) const RUNTIME_DEFAULT: i32 = 0;
/// Of none.
pub(super) const UNCONFINED: i32 = 1;
/// Of a profile that is a file of the machine.
pub(super) const LOCALHOST: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct SecurityProfile {
    #[prost(int32, tag = "1")]
    pub profile_type: i32,
    #[prost(string, tag = "2")]
    pub localhost_ref: String,
}

/// `Int64Value`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct UserId {
    #[prost(int64, tag = "1")]
    pub value: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxContainerSecurityContext {
    #[prost(message, optional, tag = "1")]
    pub capabilities: Option<Capability>,
    #[prost(message, optional, tag = "3")]
    pub namespace_options: Option<NamespaceOption>,
    #[prost(message, optional, tag = "5")]
    pub run_as_user: Option<UserId>,
    #[prost(bool, tag = "7")]
    pub readonly_rootfs: bool,
    #[prost(bool, tag = "11")]
    pub no_new_privs: bool,
    #[prost(string, repeated, tag = "13")]
    pub masked_paths: Vec<String>,
    #[prost(string, repeated, tag = "14")]
    pub readonly_paths: Vec<String>,
    #[prost(message, optional, tag = "15")]
    pub seccomp: Option<SecurityProfile>,
    #[prost(message, optional, tag = "16")]
    pub apparmor: Option<SecurityProfile>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LinuxContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub resources: Option<LinuxContainerResources>,
    #[prost(message, optional, tag = "2")]
    pub security_context: Option<LinuxContainerSecurityContext>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    pub image: Option<ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    pub command: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub args: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub envs: Vec<KeyValue>,
    #[prost(message, repeated, tag = "7")]
    pub mounts: Vec<Mount>,
    #[prost(map = "string, string", tag = "9")]
    pub labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "10")]
    pub annotations: HashMap<String, String>,
    #[prost(string, tag = "11")]
    pub log_path: String,
    #[prost(message, optional, tag = "15")]
    pub linux: Option<LinuxContainerConfig>,
    #[prost(message, repeated, tag = "17")]
    pub cdi_devices: Vec<CdiDevice>,
}

/// A device of the Container Device Interface.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CdiDevice {
    /// `VENDOR/CLASS=NAME`.
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    pub config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pub sandbox_config: Option<PodSandboxConfig>,
}

/// Also what starts and removes a container, and what is answered when one has been made.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerId {
    #[prost(string, tag = "1")]
    pub container_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StopContainerRequest {
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Seconds until it is killed.
    #[prost(int64, tag = "2")]
    pub timeout: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct UpdateContainerResourcesRequest {
    #[prost(string, tag = "1")]
    pub container_id: String,
    #[prost(message, optional, tag = "2")]
    pub linux: Option<LinuxContainerResources>,
}

/// Of containers, pods and images: without a filter, so all of them.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<ContainerStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerStatus {
    #[prost(int32, tag = "3")]
    pub state: i32,
    #[prost(int32, tag = "7")]
    pub exit_code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListContainersResponse {
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<ListedContainer>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListedContainer {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(int32, tag = "6")]
    pub state: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<ListedPod>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListedPod {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListImagesResponse {
    #[prost(message, repeated, tag = "1")]
    pub images: Vec<ListedImage>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListedImage {
    #[prost(string, repeated, tag = "2")]
    pub repo_tags: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Nothing {}
