//! What workloads are ordered by.

/// Sort key of workloads, most first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sort {
    /// Remote traffic: the share of accesses times the busy CPUs that make them.
    #[default]
    Traffic,
    /// Bytes on nodes where it has no CPUs.
    Bytes,
    /// Placements on another node per second.
    Migrations,
}

impl Sort {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Traffic, Self::Bytes, Self::Migrations];

    /// The one after it.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Traffic => Self::Bytes,
            Self::Bytes => Self::Migrations,
            Self::Migrations => Self::Traffic,
        }
    }

    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Traffic => "remote traffic",
            Self::Bytes => "misplaced bytes",
            Self::Migrations => "moves between nodes",
        }
    }
}
