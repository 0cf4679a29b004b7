//! Limits of a published state, for its schema and for readers of a state that comes from a file.

/// NUMA nodes.
pub const NODES: usize = 64;
/// Sockets.
pub const SOCKETS: usize = 64;
/// Cores.
pub const CORES: usize = 1_024;
/// Last-level caches.
pub const CACHES: usize = 256;
/// Pairs of a node and a kind of memory.
pub const MEMORY_SUPPLIES: usize = 512;
/// Resources of devices.
pub const DEVICE_RESOURCES: usize = 64;
/// Groups of the devices of one resource that are near the same nodes.
pub const DEVICE_GROUPS: usize = 64;
/// Devices of one resource; more have no place in one machine.
pub const DEVICES: usize = 4_096;
/// Pods.
pub const PODS: usize = 1_024;
/// Containers of a pod.
pub const CONTAINERS: usize = 128;
/// Kinds of memory, and resources of devices, of a container.
pub const CONTAINER_RESOURCES: usize = 16;
/// Refused pods that a state names.
pub const REJECTED: usize = 16;
/// Sources that prevent an exact prediction.
pub const INEXACT: usize = 16;
/// Options of one policy of the kubelet.
pub const OPTIONS: usize = 16;
/// Feature gates.
pub const GATES: usize = 32;

/// Characters of a uid, a hash, or the name of a kind of memory.
pub const WORD: usize = 64;
/// Characters of the name of a container or a namespace (RFC 1123 label).
pub const LABEL: usize = 63;
/// Characters of the name of a pod or a resource (RFC 1123 subdomain).
pub const NAME: usize = 253;

/// Characters of the packed inputs of this daemon's engine.
pub const ENGINE_INPUTS: usize = 24 << 10;
