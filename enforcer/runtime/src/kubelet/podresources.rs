//! The kubelet's podresources socket, version 1: exclusive resources of each container of the node.
//!
//! gRPC over a unix socket, one call per connection, so a restart of the kubelet needs no handling.
//! Everything has a bound: the time of a look, the size of an answer, the number of containers, the greatest
//! id. Messages follow `staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto` of Kubernetes 1.34;
//! other fields are skipped.
//!
//! `List` names exclusive CPUs only; containers that share CPUs have none there.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use enforcer_core::{
    cluster::observed::{DeviceNodes, ListedContainerResources, ListedPodResources, OfferedResources},
    owner::MemoryBlock,
    workload::printable_within,
};
use numa_topology::{
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};
use prost::Message;
use thiserror::Error;
use tokio::{net::UnixStream, runtime::Builder, time::timeout};
use tonic::{
    Code, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};

use super::state::{MOST_CLAIMS, MOST_NODES};
use crate::{
    protobuf::{MalformedProtobuf, numbers, occurrences},
    raw_messages::RawMessages,
};

/// Longest time of a look: a kubelet answers from memory.
const WITHIN: Duration = Duration::from_secs(3);
/// Largest answer; 10000 containers with devices take some 2 MiB, and the kubelet's own clients stop at 16
/// MiB (`apis/podresources/client.go`).
const LARGEST: usize = 16 << 20;

/// Most devices, nodes, ids and so on of an answer: of 10000 containers with some devices each. One is two
/// bytes of an answer and some hundred once it is decoded.
const MOST_FIELDS: usize = 1 << 20;

const LIST: &str = "/v1.PodResourcesLister/List";
const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";

/// What each pod has.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListPodResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) pods: Vec<PodOfList>,
}

/// What one pod has.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodOfList {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) namespace: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) containers: Vec<ContainerResources>,
}

/// What one container has.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerResources {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) devices: Vec<ContainerDevices>,
    #[prost(int64, repeated, tag = "3")]
    pub(super) cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "4")]
    pub(super) memory: Vec<ContainerMemory>,
}

/// Devices of one resource near the same nodes.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerDevices {
    #[prost(string, tag = "1")]
    pub(super) resource_name: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) device_ids: Vec<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) topology: Option<TopologyInfo>,
}

/// Memory of one kind.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerMemory {
    #[prost(string, tag = "1")]
    pub(super) memory_type: String,
    #[prost(uint64, tag = "2")]
    pub(super) size: u64,
    #[prost(message, optional, tag = "3")]
    pub(super) topology: Option<TopologyInfo>,
}

/// Nodes near something.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TopologyInfo {
    #[prost(message, repeated, tag = "1")]
    pub(super) nodes: Vec<NumaNode>,
}

/// A node.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct NumaNode {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

/// What the kubelet may hand out.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AllocatableResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    pub(super) devices: Vec<ContainerDevices>,
    #[prost(int64, repeated, tag = "2")]
    pub(super) cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(super) memory: Vec<ContainerMemory>,
}

/// What the kubelet may hand out, in short.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// CPUs.
    pub cpus: CpuSet,
    /// Memory by kind and nodes.
    pub memory: Vec<MemoryBlock>,
    /// Devices: how many of each resource are near which nodes. No nodes where that is not known.
    pub devices: BTreeMap<String, Vec<(NodeSet, usize)>>,
}

/// What the socket says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodResourcesAnswer {
    /// What pods have.
    pub(super) listed: Vec<ListedPodResources>,
    /// What they may get, or why that is not known: kubelets before 1.21 do not say.
    pub(super) offered: Result<OfferedResources, String>,
}

/// Why the socket gives no answer.
#[derive(Debug, Error)]
pub enum PodResourcesError {
    /// There is no socket, or no process listens on it.
    #[error("connecting to {path}: {cause}", path = path.display())]
    Absent {
        /// The socket.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// No answer in time.
    #[error("{path}: no answer within {} s", within.as_secs(), path = path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// Time that it had.
        within: Duration,
    },
    /// The answer is an error.
    #[error("{method} at {path}: {status}", path = path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The method.
        method: &'static str,
        /// Code and text of gRPC.
        status: String,
    },
    /// More than any node has.
    #[error("List at {path}: more than {MOST_CLAIMS} containers or {MOST_FIELDS} fields", path = path.display())]
    TooMany {
        /// The socket.
        path: PathBuf,
    },
    /// The call could not be started.
    #[error("asking the kubelet: {0}")]
    Io(#[from] io::Error),
}

/// Asks once, and waits for at most some seconds.
pub fn ask(socket: &Path) -> Result<PodResourcesAnswer, PodResourcesError> {
    ask_within(socket, WITHIN)
}

/// The same with another bound on the time.
pub(super) fn ask_within(socket: &Path, within: Duration) -> Result<PodResourcesAnswer, PodResourcesError> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async { timeout(within, exchange(socket)).await });
    answer.unwrap_or_else(|_late| Err(PodResourcesError::Silent { path: socket.to_owned(), within }))
}

async fn exchange(socket: &Path) -> Result<PodResourcesAnswer, PodResourcesError> {
    let absent = |cause: String| PodResourcesError::Absent { path: socket.to_owned(), cause };
    // The transport hides the cause of a failed connection.
    UnixStream::connect(socket).await.map_err(|cause| absent(cause.to_string()))?;
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
    let channel = endpoint.map_err(|cause| absent(cause.to_string()))?.connect().await;
    let channel = channel.map_err(|cause| absent(cause.to_string()))?;
    let list = call(channel.clone(), socket, LIST).await?;
    let list: ListPodResourcesResponse = decode(socket, LIST, &list, list_is_bounded)?;
    let allocatable = call(channel, socket, ALLOCATABLE).await;
    let allocatable = allocatable.and_then(|answer| {
        let decoded: AllocatableResourcesResponse =
            decode(socket, ALLOCATABLE, &answer, allocatable_is_bounded)?;
        Ok(offered(&decoded))
    });
    // Older kubelets lack the method, or have it behind a feature gate.
    let offered = allocatable.map_err(|error| {
        tracing::debug!("{error}");
        error.to_string()
    });
    Ok(PodResourcesAnswer { listed: listed(list), offered })
}

/// The bytes of an answer.
async fn call(channel: Channel, socket: &Path, method: &'static str) -> Result<Vec<u8>, PodResourcesError> {
    let refused = |status: Status| refused(socket, method, &status);
    let mut grpc = Grpc::new(channel).max_decoding_message_size(LARGEST);
    grpc.ready().await.map_err(|cause| refused(Status::new(Code::Unavailable, cause.to_string())))?;
    let answer =
        grpc.unary(tonic::Request::new(Vec::new()), PathAndQuery::from_static(method), RawMessages).await;
    Ok(answer.map_err(refused)?.into_inner())
}

fn refused(socket: &Path, method: &'static str, status: &Status) -> PodResourcesError {
    PodResourcesError::Refused {
        path: socket.to_owned(),
        method: method.rsplit('/').next().unwrap_or(method),
        status: status.code().to_string() + ": " + &shortened(status.message()),
    }
}

/// The answer, where it is no larger than any kubelet's.
fn decode<A: Message + Default>(
    socket: &Path,
    method: &'static str,
    bytes: &[u8],
    is_bounded: fn(&[u8]) -> Result<bool, MalformedProtobuf>,
) -> Result<A, PodResourcesError> {
    let internal = |problem: String| refused(socket, method, &Status::internal(problem));
    if !is_bounded(bytes).map_err(|_malformed| internal("not protobuf".to_owned()))? {
        return Err(PodResourcesError::TooMany { path: socket.to_owned() });
    }
    A::decode(bytes).map_err(|cause| internal(cause.to_string()))
}

/// Pods, their containers, and devices, ids, memory and nodes of those.
fn list_is_bounded(bytes: &[u8]) -> Result<bool, MalformedProtobuf> {
    for path in [&[1][..], &[1, 3]] {
        if occurrences(bytes, path, MOST_CLAIMS + 1)? > MOST_CLAIMS {
            return Ok(false);
        }
    }
    has_few(bytes, &[1, 3], [2, 3, 4])
}

fn allocatable_is_bounded(bytes: &[u8]) -> Result<bool, MalformedProtobuf> {
    has_few(bytes, &[], [1, 2, 3])
}

/// Are there few devices, CPUs and blocks of memory, which are fields of these numbers of what is at `above`?
fn has_few(
    bytes: &[u8],
    above: &[u32],
    [devices, cpus, memory]: [u32; 3],
) -> Result<bool, MalformedProtobuf> {
    let at = |below: &[u32]| [above, below].concat();
    let mut fields = numbers(bytes, &at(&[cpus]), MOST_FIELDS + 1)?;
    for path in [&[devices][..], &[devices, 2], &[devices, 3, 1], &[memory], &[memory, 3, 1]] {
        fields += occurrences(bytes, &at(path), MOST_FIELDS + 1)?;
    }
    Ok(fields <= MOST_FIELDS)
}

/// A message may be of any length.
fn shortened(message: &str) -> String {
    printable_within(message, 200)
}

/// What pods have.
pub(super) fn listed(list: ListPodResourcesResponse) -> Vec<ListedPodResources> {
    let container = |one: ContainerResources| ListedContainerResources {
        cpus: cpus(&one.cpu_ids),
        memory: blocks(&one.memory),
        devices: device_nodes(&one.devices),
        name: one.name,
    };
    let pods = list.pods.into_iter().map(|PodOfList { name, namespace, containers }| {
        let containers = containers.into_iter().map(container).collect();
        ListedPodResources { namespace, name, containers }
    });
    pods.collect()
}

/// What the kubelet may hand out.
pub(super) fn offered(answer: &AllocatableResourcesResponse) -> OfferedResources {
    OfferedResources {
        cpus: cpus(&answer.cpu_ids),
        memory: blocks(&answer.memory),
        devices: device_nodes(&answer.devices),
    }
}

impl From<&OfferedResources> for Allocatable {
    fn from(offered: &OfferedResources) -> Self {
        let devices = offered.devices.iter().map(|(resource, units)| {
            let mut near = BTreeMap::<NodeSet, usize>::new();
            for nodes in units.values() {
                *near.entry(nodes.clone()).or_default() += 1;
            }
            (resource.clone(), near.into_iter().collect())
        });
        Self { cpus: offered.cpus.clone(), memory: offered.memory.clone(), devices: devices.collect() }
    }
}

/// Impossible ids are dropped; the set leaves out those that are too large.
fn cpus(ids: &[i64]) -> CpuSet {
    ids.iter().filter_map(|id| u32::try_from(*id).ok()).map(CpuId).collect()
}

fn nodes(topology: Option<&TopologyInfo>) -> NodeSet {
    let ids = topology.into_iter().flat_map(|topology| &topology.nodes);
    let ids = ids.filter_map(|node| u32::try_from(node.id).ok()).filter(|id| *id < MOST_NODES);
    ids.map(NodeId).collect()
}

/// Memory without nodes is not bound to a node, and claims none.
fn blocks(memory: &[ContainerMemory]) -> Vec<MemoryBlock> {
    let blocks = memory.iter().map(|one| MemoryBlock {
        kind: one.memory_type.clone(),
        nodes: nodes(one.topology.as_ref()),
        bytes: one.size,
    });
    blocks.filter(|block| !block.nodes.is_empty()).collect()
}

/// Nodes of each device. The kubelet lists a device once, with all of its nodes.
fn device_nodes(devices: &[ContainerDevices]) -> DeviceNodes {
    let mut found = DeviceNodes::new();
    for one in devices.iter().filter(|one| !one.device_ids.is_empty()) {
        let near = nodes(one.topology.as_ref());
        let units = found.entry(one.resource_name.clone()).or_default();
        for id in &one.device_ids {
            units.entry(id.clone()).or_default().extend(&near);
        }
    }
    found
}
