//! Requests as clients make them, good ones and hostile ones, over real sockets.

use std::{
    fs,
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
};

use enforcer_core::{
    considered::{DecisionTrace, WorkloadRequest},
    policy::Policy,
    workload::CgroupPath,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::*;
use crate::serve::{Endpoints, socket::ControlSocket};
use enforcer_host::HostRoot;
use enforcer_report::{
    decision::{DecisionRecord, DecisionState},
    fixture,
    tick::TickReport,
};

/// A bound on a hang, above every time that the server allows itself.
const PATIENCE: Duration = Duration::from_mins(1);

struct Rig {
    control: ControlState,
    path: PathBuf,
    log: Arc<Mutex<Vec<String>>>,
    _socket: Option<ControlSocket>,
    root: TempDir,
}

fn rig() -> Rig {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("run/control.sock");
    let mut policy = Policy::default();
    policy.metrics.enabled = false;
    policy.control.socket.clone_from(&path);
    let log = Arc::new(Mutex::new(Vec::new()));
    let levels = Arc::clone(&log);
    let control = ControlState {
        gate: Gate::default(),
        decisions: Decisions::default(),
        latest: watch::channel(None).1,
        log: LogLevel::new("info".into(), move |filter| {
            levels.lock().unwrap().push(filter.to_string());
            Ok(())
        }),
        started: Instant::now(),
        cgroups: ControllerRoot {
            path: HostRoot::live().at(root.path().join("cgroup")),
            v2: true,
            mounted_cgroup: "/".into(),
        },
        record: PauseRecord::new(&root.path().join("state")),
    };
    let (_turns, alive) = watch::channel(Instant::now());
    let (degraded, socket) = Endpoints::open(&policy, false, false).answer(control.clone(), alive);
    assert_eq!(degraded, []);
    Rig { control, path, log, _socket: socket, root }
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Status and body; `None` when the connection was ended without an answer.
fn exchange(path: &Path, request: &[u8]) -> Option<(u16, String)> {
    let mut stream = connect(path);
    // The server may refuse before it has read all.
    let _ended = stream.write_all(request);
    let mut answer = Vec::new();
    let _ended = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

fn ask(rig: &Rig, method: &str, target: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let request = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}");
    let (status, body) = exchange(&rig.path, request.as_bytes()).unwrap();
    (status, serde_json::from_str(&body).unwrap())
}

fn note(rig: &Rig, name: &str, rule: &str) {
    let subject = DecisionSubject {
        name: name.into(),
        cgroup: Some(CgroupPath::new(name)),
        container_id: None,
        ended: false,
    };
    let asked = WorkloadRequest { rule: Some(rule.into()), ..WorkloadRequest::default() };
    let record = DecisionRecord {
        reason: "node 0 has 4 free CPUs for 2".into(),
        considered: DecisionTrace { asked, ..DecisionTrace::default() },
        ..crate::engine::decisions::entry("turn", DecisionState::Corrected)
    };
    rig.control.decisions.note(subject, record);
}

#[test]
fn a_daemon_says_how_it_fares_before_its_first_turn() {
    let rig = rig();
    note(&rig, "/shop/orders", "orders");
    let (status, report) = ask(&rig, "GET", "/v1/status", "");
    assert_eq!(status, 200);
    assert_eq!((&report["latest"], &report["paused"]), (&Value::Null, &Value::Null));
    assert_eq!((&report["logLevel"], &report["pid"]), (&json!("info"), &json!(process::id())));
    assert_eq!(report["workloads"][0]["state"], "corrected");
    assert_eq!(report["workloads"][0]["workload"]["cgroup"], "/shop/orders");
}

#[test]
fn entries_without_a_workload_or_opted_out_are_listed() {
    let mut rig = rig();
    let audit = fixture::small();
    let left = audit.workloads[0].cgroup.clone();
    let entry =
        |name: &str, workloads| DeclaredEntry { name: name.into(), enforce: false, workloads, below: None };
    let entries = vec![entry("absent", Vec::new()), entry("left", vec![left.clone()])];
    rig.control.latest = watch::channel(Some(Arc::new(TickReport { entries, ..fixture::turn(audit) }))).1;
    assert_eq!(rig.control.status().latest.unwrap().unmatched, ["absent"]);
    let problem = rig.control.explain("absent").unwrap_err();
    assert_eq!(problem.message, "[[workload]] \"absent\" matches nothing that runs now");
    for name in [left.as_str(), "left"] {
        let told = rig.control.explain(name).unwrap();
        assert_eq!(told.declared, Some(DeclaredBy { entry: "left".into(), enforce: false }), "{name}");
        assert_eq!(told.workload.cgroup.as_ref(), Some(&left));
    }
    // Refused before it was declared.
    let subject =
        DecisionSubject { name: "x".into(), cgroup: Some(left.clone()), container_id: None, ended: false };
    rig.control.decisions.note(subject, crate::engine::decisions::entry("turn", DecisionState::Refused));
    assert_eq!(rig.control.explain("left").unwrap().decisions.len(), 1);
}

#[test]
fn drifted_workload_is_shown_without_its_grant() {
    let rig = rig();
    let noted = |cause, state| {
        let given = json!({
            "name": "a", "kind": "app", "engine": "hints", "policy": "restricted", "class": "shared",
            "cpus": "0", "pinnedCpus": true, "exclusiveCpus": "", "sharedCpus": "0",
            "mems": "0", "pinnedMems": true, "memoryByNode": {}, "devices": {}, "reason": "",
        });
        let given = serde_json::from_value(given).unwrap();
        let considered = DecisionTrace { placement: Some(given), ..DecisionTrace::default() };
        let record = DecisionRecord { cause, considered, ..crate::engine::decisions::entry("turn", state) };
        let subject = DecisionSubject {
            name: "a".into(),
            cgroup: Some(CgroupPath::new("/a")),
            container_id: None,
            ended: false,
        };
        rig.control.decisions.note(subject, record);
        rig.control.status().workloads.remove(0).placement.is_some()
    };
    assert!(noted(None, DecisionState::InPlace));
    assert!(!noted(Some(RefusalCause::Drift), DecisionState::Refused));
    assert!(noted(None, DecisionState::Corrected));
}

#[test]
fn workload_no_longer_declared_is_not_shown_and_is_explained() {
    let rig = rig();
    note(&rig, "/shop/orders", "orders");
    assert_eq!(rig.control.status().workloads.len(), 1);
    let subject = rig.control.decisions.all().remove(0).subject;
    let released = crate::engine::decisions::entry("turn", DecisionState::Released);
    rig.control.decisions.note(subject, released);
    assert_eq!(rig.control.status().workloads.len(), 0);
    let (status, report) = ask(&rig, "GET", "/v1/explain?workload=orders", "");
    assert_eq!((status, report["decisions"][1]["state"].as_str()), (200, Some("released")));
}

#[test]
fn a_workload_is_explained_and_one_that_is_not_known_is_not() {
    let rig = rig();
    for name in ["/shop/orders", "/dev/orders"] {
        note(&rig, name, "orders");
    }
    let cgroup = rig.root.path().join("cgroup/shop/orders");
    fs::create_dir_all(cgroup.join("below")).unwrap();
    fs::write(cgroup.join("cgroup.procs"), "34\n").unwrap();
    fs::write(cgroup.join("below/cgroup.procs"), "12\n").unwrap();
    let (status, report) = ask(&rig, "GET", "/v1/explain?workload=%2Fshop%2Forders", "");
    assert_eq!((status, report["decisions"].as_array().map(Vec::len)), (200, Some(1)));
    assert_eq!(report["processes"], json!({"pids": [12, 34], "more": 0}));
    let (_, report) = ask(&rig, "GET", "/v1/explain?workload=%2Fdev%2Forders", "");
    assert_eq!(report["processes"], Value::Null, "its cgroup is gone");
    assert_eq!(report["decisions"][0]["reason"], "node 0 has 4 free CPUs for 2");
    for (query, status, code) in [
        ("?workload=orders", 409, "ambiguous-workload"),
        ("?workload=none", 404, "unknown-workload"),
        ("?workload=", 404, "unknown-workload"),
        ("?workload=%ff%00%zz", 404, "unknown-workload"),
        ("?name=orders", 400, "bad-request"),
        ("", 400, "bad-request"),
    ] {
        let (found, problem) = ask(&rig, "GET", &format!("/v1/explain{query}"), "");
        assert_eq!((found, problem["code"].as_str()), (status, Some(code)), "{query}");
    }
    let (_, problem) = ask(&rig, "GET", "/v1/explain?workload=orders", "");
    assert_eq!(problem["candidates"], json!(["/dev/orders", "/shop/orders"]));
}

#[test]
fn a_process_is_explained_as_others_that_are_only_seen() {
    let mut rig = rig();
    let mut audit = fixture::small();
    for (one, pid) in audit.workloads.iter_mut().zip([1, 7]) {
        one.cgroup = CgroupPath::root();
        one.name = format!("api ({pid})");
        one.origin = Origin::Process { pid, command: "api".into() };
        one.owner = None;
    }
    let entry =
        DeclaredEntry { name: "all".into(), enforce: true, workloads: vec![CgroupPath::root()], below: None };
    let entries = vec![entry];
    rig.control.latest = watch::channel(Some(Arc::new(TickReport { entries, ..fixture::turn(audit) }))).1;
    // Its names in an audit's table and in the findings.
    for name in ["api (7)", "/#7"] {
        let told = rig.control.explain(name).unwrap();
        assert_eq!((told.workload.name.as_str(), told.processes), ("api (7)", Some(Processes::of(vec![7]))));
        assert_eq!((told.declared, told.decisions.len()), (None, 0), "{name}: its cgroup is not its own");
    }
    assert!(rig.control.explain("/").is_err());
    let problem = rig.control.explain("api").unwrap_err();
    assert_eq!(problem.candidates, ["api (1) (/#1)", "api (7) (/#7)"]);
}

#[test]
fn a_pause_lasts_until_it_is_resumed_or_ends() {
    let rig = rig();
    let (status, answer) = ask(&rig, "POST", "/v1/pause", r#"{"forSeconds": 600}"#);
    assert_eq!(
        (status, &answer["paused"]["leftSeconds"], &answer["settled"]),
        (200, &json!(600), &json!(true))
    );
    assert!(rig.control.gate.enter().is_none());
    let (_, answer) = ask(&rig, "POST", "/v1/pause", "");
    assert_eq!((&answer["paused"]["leftSeconds"], &answer["wasPaused"]), (&Value::Null, &json!(true)));
    assert_eq!(ask(&rig, "GET", "/v1/status", "").1["paused"]["leftSeconds"], Value::Null);
    assert_eq!(ask(&rig, "POST", "/v1/resume", "").1["wasPaused"], true);
    assert_eq!(ask(&rig, "POST", "/v1/resume", "").1["wasPaused"], false);
    assert!(rig.control.gate.enter().is_some());
    for body in
        [r#"{"forSeconds": 0}"#, r#"{"forSeconds": 86401}"#, r#"{"forSeconds": -1}"#, r#"{"for": 1}"#, "x"]
    {
        let (status, problem) = ask(&rig, "POST", "/v1/pause", body);
        assert_eq!((status, &problem["code"]), (400, &json!("bad-request")), "{body}");
    }
    assert_eq!(rig.control.gate.paused(), None);
}

#[test]
fn a_pause_is_recorded_for_the_next_daemon_or_it_is_said_why_not() {
    let rig = rig();
    let recorded = || rig.control.record.read().unwrap().map(|pause| pause.left(unix_ms()).is_some());
    for (path, body, expected) in [
        ("/v1/pause", r#"{"forSeconds": 600}"#, Some(true)),
        ("/v1/pause", "", Some(true)),
        ("/v1/resume", "", None),
        ("/v1/resume", "", None),
    ] {
        let (status, answer) = ask(&rig, "POST", path, body);
        assert_eq!((status, &answer["unrecorded"], recorded()), (200, &Value::Null, expected), "{path}");
    }
    fs::create_dir(rig.root.path().join("state/pause.new")).unwrap();
    let (status, answer) = ask(&rig, "POST", "/v1/pause", "");
    let why = answer["unrecorded"].as_str().unwrap();
    assert!(status == 200 && why.contains("pause.new"), "{answer}");
    assert!(rig.control.gate.paused().is_some(), "it is paused all the same");
}

#[test]
fn a_pause_is_answered_when_the_plan_that_is_carried_out_is_over() {
    let rig = rig();
    let gate = rig.control.gate.clone();
    let inside = gate.enter().unwrap();
    thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&rig, "POST", "/v1/pause", ""));
        // The pause has taken hold before the answer.
        let until = Instant::now() + PATIENCE;
        while rig.control.gate.paused().is_none() {
            assert!(Instant::now() < until, "it never does");
            thread::yield_now();
        }
        assert!(rig.control.gate.enter().is_none());
        drop(inside);
        assert_eq!(asking.join().unwrap().1["settled"], true);
    });
}

#[test]
fn the_level_of_the_log_is_shown_and_set() {
    let rig = rig();
    assert_eq!(ask(&rig, "GET", "/v1/log-level", ""), (200, json!({"level": "info"})));
    assert_eq!(ask(&rig, "PUT", "/v1/log-level", r#"{"level": "debug"}"#), (200, json!({"level": "debug"})));
    assert_eq!(ask(&rig, "PUT", "/v1/log-level", r#"{"level": "x=debug"}"#).0, 400);
    assert_eq!(ask(&rig, "GET", "/v1/status", "").1["logLevel"], "debug");
    assert_eq!(*rig.log.lock().unwrap(), ["debug"]);
}

#[test]
fn what_there_is_not_is_said() {
    let rig = rig();
    for (method, target) in
        [("GET", "/"), ("GET", "/v1/pause"), ("DELETE", "/v1/status"), ("POST", "/metrics")]
    {
        let (status, problem) = ask(&rig, method, target, "");
        assert_eq!((status, &problem["code"]), (404, &json!("not-found")), "{method} {target}");
    }
}

#[tokio::test]
async fn reader_changes_nothing_and_unauthorized_peer_is_refused() {
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    let rig = rig();
    note(&rig, "/shop/orders", "orders");
    let reads = [("GET", "/v1/status"), ("GET", "/v1/log-level"), ("GET", "/v1/explain?workload=orders")];
    let changes = [("POST", "/v1/pause"), ("POST", "/v1/resume"), ("PUT", "/v1/log-level")];
    let body = r#"{"level": "debug"}"#;
    for (access, may_read, may_change) in
        [(None, 403, 403), (Some(PeerRights::None), 403, 403), (Some(PeerRights::Read), 200, 403)]
    {
        for ((method, target), expected) in
            reads.iter().map(|read| (read, may_read)).chain(changes.iter().map(|change| (change, may_change)))
        {
            let mut router = router(rig.control.clone());
            if let Some(access) = access {
                router = router.layer(Extension(access));
            }
            let request = Request::builder().method(*method).uri(*target);
            let request = request.body(axum::body::Body::from(body)).unwrap();
            let response = TowerToHyperService::new(router).call(request).await.unwrap();
            assert_eq!(response.status(), expected, "{access:?} {method} {target}");
            let text = response.into_body().collect().await.unwrap().to_bytes();
            let has_problem = String::from_utf8_lossy(&text).contains("\"code\":\"forbidden\"");
            assert_eq!(has_problem, expected == 403, "{text:?}");
        }
    }
    assert!(rig.control.gate.paused().is_none() && rig.log.lock().unwrap().is_empty());
}

#[test]
fn hostile_requests_are_refused_and_the_next_one_is_answered() {
    let rig = rig();
    let huge_head = [b"GET /v1/status HTTP/1.1\r\nX: ".as_slice(), &vec![b'a'; 1 << 20]].concat();
    let many_heads = format!("GET /v1/status HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(1000)).into_bytes();
    let huge_body = [
        b"POST /v1/pause HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n".as_slice(),
        &vec![b' '; 10_000_000],
    ]
    .concat();
    let chunked = [
        b"PUT /v1/log-level HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice(),
        &b"1000\r\n".iter().chain(&vec![b' '; 4096]).chain(b"\r\n").copied().collect::<Vec<u8>>().repeat(64),
    ]
    .concat();
    let lying =
        b"POST /v1/pause HTTP/1.1\r\nHost: x\r\nContent-Length: 18446744073709551616\r\n\r\n".to_vec();
    let nothing_known = vec![0xff; 4096];
    for (name, request) in [
        ("huge head", huge_head),
        ("many headers", many_heads),
        ("huge body", huge_body),
        ("chunks without end", chunked),
        ("a length that is no number", lying),
        ("no HTTP", nothing_known),
    ] {
        let answer = exchange(&rig.path, &request);
        assert!(answer.as_ref().is_none_or(|(status, _)| (400..500).contains(status)), "{name}: {answer:?}");
        assert_eq!(rig.control.gate.paused(), None, "{name}");
        assert_eq!(ask(&rig, "GET", "/v1/status", "").0, 200, "after {name}");
    }
}

#[test]
fn half_closed_connection_is_answered() {
    let rig = rig();
    let mut stream = connect(&rig.path);
    stream.write_all(b"GET /v1/log-level HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_crowd_that_says_nothing_is_shut_out_and_then_forgotten() {
    let rig = rig();
    let crowd: Vec<UnixStream> = (0..200)
        .map(|number| {
            let mut stream = connect(&rig.path);
            // Every other request never ends.
            if number % 2 == 0 {
                let _ended = stream.write_all(b"POST /v1/pause HTTP/1.1\r\nContent-Length: 9\r\n\r\n{");
            }
            stream
        })
        .collect();
    // The engine's side of it never waits for any of them.
    let begun = Instant::now();
    for number in 0..1000 {
        drop(rig.control.gate.enter().unwrap());
        note(&rig, &format!("/w{number}"), "w");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // Most were closed at once; the rest at their time limit.
    for mut stream in crowd {
        let _ended = stream.read_to_end(&mut Vec::new());
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert_eq!(ask(&rig, "GET", "/v1/status", "").0, 200);
    assert_eq!(rig.control.gate.paused(), None);
}

#[test]
fn peer_that_reads_nothing_delays_no_other() {
    let rig = rig();
    // An answer that fits into no kernel buffer.
    for number in 0..1000 {
        note(&rig, &format!("/w{number}/{}", "x".repeat(2000)), "w");
    }
    let mut deaf = connect(&rig.path);
    deaf.write_all(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let begun = Instant::now();
    assert_eq!(ask(&rig, "GET", "/v1/log-level", "").0, 200);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // Its own connection ends all the same, before it has read everything.
    thread::sleep(Duration::from_secs(11));
    let mut heard = Vec::new();
    let _ended = deaf.read_to_end(&mut heard);
    let (_, whole) = exchange(&rig.path, b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(heard.len() < whole.len(), "{} of {}", heard.len(), whole.len());
}
