//! The kubelet's part: pods and containers over the container runtime interface, with the cgroups, labels and
//! resources that a kubelet gives them.
//!
//! It speaks to the runtime's own socket and knows nothing of the product, which sees here what it sees on a
//! node. Pods are in the machine's network: the guest has no plugin for another one.

mod amounts;
mod messages;
mod pod;
mod spec;

pub use amounts::{Amounts, Qos};
pub use pod::{Container, FirstLook, NAMESPACE, Plan, Pod, Program};
pub use spec::{ContainerSpec, MountSpec};

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use prost::Message;

use self::messages::{
    ListContainersResponse, ListImagesResponse, ListPodSandboxResponse, ListRequest, Nothing, RUNNING,
    StopContainerRequest, VersionRequest, VersionResponse,
};
use crate::grpc::Connection;

/// Where containerd listens.
const SOCKET: &str = "/run/containerd/containerd.sock";

/// Longest time for an answer: emulation is slow, a hang is a failure.
const LIMIT: Duration = Duration::from_mins(3);

/// Containers, pods.
const RUNTIME: &str = "RuntimeService";

/// Images.
const IMAGE: &str = "ImageService";

/// A connection to a container runtime: made by the first call, and again by the one after it broke.
#[derive(Debug)]
pub struct Cri(Connection);

impl Cri {
    /// For a runtime that need not listen yet.
    pub fn new() -> Result<Self> {
        Ok(Self(Connection::new(SOCKET, "localhost", LIMIT)?))
    }

    /// Its name and its version.
    pub fn version(&self) -> Result<(String, String)> {
        let VersionResponse { runtime_name, runtime_version } =
            self.call(RUNTIME, "Version", VersionRequest {})?;
        Ok((runtime_name, runtime_version))
    }

    /// All containers, and whether each runs.
    pub fn containers(&self) -> Result<BTreeMap<String, bool>> {
        let list: ListContainersResponse = self.call(RUNTIME, "ListContainers", ListRequest {})?;
        Ok(list.containers.into_iter().map(|one| (one.id, one.state == RUNNING)).collect())
    }

    /// All pods.
    pub fn pods(&self) -> Result<Vec<String>> {
        let list: ListPodSandboxResponse = self.call(RUNTIME, "ListPodSandbox", ListRequest {})?;
        Ok(list.items.into_iter().map(|pod| pod.id).collect())
    }

    /// Names of all images.
    pub fn images(&self) -> Result<Vec<String>> {
        let list: ListImagesResponse = self.call(IMAGE, "ListImages", ListRequest {})?;
        Ok(list.images.into_iter().flat_map(|image| image.repo_tags).collect())
    }

    /// Asks a container to end, and kills it after the grace period.
    pub fn stop(&self, id: &str, grace: Duration) -> Result<()> {
        let timeout = i64::try_from(grace.as_secs())?;
        let request = StopContainerRequest { container_id: id.to_owned(), timeout };
        let _: Nothing = self.call(RUNTIME, "StopContainer", request)?;
        Ok(())
    }

    fn call<Q, A>(&self, service: &str, method: &str, request: Q) -> Result<A>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.0.call(&format!("/runtime.v1.{service}/{method}"), request)
    }
}
