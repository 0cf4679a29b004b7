//! The kubelet's side of Dynamic Resource Allocation: registration, preparation of claims, health of devices.
//!
//! The kubelet finds a driver by a socket in its registry, asks it there for its name and the path of its
//! service socket, and from then on asks the service to prepare the claims of each pod before it makes the
//! pod's sandbox. Here are the messages and the rules of these calls; what a claim gets is decided by the
//! [`ClaimCalls`] of the daemon, and the sockets are placed by it, the service's before the registry's.
//!
//! Invariants: every claim of a request has exactly one entry in the answer. The registration answers at
//! once, because the kubelet waits for one second. What a peer sends is bounded before it is decoded. Only
//! root may connect: the sockets are its own.
//!
//! Sources: `pluginregistration/v1`, `dra/v1` and `dra-health/v1alpha1` of `k8s.io/kubelet`, Kubernetes 1.36.

mod grpc;
mod health;
mod messages;
mod plugin;
mod registration;
#[cfg(test)]
mod tests;

pub use self::{
    grpc::{AnswerStream, BoxedCall, GrpcMethods, serve},
    health::{DeviceCondition, DeviceHealthReport},
    plugin::{BoxedAnswer, ClaimCalls, DraPlugin, KubeletClaim},
    registration::{PluginRegistration, RegistrationNotice},
};
