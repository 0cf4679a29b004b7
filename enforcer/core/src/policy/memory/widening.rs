//! `[memory.widening]`: what the daemon may do about memory that runs out.
//!
//! The figures are those of docs/widening.md. They are shares of the memory nodes that a workload may use,
//! and never amounts alone, because a host may have nodes of 16 GiB and of 2 TiB; the least amount keeps
//! small nodes from being noticed too late.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::{ByteSize, HumanDuration, PolicyError, Relation, at_odds, refused, whole};

/// Longest time for which a widened workload must be calm before it is narrowed again.
const LONGEST_NARROW_AFTER: HumanDuration = HumanDuration::from_secs(24 * 3_600);

/// More memory nodes for a workload whose own ones are nearly full, before the OOM killer acts. Only of
/// workloads that the daemon has placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WideningSettings {
    /// Do it at all, in enforce mode.
    pub enabled: bool,
    /// Percent of a workload's nodes that is left when one is added.
    #[serde(deserialize_with = "whole::within::<_, _, 1, 90>")]
    #[schemars(range(min = 1, max = 90))]
    pub widen_percent: u8,
    /// Percent that is left when they are looked at every 5 ms instead of a few times a second.
    #[serde(deserialize_with = "whole::within::<_, _, 1, 90>")]
    #[schemars(range(min = 1, max = 90))]
    pub arm_percent: u8,
    /// Percent above which that ends.
    #[serde(deserialize_with = "whole::within::<_, _, 1, 90>")]
    #[schemars(range(min = 1, max = 90))]
    pub release_percent: u8,
    /// With less than this left a node is added, whatever the percentage.
    pub min_headroom: ByteSize,
    /// May slower memory be added when no node of the same kind has room?
    pub lower_tiers: bool,
    /// Time for which there must be room on its own nodes before they are narrowed to these again. It
    /// doubles, up to half an hour, when they had to be widened soon after.
    pub narrow_after: HumanDuration,
    /// What slows a workload down that would have filled its nodes before one is added: for half a second at
    /// most, and only while another process sees to it that it ends.
    pub brake: Brake,
}

/// What slows a workload down for a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Brake {
    /// Nothing.
    #[default]
    Off,
    /// Its tasks stand still (`cgroup.freeze`).
    Freeze,
    /// It gets next to nothing more (`memory.high`). Not where demotion is on: what is above the mark would
    /// go to slower memory, hot pages too.
    High,
}

impl Brake {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Freeze => "freeze",
            Self::High => "high",
        }
    }

    /// Why `high` must not be used beside demotion, for a message.
    pub const NOT_BESIDE_DEMOTION: &'static str = "while demotion is on, memory.high sends pages of the workload to slower memory, hot ones too; `freeze` does not";
}

impl Default for WideningSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            widen_percent: 4,
            arm_percent: 8,
            release_percent: 16,
            min_headroom: ByteSize(64 << 20),
            lower_tiers: true,
            narrow_after: HumanDuration::from_secs(60),
            brake: Brake::Off,
        }
    }
}

impl WideningSettings {
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        let marks = [
            ("widen_percent", self.widen_percent),
            ("arm_percent", self.arm_percent),
            ("release_percent", self.release_percent),
        ];
        for (key, percent) in marks {
            if !(1..=90).contains(&percent) {
                return Err(refused(key_of(key), percent, "1 to 90 is expected"));
            }
        }
        for [(low_key, low), (key, high)] in [[marks[0], marks[1]], [marks[1], marks[2]]] {
            if high <= low {
                return Err(at_odds((key_of(key), high), Relation::ABOVE, (key_of(low_key), low)));
            }
        }
        if self.narrow_after > LONGEST_NARROW_AFTER {
            return Err(refused(key_of("narrow_after"), self.narrow_after, "it must not be longer than 24h"));
        }
        Ok(())
    }
}

fn key_of(key: &str) -> String {
    format!("memory.widening.{key}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_ascend_and_are_percentages() {
        let usual = WideningSettings::default();
        assert_eq!(usual.validate(), Ok(()));
        for (settings, key) in [
            (WideningSettings { widen_percent: 0, ..usual.clone() }, "widen_percent"),
            (WideningSettings { release_percent: 91, ..usual.clone() }, "release_percent"),
            (WideningSettings { arm_percent: 4, ..usual.clone() }, "arm_percent"),
            (WideningSettings { release_percent: 8, ..usual.clone() }, "release_percent"),
            (
                WideningSettings { narrow_after: HumanDuration::from_secs(86_401), ..usual.clone() },
                "narrow_after",
            ),
        ] {
            assert_eq!(settings.validate().unwrap_err().key, format!("memory.widening.{key}"));
        }
    }
}
