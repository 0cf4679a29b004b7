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
    let object = EventObject::Pod { namespace: "shop".into(), name: pod.into(), uid: format!("uid-{pod}") };
    NodeEvent::new(object, EventReason::NumaMisaligned, "memory is remote")
}

fn note(log: &mut EventLog, pod: &str, at: Duration) -> Option<EventCall> {
    log.note(event(pod), at, ns(at))
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
    assert_eq!(told, (1..=10).collect::<Vec<_>>(), "a burst of ten");
    assert_eq!(log.end_series(secs(300)), []);
    let ended = log.end_series(secs(39 + 360));
    assert_eq!(ended.into_iter().map(|call| count(Some(call))).collect::<Vec<_>>(), [Some(40)]);
    assert_eq!(log.end_series(secs(1_000)), []);
}

#[test]
fn burst_of_pods_is_bounded_and_the_rest_is_counted() {
    let mut log = EventLog::new(EventLimits::default());
    let calls = (0..100).filter_map(|n| note(&mut log, &format!("p{n}"), secs(0))).count();
    assert_eq!((calls, log.dropped()), (10, 90));
    assert!(note(&mut log, "later", secs(1)).is_some(), "one more in a second");
    assert!(note(&mut log, "too soon", secs(1)).is_none());
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

proptest! {
    /// Each event is told, or counted as dropped, and the rates hold.
    #[test]
    fn no_event_is_lost_without_a_count(
        events in proptest::collection::vec((0_u64..200_000, 0_usize..30), 1..300),
    ) {
        let limits = EventLimits::default();
        let mut log = EventLog::new(limits);
        let mut now = Duration::ZERO;
        let mut writes = Vec::new();
        let mut told = BTreeMap::<u64, u64>::new();
        let mut take = |call: EventCall, now: Duration, writes: &mut Vec<Duration>| {
            writes.push(now);
            told.insert(call.serial, call.count.into());
        };
        for (wait, pod) in &events {
            now += Duration::from_millis(*wait);
            for call in log.end_series(now) {
                take(call, now, &mut writes);
            }
            if let Some(call) = note(&mut log, &pod.to_string(), now) {
                take(call, now, &mut writes);
            }
        }
        for _ in 0..1_000 {
            now += limits.series;
            for call in log.end_series(now) {
                take(call, now, &mut writes);
            }
        }
        prop_assert_eq!(told.values().sum::<u64>() + log.dropped(), events.len() as u64);
        for (index, from) in writes.iter().enumerate() {
            for (count, to) in (1_u32..).zip(&writes[index..]) {
                prop_assert!(*to >= *from + limits.per_daemon * count.saturating_sub(limits.burst));
            }
        }
    }
}
