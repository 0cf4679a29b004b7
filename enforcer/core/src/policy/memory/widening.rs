//! `[memory.widening]`: actions of the daemon when memory runs out.
//!
//! The figures are those of docs/widening.md. They are shares of the memory nodes that a workload may use,
//! because a host may have nodes of 16 GiB or of 2 TiB. The minimum amount ensures that small nodes are
//! noticed in time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::policy::{ByteSize, HumanDuration, PolicyError, Relation, at_odds, refused, whole};

/// Maximum of `narrow_after`.
const LONGEST_NARROW_AFTER: HumanDuration = HumanDuration::from_secs(24 * 3_600);

/// Adds memory nodes to a workload with nearly full nodes, before the OOM killer acts. Only for workloads
/// that the daemon has placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WideningSettings {
    /// Whether nodes are added, in enforce mode.
    pub enabled: bool,
    /// Percentage of available memory on a workload's nodes below which a node is added.
    #[serde(deserialize_with = "whole::within::<_, _, 1, 90>")]
    #[schemars(range(min = 1, max = 90))]
    pub widen_percent: u8,
    /// Percentage of available memory below which it is checked every 5 ms instead of a few times per second.
    #[serde(deserialize_with = "whole::within::<_, _, 1, 90>")]
    #[schemars(range(min = 1, max = 90))]
    pub arm_percent: u8,
    /// Percentage of available memory above which the frequent checks end.
    #[serde(deserialize_with = "whole::within::<_, _, 1, 90>")]
    #[schemars(range(min = 1, max = 90))]
    pub release_percent: u8,
    /// Available memory below which a node is added, whatever the percentage.
    pub min_headroom: ByteSize,
    /// Whether slower memory may be added when no node of the same kind has room.
    pub lower_tiers: bool,
    /// Time for which its own nodes must have room before the added ones are removed. It doubles, up to half
    /// an hour, when the workload had to be widened again soon after.
    pub narrow_after: HumanDuration,
    /// How to slow down a workload that would fill its nodes before one is added: for at most half a second,
    /// and only while another process ensures that it ends.
    pub brake: Brake,
}

/// How a workload is slowed down for a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Brake {
    /// Not at all.
    #[default]
    Off,
    /// Its tasks stop (`cgroup.freeze`).
    Freeze,
    /// Its allocations are throttled (`memory.high`). Not while demotion is on: memory above the limit would
    /// go to slower memory, hot pages too.
    High,
}

impl Brake {
    /// Why `high` must not be used while demotion is on, for a message.
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
