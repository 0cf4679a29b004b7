//! The DRA service: prepares and unprepares claims for the kubelet, and tells the health of devices.
//!
//! Claims of one request are independent: an error of one is its own entry, and the others are prepared. An
//! error of the whole call would fail all of them. They are prepared side by side, so that two that wait take
//! no more of the kubelet's time than one.

use std::{collections::HashMap, future::Future, pin::Pin, sync::Arc};

use enforcer_core::dra::PreparedDevice;
use prost::Message as _;
use tokio::{sync::watch, task::JoinSet};
use tonic::Status;

use super::{
    grpc::{AnswerStream, BoxedCall, GrpcMethods, decode},
    health::{self, DeviceHealthReport},
    messages::{
        ClaimsRequest, DeviceMessage, PrepareEntry, PrepareResponse, UnprepareEntry, UnprepareResponse,
    },
};
use crate::protobuf::occurrences;

/// Most claims of one request. A pod may have 256 (`MaxResourceClaims`, Kubernetes 1.36).
const MOST_CLAIMS: usize = 1_024;

/// Packages of the versions that are served.
const PACKAGES: [&str; 2] = ["/k8s.io.kubelet.pkg.apis.dra.v1.", "/k8s.io.kubelet.pkg.apis.dra.v1beta1."];
const PREPARE: &str = "DRAPlugin/NodePrepareResources";
const UNPREPARE: &str = "DRAPlugin/NodeUnprepareResources";
const WATCH: [&str; 2] =
    ["/v1alpha1.DRAResourceHealth/NodeWatchResources", "/v1.DRAResourceHealth/NodeWatchResources"];

/// A claim as the kubelet names it. It passes no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeletClaim {
    /// Its uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name. Another claim may have it by now.
    pub name: String,
}

/// What comes of a call for a claim, later.
pub type BoxedAnswer<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// What is done for claims; the text of an error is shown to people in an event of the pod.
pub trait ClaimCalls: Send + Sync + 'static {
    /// Prepares a claim. Repeated for the same uid, it has the same answer. The kubelet waits for 45 s.
    fn prepare(&self, claim: KubeletClaim) -> BoxedAnswer<'_, Vec<PreparedDevice>>;

    /// Gives up a claim, which may be unknown.
    fn unprepare(&self, claim: KubeletClaim) -> BoxedAnswer<'_, ()>;
}

/// The service of one driver.
pub struct DraPlugin {
    calls: Arc<dyn ClaimCalls>,
    health: watch::Receiver<DeviceHealthReport>,
}

impl DraPlugin {
    /// The service over these.
    #[must_use]
    pub fn new(calls: Arc<dyn ClaimCalls>, health: watch::Receiver<DeviceHealthReport>) -> Self {
        Self { calls, health }
    }

    async fn prepare(&self, request: Vec<u8>) -> Result<Vec<u8>, Status> {
        let mut claims = HashMap::new();
        let mut calls = JoinSet::new();
        for claim in claims_of(&request)? {
            // Of a call that ends without an answer, every claim has one.
            let lost = PrepareEntry { devices: Vec::new(), error: "the call for it ended early".to_owned() };
            claims.insert(claim.uid.clone(), lost);
            let of = Arc::clone(&self.calls);
            calls.spawn(async move { (claim.uid.clone(), of.prepare(claim).await) });
        }
        while let Some(ended) = calls.join_next().await {
            let Ok((uid, answer)) = ended else { continue };
            let entry = match answer {
                Ok(devices) => PrepareEntry {
                    devices: devices.into_iter().map(DeviceMessage::from).collect(),
                    error: String::new(),
                },
                Err(error) => PrepareEntry { devices: Vec::new(), error: said(error) },
            };
            claims.insert(uid, entry);
        }
        Ok(PrepareResponse { claims }.encode_to_vec())
    }

    async fn unprepare(&self, request: Vec<u8>) -> Result<Vec<u8>, Status> {
        let mut claims = HashMap::new();
        for claim in claims_of(&request)? {
            let uid = claim.uid.clone();
            let error = self.calls.unprepare(claim).await.map_or_else(said, |()| String::new());
            claims.insert(uid, UnprepareEntry { error });
        }
        Ok(UnprepareResponse { claims }.encode_to_vec())
    }
}

/// An empty error would mean success.
fn said(error: String) -> String {
    if error.is_empty() { "no reason is known".to_owned() } else { error }
}

/// The claims of a request, each uid once.
fn claims_of(request: &[u8]) -> Result<Vec<KubeletClaim>, Status> {
    let count = occurrences(request, &[1], MOST_CLAIMS + 1);
    if count.map_err(|_malformed| Status::invalid_argument("not protobuf"))? > MOST_CLAIMS {
        return Err(Status::invalid_argument(format!("more than {MOST_CLAIMS} claims")));
    }
    let mut claims: Vec<KubeletClaim> = Vec::new();
    for claim in decode::<ClaimsRequest>(request)?.claims {
        if claims.iter().all(|known| known.uid != claim.uid) {
            claims.push(KubeletClaim { uid: claim.uid, namespace: claim.namespace, name: claim.name });
        }
    }
    Ok(claims)
}

impl From<PreparedDevice> for DeviceMessage {
    fn from(device: PreparedDevice) -> Self {
        Self {
            request_names: device.requests,
            pool_name: device.pool,
            device_name: device.device,
            cdi_device_ids: device.cdi_ids,
            share_id: device.share_id,
        }
    }
}

impl GrpcMethods for DraPlugin {
    fn unary(&self, path: &str, request: Vec<u8>) -> Option<BoxedCall<'_>> {
        match PACKAGES.iter().find_map(|package| path.strip_prefix(package))? {
            PREPARE => Some(Box::pin(self.prepare(request))),
            UNPREPARE => Some(Box::pin(self.unprepare(request))),
            _ => None,
        }
    }

    fn stream(&self, path: &str) -> Option<AnswerStream> {
        WATCH.contains(&path).then(|| health::stream(self.health.clone()))
    }
}
