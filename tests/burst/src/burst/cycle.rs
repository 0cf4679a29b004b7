//! The scheduler's side: cycles, bindings and their replies.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{Burst, BurstNode, BurstPod, agenda::Happening};
use crate::{
    MS, Micros,
    cache::{sample_size, sums_of},
    product::BindReply,
};

/// What a cycle takes, beside the calls of an extender.
const CYCLE: Micros = 2 * MS;
/// From the choice of a node until its binding is sent.
const UNTIL_BIND: (Micros, Micros) = (2 * MS, 200 * MS);
/// From a binding until the node's kubelet comes to it.
const UNTIL_ADMISSION: (Micros, Micros) = (5 * MS, 50 * MS);
/// What the kubelet takes for a pod before it comes to the next one.
const ADMISSION: (Micros, Micros) = (5 * MS, 20 * MS);
/// Points of an extender's best score against those of a plugin (`MaxNodeScore / MaxExtenderPriority`).
const SCALE: u64 = 10;

impl Burst {
    /// Plans the next cycle, if there is a pod to try.
    pub(super) fn plan_cycle(&mut self) {
        if self.will_cycle {
            return;
        }
        let now = self.now.max(self.free_from);
        if let Some(due) = self.queue.next_due(now) {
            self.will_cycle = true;
            self.agenda.add(due, Happening::Cycle);
        }
    }

    /// Tries one pod.
    pub(super) fn cycle(&mut self) -> Result<()> {
        self.will_cycle = false;
        let Some(pod) = self.queue.pop(self.now) else { return Ok(()) };
        self.pods[pod].attempts += 1;
        let (attempts, mut takes) = (self.pods[pod].attempts, CYCLE);
        let mut fitting = self.search(pod);
        let mut is_error = false;
        let mut weighted: BTreeMap<String, u64> = BTreeMap::new();
        if let Some(product) = self.product.as_mut().filter(|_| !fitting.is_empty()) {
            let object = &self.pods[pod].object;
            let names: Vec<&str> = fitting.iter().map(|node| self.nodes[*node].name.as_str()).collect();
            let (passed, took) = product.filter(object, &names)?;
            self.report.filter_us.push(micros(took));
            takes += micros(took);
            is_error = passed.is_none();
            let passed: BTreeSet<String> = passed.into_iter().flatten().collect();
            fitting.retain(|node| passed.contains(&self.nodes[*node].name));
            if let Some(weight) = product.weight().filter(|_| fitting.len() > 1) {
                let names: Vec<&str> = fitting.iter().map(|node| self.nodes[*node].name.as_str()).collect();
                let (scores, took) = product.prioritize(object, &names)?;
                takes += micros(took);
                weighted.extend(scores.into_iter().map(|(host, score)| (host, score * weight * SCALE)));
            }
        }
        self.free_from = self.now + takes;
        let Some(node) = self.best(pod, &fitting, &weighted) else {
            if is_error {
                self.report.errors += 1;
                self.queue.fail(pod, attempts, self.now);
            } else {
                self.queue.reject(pod, attempts, self.now);
            }
            return Ok(());
        };
        let chosen = &mut self.pods[pod];
        chosen.node = Some(node);
        self.nodes[node].sums.take(sums_of(&chosen.shape));
        if let Some(nrt) = &mut self.nrt {
            nrt.reserve(node, &chosen.name, &chosen.shape);
        }
        let at = self.free_from + self.draw.between(UNTIL_BIND.0, UNTIL_BIND.1);
        self.agenda.add(at, Happening::Bind(pod));
        Ok(())
    }

    /// Nodes that fit by in-tree rules, in the order of the search, which goes on where the last one ended.
    fn search(&mut self, pod: usize) -> Vec<usize> {
        let shape = &self.pods[pod].shape;
        let (wanted, all) = (sums_of(shape), self.nodes.len());
        let enough = sample_size(all, self.percent_of_nodes);
        let (mut fitting, mut looked) = (Vec::new(), 0);
        while looked < all && fitting.len() < enough {
            let node = (self.start + looked) % all;
            looked += 1;
            let passes = self.nodes[node].sums.fits(wanted)
                && self.nrt.as_mut().is_none_or(|nrt| nrt.filter(node, shape));
            if passes {
                fitting.push(node);
            }
        }
        self.start = (self.start + looked) % all.max(1);
        fitting
    }

    /// The node with the best score; of equal ones any.
    fn best(&mut self, pod: usize, fitting: &[usize], weighted: &BTreeMap<String, u64>) -> Option<usize> {
        let shape = &self.pods[pod].shape;
        let score = |node: &usize| {
            let BurstNode { sums, name, .. } = &self.nodes[*node];
            let nrt = self.nrt.as_ref().map_or(0, |nrt| nrt.score(*node, shape));
            sums.score(sums_of(shape)) + nrt + weighted.get(name).copied().unwrap_or(0)
        };
        let scores: Vec<u64> = fitting.iter().map(score).collect();
        let best = scores.iter().max()?;
        let equal: Vec<usize> =
            fitting.iter().zip(&scores).filter(|(_, score)| *score == best).map(|(node, _)| *node).collect();
        Some(equal[self.draw.below(equal.len())])
    }

    /// Sends a binding.
    pub(super) fn bind(&mut self, pod: usize) -> Result<()> {
        let BurstPod { name, node, .. } = &self.pods[pod];
        let node = node.context("a pod without a node is to be bound")?;
        if let Some(product) = &self.product {
            product.bind(pod, name, &self.nodes[node].name)?;
            self.unanswered.insert(pod, self.now);
        } else {
            self.land(pod, node);
        }
        Ok(())
    }

    /// A binding is in the API: its kubelet will come to it, behind those before.
    fn land(&mut self, pod: usize, node: usize) {
        self.report.bound += 1;
        self.last_bound = self.now;
        let seen = self.delay(UNTIL_ADMISSION.0, UNTIL_ADMISSION.1);
        let at = seen.max(self.nodes[node].admits_from);
        self.nodes[node].admits_from = at + self.draw.between(ADMISSION.0, ADMISSION.1);
        self.agenda.add(at, Happening::Admit(pod, node));
        self.wake_after_pod_event();
    }

    /// Takes what was bound in the stub, in its order.
    pub(super) fn take_landed(&mut self) -> Result<()> {
        let Some(product) = &self.product else { return Ok(()) };
        let landed = product.stub().bindings_from(self.landed);
        self.landed += landed.len();
        for binding in landed {
            let pod = self.numbers.get(&binding.pod).copied();
            let pod = pod.with_context(|| format!("{} was bound and never made", binding.pod))?;
            let node = self.nodes.iter().position(|node| node.name == binding.node);
            let node = node.with_context(|| format!("there is no node {}", binding.node))?;
            self.land(pod, node);
        }
        Ok(())
    }

    /// Takes the replies that are there.
    pub(super) fn take_replies(&mut self) -> Result<()> {
        while let Some(reply) = self.product.as_ref().and_then(|product| product.reply(Duration::ZERO)) {
            self.take_reply(&reply)?;
        }
        Ok(())
    }

    /// Waits for one reply.
    pub(super) fn wait_for_reply(&mut self) -> Result<()> {
        let product = self.product.as_ref().context("nothing answers a binding")?;
        let reply = product.reply(Duration::from_mins(1)).context("a binding has no reply")?;
        // What landed before it comes first.
        self.take_landed()?;
        self.take_reply(&reply)
    }

    fn take_reply(&mut self, reply: &BindReply) -> Result<()> {
        let BindReply { pod, error, took } = reply;
        self.unanswered.remove(pod);
        self.report.bind_us.push(micros(*took));
        if error.is_none() {
            return Ok(());
        }
        self.report.errors += 1;
        let BurstPod { name, shape, attempts, node, .. } = &mut self.pods[*pod];
        let node = node.take().context("a pod without a node was bound")?;
        self.nodes[node].sums.give_back(sums_of(shape));
        if let Some(nrt) = &mut self.nrt {
            nrt.unreserve(node, name);
        }
        self.queue.fail(*pod, *attempts, self.now);
        Ok(())
    }
}

fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}
