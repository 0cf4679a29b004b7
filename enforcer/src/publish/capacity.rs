//! Whether the number of devices in the node's object is that of the devices that the kubelet offers now.
//!
//! Problem: the kubelet offers other devices at once, and writes their number into the object some seconds
//! later. The daemon reads the object seldom. By an old number, a device that is gone is an unhealthy one.
//!
//! Invariant: a number counts only if the object was asked for [`WRITTEN`] after the last change or later.

use std::time::{Duration, Instant};

use enforcer_core::cluster::observed::DeviceNodes;

/// Time in which the kubelet writes a changed number: it does so every 10 s.
const WRITTEN: Duration = Duration::from_secs(15);

/// The devices that the kubelet offers, and when they changed.
#[derive(Debug, Default)]
pub(super) struct OfferedDevices {
    last: Option<DeviceNodes>,
    changed_at: Option<Instant>,
}

/// What the number in an object is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CapacityAge {
    /// It is that of the devices of now.
    Current,
    /// It may be older; it is too early for a newer one.
    TooEarly,
    /// It may be older, and a newer one is there.
    Outdated,
}

impl OfferedDevices {
    /// Notes the devices of now. The first ones are no change.
    pub(super) fn note(&mut self, offered: &DeviceNodes, now: Instant) {
        if self.last.as_ref() == Some(offered) {
            return;
        }
        if self.last.replace(offered.clone()).is_some() {
            self.changed_at = Some(now);
        }
    }

    /// What a number is worth whose object was asked for at this time; `None` where it was not.
    pub(super) fn age(&self, asked_at: Option<Instant>, now: Instant) -> CapacityAge {
        let Some(written_at) = self.changed_at.map(|at| at + WRITTEN) else { return CapacityAge::Current };
        if asked_at.is_none_or(|at| at >= written_at) {
            CapacityAge::Current
        } else if now < written_at {
            CapacityAge::TooEarly
        } else {
            CapacityAge::Outdated
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn number_of_before_a_change_of_the_devices_does_not_count() {
        let devices = |ids: &[&str]| {
            let units: BTreeMap<_, _> =
                ids.iter().map(|id| ((*id).to_owned(), "0".parse().unwrap())).collect();
            DeviceNodes::from([("v.com/gpu".to_owned(), units)])
        };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut offered = OfferedDevices::default();
        offered.note(&devices(&["a", "b"]), at(0));
        assert_eq!(offered.age(Some(at(0)), at(1)), CapacityAge::Current, "there was no change");
        // One is replaced by another one: their number stays.
        offered.note(&devices(&["a", "c"]), at(100));
        offered.note(&devices(&["a", "c"]), at(101));
        assert_eq!(offered.age(Some(at(0)), at(101)), CapacityAge::TooEarly);
        assert_eq!(offered.age(Some(at(114)), at(114)), CapacityAge::TooEarly);
        assert_eq!(offered.age(Some(at(114)), at(115)), CapacityAge::Outdated);
        assert_eq!(offered.age(Some(at(115)), at(116)), CapacityAge::Current);
        assert_eq!(offered.age(None, at(116)), CapacityAge::Current, "no server was asked");
    }
}
