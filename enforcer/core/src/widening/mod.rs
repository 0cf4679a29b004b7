//! More memory nodes for a workload before the OOM killer acts, and fewer again when there is room.
//!
//! Problem: a workload that is confined to a node is killed when that node is full, while half of the machine
//! is empty. The kernel gives little warning: between the first sign and the kill there may be 3 ms. Idea:
//! know for each node how much is left ([`NodeRoom`]) and how fast that goes away ([`Rate`]); derive from
//! both, and from the kernel's events, how near each workload is to the end ([`PressureLevel`]); and add the
//! best allowed node ([`spares`]) while there is still time for the write. A workload that would fill its
//! nodes before the write returns can be slowed down until then ([`BrakeOrder`]). [`WideningWatch`] does that
//! for all of them, look by look. An added node is given back when home has had room for long enough
//! ([`Narrowing`]).
//!
//! Terminology. *Widening* adds a node to `cpuset.mems`; it moves no page. *Narrowing* takes it away, and
//! moves pages first. A workload's *home* is what placement granted it. *Spares* are the nodes that may be
//! added. A *guarded* workload was placed by the daemon, on a cpuset that the daemon owns.
//!
//! Invariants: a strict workload is not widened, nor one with a memory limit that ends its growth first; an
//! added node is allowed by the cgroups above and by the declaration; one step adds nodes of one memory tier.
//!
//! Cost: see [`WideningWatch`]; a look allocates nothing while nothing is to be done.

mod adopted;
mod brake;
mod choice;
mod guard;
mod latency;
mod narrowing;
mod neighbours;
mod oom_candidates;
mod pressed;
mod process_memory;
mod rate;
mod relief;
mod stage;
mod views;
mod watch;

pub use self::{
    adopted::added_before,
    brake::{BrakeConditions, BrakeKind, BrakeOrder, LONGEST_BRAKE_NS, ReleaseReason, high_mark},
    choice::spares,
    guard::{Guard, WideningRefusal},
    latency::Latencies,
    narrowing::{Calmness, Narrowing},
    oom_candidates::{OomCandidates, oom_candidates},
    pressed::{PressedNodes, PressureTracker},
    process_memory::ProcessMemory,
    rate::Rate,
    relief::{PressuredNodes, ReclaimSource, relief, short},
    stage::{NodeSetHeadroom, PressureLevel, PressureSign},
    watch::{WideningAction, WideningStep, WideningWatch},
};
pub use crate::{
    node_room::NodeRoom,
    turn::{FallbackNode, ProtectedWorkload},
};
