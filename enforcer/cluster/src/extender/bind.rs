//! Bindings: one after another for each node, and none without an end.
//!
//! A binding that the API server has not answered may have landed. The pod tells: with this node it is bound,
//! with another one it is not, and without a node the place stays claimed until the API server can no longer
//! take the binding.

use std::sync::{Arc, PoisonError};

use enforcer_core::cluster::{
    extender::{
        BindCallEnd, BindEnd, BindRefusal, BindTicket, PlacementDecision, PodBinding, UnsettledClaim,
    },
    objects::PodObject,
};
use hyper::Method;
use serde_json::json;
use tokio::time::Instant;

use super::{BindRequest, SharedExtender};
use crate::{
    api_error::ApiError,
    connection::{ApiConnection, JSON},
    objects::read_pod,
};

/// What the API server shows of a pod.
enum SeenPod {
    /// It has this node.
    On(String),
    /// It has none.
    Unbound(Box<PodObject>),
    /// It is gone, or another one has its name.
    Gone,
}

impl SharedExtender {
    /// Binds a pod to a node if it has a place there.
    ///
    /// # Errors
    /// Why it is not bound, in the words for the scheduler.
    pub async fn bind(
        &self,
        connection: &ApiConnection,
        request: &BindRequest,
        accepted: Instant,
    ) -> Result<(), String> {
        let BindRequest { pod_uid: uid, node, .. } = request;
        let lock = self.binding_lock(node);
        let guard = lock.lock().await;
        // The scheduler has given the call up, and may have given the node's sums to other pods.
        let (end, bound) = if accepted.elapsed() > self.call_limit {
            (BindCallEnd::NotSent, Err("bindings to the node have taken too long".to_owned()))
        } else {
            self.bind_alone(connection, request, PodBinding { uid, node }).await
        };
        drop(guard);
        drop(lock);
        let mut binding = self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        binding.retain(|_, lock| Arc::strong_count(lock) > 1);
        self.note_bind_end(end);
        bound
    }

    /// The lock on bindings to a node.
    fn binding_lock(&self, node: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut binding = self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(binding.entry(node.to_owned()).or_default())
    }

    /// Binds the pod while no other binding to its node is sent: how that ends, and what the scheduler is
    /// told.
    async fn bind_alone(
        &self,
        connection: &ApiConnection,
        request: &BindRequest,
        binding: PodBinding<'_>,
    ) -> (BindCallEnd, Result<(), String>) {
        let mut begun = self.begin(binding);
        if begun == Err(BindRefusal::UnknownPod) {
            match self.look(connection, request).await {
                Err(error) => return (BindCallEnd::NotSent, Err(error.to_string())),
                Ok(SeenPod::On(node)) if node == request.node => return (BindCallEnd::Bound, Ok(())),
                Ok(SeenPod::On(node)) => return (BindCallEnd::NotThere, Err(bound_elsewhere(&node))),
                Ok(SeenPod::Gone) => return (BindCallEnd::NotThere, Err("the pod is gone".to_owned())),
                Ok(SeenPod::Unbound(pod)) => {
                    let pod = self.completed(*pod);
                    self.lock().observe_request(binding.uid, &pod.request, self.now());
                    begun = self.begin(binding);
                }
            }
        }
        let ticket = match begun {
            Ok(ticket) => ticket,
            Err(BindRefusal::Done) => return (BindCallEnd::Bound, Ok(())),
            Err(refusal) => {
                let end = match refusal {
                    BindRefusal::NoPlace(_) => BindCallEnd::NoPlace,
                    BindRefusal::Elsewhere(_) => BindCallEnd::NotThere,
                    _ => BindCallEnd::NotSent,
                };
                return (end, Err(refusal.to_string()));
            }
        };
        let (end, bound) = self.send(connection, request, ticket).await;
        self.lock().end_bind(binding, end);
        let end = match end {
            BindEnd::Bound => BindCallEnd::Bound,
            BindEnd::Refused => BindCallEnd::Refused,
            BindEnd::NotThere => BindCallEnd::NotThere,
            BindEnd::Unknown => BindCallEnd::NoReply,
        };
        (end, bound)
    }

    fn begin(&self, binding: PodBinding<'_>) -> Result<BindTicket, BindRefusal> {
        self.lock().begin_bind(binding, self.now())
    }

    /// Sends a binding; what became of it, and what the scheduler is told.
    async fn send(
        &self,
        connection: &ApiConnection,
        request: &BindRequest,
        ticket: BindTicket,
    ) -> (BindEnd, Result<(), String>) {
        let BindRequest { pod_name: name, pod_namespace: namespace, pod_uid: uid, node } = request;
        let mut metadata = json!({"name": name, "namespace": namespace, "uid": uid});
        if let Some(decision) = ticket.decision.as_ref().and_then(PlacementDecision::to_annotation) {
            metadata["annotations"] = json!({PlacementDecision::ANNOTATION: decision});
        }
        let body = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let path = format!("{}/binding", path_of(request));
        let sent = connection.request("create", Method::POST, &path, JSON, body.to_string().as_bytes()).await;
        let error = match sent {
            Ok(_) => return (BindEnd::Bound, Ok(())),
            Err(error) if was_not_taken(&error) => return (BindEnd::Refused, Err(error.to_string())),
            Err(error) => error,
        };
        // Another binding of the pod may have been first, or this one has landed without a reply.
        match self.look(connection, request).await {
            Ok(SeenPod::On(on)) if on == *node => (BindEnd::Bound, Ok(())),
            Ok(SeenPod::On(on)) => (BindEnd::NotThere, Err(bound_elsewhere(&on))),
            Ok(SeenPod::Gone) => (BindEnd::NotThere, Err(error.to_string())),
            Ok(SeenPod::Unbound(_)) if is_conflict(&error) => (BindEnd::Refused, Err(error.to_string())),
            Ok(SeenPod::Unbound(_)) | Err(_) => (BindEnd::Unknown, Err(error.to_string())),
        }
    }

    /// What the API server shows of the pod.
    async fn look(&self, connection: &ApiConnection, request: &BindRequest) -> Result<SeenPod, ApiError> {
        let path = path_of(request);
        let answer = match connection.request("get", Method::GET, &path, JSON, b"").await {
            Ok(answer) => answer,
            Err(ApiError::Refused { code: 404, .. }) => return Ok(SeenPod::Gone),
            Err(error) => return Err(error),
        };
        let broken = |cause| ApiError::Broken { operation: format!("get {path}"), cause };
        let pod = read_pod(&answer.body.to_string()).map_err(broken)?;
        Ok(match &pod.node {
            _ if pod.uid != request.pod_uid => SeenPod::Gone,
            Some(node) => SeenPod::On(node.clone()),
            None => SeenPod::Unbound(Box::new(pod)),
        })
    }

    /// Asks for what became of bindings that were not answered and can no longer land.
    pub(super) async fn settle(&self, connection: &ApiConnection) {
        let due = self.lock().unsettled(self.now());
        for UnsettledClaim { uid, namespace, name, node } in due {
            let request = BindRequest { pod_name: name, pod_namespace: namespace, pod_uid: uid, node };
            // No binding to the node is on its way meanwhile.
            let lock = self.binding_lock(&request.node);
            let _guard = lock.lock().await;
            let seen = self.look(connection, &request).await;
            let is_there = match &seen {
                Ok(SeenPod::On(node)) => *node == request.node,
                Ok(SeenPod::Unbound(_) | SeenPod::Gone) => false,
                Err(_) => continue,
            };
            let end = if is_there { BindEnd::Bound } else { BindEnd::NotThere };
            self.lock().end_bind(PodBinding { uid: &request.pod_uid, node: &request.node }, end);
        }
    }
}

fn bound_elsewhere(node: &str) -> String {
    format!("the pod is bound to node {node}")
}

fn path_of(request: &BindRequest) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", request.pod_namespace, request.pod_name)
}

/// Is it certain that the API server has not taken the binding, and that no other one was first?
pub(crate) const fn was_not_taken(error: &ApiError) -> bool {
    matches!(
        error,
        ApiError::Unreachable { .. }
            | ApiError::Unauthorized { .. }
            | ApiError::Forbidden { .. }
            | ApiError::Refused { .. }
            | ApiError::Busy { code: 429, .. }
    )
}

pub(crate) const fn is_conflict(error: &ApiError) -> bool {
    matches!(error, ApiError::Busy { code: 409, .. })
}
