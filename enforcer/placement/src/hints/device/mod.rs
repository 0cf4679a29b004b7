//! Devices in the engine `hints`: offers and assignment.
//!
//! A device is near one node, near several, or its node is unknown. A set of nodes is offered if enough
//! devices are near any of its nodes; sets as narrow as an empty machine would allow are preferred. If no
//! device of a resource has a known node there is no preference. If only some have one, the others do not
//! count towards an offer, but are given when no nearer one is left.
//!
//! A container first gets the devices of an ended init container of its pod, so offers include the nodes of
//! those devices.

mod assign;
mod offer;
mod stock;

#[cfg(test)]
mod tests;

pub use self::{
    assign::{assign, shortage},
    offer::offer,
    stock::DeviceStock,
};
