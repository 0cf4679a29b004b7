//! Choosing CPUs without regard to a hint.

use thiserror::Error;

use super::CpuOptions;
use crate::{place::CpuLayout, set::CpuSet};

/// Why CPUs cannot be assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CpuError {
    /// There are not enough.
    #[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
    NotEnough {
        /// CPUs asked for.
        requested: usize,
        /// CPUs that could be had.
        available: usize,
    },
    /// Whole cores only, and the request is not a multiple of a core's threads.
    #[error("{requested} CPUs are not whole cores of {threads} threads")]
    NotWholeCores {
        /// CPUs asked for.
        requested: usize,
        /// Threads of a core.
        threads: usize,
    },
    /// Whole cores only, and too few cores are free of reserved CPUs.
    #[error("{requested} CPUs in whole cores, and only {available} CPUs share no core with a reserved one")]
    TooFewWholeCores {
        /// CPUs asked for.
        requested: usize,
        /// CPUs in cores without a reserved CPU.
        available: usize,
    },
}

/// `count` of the available CPUs.
pub fn take(
    _layout: &CpuLayout,
    available: &CpuSet,
    count: usize,
    _options: CpuOptions,
) -> Result<CpuSet, CpuError> {
    if available.len() < count {
        return Err(CpuError::NotEnough { requested: count, available: available.len() });
    }
    Ok(available.iter().take(count).collect())
}
