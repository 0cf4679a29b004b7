use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::cluster::state::InexactSource;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ns(at: Duration) -> i64 {
    i64::try_from(at.as_nanos()).unwrap()
}

fn node() -> EventObject {
    EventObject::Node { name: "a".into(), uid: "uid-a".into() }
}

fn event(pod: &str) -> NodeEvent {
    event_in("shop", pod)
}

/// The write that an event of a pod takes.
fn note(log: &mut EventLog, pod: &str, at: Duration) -> Option<EventCall> {
    written(log.note(event(pod), at, ns(at), true))
}

fn written(noted: NotedEvent) -> Option<EventCall> {
    match noted {
        NotedEvent::Write(call) => Some(call),
        NotedEvent::Joined | NotedEvent::Refused => None,
    }
}

/// An event of a pod in a namespace.
fn event_in(namespace: &str, pod: &str) -> NodeEvent {
    let object =
        EventObject::Pod { namespace: namespace.into(), name: pod.into(), uid: format!("uid-{pod}") };
    NodeEvent::new(object, EventReason::NumaMisaligned, "memory is remote")
}

fn count(call: Option<EventCall>) -> Option<u32> {
    call.map(|call| call.count)
}

#[test]
fn repetitions_within_six_minutes_are_a_series() {
    let mut log = EventLog::new(EventLimits::default());
    assert_eq!(count(note(&mut log, "a", secs(0))), Some(1));
    assert_eq!(count(note(&mut log, "a", secs(60))), Some(2));
    let EventCall { serial, first_ns, count: third, last_ns, .. } = note(&mut log, "a", secs(419)).unwrap();
    assert_eq!((serial, first_ns, third, last_ns), (1, 0, 3, ns(secs(419))));
    assert_eq!(count(note(&mut log, "a", secs(419 + 360))), Some(1), "a new event");
    assert_eq!(log.dropped(), 0);
}

#[test]
fn untold_repetitions_are_told_at_the_end_of_the_series() {
    let mut log = EventLog::new(EventLimits::default());
    let told = (0..40).filter_map(|at| count(note(&mut log, "a", secs(at)))).collect::<Vec<_>>();
    assert_eq!(told[..6], [1, 2, 3, 4, 5, 6], "a burst of the namespace");
    assert_eq!(told[6..], [16, 31], "one in 15 s");
    assert_eq!(log.end_series(secs(300), 1), []);
    assert_eq!(log.end_series(secs(39 + 360), 0), [], "without room it waits");
    let ended = log.end_series(secs(39 + 360), 1);
    assert_eq!(ended.into_iter().map(|call| count(Some(call))).collect::<Vec<_>>(), [Some(40)]);
    assert_eq!((log.end_series(secs(1_000), 1), log.dropped()), (Vec::new(), 0));
}

#[test]
fn namespace_is_bounded_and_leaves_room_for_others_and_for_the_node() {
    let mut log = EventLog::new(EventLimits::default());
    let calls = (0..100).filter_map(|n| note(&mut log, &format!("p{n}"), secs(0))).count();
    assert_eq!(calls, 6);
    let other = |log: &mut EventLog, n: u32| {
        written(log.note(event_in(&format!("n{n}"), "web"), secs(0), 0, true)).is_some()
    };
    assert_eq!((0..100).filter(|n| other(&mut log, *n)).count(), 2);
    let of_node = |log: &mut EventLog, reason, at| {
        written(log.note(NodeEvent::new(node(), reason, "why"), at, ns(at), true)).is_some()
    };
    assert!(of_node(&mut log, EventReason::NumaStateInexact, secs(0)), "tokens are left for the node");
    assert!(of_node(&mut log, EventReason::KubeletConfigurationChanged, secs(0)));
    assert!(!of_node(&mut log, EventReason::NumaCorrected, secs(0)));
    assert!(note(&mut log, "p50", secs(14)).is_none());
    assert!(note(&mut log, "p50", secs(15)).is_some(), "a refused event is one when there is room");
    assert!(note(&mut log, "p51", secs(15)).is_none());
    assert_eq!(log.dropped(), 0, "the caller decides about refused events");
}

#[test]
fn number_of_buckets_of_namespaces_is_bounded() {
    let limits = EventLimits { burst: 1_000, per_daemon: Duration::from_millis(1), ..EventLimits::default() };
    let mut log = EventLog::new(limits);
    let one = |log: &mut EventLog, n: u32| {
        written(log.note(event_in(&format!("n{n}"), "web"), secs(0), 0, true)).is_some()
    };
    assert_eq!((0..400).filter(|n| one(&mut log, *n)).count(), 256 + 6, "the last ones share a bucket");
    let later = log.note(event_in("later", "web"), secs(1_000), ns(secs(1_000)), true);
    assert!(written(later).is_some());
}

#[test]
fn event_without_room_is_refused_and_its_repetition_told_later() {
    let mut log = EventLog::new(EventLimits::default());
    assert_eq!(log.note(event("a"), secs(0), 0, false), NotedEvent::Refused);
    assert_eq!(count(note(&mut log, "a", secs(1))), Some(1));
    assert_eq!(log.note(event("a"), secs(2), ns(secs(2)), false), NotedEvent::Joined);
    let ended = log.end_series(secs(2 + 360), 1);
    assert_eq!(ended.iter().map(|call| (call.told, call.count)).collect::<Vec<_>>(), [(1, 2)]);
    assert_eq!(log.dropped(), 0);
}

#[test]
fn write_that_the_server_did_not_get_is_repeated_at_the_end_of_its_series() {
    let mut log = EventLog::new(EventLimits::default());
    let lost = note(&mut log, "a", secs(0)).unwrap();
    log.take_back(lost);
    let [again] = log.end_series(secs(360), 1).try_into().unwrap();
    assert_eq!((again.serial, again.told, again.count), (1, 0, 1));
    log.take_back(again);
    assert_eq!((log.end_series(secs(1_000), 1), log.dropped()), (Vec::new(), 1));
}

#[test]
fn notes_are_fit_for_the_api() {
    let of = |note: &str| NodeEvent::new(node(), EventReason::NumaCorrected, note).note;
    assert_eq!(of("a\nb\u{202e}"), "a\\nb\\u{202e}");
    for text in ["x".repeat(5_000), "é".repeat(5_000), "\n".repeat(5_000)] {
        assert!((900..=MAX_NOTE).contains(&of(&text).len()), "{}", of(&text).len());
    }
}

fn facts(hash: &str, sources: &[&str]) -> StateFacts {
    StateFacts {
        inexact: sources.iter().map(|source| InexactSource::new(*source, "why")).collect(),
        kubelet: KubeletFacts {
            config_hash: hash.into(),
            topology_policy: format!("policy-{hash}"),
            cpu_policy: "static".into(),
            ..KubeletFacts::default()
        },
    }
}

#[test]
fn other_settings_of_the_kubelet_are_told_once() {
    let mut states = StateEvents::default();
    let mut told = |hash: &str| states.note(&node(), &facts(hash, &[]), secs(0)).map(|event| event.note);
    assert_eq!(told(""), None, "it has not been heard yet");
    assert_eq!(told("h1"), None);
    assert_eq!(told(""), None, "it starts again");
    assert_eq!(told("h1"), None, "with the same settings");
    let note = told("h2").unwrap();
    assert!(note.contains("topology manager policy-h2 (was policy-h1)"), "{note}");
    assert!(note.contains("CPU manager static,"), "{note}");
    assert_eq!(told("h2"), None);
}

#[test]
fn settings_that_changed_while_no_daemon_ran_are_told() {
    let facts_of = |hash: &str, started_at: Option<i64>| {
        let mut facts = facts(hash, &[]);
        facts.kubelet.started_at = started_at;
        facts
    };
    let mut after = StateEvents::after(facts_of("h1", Some(100)));
    assert_eq!(after.note(&node(), &facts_of("", None), secs(0)), None, "it has not been heard yet");
    let note = after.note(&node(), &facts_of("h2", Some(200)), secs(1)).unwrap().note;
    assert!(note.contains("topology manager policy-h2 (was policy-h1)"), "{note}");
    assert_eq!(after.note(&node(), &facts_of("h2", Some(200)), secs(2)), None);
    assert!(after.note(&node(), &facts_of("h3", Some(200)), secs(3)).is_some(), "this daemon knew them");
    let mut same = StateEvents::after(facts_of("h1", Some(100)));
    assert_eq!(same.note(&node(), &facts_of("h1", Some(200)), secs(0)), None);
    let mut newer = StateEvents::after(facts_of("h1", Some(100)));
    assert_eq!(newer.note(&node(), &facts_of("h2", Some(102)), secs(0)), None, "a daemon that reads more");
    assert!(newer.note(&node(), &facts_of("h3", Some(102)), secs(1)).is_some());
    let mut unknown = StateEvents::after(StateFacts::default());
    assert_eq!(unknown.note(&node(), &facts_of("h1", Some(1)), secs(0)), None);
}

#[test]
fn only_inexactness_that_lasts_is_told() {
    let mut states = StateEvents::default();
    let mut told = |at: u64, sources: &[&str]| {
        assert_eq!(states.note(&node(), &facts("h", sources), secs(at)), None);
        states.lasting(&node(), secs(at)).map(|event| event.note)
    };
    assert_eq!(told(0, &["kubelet:admission"]), None);
    assert_eq!(told(19, &[]), None);
    assert_eq!(told(20, &["kubelet:admission"]), None, "it began anew");
    assert_eq!(told(39, &["kubelet:admission", "api:pods"]), None);
    let first = told(40, &["kubelet:admission", "api:pods"]);
    assert_eq!(first.as_deref(), Some("the node's decisions cannot be predicted: kubelet:admission: why"));
    assert_eq!(told(58, &["kubelet:admission", "api:pods"]), None);
    let second = told(59, &["kubelet:admission", "api:pods"]);
    assert_eq!(second.as_deref(), Some("the node's decisions cannot be predicted: api:pods: why"));
    assert_eq!(told(100, &["api:pods"]), None);
    assert_eq!(told(101, &["api:pods", "kubelet:admission"]), None);
    assert!(told(121, &["api:pods", "kubelet:admission"]).is_some());
}

#[test]
fn new_reason_of_a_source_that_lasts_is_told() {
    let mut states = StateEvents::default();
    let mut told = |at: u64, reasons: &[&str]| {
        let inexact = reasons.iter().map(|reason| InexactSource::new("api:pods", *reason)).collect();
        let facts = StateFacts { inexact, ..facts("h", &[]) };
        assert_eq!(states.note(&node(), &facts, secs(at)), None);
        let event = states.lasting(&node(), secs(at));
        event.map(|event| event.note.replace("the node's decisions cannot be predicted: ", ""))
    };
    assert_eq!(told(0, &["left out"]), None);
    assert_eq!(told(20, &["left out"]).as_deref(), Some("api:pods: left out"));
    assert_eq!(told(30, &["left out", "not permitted"]), None);
    assert_eq!(told(50, &["left out", "not permitted"]).as_deref(), Some("api:pods: not permitted"));
    assert_eq!(told(100, &["left out", "not permitted"]), None);
    assert_eq!(told(101, &[]), None);
    assert_eq!(told(110, &["1"]), None);
    assert_eq!(told(120, &["2"]), None);
    assert_eq!(told(130, &["3"]).as_deref(), Some("api:pods: 3"), "the source lasts, its reasons do not");
    assert_eq!(told(140, &["4"]), None);
}

proptest! {
    /// Each event is told, refused, or counted as dropped, and the rates hold.
    #[test]
    fn no_event_is_lost_without_a_count(
        events in proptest::collection::vec((0_u64..200_000, 0_usize..30), 1..300),
    ) {
        let limits = EventLimits::default();
        let mut log = EventLog::new(limits);
        let mut now = Duration::ZERO;
        let mut writes = Vec::new();
        let mut told = BTreeMap::<u64, u64>::new();
        let mut refused = 0;
        let mut take = |call: EventCall, now: Duration, writes: &mut Vec<Duration>| {
            writes.push(now);
            told.insert(call.serial, call.count.into());
        };
        for (wait, pod) in &events {
            now += Duration::from_millis(*wait);
            for call in log.end_series(now, usize::MAX) {
                take(call, now, &mut writes);
            }
            match log.note(event(&pod.to_string()), now, ns(now), true) {
                NotedEvent::Write(call) => take(call, now, &mut writes),
                NotedEvent::Joined => {}
                NotedEvent::Refused => refused += 1,
            }
        }
        for _ in 0..1_000 {
            now += limits.series;
            for call in log.end_series(now, usize::MAX) {
                take(call, now, &mut writes);
            }
        }
        prop_assert_eq!(told.values().sum::<u64>() + log.dropped() + refused, events.len() as u64);
        for (index, from) in writes.iter().enumerate() {
            for (count, to) in (1_u32..).zip(&writes[index..]) {
                prop_assert!(*to >= *from + limits.per_daemon * count.saturating_sub(limits.burst));
            }
        }
    }
}
