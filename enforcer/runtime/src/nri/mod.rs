//! The Node Resource Interface: what container runtimes tell, and where they ask how a container shall be.
//!
//! [`connect`] keeps a [`link`] up and hands on [`Call`]s; whoever receives them decides and answers. This
//! module knows the protocol and nothing of placement. It must never keep a runtime waiting, answer with an
//! error for a fault of ours, or ask a runtime for a change unasked: before NRI 0.12.1 that can lock it up
//! for good, because it takes two locks in one order for a plugin's request and in the other for everything
//! else (containerd issue 13733).
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
