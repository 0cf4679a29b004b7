//! The kubelet's part in Dynamic Resource Allocation: it finds a driver by its socket in the registry, asks
//! it for its name, and has claims prepared and given up.
//!
//! It calls as a kubelet of 1.36 does (`pkg/kubelet/pluginmanager`, `pkg/kubelet/cm/dra`): the authority of
//! the first call is the escaped path of the socket. It knows nothing of the product.

use std::{collections::HashMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use prost::Message;
use serde_json::{Value, json};

use crate::{api::NODE, cri::NAMESPACE, grpc::Connection, wait};

/// Where drivers put the sockets by which they are found.
const REGISTRY: &str = "/var/lib/kubelet/plugins_registry";
/// Longest time until a driver is there: emulation is slow.
const APPEARS: Duration = Duration::from_mins(2);
/// Longest time of a call; a kubelet waits for 1 s for the name, and for 45 s for a claim.
const LIMIT: Duration = Duration::from_secs(45);
/// The service of claims.
const SERVICE: &str = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin";

/// A driver that a kubelet has registered.
#[derive(Debug)]
pub struct RegisteredDriver {
    service: Connection,
    /// Its name.
    pub name: String,
}

/// A device of a prepared claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDevice {
    /// Its pool and its name.
    pub device: (String, String),
    /// What the runtime is to add to containers.
    pub cdi_ids: Vec<String>,
}

impl RegisteredDriver {
    /// Waits for a driver's socket in the registry, and registers the driver.
    pub fn find() -> Result<Self> {
        let method = |method| format!("/pluginregistration.Registration/{method}");
        // A daemon that was killed leaves its socket, and a kubelet tries again.
        let (registry, found) = wait::until("a driver answers in the registry", APPEARS, || {
            let Some(socket) = socket() else { return Ok(None) };
            let path = socket.to_string_lossy();
            let registry = Connection::new(&path, &path.replace('/', "%2F"), LIMIT)?;
            let found: Result<PluginAnswer> = registry.call(&method("GetInfo"), Nothing {});
            Ok(found.ok().map(|found| (registry, found)))
        })?;
        ensure!(found.kind == "DRAPlugin", "a plugin of kind {}", found.kind);
        ensure!(
            found.versions.first().is_some_and(|first| first == "v1.DRAPlugin"),
            "services {:?}",
            found.versions
        );
        let told = Registered { is_registered: true, error: String::new() };
        let _: Nothing = registry.call(&method("NotifyRegistrationStatus"), told)?;
        let service = Connection::new(&found.endpoint, "localhost", LIMIT)?;
        Ok(Self { service, name: found.name })
    }

    /// Has the claim of this name and uid prepared; the error is the driver's.
    pub fn prepare(&self, claim: (&str, &str)) -> Result<Result<Vec<ClaimedDevice>, String>> {
        let mut answer: Prepared = self.of_claim("NodePrepareResources", claim)?;
        let entry = answer.claims.remove(claim.1).context("no answer for the claim")?;
        if !entry.error.is_empty() {
            return Ok(Err(entry.error));
        }
        let device = |one: Device| ClaimedDevice { device: (one.pool, one.name), cdi_ids: one.cdi_ids };
        Ok(Ok(entry.devices.into_iter().map(device).collect()))
    }

    /// Has the claim of this name and uid given up.
    pub fn unprepare(&self, claim: (&str, &str)) -> Result<()> {
        let answer: Unprepared = self.of_claim("NodeUnprepareResources", claim)?;
        let entry = answer.claims.get(claim.1).context("no answer for the claim")?;
        ensure!(entry.error.is_empty(), "{claim:?} is not given up: {}", entry.error);
        Ok(())
    }

    fn of_claim<A: Message + Default + Send + Sync + 'static>(
        &self,
        method: &str,
        (name, uid): (&str, &str),
    ) -> Result<A> {
        let claim = Claim { namespace: NAMESPACE.into(), uid: uid.into(), name: name.into() };
        self.service.call(&format!("/{SERVICE}/{method}"), Claims { claims: vec![claim] })
    }
}

/// A claim that the scheduler has allocated: amounts of a device of the driver, for the pod with this uid.
pub fn allocated(name: &str, (device, amounts): (&str, &Value), (pod, uid): (&str, &str)) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [{"name": "place"}]}},
        "status": {
            "reservedFor": [{"resource": "pods", "name": pod, "uid": uid}],
            "allocation": {"devices": {"results": [{
                "request": "place", "driver": "numa-enforcer.io", "pool": NODE, "device": device,
                "shareID": "5c5f3c5e-0000-4000-8000-00000000000a", "consumedCapacity": amounts,
            }]}},
        },
    })
}

/// Path of a claim.
pub fn claim_path(name: &str) -> String {
    format!("/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims/{name}")
}

/// The socket of a driver: a file of the registry that is not hidden.
fn socket() -> Option<PathBuf> {
    let entries = std::fs::read_dir(REGISTRY).ok()?.flatten();
    let mut names = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    names.next().map(|entry| entry.path())
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Eq, Message)]
struct PluginAnswer {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    endpoint: String,
    #[prost(string, repeated, tag = "4")]
    versions: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Registered {
    #[prost(bool, tag = "1")]
    is_registered: bool,
    #[prost(string, tag = "2")]
    error: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Claim {
    #[prost(string, tag = "1")]
    namespace: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    name: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Claims {
    #[prost(message, repeated, tag = "1")]
    claims: Vec<Claim>,
}

#[derive(Clone, PartialEq, Message)]
struct Prepared {
    #[prost(map = "string, message", tag = "1")]
    claims: HashMap<String, PreparedEntry>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct PreparedEntry {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<Device>,
    #[prost(string, tag = "2")]
    error: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Device {
    #[prost(string, repeated, tag = "1")]
    requests: Vec<String>,
    #[prost(string, tag = "2")]
    pool: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, repeated, tag = "4")]
    cdi_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Unprepared {
    #[prost(map = "string, message", tag = "1")]
    claims: HashMap<String, UnpreparedEntry>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct UnpreparedEntry {
    #[prost(string, tag = "1")]
    error: String,
}
