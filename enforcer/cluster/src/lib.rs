//! cluster: which node runs which daemon, and a way to each of them with the rights of the user.
//!
//! Problem: `kubectl numa` asks the daemons of all nodes. The user's kubeconfig may name any way of logging
//! in, any proxy and any certificate, and kubectl knows them all.
//!
//! Idea: kubectl itself is run ([ADR 0017](../../../docs/adr/0017-the-plugin-speaks-through-kubectl.md)):
//! `get` for pods and nodes, `port-forward` for the way to a daemon.
//!
//! Beside that, the daemon of a node publishes objects, as the account of its own pod and through kube ([ADR
//! 0018](../../../docs/adr/0018-published-state-goes-through-kube.md)): see [`publish_changes`]. It reads
//! which pods are bound to its node: see [`watch_pods`]. On request it writes events of both: see
//! [`write_events`].
//!
//! What the DRA driver of the node offers is kept in the API server: see [`publish_slices`]. Claims are
//! read by [`ApiConnection::resource_claim`].
//!
//! Of several replicas one works, by a lease: see [`Election`].
//!
//! [`objects`] reads what `kubectl get -o json` prints, for a plan over many nodes.
//!
//! Invariants: every run of kubectl is bounded in time and output, and has ended when its value is dropped.
//! What comes from the cluster is text from outside: it is parsed here, never run, and shown by `report`.

mod api_error;
mod backoff;
mod child;
mod claim_object;
mod configz;
mod connection;
mod election;
mod error;
mod events;
pub mod extender;
mod forward;
pub mod gate;
mod kubectl;
mod newest;
mod node;
mod nodes;
pub mod objects;
mod pod_object;
mod pods;
mod publish;
mod resize;
mod server_tls;
mod slices;
mod watch;

pub use self::{
    api_error::ApiError,
    backoff::Backoff,
    claim_object::ClaimReadError,
    configz::{ConfigzError, KubeletServer, fetch_configz},
    connection::{ApiConnection, ConnectError, PodAccount},
    election::{Election, ElectionSettings, Leadership, LeaseTiming},
    error::KubectlError,
    events::{EventRetries, EventSource, EventTally, write_events},
    forward::PortForward,
    kubectl::Kubectl,
    newest::send_if_different,
    node::ClusterNode,
    nodes::{NodeDaemon, Unreachable, by_node},
    pods::{DaemonPod, PodContainer, WorkloadPod},
    publish::{
        LeaseConditions, NewerEpoch, Pace, PaceLimits, Published, PublishedKind, PublishedObject, Publisher,
        PublisherSettings, RenewalTimes, WriteEnd, daemon_life, keep_lease, notice_returns, publish_changes,
        unpublished,
    },
    server_tls::{ServerTls, TlsFileError, TlsFiles},
    slices::{KeptFields, SlicePublisher, SliceSettings, WantedSlices, publish_slices},
    watch::{BoundPods, WatchLimits, WatchedPods, watch_pods},
};
