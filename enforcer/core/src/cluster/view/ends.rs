//! What may be on a node after pods ended earlier than their end was seen.
//!
//! Problem: a kubelet frees what a pod held before the API shows its end. A pod that was bound in between may
//! be where the ended one was, a later one where *that* would have been, and so on, also if some of them have
//! ended by now. Idea: the end of a pod of the state may have been at any place before the moment at which it
//! was seen. Before each binding each such end has been or has not; states that became equal are one.
//!
//! A pod that has come and gone since the state is different: an end that *nothing* has shown yet may have
//! sent it elsewhere. As long as it is there, what [moved](super::moved) knows decides. Its own end frees a
//! place that is not known, and pods that came after it may be where it was not. So nothing is known until a
//! state covers those.
//!
//! Invariants: bindings keep their order, because a kubelet admits in it. An end is never later than seen.
//!
//! Cost: an admission for each binding and each state that may have been there before it, which is two to the
//! power of the number of ends that are open at that moment. The caller bounds the admissions.

use numa_placement::PodRequest;

use super::log::{PodEvent, UidEvent};

const fn is_binding(event: &PodEvent) -> bool {
    matches!(event, PodEvent::Bound(_))
}

/// An end, and the bindings that it may have been before.
#[derive(Debug)]
pub(super) struct OpenEnd<'a> {
    pub(super) uid: &'a str,
    seen_at: usize,
    /// Positions of bindings, ascending.
    before: Vec<usize>,
}

/// Ends of pods of the state that may have been before bindings that were seen earlier.
pub(super) fn open_ends<'a>(events: &[&'a UidEvent]) -> Vec<OpenEnd<'a>> {
    let mut open = Vec::new();
    for (seen_at, (uid, event)) in events.iter().enumerate() {
        if is_binding(event) || events.iter().any(|(of, event)| of == uid && is_binding(event)) {
            continue;
        }
        let earlier = events.iter().take(seen_at).enumerate();
        let before: Vec<usize> =
            earlier.filter(|(_, (_, event))| is_binding(event)).map(|(at, _)| at).collect();
        if !before.is_empty() {
            open.push(OpenEnd { uid, seen_at, before });
        }
    }
    open
}

/// A pod that has come and gone, while another one came that is still there.
pub(super) fn came_and_went<'a>(
    events: &[&'a UidEvent],
    holds: impl Fn(&PodRequest) -> bool,
) -> Option<&'a str> {
    let end_of = |uid: &str| events.iter().position(|(of, event)| of == uid && !is_binding(event));
    let mut passing: Vec<(&str, usize)> = Vec::new();
    for (at, (uid, event)) in events.iter().enumerate() {
        match (event, end_of(uid)) {
            (PodEvent::Bound(request), _) if !holds(request) => {}
            (PodEvent::Bound(_), Some(end)) => passing.push((uid, end)),
            (PodEvent::Bound(_), None) => {
                let found = passing.iter().find(|(_, end)| *end > at);
                if let Some((uid, _)) = found {
                    return Some(uid);
                }
            }
            (PodEvent::Ended(_), _) => {}
        }
    }
    None
}

/// What the node may have after all events; `None` if that needs more than `most` admissions.
pub(super) fn possible_states<S: Clone + PartialEq>(
    start: S,
    (events, open): (&[&UidEvent], &[OpenEnd<'_>]),
    most: usize,
    bind: impl Fn(&mut S, &PodRequest),
    end: impl Fn(&mut S, &str),
) -> Option<Vec<S>> {
    // With each state those of the open ends that have been there, as bits.
    let mut states = vec![(start, 0_u32)];
    let bit = |number: usize| u32::try_from(number).ok().and_then(|number| 1_u32.checked_shl(number));
    bit(open.len())?;
    let mut admissions = 0;
    for (at, (uid, event)) in events.iter().enumerate() {
        let mut next: Vec<(S, u32)> = Vec::new();
        for (state, been) in states {
            let may_be = open.iter().enumerate().filter(|(_, end)| end.before.contains(&at));
            let may_be = may_be.filter_map(|(number, _)| bit(number)).fold(0, |all, one| all | one) & !been;
            // All subsets of these, the whole of them first and none last.
            let mut subset = may_be;
            loop {
                let (mut state, mut been) = (state.clone(), been | subset);
                for (number, open) in open.iter().enumerate() {
                    if bit(number).is_some_and(|bit| subset & bit != 0) {
                        end(&mut state, open.uid);
                    }
                }
                match event {
                    PodEvent::Bound(request) => {
                        admissions += 1;
                        if admissions > most {
                            return None;
                        }
                        bind(&mut state, request);
                    }
                    PodEvent::Ended(_) => {
                        let number = open.iter().position(|open| open.seen_at == at);
                        let bit = number.and_then(bit).unwrap_or(0);
                        if been & bit == 0 {
                            end(&mut state, uid);
                        }
                        been |= bit;
                    }
                }
                if !next.iter().any(|known| known.1 == been && known.0 == state) {
                    next.push((state, been));
                }
                if subset == 0 {
                    break;
                }
                subset = (subset - 1) & may_be;
            }
        }
        states = next;
    }
    Some(states.into_iter().map(|(state, _)| state).collect())
}

#[cfg(test)]
mod tests {
    use numa_placement::{PodName, PodRequest};

    use super::*;

    fn events(text: &str) -> Vec<UidEvent> {
        let event = |word: &str| {
            let request = |uid: &str| PodRequest::new(PodName::new("d", uid), Vec::new());
            let bound = |uid: &str| (uid.to_owned(), PodEvent::Bound(Box::new(request(uid))));
            let ended = |uid: &str| (uid.to_owned(), PodEvent::Ended(0));
            word.strip_prefix('-').map_or_else(|| bound(word), ended)
        };
        text.split(' ').map(event).collect()
    }

    /// Words of all orders in which the events may have been.
    fn orders(text: &str, most: usize) -> Option<Vec<String>> {
        let events = events(text);
        let events: Vec<&UidEvent> = events.iter().collect();
        let open = open_ends(&events);
        let bind = |order: &mut Vec<String>, pod: &PodRequest| order.push(pod.name.name.clone());
        let end = |order: &mut Vec<String>, uid: &str| order.push(format!("-{uid}"));
        let orders = possible_states(Vec::new(), (&events, &open), most, bind, end)?;
        let mut orders: Vec<String> = orders.iter().map(|order| order.join(" ")).collect();
        orders.sort();
        Some(orders)
    }

    #[test]
    fn an_end_of_a_pod_of_the_state_may_be_before_each_binding() {
        for (seen, expected) in [
            ("-x a b", vec!["-x a b"]),
            ("a -x", vec!["-x a", "a -x"]),
            ("a b -x", vec!["-x a b", "a -x b", "a b -x"]),
            ("a b -a", vec!["a b -a"]),
            ("a -a b", vec!["a -a b"]),
            ("a -x b -y", vec!["-x -y a b", "-x a -y b", "-x a b -y", "-y a -x b", "a -x -y b", "a -x b -y"]),
        ] {
            let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(orders(seen, 100), Some(expected), "{seen}");
        }
    }

    #[test]
    fn a_pod_that_has_gone_leaves_those_that_came_after_it_somewhere() {
        for (seen, expected) in [
            ("a b -a", Some("a")),
            ("a c -a b -c", Some("c")),
            ("a -a b -x", None),
            ("a b -b", None),
            ("a b -a -b", None),
        ] {
            let events = events(seen);
            let events: Vec<&UidEvent> = events.iter().collect();
            assert_eq!(came_and_went(&events, |_| true), expected, "{seen}");
            assert_eq!(came_and_went(&events, |request| request.name.name != "b"), None, "{seen}");
        }
    }

    #[test]
    fn states_that_became_equal_are_one() {
        let events = events("a b c d e -x -y");
        let events: Vec<&UidEvent> = events.iter().collect();
        let open = open_ends(&events);
        let count = |most| {
            let (bind, end) =
                (|pods: &mut i32, _: &PodRequest| *pods += 1, |pods: &mut i32, _: &str| *pods -= 1);
            possible_states(2, (&events, &open), most, bind, end)
        };
        assert_eq!(count(64), Some(vec![5]));
        assert_eq!(count(8), None);
    }
}
