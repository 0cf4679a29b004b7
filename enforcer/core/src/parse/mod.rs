//! Kernel text to values, one file format per module.
//!
//! Every parser takes text and returns a value or a [`ParseError`] that names the line. No parser may panic
//! or allocate without bound, whatever the text is.

pub mod interrupts;
pub mod keyed;
pub mod lru_gen;
pub mod mountinfo;
pub mod numa_maps;
pub mod numa_stat;
pub mod pressure;
pub mod smaps;
pub mod task_sched;
pub mod task_stat;
pub mod task_status;
pub mod zoneinfo;

pub use numa_topology::{
    parse::{ParseError, cmdline, mask, meminfo, processors, scalar},
    quantity,
};
