//! Which sources a sample may use.

use enforcer_core::policy::{RunTimeSource, SampleSettings};

/// Most reads of `numa_maps` in one sample, if the configuration allows it.
const MAX_NUMA_MAPS: usize = 256;

/// Sources that the sampler may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplerOptions {
    /// Use BPF: the task iterator, and the counting programs if `counters` is set.
    pub bpf: bool,
    /// Attach the programs that count run time, placements and hinting faults. A single sample has no use for
    /// them.
    pub counters: bool,
    /// Bring the programs' own diagnostics into the log.
    pub bpf_log: bool,
    /// Source of run time.
    pub run_time: RunTimeSource,
    /// Most processes with a read of `numa_maps` in one sample, where there is no cheaper source; 0 reads
    /// none. Each read holds the process's mmap lock for a while.
    pub numa_maps: usize,
}

impl SamplerOptions {
    /// Options by the configuration; `counters` if a second sample follows.
    pub fn new(settings: &SampleSettings, counters: bool) -> Self {
        Self {
            bpf: settings.bpf,
            counters,
            bpf_log: settings.bpf_log,
            run_time: settings.run_time,
            numa_maps: if settings.numa_maps { MAX_NUMA_MAPS } else { 0 },
        }
    }
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self { bpf: true, counters: true, bpf_log: false, run_time: RunTimeSource::Clock, numa_maps: 0 }
    }
}
