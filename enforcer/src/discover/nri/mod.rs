//! The Node Resource Interface: what container runtimes tell, and where they ask how a container shall be.
//!
//! [`connect`] keeps a [`link`] up and hands on [`Call`]s; whoever receives them decides and answers. This
//! module knows the protocol and nothing of placement. It must never keep a runtime waiting, answer with an
//! error for a fault of ours, or ask a runtime for a change unasked where that can lock it up
//! ([`RuntimeVersion::takes_requests`]).
//!
//! Bytes are [`wire`], messages are [`api`]; why neither is a library is in docs/adr/0009.

pub mod api;
mod call;
mod connect;
mod link;
pub mod marks;
pub mod request;
mod wire;

pub use self::{
    call::{Answer, Call, Reply, RuntimeVersion, Subject, TooLate},
    connect::keep_up,
    link::PluginName,
};
