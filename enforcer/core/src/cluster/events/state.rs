//! Events of the node that follow from its published states.
//!
//! A kubelet that starts again, and an admission that waits for a device plugin, make a state inexact for
//! seconds. Only a source that stays for [`LASTING`] becomes an event. A new reason of that source becomes
//! one when it has stayed as long.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::Deserialize;

use super::{EventObject, EventReason, NodeEvent};
use crate::cluster::state::InexactSource;

/// Time after which a source that makes states inexact becomes an event.
const LASTING: Duration = Duration::from_secs(20);

/// Most seconds between two readings of the time of one start.
const SAME_START: u64 = 5;

/// What of a published state decides about events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StateFacts {
    /// Sources that prevent an exact prediction.
    pub inexact: Vec<InexactSource>,
    /// Of the kubelet's settings.
    pub kubelet: KubeletFacts,
}

/// What of the kubelet's settings decides about events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletFacts {
    /// Hash of the effective settings; empty if they are not known.
    pub config_hash: String,
    /// Policy of the topology manager.
    pub topology_policy: String,
    /// Scope of the topology manager.
    pub topology_scope: String,
    /// Policy of the CPU manager.
    pub cpu_policy: String,
    /// Policy of the memory manager.
    pub memory_policy: String,
    /// Start of the kubelet, in seconds since 1970, if known.
    pub started_at: Option<i64>,
}

/// What earlier states have shown.
#[derive(Debug, Clone, Default)]
pub struct StateEvents {
    /// The settings that were known last: a kubelet that starts again has none for some seconds.
    settings: Option<KubeletFacts>,
    /// Whether an earlier daemon knew them.
    is_of_earlier: bool,
    /// Sources that make states inexact.
    sources: BTreeMap<String, InexactSpell>,
    /// The same with each of their reasons.
    reasons: BTreeMap<(String, String), InexactSpell>,
}

/// Since when something makes states inexact, and whether an event told of it.
#[derive(Debug, Clone)]
struct InexactSpell {
    since: Duration,
    is_told: bool,
}

impl InexactSpell {
    const fn new(since: Duration) -> Self {
        Self { since, is_told: false }
    }

    fn is_due(&self, now: Duration) -> bool {
        !self.is_told && now.saturating_sub(self.since) >= LASTING
    }
}

impl StateEvents {
    /// After an earlier daemon whose last state had these facts.
    pub fn after(earlier: StateFacts) -> Self {
        let settings = Some(earlier.kubelet).filter(|kubelet| !kubelet.config_hash.is_empty());
        Self { settings, is_of_earlier: true, ..Self::default() }
    }

    /// Notes a state at `now`, a time since any fixed moment; the event if the kubelet has other settings.
    pub fn note(&mut self, node: &EventObject, facts: &StateFacts, now: Duration) -> Option<NodeEvent> {
        let is_in = |source: &str, reason: Option<&str>| {
            let mut all = facts.inexact.iter();
            all.any(|one| one.source == source && reason.is_none_or(|reason| one.reason == reason))
        };
        self.sources.retain(|source, _| is_in(source, None));
        self.reasons.retain(|(source, reason), _| is_in(source, Some(reason)));
        for InexactSource { source, reason } in &facts.inexact {
            self.sources.entry(source.clone()).or_insert(InexactSpell::new(now));
            let key = (source.clone(), reason.clone());
            self.reasons.entry(key).or_insert(InexactSpell::new(now));
        }
        if facts.kubelet.config_hash.is_empty() {
            return None;
        }
        let before = self.settings.replace(facts.kubelet.clone())?;
        // Of a kubelet that has not started again, only the daemon may read other settings than before.
        if std::mem::take(&mut self.is_of_earlier) && facts.kubelet.is_of_same_start(&before) {
            return None;
        }
        (before.config_hash != facts.kubelet.config_hash).then(|| {
            let note = format!("the kubelet runs with other settings: {}", facts.kubelet.since(&before));
            NodeEvent::new(node.clone(), EventReason::KubeletConfigurationChanged, &note)
        })
    }

    /// The event about sources that have made states inexact for some time: once for each of their reasons
    /// that lasts, and once for a source that lasts while its reasons change.
    pub fn lasting(&mut self, node: &EventObject, now: Duration) -> Option<NodeEvent> {
        let mut reasons = Vec::new();
        let due: BTreeSet<&String> =
            self.sources.iter().filter(|(_, spell)| spell.is_due(now)).map(|(source, _)| source).collect();
        let mut told = BTreeSet::new();
        for ((source, reason), spell) in &mut self.reasons {
            if spell.is_due(now) || due.contains(source) {
                spell.is_told = true;
                told.insert(source.clone());
                reasons.push(format!("{source}: {reason}"));
            }
        }
        for (source, spell) in &mut self.sources {
            spell.is_told |= told.contains(source);
        }
        let note = format!("the node's decisions cannot be predicted: {}", reasons.join("; "));
        (!reasons.is_empty()).then(|| NodeEvent::new(node.clone(), EventReason::NumaStateInexact, &note))
    }
}

impl KubeletFacts {
    /// Are both of one start of the kubelet? Its time comes from a clock that may be set meanwhile.
    fn is_of_same_start(&self, other: &Self) -> bool {
        let starts = self.started_at.zip(other.started_at);
        starts.is_some_and(|(one, other)| one.abs_diff(other) <= SAME_START)
    }

    /// The settings in words, with those of before where they differ.
    fn since(&self, before: &Self) -> String {
        let setting = |name: &str, now: &str, before: &str| {
            let was = if now == before { String::new() } else { format!(" (was {before})") };
            format!("{name} {now}{was}")
        };
        [
            setting("topology manager", &self.topology_policy, &before.topology_policy),
            setting("scope", &self.topology_scope, &before.topology_scope),
            setting("CPU manager", &self.cpu_policy, &before.cpu_policy),
            setting("memory manager", &self.memory_policy, &before.memory_policy),
        ]
        .join(", ")
    }
}
