//! Takes one [`enforcer_core::sample::Sample`] of the machine at a time.
//!
//! Every source is optional, and a missing one is degraded by name. The kernel side (`bpf`) supplies what no
//! file shows. Nothing here interprets its data, and nothing here writes, except for switches of sources that
//! are off by default (`cold`).

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
mod options;
pub mod page_size;
mod policies;
#[cfg(feature = "bpf")]
mod pressure_buffer;
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
pub use options::SamplerOptions;
pub use pressure_tap::PressureTap;
pub use rest::IdleDetector;
pub use rooms::{HeadroomReader, free_on_all_nodes};
pub use sampler::Sampler;
pub use tenants::ResidentsReader;
