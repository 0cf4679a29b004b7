//! Devices in the engine `hints`: what can be offered, and which are given.
//!
//! A device is near one node, near several, or nobody knows. A set of nodes is offered when enough
//! devices are near any of its nodes; sets as narrow as an empty machine would allow are preferred.
//! Where nothing is known of any device of a resource there is no preference; where it is known of
//! some, the others do not count towards an offer, but are given when nothing nearer is left.
//!
//! A container takes over what an init container of its pod had before it takes anything else, so
//! offers hold the nodes of those devices.

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
