//! Kinds of rejections, with the kubelet's names.

/// Kinds of rejections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(rename = "Reason"))]
#[non_exhaustive]
pub enum RejectionReason {
    /// Enough resources exist, but not together.
    TopologyAffinityError,
    /// Whole cores were requested and are not available.
    #[cfg_attr(feature = "serde", serde(rename = "SMTAlignmentError"))]
    SmtAlignmentError,
    /// Any other reason.
    UnexpectedAdmissionError,
}

impl RejectionReason {
    /// Name in Kubernetes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TopologyAffinityError => "TopologyAffinityError",
            Self::SmtAlignmentError => "SMTAlignmentError",
            Self::UnexpectedAdmissionError => "UnexpectedAdmissionError",
        }
    }
}
