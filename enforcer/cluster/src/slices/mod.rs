//! `ResourceSlice`s of this node: what the DRA driver offers is what the API server has.
//!
//! Problem: the kubelet deletes the slices of its node when it starts, and those of a driver that was away
//! for 30 s; an API server drops fields of features that are off, without a word; and schedulers use a pool
//! only if it is whole.
//!
//! Idea: a dry run at first shows which fields the server keeps, so that no wrong slice is ever seen. Then
//! the slices are followed, and [`plan`] lists the calls that bring the stored slices to the wanted ones. The
//! calls keep a pace, like everything that nodes write.
//!
//! Invariants: the slices of other drivers and nodes are never touched. Equal content is not written, so the
//! allocation of a claim, which changes no slice, writes nothing. A deletion names the uid and the version
//! that were seen.

mod plan;
mod publisher;
mod task;

pub use self::{
    publisher::{KeptFields, SlicePublisher},
    task::{SliceSettings, WantedSlices, publish_slices},
};
