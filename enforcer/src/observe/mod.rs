//! observe: one [`enforcer_core::sample::Sample`] of the machine at a time.
//!
//! Every source is optional and degrades by name: the kernel side (`bpf`) tells what nothing else does, files
//! tell the rest. Nothing here interprets what it reads, and nothing here writes, but for the switches of
//! sources that are off until somebody asks (`cold`).

mod cgroup;
mod cgroup_watch;
pub mod cold;
mod cpuset_watch;
mod hugepages;
mod index;
#[cfg(feature = "bpf")]
mod kernel_side;
mod limits;
mod node;
mod numa_maps;
mod policies;
mod pressure_tap;
mod procfs;
mod rest;
mod rooms;
mod sampler;
mod settings;
mod tenants;

pub use cgroup_watch::{CgroupWatch, WatchLimit};
pub use cpuset_watch::{CpusetWatch, KeptCgroups};
pub use limits::MemoryLimits;
pub use pressure_tap::PressureTap;
pub use rest::Rest;
pub use rooms::{Rooms, free_on_all_nodes};
pub use sampler::{Sampler, SamplerOptions};
pub use tenants::Tenants;
