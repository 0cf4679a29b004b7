//! Why CPUs cannot be assigned.

use thiserror::Error;

use super::reason::RejectionReason;
use numa_topology::set::CpuSet;

/// Why CPUs cannot be assigned.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CpuError {
    /// Too few CPUs.
    #[error("not enough cpus available to satisfy request: requested={requested}, available={available}")]
    NotEnough {
        /// Requested CPUs.
        requested: usize,
        /// Available CPUs.
        available: usize,
    },
    /// Only whole cores are allowed, and the request is not a multiple of the threads of a core.
    #[error("{requested} CPUs are not whole cores of {threads} threads")]
    NotWholeCores {
        /// Requested CPUs.
        requested: usize,
        /// Threads of a core.
        threads: usize,
    },
    /// Only whole cores are allowed, and too few cores have no reserved CPU.
    #[error("{requested} CPUs in whole cores, and only {available} CPUs share no core with a reserved one")]
    TooFewWholeCores {
        /// Requested CPUs.
        requested: usize,
        /// CPUs in cores without a reserved CPU.
        available: usize,
    },
    /// The container does not hold the CPUs that must stay.
    #[error("CPUs {keep} cannot be kept, the container holds {held}")]
    NotHeld {
        /// CPUs that must stay.
        keep: CpuSet,
        /// CPUs that the container holds.
        held: CpuSet,
    },
    /// More CPUs must stay than are requested.
    #[error("{requested} CPUs are too few to keep CPUs {keep}")]
    KeepsMore {
        /// Requested CPUs.
        requested: usize,
        /// CPUs that must stay.
        keep: CpuSet,
    },
}

impl CpuError {
    /// Kind of the rejection.
    pub const fn reason(&self) -> RejectionReason {
        match self {
            Self::NotWholeCores { .. } | Self::TooFewWholeCores { .. } => RejectionReason::SmtAlignmentError,
            Self::NotEnough { .. } | Self::NotHeld { .. } | Self::KeepsMore { .. } => {
                RejectionReason::UnexpectedAdmissionError
            }
        }
    }
}
