//! The nodes' side: admission, starts, and what is published.

use anyhow::Result;

use super::{Burst, BurstNode, agenda::Happening};
use crate::{MS, Micros, cache::sums_of, nrt::PublishedZones, product::put_state};

/// Median of the time until the containers of an admitted pod run.
const STARTS: Micros = 1_500 * MS;
/// Until a watch shows an event.
const WATCH: (Micros, Micros) = (5 * MS, 50 * MS);
/// From a change until it is published: files, pause, the write.
const UNTIL_PUBLISHED: (Micros, Micros) = (100 * MS, 600 * MS);
/// Least time between two states of a node.
const BETWEEN_STATES: Micros = 500 * MS;
/// From a failure until another pod is made.
const UNTIL_REPLACED: (Micros, Micros) = (20 * MS, 200 * MS);

impl Burst {
    /// The kubelet comes to a pod.
    pub(super) fn admit(&mut self, pod: usize, node: usize) {
        match self.nodes[node].kubelet.admit(&self.pods[pod].request) {
            Ok(numa_nodes) => {
                self.note_spread(numa_nodes.len());
                let at = self.now + self.draw.around(STARTS);
                self.agenda.add(at, Happening::Starts(pod, node));
            }
            Err(reason) => {
                *self.report.refused.entry(reason).or_default() += 1;
                if let Some(product) = &self.product {
                    product.set_phase(&self.pods[pod].name, "Failed");
                }
                let at = self.delay(WATCH.0, WATCH.1);
                self.agenda.add(at, Happening::SchedulerSeesFailed(pod, node));
                let at = self.delay(UNTIL_REPLACED.0, UNTIL_REPLACED.1);
                self.agenda.add(at, Happening::Replace(pod));
            }
        }
        self.plan_publish(node);
    }

    pub(super) fn starts(&mut self, pod: usize, node: usize) {
        self.report.running += 1;
        self.report.all_running_us = self.now;
        if let Some(product) = &self.product {
            product.set_phase(&self.pods[pod].name, "Running");
        }
        let at = self.delay(WATCH.0, WATCH.1);
        self.agenda.add(at, Happening::SchedulerSeesRunning(pod, node));
    }

    /// The scheduler's cache gives back what a failed pod had.
    pub(super) fn see_failed(&mut self, pod: usize, node: usize) {
        let wanted = sums_of(&self.pods[pod].shape);
        self.nodes[node].sums.give_back(wanted);
        // With the cache of `NodeResourceTopologyMatch` its reservation stays until a resync.
        self.queue.wake(self.now);
    }

    fn plan_publish(&mut self, node: usize) {
        if std::mem::replace(&mut self.nodes[node].will_publish, true) {
            return;
        }
        let at = self.delay(UNTIL_PUBLISHED.0, UNTIL_PUBLISHED.1);
        let at = at.max(self.nodes[node].published + BETWEEN_STATES);
        self.agenda.add(at, Happening::Publish(node));
    }

    pub(super) fn publish(&mut self, node: usize) -> Result<()> {
        let at = self.delay(WATCH.0, WATCH.1);
        let BurstNode { name, kubelet, published, will_publish, .. } = &mut self.nodes[node];
        (*published, *will_publish) = (self.now, false);
        if let Some(product) = &self.product {
            put_state(product.stub(), name, &kubelet.state())?;
        }
        if self.nrt.is_some() {
            let zones = PublishedZones { zones: kubelet.free(), pods: kubelet.holders() };
            self.agenda.add(at, Happening::SchedulerSeesZones(node, zones));
        }
        Ok(())
    }
}
