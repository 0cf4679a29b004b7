//! What people see of the ledger: decisions, the report on the runtime link, and warnings.

use std::time::Duration;

use numa_topology::degraded::Degraded;

use super::warn_once::{Unseen, WarnOnce};
use crate::engine::decisions::Decisions;
use enforcer_report::runtime::{AnswerTimes, RuntimeLink, RuntimeReport};

/// Decisions, counts and warnings.
#[derive(Debug, Default)]
pub(in crate::engine) struct LedgerTrace {
    pub(super) decisions: Decisions,
    pub(super) report: RuntimeReport,
    said: WarnOnce,
}

impl LedgerTrace {
    /// The latest decisions.
    pub(in crate::engine) fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// Records the state of the runtime link. Returns whether it changed.
    pub(in crate::engine) fn link(&mut self, link: RuntimeLink) -> bool {
        let is_new = self.report.link != link;
        self.report.link = link;
        is_new
    }

    /// Counts a call of the runtime.
    pub(in crate::engine) fn count(&mut self, call: &'static str) {
        *self.report.calls.entry(call).or_default() += 1;
    }

    /// Counts an answer with its duration, and whether it was late.
    pub(in crate::engine) fn count_answer(&mut self, call: &'static str, took: Duration, late: bool) {
        let AnswerTimes { sum, longest, creations } = &mut self.report.deciding;
        *sum = sum.saturating_add(took);
        *longest = (*longest).max(Some(took));
        if call == "create" {
            creations.note(took);
        }
        self.report.late += u64::from(late);
    }

    /// Reports a runtime that was connected and is gone. A runtime that never connected is not missed.
    pub(super) fn degraded(&self) -> Option<Degraded> {
        let RuntimeReport { link, calls, .. } = &self.report;
        let RuntimeLink::Down { reason } = link else { return None };
        let effect = "new containers start without a place and get one when the runtime is back";
        (!calls.is_empty()).then(|| Degraded::new("nri", reason.clone(), effect))
    }

    /// The report with this number of containers; `None` if there never was a runtime. Resets the longest
    /// deciding time.
    pub(super) fn take_report(&mut self, containers: usize) -> Option<RuntimeReport> {
        let known = self.report != RuntimeReport::default();
        let report = known.then(|| RuntimeReport { containers, ..self.report.clone() });
        self.report.deciding.longest = None;
        report
    }

    /// Logs those of these texts that were not logged lately.
    pub(super) fn warn<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>) {
        for text in self.said.news(texts).texts {
            tracing::warn!("{text}");
        }
    }

    /// The same of warnings of a placement, which may be many.
    pub(super) fn warn_of_placement<'a>(&mut self, warnings: impl IntoIterator<Item = &'a str>) {
        let Unseen { texts, more } = self.said.news(warnings);
        for warning in texts {
            tracing::warn!("placement: {warning}");
        }
        if more > 0 {
            tracing::warn!("placement: and {more} more of that sort");
        }
    }
}
