//! The link against a runtime that is played here, byte for byte over a pipe.

use prost::Message as _;
use tokio::{io::DuplexStream, sync::mpsc::Receiver, task::JoinHandle};

use super::*;
use crate::nri::{
    TooLate,
    api::{ContainerUpdate, LinuxCpu, LinuxResources, LinuxUpdate},
};

/// A runtime that does not say how long it waits is answered within this.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The runtime's end.
struct Runtime {
    stream: DuplexStream,
    decoder: MessageDecoder,
    came: Vec<TtrpcMessage>,
    next: u32,
}

impl Runtime {
    async fn send(&mut self, message: TtrpcMessage) {
        self.stream.write_all(&message.encode()).await.unwrap();
    }

    /// Asks, and says under which number.
    async fn ask(&mut self, service: &str, method: &str, payload: Vec<u8>) -> u32 {
        self.ask_and_wait(0, service, method, payload).await
    }

    /// Asks, and says how long it waits.
    async fn ask_and_wait(&mut self, nanoseconds: i64, service: &str, method: &str, payload: Vec<u8>) -> u32 {
        let stream = self.next;
        self.next += 2;
        let (service, method) = (service.into(), method.into());
        let request = TtrpcRequest { service, method, payload, timeout_nano: nanoseconds };
        let (connection, kind) = (LogicalConnection::Plugin, MessageKind::Request);
        self.send(TtrpcMessage { connection, stream, kind, body: request.encode_to_vec() }).await;
        stream
    }

    /// The next message of the plugin.
    async fn receive(&mut self) -> TtrpcMessage {
        while self.came.is_empty() {
            let mut buffer = [0; 1024];
            let length = self.stream.read(&mut buffer).await.unwrap();
            assert_ne!(length, 0, "the plugin hung up");
            self.came.extend(self.decoder.push(&buffer[..length]).unwrap());
        }
        self.came.remove(0)
    }

    /// The answer to the question of that number.
    async fn answer(&mut self, stream: u32) -> TtrpcResponse {
        let message = self.receive().await;
        assert_eq!(
            (message.connection, message.kind, message.stream),
            (LogicalConnection::Plugin, MessageKind::Response, stream)
        );
        TtrpcResponse::decode(&*message.body).unwrap()
    }

    async fn answer_to(&mut self, method: &str, payload: Vec<u8>) -> TtrpcResponse {
        let stream = self.ask(PLUGIN_SERVICE, method, payload).await;
        self.answer(stream).await
    }

    async fn register(&mut self, status: Option<TtrpcStatus>) -> RegisterPluginRequest {
        let message = self.receive().await;
        assert_eq!((message.connection, message.kind), (LogicalConnection::Runtime, MessageKind::Request));
        let request = TtrpcRequest::decode(&*message.body).unwrap();
        assert_eq!((request.service.as_str(), request.method.as_str()), (RUNTIME_SERVICE, "RegisterPlugin"));
        let body = TtrpcResponse { status, payload: Vec::new() }.encode_to_vec();
        self.send(TtrpcMessage { kind: MessageKind::Response, body, ..message }).await;
        RegisterPluginRequest::decode(&*request.payload).unwrap()
    }

    async fn configure(&mut self, nri_version: &str) -> i32 {
        let request = ConfigureRequest {
            runtime_name: "containerd".into(),
            runtime_version: "2.1.9".into(),
            nri_version: nri_version.into(),
            ..ConfigureRequest::default()
        };
        let answer = self.answer_to("Configure", request.encode_to_vec()).await;
        ConfigureResponse::decode(&*answer.payload).unwrap().events
    }
}

/// A link that serves one end of a pipe; the runtime has the other end.
fn link() -> (Runtime, Receiver<NriCall>, JoinHandle<LinkError>) {
    let (stream, ours) = tokio::io::duplex(64 << 10);
    let (calls, receiver) = mpsc::channel(16);
    let plugin = PluginName { name: "numa-enforcer".into(), index: 7 };
    let served = tokio::spawn(async move { serve(ours, &plugin, &calls).await });
    let runtime = Runtime { stream, decoder: MessageDecoder::default(), came: Vec::new(), next: 1 };
    (runtime, receiver, served)
}

async fn registered() -> (Runtime, Receiver<NriCall>, JoinHandle<LinkError>) {
    let (mut runtime, calls, served) = link();
    runtime.register(None).await;
    (runtime, calls, served)
}

fn pod(name: &str) -> PodSandbox {
    PodSandbox { name: name.into(), ..PodSandbox::default() }
}

fn container(id: &str) -> Container {
    Container { id: id.into(), ..Container::default() }
}

fn about(id: &str) -> Vec<u8> {
    let (pod, container) = (Some(pod("p")), Some(container(id)));
    ContainerCall { pod, container, linux_resources: Some(cpuset("9", "")) }.encode_to_vec()
}

fn cpuset(cpus: &str, mems: &str) -> LinuxResources {
    let cpu = LinuxCpu { cpus: cpus.into(), mems: mems.into(), ..LinuxCpu::default() };
    LinuxResources { cpu: Some(cpu), ..LinuxResources::default() }
}

fn update(id: &str, cpus: &str) -> ContainerUpdate {
    let linux = LinuxUpdate { resources: Some(cpuset(cpus, "")) };
    ContainerUpdate { container_id: id.into(), linux: Some(linux), ignore_failure: true }
}

#[tokio::test]
async fn a_plugin_registers_is_configured_and_asks_for_no_event_that_an_old_runtime_does_not_know() {
    let (mut runtime, _calls, _served) = link();
    let named = runtime.register(None).await;
    assert_eq!((named.plugin_name.as_str(), named.plugin_idx.as_str()), ("numa-enforcer", "07"));
    let events = runtime.configure("").await;
    assert_eq!(events & !0x7ff, 0);
    assert_eq!(events, 0b110_1100_1100);
}

#[tokio::test]
async fn a_runtime_that_configures_before_it_answers_the_registration_is_fine() {
    let (mut runtime, mut calls, _served) = link();
    let registration = runtime.receive().await;
    runtime.configure("0.12.1").await;
    let ok = TtrpcMessage {
        kind: MessageKind::Response,
        body: TtrpcResponse::default().encode_to_vec(),
        ..registration
    };
    runtime.send(ok).await;
    runtime.ask(PLUGIN_SERVICE, "Synchronize", SynchronizeRequest::default().encode_to_vec()).await;
    let Some(NriCall::Synchronize { runtime: version, .. }) = calls.recv().await else { panic!() };
    assert_eq!((version.name.as_str(), version.version.as_str()), ("containerd", "2.1.9"));
    assert_eq!(version.nri.as_deref(), Some("0.12.1"));
}

#[tokio::test]
async fn what_there_is_may_come_in_parts_and_updates_go_with_the_last() {
    let (mut runtime, mut calls, _served) = registered().await;
    let part = |ids: &[&str], more| {
        let containers = ids.iter().map(|id| container(id)).collect();
        SynchronizeRequest { pods: vec![pod(ids[0])], containers, more }.encode_to_vec()
    };
    let first = runtime.answer_to("Synchronize", part(&["a", "b"], true)).await;
    let first = SynchronizeResponse::decode(&*first.payload).unwrap();
    assert_eq!((first.more, first.update.len()), (true, 0));
    let last = runtime.ask(PLUGIN_SERVICE, "Synchronize", part(&["c"], false)).await;
    let Some(NriCall::Synchronize { pods, containers, reply, .. }) = calls.recv().await else { panic!() };
    assert_eq!(containers.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(pods.len(), 2);
    reply
        .send(NriAnswer { adjust: None, updates: vec![update("a", "0-1")], ..NriAnswer::default() })
        .unwrap();
    let answer = runtime.answer(last).await;
    let answer = SynchronizeResponse::decode(&*answer.payload).unwrap();
    assert_eq!((answer.more, answer.update), (false, vec![update("a", "0-1")]));
}

/// Half of what there is would look as if the rest had ended.
#[tokio::test]
async fn interrupted_synchronisation_is_not_passed_on() {
    let part = || SynchronizeRequest { pods: Vec::new(), containers: vec![container("a")], more: true };
    let (mut runtime, mut calls, served) = registered().await;
    runtime.answer_to("Synchronize", part().encode_to_vec()).await;
    drop(runtime);
    assert!(matches!(served.await.unwrap(), LinkError::Closed));
    assert!(calls.recv().await.is_none());

    // In the middle of a message.
    let (mut runtime, mut calls, served) = registered().await;
    let request = TtrpcRequest {
        service: PLUGIN_SERVICE.into(),
        method: "Synchronize".into(),
        payload: part().encode_to_vec(),
        ..TtrpcRequest::default()
    };
    let whole = TtrpcMessage {
        connection: LogicalConnection::Plugin,
        stream: 9,
        kind: MessageKind::Request,
        body: request.encode_to_vec(),
    };
    let bytes = whole.encode();
    runtime.stream.write_all(&bytes[..bytes.len() - 1]).await.unwrap();
    drop(runtime);
    assert!(matches!(served.await.unwrap(), LinkError::Closed));
    assert!(calls.recv().await.is_none());
}

#[tokio::test]
async fn a_creation_is_answered_with_its_cpuset_and_the_updates_of_others() {
    let (mut runtime, mut calls, _served) = registered().await;
    let asked = runtime.ask(PLUGIN_SERVICE, "CreateContainer", about("new")).await;
    let Some(NriCall::Create { subject, reply }) = calls.recv().await else { panic!() };
    assert_eq!((subject.container.id.as_str(), subject.pod.name.as_str()), ("new", "p"));
    let answer = NriAnswer {
        adjust: Some(cpuset("2-3", "1")),
        updates: vec![update("old", "0-1")],
        ..NriAnswer::default()
    };
    reply.send(answer).unwrap();
    let answer = runtime.answer(asked).await;
    assert_eq!(answer.status, None);
    let answer = CreateContainerResponse::decode(&*answer.payload).unwrap();
    assert_eq!(answer.adjust.unwrap().linux.unwrap().resources.unwrap(), cpuset("2-3", "1"));
    assert_eq!(answer.update, [update("old", "0-1")]);
}

#[tokio::test]
async fn an_update_tells_what_was_asked_for_and_a_stop_has_updates_of_others() {
    let (mut runtime, mut calls, _served) = registered().await;
    for method in ["UpdateContainer", "StopContainer"] {
        let asked = runtime.ask(PLUGIN_SERVICE, method, about("x")).await;
        let reply = match calls.recv().await.unwrap() {
            NriCall::Update { wanted, reply, .. } => {
                assert_eq!((method, wanted), ("UpdateContainer", cpuset("9", "")));
                reply
            }
            NriCall::Stop { reply, .. } => reply,
            other => panic!("{other:?}"),
        };
        reply
            .send(NriAnswer { adjust: None, updates: vec![update("x", "4")], ..NriAnswer::default() })
            .unwrap();
        let answer = runtime.answer(asked).await;
        assert_eq!(Updates::decode(&*answer.payload).unwrap().update, [update("x", "4")]);
    }
}

#[tokio::test(start_paused = true)]
async fn late_decision_is_reported_and_the_runtime_is_answered_in_time() {
    let (mut runtime, mut calls, _served) = registered().await;
    let asked = runtime.ask(PLUGIN_SERVICE, "CreateContainer", about("slow")).await;
    let Some(NriCall::Create { reply, .. }) = calls.recv().await else { panic!() };
    let begun = tokio::time::Instant::now();
    let answer = runtime.answer(asked).await;
    assert!(begun.elapsed() <= ANSWER_WITHIN + Duration::from_millis(10));
    assert_eq!(answer.status, None);
    assert_eq!(
        CreateContainerResponse::decode(&*answer.payload).unwrap(),
        CreateContainerResponse::default()
    );
    let late = NriAnswer { adjust: Some(cpuset("1", "0")), updates: Vec::new(), ..NriAnswer::default() };
    assert_eq!(reply.send(late), Err(TooLate));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_says_how_long_it_waits_is_answered_in_half_of_that() {
    for (nanoseconds, milliseconds) in [
        (0, 1000),
        (2_000_000_000, 1000),
        (20_000_000_000, 10_000),
        (300_000_000, 150),
        (1, 0),
        (-1, 1000),
        (i64::MIN, 1000),
        (i64::MAX, 30_000),
    ] {
        let (mut runtime, mut calls, _served) = registered().await;
        let begun = Instant::now();
        let asked = runtime.ask_and_wait(nanoseconds, PLUGIN_SERVICE, "CreateContainer", about("slow")).await;
        let _unanswered = calls.recv().await.unwrap();
        runtime.answer(asked).await;
        let (took, expected) = (begun.elapsed(), Duration::from_millis(milliseconds));
        assert!(took >= expected && took <= expected + Duration::from_millis(10), "{nanoseconds}: {took:?}");
    }
}

/// Sends as many calls as there is room for, without a receiver that takes them.
async fn fill(runtime: &mut Runtime, calls: &Receiver<NriCall>) {
    for number in 1..=calls.max_capacity() {
        runtime.ask(PLUGIN_SERVICE, "StopContainer", about("first")).await;
        while calls.len() < number {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn untaken_call_is_answered_in_time_and_later_calls_at_once() {
    let (mut runtime, mut calls, served) = registered().await;
    fill(&mut runtime, &calls).await;
    let begun = Instant::now();
    let last = runtime.ask(PLUGIN_SERVICE, "CreateContainer", about("last")).await;
    while runtime.receive().await.stream != last {}
    assert!(begun.elapsed() <= ANSWER_WITHIN + Duration::from_millis(10), "{:?}", begun.elapsed());

    let begun = Instant::now();
    for method in ["CreateContainer", "StateChange", "Synchronize"] {
        let asked = runtime.ask(PLUGIN_SERVICE, method, Vec::new()).await;
        while runtime.receive().await.stream != asked {}
    }
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    assert!(!served.is_finished());

    calls.recv().await.unwrap();
    assert!(matches!(served.await.unwrap(), LinkError::Behind), "what is lost must be told again");
}

#[tokio::test(start_paused = true)]
async fn what_a_call_waits_to_be_taken_is_part_of_its_time() {
    let (mut runtime, mut calls, _served) = registered().await;
    fill(&mut runtime, &calls).await;
    let begun = Instant::now();
    let last = runtime.ask(PLUGIN_SERVICE, "CreateContainer", about("last")).await;
    tokio::time::sleep(ANSWER_WITHIN / 2).await;
    let reply = loop {
        if let NriCall::Create { reply, .. } = calls.recv().await.unwrap() {
            break reply;
        }
    };
    let waited = Instant::now().into_std().duration_since(reply.arrived());
    assert!(waited >= ANSWER_WITHIN / 2 && waited < ANSWER_WITHIN, "{waited:?}");
    while runtime.receive().await.stream != last {}
    assert!(begun.elapsed() <= ANSWER_WITHIN + Duration::from_millis(10), "{:?}", begun.elapsed());
    assert_eq!(reply.send(NriAnswer::default()), Err(TooLate));
}

#[tokio::test(start_paused = true)]
async fn one_slow_decision_holds_up_no_other_and_a_forgotten_one_changes_nothing() {
    let (mut runtime, mut calls, _served) = registered().await;
    runtime.ask(PLUGIN_SERVICE, "CreateContainer", about("slow")).await;
    let Some(NriCall::Create { reply: slow, .. }) = calls.recv().await else { panic!() };
    let quick = runtime.ask(PLUGIN_SERVICE, "StopContainer", about("quick")).await;
    let Some(NriCall::Stop { reply, .. }) = calls.recv().await else { panic!() };
    drop(reply);
    let answer = runtime.answer(quick).await;
    assert_eq!((answer.status, answer.payload), (None, Vec::new()));
    drop(slow);
}

#[tokio::test]
async fn events_are_told_in_order_and_answered_whether_they_matter_or_not() {
    let (mut runtime, mut calls, _served) = registered().await;
    let told = |event| {
        StateChangeEvent { event, pod: Some(pod("p")), container: Some(container("c")) }.encode_to_vec()
    };
    for event in [1, 7, 99, -1, 11, 3] {
        let answer = runtime.answer_to("StateChange", told(event)).await;
        assert_eq!((answer.status, answer.payload), (None, Vec::new()));
    }
    assert!(matches!(calls.recv().await.unwrap(), NriCall::Started(subject) if subject.container.id == "c"));
    assert!(matches!(calls.recv().await.unwrap(), NriCall::Removed(_)));
    assert!(matches!(calls.recv().await.unwrap(), NriCall::PodRemoved(pod) if pod.name == "p"));
    assert!(calls.try_recv().is_err());
}

#[tokio::test]
async fn unknown_methods_and_services_are_not_served_and_the_link_goes_on() {
    let (mut runtime, _calls, _served) = registered().await;
    for (service, method) in [(PLUGIN_SERVICE, "ValidateContainerAdjustment"), ("other.Service", "Configure")]
    {
        let stream = runtime.ask(service, method, Vec::new()).await;
        assert_eq!(runtime.answer(stream).await.status.unwrap().code, code::UNIMPLEMENTED);
    }
    assert_eq!(runtime.answer_to("Shutdown", Vec::new()).await.status, None);
}

#[tokio::test]
async fn a_link_says_why_it_ended() {
    let (runtime, _calls, served) = registered().await;
    drop(runtime);
    assert!(matches!(served.await.unwrap(), LinkError::Closed));

    let (mut runtime, _calls, served) = link();
    runtime.register(Some(TtrpcStatus { code: 2, message: "no".into() })).await;
    let text = served.await.unwrap().to_string();
    assert_eq!(text, "RegisterPlugin: the runtime refused with code 2: no");

    let (mut runtime, _calls, served) = registered().await;
    runtime.ask(PLUGIN_SERVICE, "CreateContainer", vec![0xff; 3]).await;
    let text = served.await.unwrap().to_string();
    assert!(text.starts_with("CreateContainer of the runtime: "), "{text}");

    let (mut runtime, calls, served) = registered().await;
    drop(calls);
    runtime.ask(PLUGIN_SERVICE, "StopContainer", about("x")).await;
    assert!(matches!(served.await.unwrap(), LinkError::Unheard));
}

/// Its id would be kept for as long as it is there.
#[tokio::test]
async fn what_no_runtime_calls_a_container_is_left_alone_and_answered() {
    let (mut runtime, mut calls, _served) = registered().await;
    let long = "x".repeat(1 << 20);
    for method in ["CreateContainer", "UpdateContainer", "StopContainer"] {
        let answer = runtime.answer_to(method, about(&long)).await;
        assert_eq!((answer.status, answer.payload), (None, Vec::new()));
    }
    let told = StateChangeEvent { event: 7, pod: Some(pod("p")), container: Some(container(&long)) };
    runtime.answer_to("StateChange", told.encode_to_vec()).await;
    let there = SynchronizeRequest {
        pods: vec![PodSandbox { id: long.clone(), ..pod("p") }, pod("q")],
        containers: vec![container("a"), container(&long)],
        more: false,
    };
    runtime.ask(PLUGIN_SERVICE, "Synchronize", there.encode_to_vec()).await;
    let Some(NriCall::Synchronize { pods, containers, .. }) = calls.recv().await else { panic!() };
    assert_eq!((pods, containers), (vec![pod("q")], vec![container("a")]));
}

/// It goes into logs, reports and answers.
#[tokio::test]
async fn texts_of_a_runtime_are_told_in_one_line_and_cut() {
    let forged = format!("evil\nINFO all is well\u{202e}{}", "x".repeat(3 << 20));
    let fits =
        |text: &str| text.chars().count() <= 201 && text.ends_with('…') && !text.contains(['\n', '\u{202e}']);

    let (mut runtime, _calls, served) = link();
    runtime.register(Some(TtrpcStatus { code: 2, message: forged.clone() })).await;
    let Err(LinkError::Refused { message, .. }) = served.await.map(Err::<(), _>).unwrap() else { panic!() };
    assert!(fits(&message) && message.starts_with("evil\\nINFO"), "{message}");

    let (mut runtime, mut calls, _served) = registered().await;
    let request = ConfigureRequest {
        runtime_name: forged.clone(),
        runtime_version: forged.clone(),
        nri_version: forged.clone(),
        ..ConfigureRequest::default()
    };
    runtime.answer_to("Configure", request.encode_to_vec()).await;
    runtime.ask(PLUGIN_SERVICE, "Synchronize", Vec::new()).await;
    let Some(NriCall::Synchronize { runtime: version, reply, .. }) = calls.recv().await else { panic!() };
    assert!([version.name, version.version, version.nri.unwrap()].iter().all(|text| fits(text)));
    drop(reply);
    runtime.receive().await;
    let answer = runtime.answer_to(&forged, Vec::new()).await;
    assert!(answer.status.unwrap().message.len() < 1000);
}

/// Counted before anything is decoded: what follows is no protobuf any longer.
#[tokio::test]
async fn more_than_any_node_has_is_refused_before_it_takes_memory() {
    let too_many = |ended: LinkError| matches!(ended, LinkError::TooMany { .. });
    for empty in [[0x0a, 0], [0x12, 0]] {
        let (mut runtime, mut calls, served) = registered().await;
        let all = [empty.repeat(MOST_CONTAINERS + 1), vec![0xff; 3]].concat();
        runtime.ask(PLUGIN_SERVICE, "Synchronize", all).await;
        let ended = served.await.unwrap();
        assert!(matches!(ended, LinkError::TooMany { .. } | LinkError::Unreadable { .. }), "{ended}");
        assert!(calls.recv().await.is_none());
    }

    // In parts of which none is too large.
    let (mut runtime, mut calls, served) = registered().await;
    let part = [[0x12, 0].repeat(MOST_CONTAINERS / 2 + 1), vec![0x18, 1]].concat();
    runtime.answer_to("Synchronize", part.clone()).await;
    runtime.ask(PLUGIN_SERVICE, "Synchronize", part).await;
    assert!(too_many(served.await.unwrap()));
    assert!(calls.recv().await.is_none());

    for (method, key) in [("Synchronize", 2), ("CreateContainer", 2), ("StateChange", 3)] {
        let (mut runtime, mut calls, served) = registered().await;
        let variables = [0x42, 0].repeat(MOST_FIELDS + 1);
        let mut message = Vec::new();
        prost::encoding::bytes::encode(key, &variables, &mut message);
        runtime.ask(PLUGIN_SERVICE, method, message).await;
        assert!(too_many(served.await.unwrap()), "{method}");
        assert!(calls.recv().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_says_nothing_is_left() {
    let (_runtime, _calls, served) = link();
    assert!(matches!(served.await.unwrap(), LinkError::Silent));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_registers_us_and_says_nothing_of_its_containers_is_left() {
    let (mut runtime, _calls, served) = registered().await;
    tokio::time::sleep(ANNOUNCED_WITHIN / 2).await;
    assert!(!served.is_finished(), "it has time");
    runtime.configure("").await;
    assert!(matches!(served.await.unwrap(), LinkError::Unannounced));
}

#[tokio::test(start_paused = true)]
async fn a_registration_that_is_never_answered_whole_ends_the_link() {
    let (mut runtime, _calls, served) = link();
    let registration = runtime.receive().await;
    let answer = TtrpcMessage { kind: MessageKind::Response, ..registration }.encode();
    let begun = tokio::time::Instant::now();
    for byte in &answer[..answer.len() - 1] {
        if runtime.stream.write_all(&[*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert!(matches!(served.await.unwrap(), LinkError::Silent));
    assert!(begun.elapsed() < 3 * REGISTERED_WITHIN, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_reads_no_answers_is_not_read_either() {
    let (mut runtime, mut calls, _served) = registered().await;
    let heard = tokio::spawn(async move {
        let mut heard = 0;
        while let Ok(Some(call)) = tokio::time::timeout(Duration::from_secs(5), calls.recv()).await {
            let NriCall::Stop { reply, .. } = call else { panic!("{call:?}") };
            let updates = (0..20).map(|_| update(&"x".repeat(100), "0-1")).collect();
            reply.send(NriAnswer { updates, ..NriAnswer::default() }).unwrap();
            heard += 1;
        }
        heard
    });
    let asked = async {
        for _ in 0..5_000 {
            runtime.ask(PLUGIN_SERVICE, "StopContainer", about("x")).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(2), asked).await.is_err(), "all were taken");
    let heard = heard.await.unwrap();
    assert!((MOST_CALLS..MOST_CALLS + 2 * QUEUE + 100).contains(&heard), "{heard}");
}
