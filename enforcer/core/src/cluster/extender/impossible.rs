//! Why no node has a place for a pod, in one sentence for its owner.
//!
//! Problem: kube-scheduler counts equal reasons, so they have no figures, and its event does not say what to
//! ask less of. Idea: of the nodes that are short of something, the one that lacks the smallest share is
//! named with its figures.

use std::{collections::BTreeMap, fmt::Write as _};

use numa_placement::Rejection;

use super::{Extender, FilterAnswer};
use crate::cluster::{
    objects::PodObject,
    view::{Millis, UnknownNode, Verdict},
};

/// Share that a node lacks where its rejection has no figures, in thousandths.
const WITHOUT_FIGURES: u64 = 1_001;

impl Extender {
    /// The sentence for this answer to a filter call. `None` if a node passed, none was asked, or an earlier
    /// pod holds a node up: that ends by itself.
    pub fn explain_impossible(
        &mut self,
        pod: &PodObject,
        nodes: &[&str],
        answer: &FilterAnswer,
        now: Millis,
    ) -> Option<String> {
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, group) in &answer.refused {
            *groups.entry(group.as_text()).or_default() += 1;
        }
        if groups.is_empty() || !answer.is_final() {
            return None;
        }
        let number = answer.refused.len();
        let mut note = format!("no node of {number} has a place for the pod: ");
        for (at, (text, count)) in groups.into_iter().enumerate() {
            let reason = text.strip_prefix("NUMA: ").unwrap_or(text);
            let _ = write!(note, "{}{count} for \"{reason}\"", if at == 0 { "" } else { ", " });
        }
        let mut closest: Option<(u64, &str, String)> = None;
        let mut unknown = None;
        let said = self.ask_all(pod, nodes, now);
        for (name, said) in
            answer.refused.iter().filter_map(|(at, _)| nodes.get(*at).copied().zip(said.get(*at)))
        {
            match &*said.answer.verdict {
                Verdict::Refused(_, rejection) => {
                    let lacks = lacking_share(rejection);
                    if closest.as_ref().is_none_or(|(least, ..)| lacks < *least) {
                        closest = Some((lacks, name, figures(rejection)));
                    }
                }
                Verdict::Unknown(why) if unknown.is_none() => unknown = Some((name, without_names(why))),
                _ => {}
            }
        }
        if let Some((_, name, figures)) = closest {
            let _ = write!(note, "; closest is node {name}, with {figures}");
        } else if let Some((name, why)) = unknown {
            let _ = write!(note, "; node {name}: {why}");
        }
        Some(note)
    }
}

/// Why a node is unknown. The owner of one pod does not read the names of others.
fn without_names(why: &UnknownNode) -> String {
    match why {
        UnknownNode::NoState | UnknownNode::Stale => why.to_string(),
        UnknownNode::Inexact(source) => format!("its state is inexact ({})", source.source),
        UnknownNode::Outdated(_) => "its state is out of date".to_owned(),
        _ => "its state does not tell what its last pods have".to_owned(),
    }
}

/// The largest share of a resource that is lacking, in thousandths.
fn lacking_share(rejection: &Rejection) -> u64 {
    let lacking = rejection.shortages.iter().filter(|short| short.wanted > short.available);
    let share = |wanted: u64, available: u64| (wanted - available).saturating_mul(1_000) / wanted;
    lacking.map(|short| share(short.wanted, short.available)).max().unwrap_or(WITHOUT_FIGURES)
}

/// What is there of what is lacking; else all of the rejection.
fn figures(rejection: &Rejection) -> String {
    let lacking = rejection.shortages.iter().filter(|short| short.wanted > short.available);
    let texts: Vec<String> = lacking
        .map(|short| short.text(&rejection.wording.units, &rejection.wording.unsized_nodes))
        .map(|text| text.replace(" on node", " on NUMA node"))
        .collect();
    if texts.is_empty() { rejection.to_string() } else { texts.join(", ") }
}
