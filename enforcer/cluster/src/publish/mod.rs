//! What this node tells the cluster: one object, written by one server-side apply for each change.
//!
//! Problem: the object has to be right soon after a change, thousands of nodes share one server, the server
//! may be away or busy, and other programs may write or delete the object.
//!
//! Idea: [`Pace`] says when to write, [`Publisher`] writes, [`publish_changes`] joins both to a channel of
//! states. Only the newest state is ever written. Equal content is not, unless the object was changed or
//! deleted by another program, which a rare look shows.
//!
//! Invariants: fields of another manager are taken over only in kinds of the project's own group. A failure
//! has a name ([`unpublished`]) and never stops the daemon: it goes on without an API server.

mod error;
mod lease;
mod pace;
mod publisher;
mod task;

pub(crate) use self::task::sleep_until;
pub use self::{
    error::unpublished,
    lease::keep_lease,
    pace::{Pace, PaceLimits, WriteEnd},
    publisher::{Published, PublishedKind, PublishedObject, Publisher},
    task::{PublisherSettings, publish_changes},
};
