//! Severity of a fault that a placement can mend, with its remedy.
//!
//! A fault that cannot be mended now, or that is there on purpose, is reported with the obstacle and a lower
//! severity.
//!
//! Invariant: a fault without a remedy is never critical.

use std::collections::BTreeSet;

use super::{Severity, remedy, subject::Subject};
use crate::{
    decide::{ObstacleKind, tmpfs_in_words},
    model::staying_bytes,
    owner::Owner,
    sample::PolicyExtent,
    words::{self, size},
};

impl Subject<'_> {
    /// Severity, with the command that fixes it or the obstacle.
    pub(super) fn judge(&self, severity: Severity) -> (Severity, Result<String, String>) {
        if let Some(spread) = self.spread_on_purpose() {
            return (Severity::Info, Err(spread));
        }
        match self.advice() {
            Ok(advice) => (severity, Ok(remedy::realign(self, advice))),
            Err(obstacle) => (lessen(severity, obstacle.kind), Err(obstacle.reason.clone())),
        }
    }

    /// The same for a fault that page cache, which stays, would keep as bad as it is.
    pub(super) fn judge_by_memory(&self, severity: Severity) -> (Severity, Result<String, String>) {
        if let Some(placed) = self.placed_here() {
            return (lessen(severity, ObstacleKind::NoRoom), Err(placed));
        }
        let total = self.memory().unwrap_or(0);
        let advised = self.advice().map(|advice| advice.stays.clone());
        // Without advice its far memory stays as it is now, before a remedy and after it.
        let bytes = advised.as_ref().map_or_else(|_| self.far(staying_bytes).1, |(_, bytes)| *bytes);
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let stays = bytes as f64 / total.max(1) as f64;
        if stays < self.policy.thresholds.remote_residency_warning {
            return self.judge(severity);
        }
        let severity = lessen(severity, ObstacleKind::NoRoom);
        let Ok((nodes, bytes)) = advised else { return self.judge(severity) };
        let machine = &self.inventory.machine;
        let reason = format!(
            "{} of page cache on {} would stay there: page cache does not follow its readers{}",
            size(bytes),
            words::nodes(&nodes),
            tmpfs_in_words(self.figures, machine, &machine.memory_nodes().difference(&nodes))
        );
        (severity, Err(reason))
    }

    /// Reason for far memory of a container that the daemon has placed, if it may have memory near its CPUs:
    /// its pages follow.
    fn placed_here(&self) -> Option<String> {
        let ours = self.owner.is_some_and(|owner| owner.owner == Owner::NumaEnforcer);
        let declared = self.inputs.declarations.rule(self.policy, &self.workload.cgroup).is_some();
        let mems = self.figures.mems.as_ref().filter(|_| ours && !declared)?;
        let inventory = self.inventory;
        let near = inventory.locality.near_memory_nodes(&inventory.machine, &self.figures.cpu_nodes);
        (!near.is_empty() && near.is_subset(mems)).then(|| {
            format!(
                "numa-enforcer placed it, and it may use {}: its pages follow as far as there is memory that is \
                 promised to no other container",
                words::nodes(&near)
            )
        })
    }

    /// Says that its processes spread or keep their memory there themselves, if most of the far memory is
    /// under such a policy.
    fn spread_on_purpose(&self) -> Option<String> {
        let (_, far) = self.remote_memory();
        let pids: BTreeSet<u32> = self.threads.of(self.workload).into_iter().map(|task| task.pid).collect();
        let extents = pids.iter().filter_map(|pid| self.sample.policies_by_process.get(pid)).flatten();
        let spread: Vec<&PolicyExtent> = extents.filter(|extent| extent.policy.spreads()).collect();
        let bytes = spread.iter().fold(0u64, |sum, extent| sum.saturating_add(extent.bytes));
        let first = spread.first().filter(|_| bytes >= far)?;
        Some(format!("it spreads its memory itself, by the policy {}: that is on purpose", first.policy))
    }
}

/// Severity without a remedy now: a fault without a fix is never critical.
const fn lessen(severity: Severity, obstacle: ObstacleKind) -> Severity {
    match (severity, obstacle) {
        (_, ObstacleKind::Machine | ObstacleKind::Intended) => Severity::Info,
        (Severity::Critical, ObstacleKind::NoRoom) => Severity::Warning,
        (severity, _) => severity,
    }
}
