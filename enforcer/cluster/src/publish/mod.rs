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

mod conditions;
mod error;
mod lease;
mod life;
mod newer;
mod outage;
mod pace;
mod publisher;
mod task;

pub use self::{
    conditions::LeaseConditions,
    error::unpublished,
    lease::{RenewalTimes, keep_lease},
    life::daemon_life,
    newer::NewerEpoch,
    outage::notice_returns,
    pace::{Pace, PaceLimits, WriteEnd},
    publisher::{Published, PublishedKind, PublishedObject, Publisher},
    task::{PublisherSettings, publish_changes},
};
pub(crate) use self::{
    outage::{Recovery, Returns},
    task::sleep_until,
};
