//! Why CPUs cannot be assigned.

use thiserror::Error;

use crate::{place::Reason, set::CpuSet};

/// Why CPUs cannot be assigned.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
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
    /// CPUs are to be kept that the container does not hold.
    #[error("CPUs {keep} cannot be kept, the container holds {held}")]
    NotHeld {
        /// CPUs to be kept.
        keep: CpuSet,
        /// CPUs that it holds.
        held: CpuSet,
    },
    /// More CPUs are to be kept than it is to have.
    #[error("{requested} CPUs are too few to keep CPUs {keep}")]
    KeepsMore {
        /// CPUs asked for.
        requested: usize,
        /// CPUs to be kept.
        keep: CpuSet,
    },
}

impl CpuError {
    /// The kind of rejection that this is.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::NotWholeCores { .. } | Self::TooFewWholeCores { .. } => Reason::SmtAlignmentError,
            Self::NotEnough { .. } | Self::NotHeld { .. } | Self::KeepsMore { .. } => {
                Reason::UnexpectedAdmissionError
            }
        }
    }
}
