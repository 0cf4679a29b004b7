//! Options of CPU assignment.

use crate::policy::placement::HintsSettings;

/// How CPUs are assigned; all off is the packed order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, with the name people know")]
pub struct CpuOptions {
    /// `full-pcpus-only`.
    pub full_pcpus_only: bool,
    /// `distribute-cpus-across-numa`.
    pub distribute_across_numa: bool,
    /// `distribute-cpus-across-cores`.
    pub distribute_across_cores: bool,
    /// `align-by-socket`.
    pub align_by_socket: bool,
    /// `prefer-align-cpus-by-uncorecache`.
    pub align_by_uncore_cache: bool,
}

impl From<&HintsSettings> for CpuOptions {
    fn from(settings: &HintsSettings) -> Self {
        Self {
            full_pcpus_only: settings.full_pcpus_only,
            distribute_across_numa: settings.distribute_cpus_across_numa,
            distribute_across_cores: settings.distribute_cpus_across_cores,
            align_by_socket: settings.align_by_socket,
            align_by_uncore_cache: settings.prefer_align_cpus_by_uncore_cache,
        }
    }
}
