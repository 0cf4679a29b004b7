//! Candidates of a decision, for explanations.
//!
//! Lists the chosen set, the next best ones of the merge, every single node and all nodes together, each with
//! what decided: the resources it lacks, or the comparison with the chosen set. There are 2^N sets: with few
//! nodes all are listed, with more nodes only these.
//!
//! If any node is suitable, CPUs and memory are still taken from one node, so a candidate is reported as
//! refused only if a resource refuses it.

use super::{
    Mask, Offer,
    merge::{self, Comparison, MergeCandidate, Merged},
    positions,
    question::{Alignment, NodeSetQuestion, accepts, prefers},
};
use crate::{Candidate, ContainerRequest, words};

/// Maximum number of merged sets listed with more nodes than [`FEW`], including the chosen one.
const MERGED: usize = 8;
/// Maximum number of nodes with which all sets are listed.
const FEW: usize = 8;

/// The candidates, the chosen one first.
pub(super) fn of(
    question: &NodeSetQuestion<'_>,
    settled: Option<Alignment>,
    container: Option<&ContainerRequest>,
) -> Vec<Candidate> {
    let nodes = question.nodes;
    let taken = settled.map(|settled| settled.merged);
    let chosen = taken.and_then(|merged| merged.mask);
    let name = container.map_or("", |container| container.name.as_str());
    let no_preference = question.offers().all(|offer| *offer == Offer::NoPreference);
    let is_any = |merged: Merged| merged.mask.is_none_or(|mask| no_preference && mask == nodes.all());
    let anywhere = taken.is_some_and(is_any);
    if anywhere && nodes.len() == 1 {
        let place = words::nodes(&nodes.nodes(nodes.all()));
        let because = "there is no other".to_owned();
        return vec![Candidate { container: name.to_owned(), place, chosen: true, because }];
    }
    let merged = next_best(question, taken);
    let listed = merged.iter().map(|considered| considered.mask);
    let mut others: Vec<Mask> = if nodes.len() <= FEW {
        (1..=nodes.all()).collect()
    } else {
        positions(nodes.all()).map(|position| 1 << position).chain([nodes.all()]).collect()
    };
    others.sort_by_key(|mask| mask.count_ones());
    let mut masks: Vec<Mask> = chosen.into_iter().chain(listed).chain(others).collect();
    let mut seen = std::collections::BTreeSet::new();
    masks.retain(|mask| seen.insert(*mask));
    if anywhere {
        let offers = || question.firm.iter().chain(&question.soft);
        masks.retain(|mask| offers().any(|(_, offer)| !prefers(offer, *mask)));
    }
    let candidate = |mask: Mask| Candidate {
        container: name.to_owned(),
        place: words::nodes(&nodes.nodes(mask)),
        chosen: chosen == Some(mask),
        because: decided(&merged, mask).unwrap_or_else(|| because(question, mask, taken)),
    };
    let mut candidates: Vec<Candidate> = masks.into_iter().map(candidate).collect();
    if anywhere {
        let place = "any node".to_owned();
        let because = "no resource prefers one".to_owned();
        candidates.insert(0, Candidate { container: name.to_owned(), place, chosen: true, because });
    }
    candidates
}

/// The best sets of the merge that led to the chosen one; empty if it was chosen otherwise.
fn next_best(question: &NodeSetQuestion<'_>, taken: Option<Merged>) -> Vec<MergeCandidate> {
    let Some(Merged { mask: Some(chosen), preferred }) = taken else { return Vec::new() };
    let (nodes, options) = (question.nodes, question.options());
    let most = if nodes.len() <= FEW { 1 << FEW } else { MERGED };
    let merged = if preferred {
        merge::candidates(nodes, question.offers(), options, most)
    } else {
        merge::candidates(nodes, question.firm.iter().map(|(_, offer)| offer), options, most)
    };
    let led = merged.first().is_some_and(|first| first.mask == chosen);
    if led { merged } else { Vec::new() }
}

/// The comparison of the merge. Resources that do not prefer the set are named instead of counted.
fn decided(merged: &[MergeCandidate], mask: Mask) -> Option<String> {
    let considered = merged.iter().find(|considered| considered.mask == mask)?;
    let because = considered.because.as_ref().filter(|because| **because != Comparison::NotPreferred)?;
    Some(because.to_string())
}

fn because(question: &NodeSetQuestion<'_>, mask: Mask, taken: Option<Merged>) -> String {
    let offers = || question.firm.iter().chain(&question.soft);
    let lacking: Vec<&str> =
        offers().filter(|(_, offer)| !accepts(offer, mask)).map(|(name, _)| name.as_str()).collect();
    let wider: Vec<&str> =
        offers().filter(|(_, offer)| !prefers(offer, mask)).map(|(name, _)| name.as_str()).collect();
    let listed = |names: &[&str]| numa_topology::text::printable(&names.join(", "));
    // A kubelet's hints omit some suitable sets of nodes, such as those with a node without a device.
    let offers_by_list = question.settings.is_kubelet();
    match taken {
        Some(Merged { mask: Some(chosen), .. }) if chosen == mask => {
            match (lacking.is_empty(), wider.is_empty()) {
                (true, true) => "every resource prefers it".to_owned(),
                (true, false) => {
                    format!("the best that all offer; {} would need fewer nodes if empty", listed(&wider))
                }
                (false, _) if offers_by_list => {
                    format!("the best in common; not offered by {}", listed(&lacking))
                }
                (false, _) => format!("the best in common; it has too little {}", listed(&lacking)),
            }
        }
        _ if !lacking.is_empty() && offers_by_list => format!("not offered by {}", listed(&lacking)),
        _ if !lacking.is_empty() => format!("too little {}", listed(&lacking)),
        _ if !wider.is_empty() => format!("{} would need fewer nodes if empty", listed(&wider)),
        Some(Merged { mask: Some(chosen), .. }) => compared(question, mask, chosen),
        _ => "no resource prefers it to another".to_owned(),
    }
}

/// Comparison of two sets that all resources prefer.
fn compared(question: &NodeSetQuestion<'_>, mask: Mask, chosen: Mask) -> String {
    let options = question.options();
    let (own, best) = (distance(question, mask), distance(question, chosen));
    if options.prefer_closest && own > best {
        return format!("average distance {own}, the chosen one has {best}");
    }
    let score = |mask: Mask| {
        let of = |(_, offer): &(String, Offer)| match offer {
            Offer::Listed(hints) => hints
                .iter()
                .find(|hint| hint.mask == Some(mask))
                .map(|hint| hint.score)
                .filter(|score| *score > 0),
            _ => None,
        };
        question.firm.iter().chain(&question.soft).filter_map(of).map(u32::from).sum::<u32>()
    };
    let has_less = question.resident_on(mask) < question.resident_on(chosen);
    if score(mask) == score(chosen) && !has_less {
        "as good, the lowest node is taken".to_owned()
    } else if question.resident.is_empty() {
        format!("score {} in use, the chosen one has {}", score(mask), score(chosen))
    } else {
        "less of its memory is there already".to_owned()
    }
}

/// Average distance between the nodes of a set; 0 if distances are not all known.
fn distance(question: &NodeSetQuestion<'_>, mask: Mask) -> u64 {
    let spread = question.nodes.known_distances().map_or(0, |distances| distances.spread(mask));
    spread / u64::from(mask.count_ones().pow(2).max(1))
}

#[cfg(test)]
mod tests {
    use crate::{
        Trace, admit_traced,
        samples::{GIB, Host, container, pod, policy},
        settings::{HintsSettings, TopologyPolicy},
    };
    use numa_topology::synth::Machine;

    #[test]
    fn what_was_taken_is_not_called_refused_where_any_node_will_do() {
        let (one, any) =
            (("node 0", true, "there is no other"), ("any node", true, "no resource prefers one"));
        for (policy_of, sockets, milli_cpus, expected) in [
            (TopologyPolicy::SingleNumaNode, 1, 2000, one),
            (TopologyPolicy::SingleNumaNode, 2, 0, any),
            (TopologyPolicy::BestEffort, 1, 0, one),
            (TopologyPolicy::BestEffort, 2, 0, any),
        ] {
            let machine = Machine::new().sockets(sockets).cores(4).memory_gib(16).build();
            let hints = HintsSettings { align_all_qos: false, ..policy(policy_of) };
            let mut host = Host::new(machine, hints);
            let mut trace = Trace::wanted();
            let Host { inventory, settings, allocations } = &mut host;
            let request = pod("a", vec![container("c", milli_cpus, milli_cpus * GIB / 1000)]);
            admit_traced(inventory, settings, allocations, &request, &mut trace).unwrap();
            let (candidates, _) = trace.into_parts();
            let told: Vec<_> =
                candidates.iter().map(|c| (c.place.as_str(), c.chosen, c.because.as_str())).collect();
            assert_eq!(told, [expected], "{policy_of:?}, {sockets} nodes, {milli_cpus}m");
        }
    }
}
