//! Pressure events between two samples: taken when they come, reported by the next sample. Pure.
//!
//! The counts begin with the first attached programs and continue when others are attached.

use std::collections::BTreeMap;

use enforcer_core::sample::{
    Count as _, EventCounts, PressureDelay, PressureEvent, PressureEvents, PressureKind, PressureTotal,
};
use numa_topology::id::NodeId;

use crate::index::Index;
use enforcer_kernel::bpf::{DrainedEvents, EventBuffer};

/// Events taken from the ring so far.
#[derive(Debug, Default)]
pub(crate) struct PressureBuffer {
    /// Events that no sample has yet.
    kept: EventBuffer<PressureEvent>,
    /// Without those that the attached programs could not send.
    counts: EventCounts,
    totals: BTreeMap<(NodeId, PressureKind), u64>,
    delay: PressureDelay,
}

impl PressureBuffer {
    /// Takes an event from the ring at `now_ns` of the events' clock; `None` is an unknown record.
    pub(crate) fn take(&mut self, event: Option<PressureEvent>, now_ns: u64) {
        if let Some(event) = &event {
            let delay = now_ns.saturating_sub(event.time_ns);
            self.delay.sum_ns = self.delay.sum_ns.saturating_add(delay);
            self.delay.longest_ns = self.delay.longest_ns.max(Some(delay));
            *self.totals.entry((event.numa_node, event.kind)).or_default() += 1;
        }
        self.kept.add(event);
    }

    /// Counts what programs could not send, before they are detached.
    pub(super) fn carry(&mut self, unsent: EventCounts) {
        self.counts.add(&unsent);
    }

    /// Events for a sample, with workload names, and the outcomes of all events.
    pub(super) fn take_events(&mut self, index: &Index, unsent: EventCounts) -> PressureEvents {
        let DrainedEvents { mut latest, told, forgotten } = self.kept.take();
        self.carry(EventCounts { told, forgotten, ..EventCounts::default() });
        for event in &mut latest {
            event.workload = index.ids.get(&event.cgroup_id).cloned();
        }
        let total = |((numa_node, kind), events): (&(NodeId, PressureKind), &u64)| PressureTotal {
            numa_node: *numa_node,
            kind: *kind,
            events: *events,
        };
        let delay = self.delay;
        self.delay.longest_ns = None;
        PressureEvents {
            latest,
            counts: self.counts.plus(&unsent),
            totals: self.totals.iter().map(total).collect(),
            delay,
        }
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::workload::CgroupPath;

    use super::*;

    fn event(time_ns: u64, node: u32, kind: PressureKind) -> PressureEvent {
        PressureEvent {
            time_ns,
            kind,
            numa_node: NodeId(node),
            order: 0,
            cgroup_id: 7,
            workload: None,
            tid: 1,
            constraint: None,
        }
    }

    #[test]
    fn every_event_is_in_one_sample_and_in_all_totals_after_it() {
        let index = Index { ids: [(7, CgroupPath::new("/db"))].into(), ..Index::default() };
        let mut pressure = PressureBuffer::default();
        let none = EventCounts::default();
        assert_eq!(pressure.take_events(&index, none), PressureEvents::default());

        pressure.take(Some(event(10, 1, PressureKind::KswapdWoken)), 25);
        pressure.take(None, 25);
        pressure.take(Some(event(40, 0, PressureKind::KswapdWoken)), 80);
        pressure.take(Some(event(90, 1, PressureKind::KswapdWoken)), 80);
        let limited = EventCounts { limited: 5, ..none };
        let first = pressure.take_events(&index, limited);
        assert_eq!(first.latest.iter().map(|event| event.time_ns).collect::<Vec<_>>(), [10, 40, 90]);
        assert!(first.latest.iter().all(|event| event.workload == Some(CgroupPath::new("/db"))));
        assert_eq!(first.counts, EventCounts { told: 4, forgotten: 1, limited: 5, ..none });
        // Clocks of two CPUs may differ slightly: no event is in the future.
        assert_eq!(first.delay, PressureDelay { sum_ns: 15 + 40, longest_ns: Some(40) });
        let total =
            |node, events| PressureTotal { numa_node: NodeId(node), kind: PressureKind::KswapdWoken, events };
        assert_eq!(first.totals, [total(0, 1), total(1, 2)]);

        let later = pressure.take_events(&index, limited);
        assert_eq!((&later.latest, &later.totals, later.counts), (&Vec::new(), &first.totals, first.counts));
        assert_eq!(later.delay, PressureDelay { sum_ns: 55, longest_ns: None });
        pressure.carry(limited);
        assert_eq!(pressure.take_events(&index, none).counts, first.counts);
    }
}
