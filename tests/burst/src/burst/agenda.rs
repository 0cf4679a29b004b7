//! What will happen, in the order of its times; what is planned first for a time happens first.

use std::collections::BTreeMap;

use crate::{Micros, nrt::PublishedZones};

/// What happens; pods and nodes by number.
#[derive(Debug)]
pub(super) enum Happening {
    /// The scheduler takes the next pod.
    Cycle,
    /// A pod's binding is sent.
    Bind(usize),
    /// A node's kubelet comes to a pod.
    Admit(usize, usize),
    /// A pod's containers run.
    Starts(usize, usize),
    /// The scheduler's watch shows a pod as running.
    SchedulerSeesRunning(usize, usize),
    /// The scheduler's watch shows a pod as failed.
    SchedulerSeesFailed(usize, usize),
    /// Another pod is made for a failed one.
    Replace(usize),
    /// A node publishes.
    Publish(usize),
    /// The scheduler's watch shows what a node has published.
    SchedulerSeesZones(usize, PublishedZones),
    /// The cache of `NodeResourceTopologyMatch` is compared with what was published.
    Resync,
}

/// All that is planned.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    planned: BTreeMap<(Micros, u64), Happening>,
    number: u64,
    /// How many of them are resyncs.
    resyncs: usize,
}

impl Agenda {
    pub(super) fn add(&mut self, at: Micros, happening: Happening) {
        self.number += 1;
        self.resyncs += usize::from(matches!(happening, Happening::Resync));
        self.planned.insert((at, self.number), happening);
    }

    /// When something happens next.
    pub(super) fn next(&self) -> Option<Micros> {
        self.planned.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn take(&mut self) -> Option<Happening> {
        let (_, happening) = self.planned.pop_first()?;
        self.resyncs -= usize::from(matches!(happening, Happening::Resync));
        Some(happening)
    }

    /// Is nothing planned but a resync?
    pub(super) fn only_resync(&self) -> bool {
        self.planned.len() == self.resyncs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn happenings_come_by_time_and_then_as_they_were_planned() {
        let mut agenda = Agenda::default();
        agenda.add(5, Happening::Resync);
        assert!(agenda.only_resync());
        for (at, pod) in [(7, 1), (5, 2), (7, 3)] {
            agenda.add(at, Happening::Bind(pod));
        }
        assert!(!agenda.only_resync());
        let mut pods = Vec::new();
        while let Some(happening) = agenda.take() {
            pods.push(if let Happening::Bind(pod) = happening { pod } else { 0 });
        }
        assert_eq!(pods, [0, 2, 1, 3]);
        assert!(agenda.only_resync() && agenda.next().is_none());
    }
}
