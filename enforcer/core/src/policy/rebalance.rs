//! `[rebalance]`: when a workload that runs is given a better place.
//!
//! Ratios come in pairs: one from which something is done, and one at which it is done with. Between the two
//! nothing begins and nothing is given up, so that a figure that wavers moves nobody to and fro.
//!
//! What is not here is not a matter of taste: what an access to a far node costs and what a moved byte costs
//! are constants of `rebalance::worth`, where they are explained.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteSize, HumanDuration, PolicyError, Relation, at_odds, refused, whole};

/// When a workload that runs is given a better place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RebalanceSettings {
    /// Move them, in enforce mode; in observe mode only show who would be. `plan --rebalance` shows it in any
    /// case.
    pub enabled: bool,
    /// Share of remote accesses from which a workload is to be moved.
    pub start_above: f64,
    /// Share of remote accesses at which it is where it should be.
    pub stop_below: f64,
    /// Share of a node's memory that can be had, below which the node is short of it.
    pub short_below: f64,
    /// Share of a node's memory that can be had, at which it is no longer short; a node that gets a workload
    /// keeps it.
    pub enough_above: f64,
    /// Observations that always suffice to believe a traffic figure; a clear one is believed from fewer.
    #[serde(deserialize_with = "whole::within::<_, _, 0, { whole::MOST }>")]
    pub min_samples: u64,
    /// Time for which a workload is expected to go on as it does: what a better place saves within it must be
    /// more than what moving costs.
    pub horizon: HumanDuration,
    /// Time for which a workload that was moved is not moved again.
    pub cool_down: HumanDuration,
    /// Time for which a workload does not return to a node that it was moved away from.
    pub no_return: HumanDuration,
    /// Most memory that is moved within `no_return`, of all workloads together.
    pub max_bytes: ByteSize,
    /// Most workloads that one plan moves.
    #[serde(deserialize_with = "whole::within::<_, _, 1, 64>")]
    #[schemars(range(min = 1, max = 64))]
    pub max_moves: u32,
}

/// Most that `max_moves` may be: each move is weighed against all others.
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
