//! The Node Resource Interface: container runtimes announce their containers and ask for changes of new ones.
//!
//! [`connect`] keeps a [`link`] up and passes [`NriCall`]s on; their receiver decides and answers. This
//! module knows the protocol and nothing of placement. It must never delay a runtime, answer with an error
//! for a fault of ours, or request a change unasked. Before NRI 0.12.1 such a request can lock a runtime up
//! for good: it takes two locks in one order for a plugin's request and in the other for everything else
//! (containerd issue 13733).
//!
//! Bytes are [`wire`], messages are [`api`]; docs/adr/0009 says why neither is a library.

mod amounts;
pub mod api;
mod call;
mod connect;
mod link;
pub mod marks;
pub mod request;
mod wire;

pub use self::{
    call::{NriAnswer, NriCall, NriSubject, Reply, RuntimeVersion, TooLate},
    connect::keep_up,
    link::PluginName,
};
