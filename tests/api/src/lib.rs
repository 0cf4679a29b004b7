//! API servers of Kubernetes for tests, on loopback alone.
//!
//! Problem: what the daemon publishes has to be right as a server sees it: field managers, conflicts, CEL
//! rules, watches. A cluster is too much for a test, and a double would only repeat what its author believes.
//!
//! Idea: [`ApiServer`] is Kubernetes' own server for custom resources, which `cargo xtask setup` builds
//! (`xtask/src/setup/crd_api.rs`). [`ApiStub`] stands in where that one has nothing (pods, nodes, events,
//! leases, `configz`) or cannot be made to fail as wished. [`ApiFront`] joins both behind one address, with
//! TLS and the token of a pod, for daemons in guests; the program `api-front` is one. [`StubbedNode`] is a
//! node of such a cluster without Kubernetes.
//!
//! Invariants: every server has a port and a folder of its own and ends with its value; processes end with
//! this one, too, however that ends. A test without its server is skipped with a reason, and fails in CI.

#![expect(clippy::expect_used, reason = "a fixture of tests fails the test that uses it")]

mod certificates;
mod cost;
mod front;
mod node;
mod objects;
mod server;
mod stub;
mod tethered;
mod tls;

pub use self::{
    cost::{cpu_time_of, memory_of},
    front::ApiFront,
    node::StubbedNode,
    objects::{accept, define},
    server::ApiServer,
    stub::{ApiStub, Fault, StubBinding, StubKind},
    tls::{TestAuthority, TlsClient},
};
