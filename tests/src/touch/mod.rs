//! A workload that knows what it does: the truth that the product's figures are held against.
//!
//! Each of its threads holds memory on nodes of its choice, because it touches every page of it first from
//! a CPU of that node, and then goes over all of it again and again from the CPUs of its plan, one touch for
//! each 4 KiB. It counts what it does while it does it, by the node of the CPU and the node of the memory.
//! Whether the pages are where they should be is for the scenario to see for itself, in `/proc`.

mod client;
mod counts;
mod program;

use serde::{Deserialize, Serialize};

pub use self::{client::Touching, counts::Counts, program::Touch};

/// What one thread does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// CPUs that it runs on, one stint on each, over and over.
    pub runs_on: Vec<u32>,
    /// CPUs that its memory is touched from first, and MiB.
    pub holds: Vec<(u32, usize)>,
    /// Goes to another CPU so often, then stays; without an end if not said.
    #[serde(default)]
    pub stints: Option<u64>,
}

impl Plan {
    /// Stays on one CPU.
    pub fn staying(cpu: u32, holds: &[(u32, usize)]) -> Self {
        Self { runs_on: vec![cpu], holds: holds.to_vec(), stints: None }
    }
}
