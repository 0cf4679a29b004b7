//! When a measured share of remote accesses is good enough to act on.
//!
//! Problem: a fixed number of observations is too many when the share is near 1, as for a workload with
//! CPUs and memory on different nodes, and waiting for them costs turns. Idea: Wald's sequential probability
//! ratio test between "as local as it should be" (`stop_below`) and "to be moved" (`start_above`). Each
//! observation adds its log-likelihood ratio; the test ends as soon as the sum passes a bound. With the
//! defaults seven observations decide if all are remote: 70 ms of run time.
//!
//! Invariants: `min_samples` observations always suffice, whatever the test says, so a share between both
//! thresholds is decided as well. The test never decides against its share: what it calls remote is above
//! `stop_below`, what it calls local is below `start_above`.
//!
//! Limits: pages that fault together are not independent. The sources that count these have minimums of
//! their own (`model::traffic`), far above what the test needs.

use crate::{model::Traffic, policy::RebalanceSettings};

/// ln((1 - e) / e) for an error probability e of 1/1000 in either direction.
const DECIDED: f64 = 6.906_754_778_648_554;

/// The measured share of remote accesses, 0 to 1, if the evidence suffices to act on it.
pub(super) fn believed(traffic: Option<&Traffic>, settings: &RebalanceSettings) -> Option<f64> {
    let traffic = traffic?;
    let is_believed = traffic.samples >= settings.min_samples || is_decided(traffic, settings);
    is_believed.then_some(traffic.remote_ratio)
}

/// Both thresholds are above 0 and below 1, and in order: the settings were validated.
fn is_decided(traffic: &Traffic, settings: &RebalanceSettings) -> bool {
    let (local, remote) = (settings.stop_below, settings.start_above);
    #[expect(clippy::cast_precision_loss, reason = "below min_samples, at most a million")]
    let observations = traffic.samples as f64;
    let of_remote = (remote / local).ln();
    let of_local = ((1.0 - remote) / (1.0 - local)).ln();
    let ratio = traffic.remote_ratio;
    let sum = observations * (ratio * of_remote + (1.0 - ratio) * of_local);
    sum.abs() >= DECIDED
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::TrafficSource;

    fn seen(remote_ratio: f64, samples: u64) -> Traffic {
        Traffic::new(remote_ratio, TrafficSource::Placement, samples)
    }

    #[test]
    fn clear_shares_are_decided_early_and_unclear_ones_late() {
        let settings = RebalanceSettings::default();
        for (ratio, samples, believed_then) in [
            (1.0, 6, false),
            (1.0, 7, true),
            (0.9, 8, true),
            (0.0, 27, false),
            (0.0, 28, true),
            // Between both thresholds neither is likelier than the other.
            (0.186, 99, false),
            (0.186, 100, true),
            (0.5, 10, false),
            (0.5, 17, true),
        ] {
            let found = believed(Some(&seen(ratio, samples)), &settings);
            assert_eq!(found, believed_then.then_some(ratio), "{ratio} of {samples}");
        }
        assert_eq!(believed(None, &settings), None);
        assert_eq!(believed(Some(&seen(1.0, 0)), &settings), None);
    }

    proptest! {
        #[test]
        fn more_observations_of_the_same_share_never_undo_a_decision(ratio in 0.0..=1.0f64, samples in 0u64..200) {
            let settings = RebalanceSettings::default();
            if believed(Some(&seen(ratio, samples)), &settings).is_some() {
                prop_assert!(believed(Some(&seen(ratio, samples + 1)), &settings).is_some());
            }
        }

        #[test]
        fn what_is_decided_early_is_on_the_right_side(ratio in 0.0..=1.0f64, samples in 0u64..100) {
            let settings = RebalanceSettings::default();
            if believed(Some(&seen(ratio, samples)), &settings).is_some() {
                prop_assert!(ratio > settings.stop_below || ratio < settings.start_above);
                // A share that asks for neither stays open until `min_samples`.
                prop_assert!(!(0.185..0.187).contains(&ratio));
            }
        }
    }
}
