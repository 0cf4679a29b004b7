//! Cold pages down by the kernel's own means: DAMON ([`damos`]) and reclaim ([`reclaim`]).
//!
//! `move_pages(2)` checks the cpuset for each page; these two do not, and their results say little about
//! their effect. So the conditions of a round are read for that round ([`facts`]), both get a bounded amount
//! and end with the round, and the demoted bytes are the difference of `memory.numa_stat` before and after.
//!
//! Nothing here decides whether or how much: that is `enforcer_core::demotion::backend`. Neither may outlive
//! the round: whatever was switched on is off when the call returns.

pub mod damos;
pub mod facts;
mod frames;
pub mod reclaim;

use std::time::{Duration, Instant};

use enforcer_core::{
    demotion::backend::MemoryShift,
    parse::numa_stat::{ByNode, parse_numa_stat_v2},
};
use numa_topology::set::NodeSet;

pub use self::frames::{PageFrames, bytes_there, frames_there};
use super::pages::Stop;
use enforcer_host::HostPath;

/// From where to where, and where it may never go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sides {
    /// Nodes that pages are to leave.
    pub upper: NodeSet,
    /// Nodes that they may go to.
    pub lower: NodeSet,
    /// Nodes that the cpuset allows.
    pub allowed: NodeSet,
}

/// When a round ends, however far it is.
#[derive(Debug, Clone)]
pub struct Deadline {
    until: Instant,
    stop: Stop,
}

impl Deadline {
    /// So long from now, or when everything is to end.
    pub fn after(time: Duration, stop: &Stop) -> Self {
        Self { until: Instant::now() + time, stop: stop.clone() }
    }

    /// Is it over?
    pub fn is_over(&self) -> bool {
        self.stop.is_requested() || Instant::now() >= self.until
    }
}

/// Result of a backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// By where memory was before and is now.
    pub shift: MemoryShift,
    /// Why the backend did less than asked; `None` where it gave no reason.
    pub less: Option<String>,
}

/// Memory of a cgroup (its directory) by node.
pub fn memory(cgroup: &HostPath) -> Result<ByNode, String> {
    let path = cgroup.join("memory.numa_stat");
    let text = path.read_text().map_err(|error| error.to_string())?;
    parse_numa_stat_v2(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// How memory shifted since it was like this.
fn shift_since(before: &ByNode, cgroup: &HostPath, sides: &Sides) -> Result<MemoryShift, String> {
    let Sides { upper, lower, allowed } = sides;
    Ok(MemoryShift::between(before, &memory(cgroup)?, upper, lower, allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_over_when_its_time_is_or_when_everything_is_to_end() {
        let stop = Stop::default();
        assert!(Deadline::after(Duration::ZERO, &stop).is_over());
        let deadline = Deadline::after(Duration::from_mins(10), &stop);
        assert!(!deadline.is_over());
        stop.request();
        assert!(deadline.is_over());
    }
}
