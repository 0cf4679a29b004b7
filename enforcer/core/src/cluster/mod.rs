//! The cluster as the placement engine sees it: published states, and predictions from them.
//!
//! Problem: a scheduler picks a node by sums, and the node's managers then refuse the pod because CPUs,
//! memory and devices are free only on different NUMA nodes. Idea: each node publishes its [`state`], and
//! the engine that the node obeys answers for it elsewhere: [`observed`] makes a state of what was read of a
//! kubelet, a [`model`] is a state as the engine's input, with the kubelet's settings translated by
//! `profile`, and a [`view`] adds the pods that were bound since. A [`plan`] places pods on many of them,
//! by that prediction or by Volcano's policy ([`volcano`]); an [`extender`] does for a scheduler, a
//! [`gate`] for one that cannot be configured, and [`explain`] says why a pod has no node. Other objects
//! show how [old](age) a state is. For schedulers that read objects of their own, [`exported`] makes those
//! of the state. What people should know of the node and its pods becomes [`events`], also where what a
//! node [did](outcome) is not what its state predicts; node-feature-discovery reads the node's
//! [`features`].
//!
//! Invariant: a prediction is exact, or the model names what makes it inexact.

pub mod age;
mod answers;
pub mod check;
pub mod described;
pub mod device_claims;
pub mod events;
pub mod explain;
pub mod exported;
pub mod extender;
pub mod features;
pub mod gate;
pub mod model;
pub mod objects;
pub mod observed;
pub mod outcome;
pub mod own_engine;
pub mod plan;
mod profile;
pub mod required_nodes;
mod shortage;
pub mod state;
pub mod view;
pub mod volcano;
