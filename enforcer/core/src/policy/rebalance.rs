//! `[rebalance]`: moving running workloads to a better place.
//!
//! Ratios come in pairs: one starts an action, the other ends it. Between the two nothing starts or ends, so
//! that a fluctuating figure does not move a workload back and forth.
//!
//! The cost of a remote access and the cost of a moved byte are not settings: they are constants of
//! `rebalance::worth`, which explains them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteSize, HumanDuration, PolicyError, Relation, at_odds, refused, whole};

/// Moving running workloads to a better place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RebalanceSettings {
    /// Move them, in enforce mode; in observe mode only report them. `plan --rebalance` reports them in
    /// either mode.
    pub enabled: bool,
    /// Share of remote accesses above which a workload should move.
    pub start_above: f64,
    /// Share of remote accesses below which its place is good.
    pub stop_below: f64,
    /// Share of available memory below which a node is short of memory.
    pub short_below: f64,
    /// Share of available memory above which a node is no longer short. A node that receives a workload keeps
    /// this share.
    pub enough_above: f64,
    /// Number of observations that always suffices for a traffic figure; a clear figure needs fewer.
    #[serde(deserialize_with = "whole::within::<_, _, 0, { whole::MOST }>")]
    pub min_samples: u64,
    /// Time for which a workload is expected to continue as now: the savings of a better place within this
    /// time must exceed the cost of moving.
    pub horizon: HumanDuration,
    /// Time after a move for which a workload is not moved again.
    pub cool_down: HumanDuration,
    /// Time for which a workload does not return to a node that it was moved away from.
    pub no_return: HumanDuration,
    /// Maximum bytes moved within `no_return`, of all workloads together.
    pub max_bytes: ByteSize,
    /// Maximum number of workloads that one plan moves.
    #[serde(deserialize_with = "whole::within::<_, _, 1, 64>")]
    #[schemars(range(min = 1, max = 64))]
    pub max_moves: u32,
}

/// Upper limit of `max_moves`: each move is compared with all others.
const MOST_MOVES: u32 = 64;

impl Default for RebalanceSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            start_above: 0.3,
            stop_below: 0.1,
            short_below: 0.05,
            enough_above: 0.1,
            min_samples: 100,
            horizon: HumanDuration::from_secs(600),
            cool_down: HumanDuration::from_secs(300),
            no_return: HumanDuration::from_secs(900),
            max_bytes: ByteSize(4 << 30),
            max_moves: 8,
        }
    }
}

impl RebalanceSettings {
    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        for (key, low, low_value, high_value) in [
            ("start_above", "stop_below", self.stop_below, self.start_above),
            ("enough_above", "short_below", self.short_below, self.enough_above),
        ] {
            // Written so that NaN, which TOML can spell, is refused as well.
            for (key, value) in [(low, low_value), (key, high_value)] {
                if !(value > 0.0 && value < 1.0) {
                    let problem = "a ratio above 0 and below 1 is expected";
                    return Err(refused(format!("rebalance.{key}"), value, problem));
                }
            }
            if high_value <= low_value {
                let [high, low] = [(key, high_value), (low, low_value)]
                    .map(|(key, value)| (format!("rebalance.{key}"), value));
                return Err(at_odds(high, Relation::ABOVE, low));
            }
        }
        if self.horizon.is_zero() {
            return Err(refused("rebalance.horizon", self.horizon, "it must be longer than zero"));
        }
        if self.max_moves == 0 || self.max_moves > MOST_MOVES {
            return Err(refused("rebalance.max_moves", self.max_moves, "1 to 64 is expected"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_ratios_and_in_order() {
        let with = |text: &str| toml::from_str::<RebalanceSettings>(text).unwrap().validate();
        assert!(with("").is_ok());
        for (text, key) in [
            ("start_above = nan", "rebalance.start_above"),
            ("start_above = 0.1", "rebalance.start_above"),
            ("stop_below = 0.0", "rebalance.stop_below"),
            ("short_below = 0.2", "rebalance.enough_above"),
            ("enough_above = 1.0", "rebalance.enough_above"),
            ("horizon = '0s'", "rebalance.horizon"),
        ] {
            assert_eq!(with(text).unwrap_err().key, key, "{text}");
        }
        for max_moves in [0, 65] {
            let refused = RebalanceSettings { max_moves, ..RebalanceSettings::default() }.validate();
            assert_eq!(refused.unwrap_err().key, "rebalance.max_moves");
        }
        assert!(toml::from_str::<RebalanceSettings>("start = 1").is_err());
    }
}
