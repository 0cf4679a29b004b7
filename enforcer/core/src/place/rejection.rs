//! Why a pod has no place.
//!
//! The names are those that people know from their clusters (kubelet, pkg/kubelet/cm/admission), the
//! text always says what was short where, and what would have fitted.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::room::{Room, is_in_bytes, would_fit};
use crate::{set::NodeSet, words};

/// A pod that was not admitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct Rejection {
    /// Kind of reason.
    pub reason: Reason,
    /// Container that could not be placed; the whole pod when absent.
    pub container: Option<String>,
    /// What is wrong, in one sentence without the figures below.
    pub problem: String,
    /// What was short, most important first.
    pub shortages: Vec<Shortage>,
    /// What would have fitted, where something would.
    pub fits: Option<String>,
}

/// Kinds of rejections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Reason {
    /// The resources are there, but not together.
    TopologyAffinityError,
    /// Whole cores were asked for and cannot be had.
    #[serde(rename = "SMTAlignmentError")]
    SmtAlignmentError,
    /// Anything else.
    UnexpectedAdmissionError,
}

/// A resource of which there is not enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Its name: `cpu`, `memory`, `hugepages-2Mi`, `vendor.com/device`.
    pub resource: String,
    /// Nodes that were looked at.
    pub nodes: NodeSet,
    /// How much was asked for, in CPUs, bytes or devices.
    pub wanted: u64,
    /// How much could be had on these nodes together.
    pub available: u64,
}

impl Rejection {
    /// A rejection without figures yet.
    pub fn new(reason: Reason, problem: impl Into<String>) -> Self {
        Self { reason, container: None, problem: problem.into(), shortages: Vec::new(), fits: None }
    }

    /// With what was short, and what would have fitted.
    #[must_use]
    pub(super) fn short_of(self, shortages: Vec<Shortage>, rooms: &[Room]) -> Self {
        Self { shortages, fits: would_fit(rooms), ..self }
    }

    /// The same, of one container.
    #[must_use]
    pub fn of(mut self, container: &str) -> Self {
        self.container.get_or_insert_with(|| container.to_owned());
        self
    }
}

impl Shortage {
    fn amount(&self, value: u64) -> String {
        if is_in_bytes(&self.resource) { words::size(value) } else { value.to_string() }
    }
}

impl Reason {
    /// As clusters show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TopologyAffinityError => "TopologyAffinityError",
            Self::SmtAlignmentError => "SMTAlignmentError",
            Self::UnexpectedAdmissionError => "UnexpectedAdmissionError",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.reason.as_str())?;
        if let Some(container) = &self.container {
            write!(f, "container {}: ", crate::workload::printable(container))?;
        }
        f.write_str(&self.problem)?;
        for (index, shortage) in self.shortages.iter().enumerate() {
            write!(f, "{}{shortage}", if index == 0 { ": " } else { ", " })?;
        }
        match &self.fits {
            Some(fits) => write!(f, "; {fits}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wanted, available) = (self.amount(self.wanted), self.amount(self.available));
        let resource = crate::workload::printable(&self.resource);
        write!(f, "{available} of {wanted} {resource} on {}", words::nodes(&self.nodes))
    }
}

#[cfg(test)]
mod tests;
