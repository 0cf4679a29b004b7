//! Frames as they are seen, and what no key, size or name may do.

use std::{collections::BTreeMap, time::Duration};

use enforcer_core::{
    audit::{AuditVerdict, Summary},
    model::TrafficSource,
    policy::Mode,
    sample::PressureKind,
    workload::{CgroupPath, Origin},
};
use numa_topology::{degraded::Degraded, id::NodeId, set::CpuSet};
use proptest::prelude::*;
use ratatui::{
    Terminal, backend::TestBackend, buffer::Buffer, crossterm::event::KeyCode, layout::Rect, style::Color,
};

use super::{
    report::{NodePressure, TopNode, TopWorkload},
    *,
};
use crate::{decision::DecisionState, status::Paused};

const GIB: u64 = 1 << 30;

/// A workload of which nothing is known.
pub(crate) fn plain(name: &str) -> TopWorkload {
    TopWorkload {
        name: name.to_owned(),
        cgroup: CgroupPath::new(name),
        origin: Origin::Cgroup,
        owner: "nobody".into(),
        verdict: AuditVerdict::Unknown,
        cpus: None,
        mems: None,
        numa_nodes: [].into_iter().collect(),
        tasks: None,
        bytes_by_numa: None,
        misplaced_bytes: None,
        remote_residency: None,
        remote_traffic: None,
        traffic_source: None,
        traffic_samples: None,
        migrations_per_second: None,
        cpus_used: None,
        misplaced_time: None,
        findings: Vec::new(),
    }
}

/// A turn with these and nothing else.
pub(crate) fn turn(number: u64, workloads: Vec<TopWorkload>) -> TopTurn {
    TopTurn {
        number,
        age_seconds: 3,
        mode: Mode::Enforce,
        hostname: Some("rig".into()),
        summary: Summary { total: workloads.len(), ..Summary::default() },
        nodes: Vec::new(),
        workloads,
        omitted: 0,
        degraded: Vec::new(),
    }
}

fn node(id: u32, cpus: &str, free: u64) -> TopNode {
    TopNode {
        id: NodeId(id),
        cpus: cpus.parse::<CpuSet>().unwrap(),
        total_bytes: Some(64 * GIB),
        free_bytes: Some(free * GIB),
        cache_bytes: Some(5 * GIB),
        pressure: Some(Vec::new()),
        remote_ratio: Some(0.04),
    }
}

fn busy(name: &str, verdict: AuditVerdict, traffic: f64, misplaced: u64, moves: f64) -> TopWorkload {
    TopWorkload {
        verdict,
        cpus: Some("0-3".parse().unwrap()),
        mems: Some("0-1".parse().unwrap()),
        numa_nodes: "0".parse().unwrap(),
        tasks: Some(12),
        bytes_by_numa: Some(BTreeMap::from([(NodeId(0), 3 * GIB), (NodeId(1), misplaced * GIB)])),
        misplaced_bytes: Some(misplaced * GIB),
        remote_residency: Some(0.4),
        remote_traffic: Some(traffic),
        traffic_source: Some(TrafficSource::HintFaults),
        traffic_samples: Some(512),
        migrations_per_second: Some(moves),
        cpus_used: Some(2.5),
        misplaced_time: Some(0.25),
        findings: vec!["remote-traffic: 58% of its memory accesses are remote; it waits".into()],
        ..plain(name)
    }
}

fn action(name: &str, state: DecisionState, ago: u64, reason: &str) -> TopAction {
    TopAction {
        workload: name.into(),
        cgroup: Some(CgroupPath::new(name)),
        first_unix_ms: 1_000_000 - ago * 1000,
        times: 1,
        by: "turn".into(),
        state,
        paused: false,
        reason: reason.into(),
        steps: vec!["set-cpus 0-3: applied, is 0-3; planned because it drifted".into()],
    }
}

fn report(turn: Option<TopTurn>) -> TopReport {
    TopReport {
        schema_version: TOP_SCHEMA_VERSION,
        version: "0.1.0".into(),
        pid: 42,
        now_unix_ms: 1_000_000,
        paused: None,
        turn,
        actions: vec![
            action("/shop/orders-db", DecisionState::Corrected, 4, "node 0 has 4 free CPUs for 2"),
            action("/shop/web", DecisionState::Refused, 125, "its cpuset is the kubelet's"),
        ],
    }
}

/// A host where something is wrong.
fn host() -> TopReport {
    let mut pressed = node(1, "16-31", 1);
    pressed.pressure = Some(vec![
        NodePressure { kind: PressureKind::KswapdWoken, events: 40 },
        NodePressure { kind: PressureKind::DirectReclaim, events: 3 },
    ]);
    pressed.remote_ratio = Some(0.58);
    let workloads = vec![
        busy("/shop/orders-db", AuditVerdict::Misaligned, 0.58, 2, 0.5),
        busy("/shop/web", AuditVerdict::Aligned, 0.01, 0, 12.0),
        plain("/system.slice/a-very-long-name-of-a-unit-that-is-too-long-to-read-as-a-whole.service"),
        TopWorkload {
            cgroup: CgroupPath::new("/shop/日本"),
            ..busy("日本語の名前です、とても長い名前", AuditVerdict::Partial, 0.2, 1, 0.0)
        },
    ];
    let degraded = vec![Degraded::new("bpf:hardware", "no such counter", "accesses are not counted")];
    report(Some(TopTurn {
        nodes: vec![
            node(0, "0-15", 20),
            pressed,
            TopNode { pressure: None, remote_ratio: None, ..node(2, "", 60) },
        ],
        summary: Summary {
            total: 4,
            misaligned: 1,
            partial: 1,
            aligned: 1,
            unknown: 1,
            ..Summary::default()
        },
        degraded,
        ..turn(12, workloads)
    }))
}

fn told(report: TopReport) -> TopEvent {
    TopEvent::Report(Feed::Daemon, Box::new(report))
}

fn state(size: (u16, u16), events: impl IntoIterator<Item = TopEvent>) -> TopState {
    let mut state = TopState::new(size, Sort::default(), "");
    for (event, at) in events.into_iter().zip(0..) {
        state.update(event, Duration::from_secs(at));
    }
    state
}

/// As a terminal of that size shows it.
fn frame(state: &TopState, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, frame.buffer_mut(), false)).unwrap();
    to_text(terminal.backend().buffer())
}

fn seen(size: (u16, u16), events: impl IntoIterator<Item = TopEvent>) -> String {
    frame(&state(size, events), size)
}

fn typed(text: &str) -> Vec<TopEvent> {
    text.chars().map(|c| TopEvent::Key(if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) })).collect()
}

/// A host, and keys.
fn after(text: &str) -> Vec<TopEvent> {
    [told(host())].into_iter().chain(typed(text)).collect()
}

#[test]
fn an_ordinary_terminal() {
    insta::assert_snapshot!("80x24", seen((80, 24), [told(host())]));
}

#[test]
fn a_large_terminal_has_more_columns() {
    insta::assert_snapshot!("120x40", seen((120, 40), [told(host())]));
}

#[test]
fn a_tiny_terminal_shows_what_fits() {
    insta::assert_snapshot!("20x5", seen((20, 5), [told(host())]));
}

#[test]
fn of_many_nodes_the_rest_is_counted_and_a_page_has_all() {
    let mut many = host();
    let nodes = (0..64).map(|id| node(id, &format!("{}-{}", id * 4, id * 4 + 3), u64::from(id)));
    many.turn.as_mut().unwrap().nodes = nodes.collect();
    insta::assert_snapshot!("64_nodes", seen((80, 24), [told(many.clone())]));
    let page =
        seen((80, 24), [told(many.clone()), TopEvent::Key(KeyCode::Char('n')), TopEvent::Key(KeyCode::End)]);
    assert!(page.contains("\n63   252-255"), "{page}");
    assert!(seen((80, 120), [told(many)]).contains("and 27 more nodes"));
}

#[test]
fn without_a_daemon_it_says_so() {
    let own = |turn| {
        let feed = Feed::Own { because: "no daemon".into(), every: Duration::from_secs(2) };
        TopEvent::Report(feed, Box::new(TopReport { actions: Vec::new(), ..report(Some(turn)) }))
    };
    let unknown = TopNode { pressure: None, remote_ratio: None, ..node(0, "0-15", 20) };
    let turn = TopTurn { nodes: vec![unknown], mode: Mode::Observe, ..turn(1, vec![plain("/a")]) };
    insta::assert_snapshot!("no_daemon", seen((80, 24), [own(turn)]));
    insta::assert_snapshot!("nothing_told_yet", seen((80, 24), []));
}

#[test]
fn an_interval_below_a_second_is_said_as_it_is() {
    let feed = Feed::Own { because: "no daemon".into(), every: Duration::from_millis(500) };
    let shown = seen((80, 24), [TopEvent::Report(feed, Box::new(report(None)))]);
    assert!(shown.starts_with("numa-enforcer top: no daemon, looks by itself every 500ms"), "{shown}");
}

#[test]
fn workloads_of_one_name_are_told_apart() {
    let of = |cgroup: &str| TopWorkload { name: "web".into(), ..plain(cgroup) };
    let workloads = vec![of("/shop/eu/web"), of("/shop/us/web"), plain("/db")];
    let about = |cgroup: &str| TopAction {
        cgroup: Some(CgroupPath::new(cgroup)),
        ..action("web", DecisionState::Corrected, 4, "why")
    };
    let actions = vec![about("/shop/us/web"), about("/gone/web")];
    let shown = seen((80, 24), [told(TopReport { actions, ..report(Some(turn(1, workloads))) })]);
    for name in
        ["web (eu) ", "web (us) ", "/db ", "4s       corrected  web (us) ", "4s       corrected  web  "]
    {
        assert!(shown.lines().any(|line| line.starts_with(name)), "{name}: {shown}");
    }
}

#[test]
fn details_of_one_workload_have_its_history() {
    let history = (1u32..30).map(|number| {
        let mut host = host();
        let turn = host.turn.as_mut().unwrap();
        turn.number = number.into();
        turn.workloads[0].remote_traffic = (number > 3).then_some(0.02 * f64::from(number));
        told(host)
    });
    insta::assert_snapshot!("details", seen((80, 40), history.chain(typed("\n"))));
}

#[test]
fn actions_have_their_reasons_and_steps() {
    insta::assert_snapshot!("actions", seen((80, 24), after("a")));
    insta::assert_snapshot!("degraded", seen((80, 24), after("d")));
    insta::assert_snapshot!("help", seen((80, 24), after("?")));
}

#[test]
fn workloads_are_sorted_and_filtered_and_the_selection_stays_with_its_own() {
    let names = |text: &str| -> Vec<String> {
        let state = state((120, 40), after(text));
        state.on_screen().map(|(_, one, _)| one.name.chars().take(9).collect()).collect()
    };
    assert_eq!(names("")[0], "/shop/ord");
    assert_eq!(names("m")[0], "/shop/web");
    assert_eq!(names("ss"), names("m"));
    assert_eq!(names("/WEB\n"), ["/shop/web"]);
    assert_eq!(names("/nothing\n").len(), 0);
    let selected = |text: &str| state((120, 40), after(text)).workload().map(|one| one.name.clone());
    assert_eq!(selected("").as_deref(), Some("/shop/orders-db"));
    assert_eq!(selected("m").as_deref(), Some("/shop/web"), "on the first row it is the first");
    assert_eq!(selected("jjm").as_deref(), Some("/shop/web"), "elsewhere it stays");
    assert_eq!(selected("Gm").as_deref(), selected("G").as_deref());
    // `q` is a part of a filter, and what ends it.
    assert!(!state((80, 24), after("/q")).has_ended());
    assert!(state((80, 24), after("/q\nq")).has_ended());
    assert!(!state((80, 24), after("?q")).has_ended());
}

#[test]
fn selected_workload_is_on_the_screen() {
    let workloads =
        (0..100).map(|n| busy(&format!("/w{n:02}"), AuditVerdict::Aligned, 0.5, 0, 0.0)).collect();
    let mut state = state((80, 24), [told(report(Some(turn(1, workloads))))]);
    for keys in ["jjjjjjjjjjjjjjjjjjjjjjjjj", "kkk", "G", " ", "g", "   "] {
        for event in typed(keys) {
            state.update(event, Duration::ZERO);
            let rows: Vec<usize> = state
                .on_screen()
                .map(|(row, ..)| row)
                .take(usize::from(state.layout().workloads.count) - 1)
                .collect();
            assert!(rows.contains(&state.selected), "{keys}: {} in {rows:?}", state.selected);
        }
    }
}

#[test]
fn a_daemon_that_goes_and_comes_back_is_told() {
    let gone = || TopEvent::Silent("no daemon runs here: Connection refused".into());
    let lost = seen((80, 24), [told(host()), gone(), gone(), TopEvent::Second]);
    assert!(lost.contains("no answer for 2s, the figures are 6s old: no daemon runs here"), "{lost}");
    assert!(lost.contains("/shop/orders-db"), "{lost}");
    let back = seen((80, 24), [told(host()), gone(), told(host())]);
    assert!(back.contains("the daemon answers again"), "{back}");
    let another = TopReport { pid: 43, turn: None, ..host() };
    let back = seen((80, 24), [told(host()), gone(), told(another)]);
    assert!(back.contains("another daemon answers now") && !back.contains("aligned"), "{back}");
    let quiet = state(
        (80, 24),
        [told(host()), gone(), told(host())].into_iter().chain((0..12).map(|_| TopEvent::Second)),
    );
    assert!(quiet.news().is_none());
    let never = seen((80, 24), [gone()]);
    assert!(never.contains("no answer for 0s: no daemon runs"), "{never}");
}

#[test]
fn a_pause_is_in_the_first_line() {
    let paused = Some(Paused { for_seconds: 5, left_seconds: None });
    let shown = seen((100, 24), [told(TopReport { paused, ..host() })]);
    assert!(
        shown.starts_with(
            "numa-enforcer top: daemon 0.1.0, enforce, paused for 5s, until resumed, turn 12, 3s ago; rig\n"
        ),
        "{shown}"
    );
}

#[test]
fn ended_workload_is_not_shown_as_another() {
    let mut later = host();
    later.turn.as_mut().unwrap().workloads.remove(0);
    let gone = seen((80, 24), [told(host()), TopEvent::Key(KeyCode::Enter), told(later)]);
    assert!(gone.contains("it is no longer there") && !gone.contains("/shop/web"), "{gone}");
}

#[test]
fn colours_only_where_they_are_wanted() {
    let state = state((80, 24), [told(host())]);
    let coloured = |colour| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
        draw(&state, &mut buffer, colour);
        buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(coloured(true) && !coloured(false));
}

fn any_event() -> impl Strategy<Value = TopEvent> {
    let keys = prop_oneof![
        Just(KeyCode::Up),
        Just(KeyCode::Down),
        Just(KeyCode::PageUp),
        Just(KeyCode::PageDown),
        Just(KeyCode::Home),
        Just(KeyCode::End),
        Just(KeyCode::Enter),
        Just(KeyCode::Esc),
        Just(KeyCode::Backspace),
        Just(KeyCode::F(1)),
        "[a-z?/G \u{1b}é日]".prop_map(|text| KeyCode::Char(text.chars().next().unwrap_or('x'))),
    ];
    prop_oneof![
        8 => keys.prop_map(TopEvent::Key),
        2 => (0u16..160, 0u16..60).prop_map(|(width, height)| TopEvent::Resized(width, height)),
        1 => Just(TopEvent::Second),
        1 => any::<String>().prop_map(TopEvent::Silent),
        3 => any_report().prop_map(told),
    ]
}

fn any_report() -> impl Strategy<Value = TopReport> {
    let figure = || prop::option::of(prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), 0.0..1e12]);
    let workload = (any::<String>(), figure(), figure(), prop::option::of(any::<u64>())).prop_map(
        |(name, traffic, moves, bytes)| TopWorkload {
            findings: vec![name.clone()],
            owner: name.clone(),
            remote_traffic: traffic,
            cpus_used: moves,
            migrations_per_second: moves,
            misplaced_bytes: bytes,
            bytes_by_numa: bytes.map(|bytes| BTreeMap::from([(NodeId(0), bytes), (NodeId(7), bytes)])),
            ..plain(&name)
        },
    );
    let workloads = prop::collection::vec(workload, 0..30);
    (workloads, any::<String>(), 0u32..70, any::<u64>()).prop_map(|(workloads, text, nodes, bytes)| {
        let odd = TopNode { total_bytes: Some(bytes / 2), free_bytes: Some(bytes), ..node(0, "0-3", 0) };
        let nodes = (0..nodes).map(|id| TopNode { id: NodeId(id), ..odd.clone() }).collect();
        let turn = TopTurn {
            nodes,
            hostname: Some(text.clone()),
            degraded: vec![Degraded::new(&text, text.clone(), text.clone())],
            ..turn(bytes, workloads)
        };
        TopReport {
            actions: vec![action(&text, DecisionState::Failed, 0, &text)],
            version: text,
            ..report(Some(turn))
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_key_size_or_name_panics_or_reaches_the_terminal(
        events in prop::collection::vec(any_event(), 0..40),
        size in (0u16..160, 0u16..60),
    ) {
        let mut state = TopState::new(size, Sort::default(), "");
        for (event, at) in events.into_iter().zip(0..) {
            state.update(event, Duration::from_secs(at));
            // The terminal may have another size by now.
            for (width, height) in [state.size, (20, 5), size] {
                let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
                draw(&state, &mut buffer, true);
                let shown = to_text(&buffer);
                prop_assert!(
                    !shown.chars().any(|c| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c))),
                    "{:?}", shown
                );
            }
        }
    }
}
