//! One link to a container runtime, from registration to the end.
//!
//! The plugin connects and registers. The runtime configures it, lists its pods and containers (in one or
//! several parts), and from then on calls for each event. Calls go out through a channel in order. They are
//! answered when their [`Reply`] is sent, or with "no change" after half of the time that the runtime waits,
//! even if no receiver has taken them. A call that was not taken by then is lost: later calls are answered
//! with "no change" at once, and when calls are taken again the link ends. The next link begins with a new
//! list.
//!
//! Invariants: a fault of ours is never answered with an error, because the runtime would not start the
//! container. The plugin never requests a change unasked. Input from the runtime can end the link, but not
//! the daemon.

use std::{io, sync::Arc, time::Duration};

use prost::{DecodeError, Message as _};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::{Semaphore, mpsc},
    time::{Instant, timeout_at},
};

use super::{
    api::{
        ConfigureRequest, ConfigureResponse, Container, ContainerAdjustment, ContainerCall,
        CreateContainerResponse, LinuxChange, LinuxResources, PLUGIN_SERVICE, PodSandbox, RUNTIME_SERVICE,
        RegisterPluginRequest, StateChangeEvent, SynchronizeRequest, SynchronizeResponse, TtrpcRequest,
        TtrpcResponse, TtrpcStatus, Updates, code,
    },
    call::{
        NriAnswer, NriCall, NriSubject, Reply, RuntimeVersion, beyond_container, beyond_pod, printable_line,
        short_container, short_pod,
    },
    wire::{LogicalConnection, MessageDecoder, MessageKind, TtrpcMessage, WireError},
};
use crate::protobuf::occurrences;

/// How long runtimes wait for the answer to a call if they do not say: that is their default
/// (`DefaultPluginRequestTimeout` of NRI). Then they throw the plugin out.
const RUNTIMES_WAIT: Duration = Duration::from_secs(2);

/// Longest wait of a runtime that is believed.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Longest time until the runtime has answered the registration.
const REGISTERED_WITHIN: Duration = Duration::from_secs(10);

/// Longest time from then until the runtime begins to list its containers, which it does at once.
const ANNOUNCED_WITHIN: Duration = Duration::from_mins(1);

/// Most answers that wait to be written.
const QUEUE: usize = 64;

/// Most calls without a written answer; further ones are not read before. So a runtime that reads no answers
/// delays only itself.
const MOST_CALLS: usize = 256;

/// Most containers that a runtime can announce in parts: several times what a node is made for, and what can
/// be placed anew while the runtime waits for no answer for seconds.
const MOST_CONTAINERS: usize = 1 << 13;

/// Most names, variables and so on of pods and containers in a message, or in all parts of an announcement:
/// for each of 1,000 containers a thousand. One is two bytes on the link and some hundred once it is decoded.
const MOST_FIELDS: usize = 1 << 20;

/// Most bytes of all parts: 1,000 containers with all that Kubernetes lets annotations have.
const MOST_BYTES: usize = 256 << 20;

/// Events by their number (`enum Event` of `pkg/api/api.proto`).
mod event {
    pub(super) const REMOVE_POD_SANDBOX: i32 = 3;
    pub(super) const CREATE_CONTAINER: i32 = 4;
    pub(super) const POST_START_CONTAINER: i32 = 7;
    pub(super) const UPDATE_CONTAINER: i32 = 8;
    pub(super) const STOP_CONTAINER: i32 = 10;
    pub(super) const REMOVE_CONTAINER: i32 = 11;
}

/// Events that we subscribe to. A runtime disconnects a plugin that subscribes to an event it does not know;
/// these are in every version. The creation of a pod (`RUN_POD_SANDBOX`) is not among them: each call about a
/// container carries its pod (ADR 0014).
const EVENTS: [i32; 6] = [
    event::REMOVE_POD_SANDBOX,
    event::CREATE_CONTAINER,
    event::POST_START_CONTAINER,
    event::UPDATE_CONTAINER,
    event::STOP_CONTAINER,
    event::REMOVE_CONTAINER,
];

/// How the plugin calls itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginName {
    /// Its name.
    pub name: String,
    /// Its place among the plugins: those with lower numbers are asked first.
    pub index: u8,
}

/// Why a link is down.
#[derive(Debug, Error)]
pub(super) enum LinkError {
    /// The runtime ended, or disconnected the plugin.
    #[error("the runtime closed the NRI link")]
    Closed,
    /// It cannot be read or written.
    #[error("{operation} the NRI link: {cause}")]
    Io {
        /// `reading`, `writing`.
        operation: &'static str,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// The bytes are not a valid frame or message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A message is no protobuf of its kind.
    #[error("{method} of the runtime: {cause}")]
    Malformed {
        /// Which call.
        method: String,
        /// Why.
        #[source]
        cause: DecodeError,
    },
    /// Protobuf that cannot be measured before it is decoded.
    #[error("{method} of the runtime: not protobuf of the kind that it is to be")]
    Unreadable {
        /// Which call.
        method: &'static str,
    },
    /// The runtime does not want the plugin.
    #[error("RegisterPlugin: the runtime refused with code {code}: {message}")]
    Refused {
        /// Code of the answer.
        code: i32,
        /// Its text.
        message: String,
    },
    /// The runtime did not answer the registration.
    #[error("RegisterPlugin: no answer within {} s", REGISTERED_WITHIN.as_secs())]
    Silent,
    /// The runtime accepted the registration and did not list its containers.
    #[error("Synchronize: not asked within {} s after the registration", ANNOUNCED_WITHIN.as_secs())]
    Unannounced,
    /// More than any node has.
    #[error(
        "{method} of the runtime: more than {MOST_CONTAINERS} containers, {MOST_FIELDS} fields or {} MiB",
        MOST_BYTES >> 20
    )]
    TooMany {
        /// Which call.
        method: &'static str,
    },
    /// Calls were lost, so the runtime must list its containers again.
    #[error("calls came faster than they were taken, and some are lost")]
    Behind,
    /// The receiver of calls is gone: the daemon ends.
    #[error("the daemon ends")]
    Unheard,
}

/// Serves one link until it ends.
pub(super) async fn serve<S>(stream: S, plugin: &PluginName, calls: &mpsc::Sender<NriCall>) -> LinkError
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (answers, mut queue) = mpsc::channel::<TtrpcMessage>(QUEUE);
    let write = async move {
        while let Some(message) = queue.recv().await {
            if let Err(cause) = writer.write_all(&message.encode()).await {
                return LinkError::Io { operation: "writing", cause };
            }
        }
        LinkError::Closed
    };
    let read = async {
        let (runtime, parts) = (RuntimeVersion::default(), SyncParts::default());
        let unwritten = Arc::new(Semaphore::new(MOST_CALLS));
        let mut link =
            Link { calls, answers, runtime, parts, unwritten, lost: false, said: false, speaks: false };
        link.register(plugin).await?;
        link.read(&mut reader).await
    };
    tokio::select! {
        ended = write => ended,
        Err(ended) = read => ended,
    }
}

/// A task that ends only with an error.
enum Endless {}

struct Link<'a> {
    calls: &'a mpsc::Sender<NriCall>,
    answers: mpsc::Sender<TtrpcMessage>,
    runtime: RuntimeVersion,
    parts: SyncParts,
    /// Room for calls without a written answer.
    unwritten: Arc<Semaphore>,
    /// A call was lost.
    lost: bool,
    /// Skipped containers were logged already.
    said: bool,
    /// The runtime has begun to list its containers.
    speaks: bool,
}

/// Parts of an incomplete synchronisation.
#[derive(Default)]
struct SyncParts {
    pods: Vec<PodSandbox>,
    containers: Vec<Container>,
    bytes: usize,
    fields: usize,
}

/// A call of the runtime.
#[derive(Debug, Clone, Copy)]
struct PendingCall {
    /// Its number.
    stream: u32,
    /// When its last bytes came.
    arrived: Instant,
    /// When it must be answered.
    until: Instant,
}

/// Number of the one question that we ask.
const REGISTRATION: u32 = 1;

impl Link<'_> {
    async fn register(&self, plugin: &PluginName) -> Result<(), LinkError> {
        let request = RegisterPluginRequest {
            plugin_name: plugin.name.clone(),
            plugin_idx: format!("{:02}", plugin.index.min(99)),
        };
        let body = TtrpcRequest {
            service: RUNTIME_SERVICE.into(),
            method: "RegisterPlugin".into(),
            payload: request.encode_to_vec(),
            timeout_nano: 0,
        };
        let (connection, kind) = (LogicalConnection::Runtime, MessageKind::Request);
        self.write(TtrpcMessage { connection, stream: REGISTRATION, kind, body: body.encode_to_vec() }).await
    }

    async fn read(&mut self, reader: &mut (impl AsyncRead + Unpin)) -> Result<Endless, LinkError> {
        let mut decoder = MessageDecoder::default();
        let mut buffer = vec![0; 64 << 10];
        let mut registered = false;
        let mut until = Instant::now() + REGISTERED_WITHIN;
        loop {
            let speaks = self.speaks;
            let late = if registered { LinkError::Unannounced } else { LinkError::Silent };
            let read = async {
                let read = reader.read(&mut buffer);
                if registered && speaks {
                    return Ok(read.await);
                }
                timeout_at(until, read).await.map_err(|_late| late)
            };
            let read = tokio::select! {
                room = self.calls.reserve(), if self.lost => {
                    return Err(room.map_or(LinkError::Unheard, |_taken| LinkError::Behind));
                }
                read = read => read?,
            };
            let arrived = Instant::now();
            let length = read.map_err(|cause| LinkError::Io { operation: "reading", cause })?;
            if length == 0 {
                return Err(LinkError::Closed);
            }
            for message in decoder.push(&buffer[..length])? {
                match (message.connection, message.kind) {
                    (LogicalConnection::Plugin, MessageKind::Request) => self.asked(message, arrived).await?,
                    (LogicalConnection::Runtime, MessageKind::Response) if message.stream == REGISTRATION => {
                        accepted(&message.body)?;
                        registered = true;
                        until = Instant::now() + ANNOUNCED_WITHIN;
                    }
                    _ => {}
                }
            }
        }
    }

    /// One question of the runtime.
    async fn asked(&mut self, message: TtrpcMessage, arrived: Instant) -> Result<(), LinkError> {
        let stream = message.stream;
        let request: TtrpcRequest = decode("a request", &message.body)?;
        let asked = PendingCall { stream, arrived, until: arrived + answer_within(request.timeout_nano) };
        if request.service != PLUGIN_SERVICE {
            return self.unimplemented(stream, &request).await;
        }
        self.speaks |= request.method != "Configure";
        match request.method.as_str() {
            "Configure" => self.configured(stream, &request).await,
            "Synchronize" => self.synchronized(asked, &request).await,
            "CreateContainer" => {
                let call = |subject, _, reply| NriCall::Create { subject, reply };
                self.about(asked, "CreateContainer", &request, call, created).await
            }
            "UpdateContainer" => {
                let call = |subject, wanted, reply| NriCall::Update { subject, wanted, reply };
                self.about(asked, "UpdateContainer", &request, call, updated).await
            }
            "StopContainer" => {
                let call = |subject, _, reply| NriCall::Stop { subject, reply };
                self.about(asked, "StopContainer", &request, call, updated).await
            }
            "StateChange" => {
                bounded("StateChange", &request.payload, 2, MOST_FIELDS)?;
                let told: StateChangeEvent = decode(&request.method, &request.payload)?;
                // First the answer: an event needs none from us.
                self.respond(stream, Vec::new()).await?;
                let subject = Box::new(NriSubject::of_message(told.pod, told.container));
                if self.leaves(subject.beyond().as_deref()) {
                    return Ok(());
                }
                match happened(told.event, subject) {
                    Some(call) => self.call(call, asked.until).await,
                    None => Ok(()),
                }
            }
            "Shutdown" => self.respond(stream, Vec::new()).await,
            _ => self.unimplemented(stream, &request).await,
        }
    }

    /// A call about a container; a skipped container gets "no change".
    async fn about(
        &mut self,
        asked: PendingCall,
        method: &'static str,
        request: &TtrpcRequest,
        call: impl FnOnce(Box<NriSubject>, LinuxResources, Reply) -> NriCall,
        encode: fn(NriAnswer) -> Vec<u8>,
    ) -> Result<(), LinkError> {
        let (subject, wanted) = subject(method, request)?;
        if self.leaves(subject.beyond().as_deref()) {
            return self.respond(asked.stream, Vec::new()).await;
        }
        self.ask(asked, |reply| call(subject, wanted, reply), encode).await
    }

    /// Whether the container is skipped for this reason.
    fn leaves(&mut self, reason: Option<&str>) -> bool {
        if let Some(reason) = &reason
            && !self.said
        {
            tracing::warn!("{reason}: left alone, as all such of this runtime are");
            self.said = true;
        }
        reason.is_some()
    }

    async fn configured(&mut self, stream: u32, request: &TtrpcRequest) -> Result<(), LinkError> {
        let asked: ConfigureRequest = decode(&request.method, &request.payload)?;
        self.runtime = RuntimeVersion {
            name: printable_line(&asked.runtime_name),
            version: printable_line(&asked.runtime_version),
            nri: Some(printable_line(&asked.nri_version)).filter(|version| !version.is_empty()),
        };
        let events = EVENTS.iter().fold(0, |mask, event| mask | 1 << (event - 1));
        self.respond(stream, ConfigureResponse { events }.encode_to_vec()).await
    }

    async fn synchronized(&mut self, asked: PendingCall, request: &TtrpcRequest) -> Result<(), LinkError> {
        let (method, payload) = ("Synchronize", &request.payload);
        self.parts.bytes = self.parts.bytes.saturating_add(payload.len());
        if self.parts.bytes > MOST_BYTES {
            return Err(LinkError::TooMany { method });
        }
        for (field, have) in [(1, self.parts.pods.len()), (2, self.parts.containers.len())] {
            let room = MOST_CONTAINERS.saturating_sub(have);
            if counted(method, payload, &[field], room)? > room {
                return Err(LinkError::TooMany { method });
            }
        }
        self.parts.fields += bounded(method, payload, 1, MOST_FIELDS - self.parts.fields)?;
        let part: SynchronizeRequest = decode(&request.method, &request.payload)?;
        for pod in part.pods.into_iter().map(short_pod) {
            if !self.leaves(beyond_pod(&pod).as_deref()) {
                self.parts.pods.push(pod);
            }
        }
        for container in part.containers.into_iter().map(short_container) {
            if !self.leaves(beyond_container(&container).as_deref()) {
                self.parts.containers.push(container);
            }
        }
        if part.more {
            let response = SynchronizeResponse { update: Vec::new(), more: true };
            return self.respond(asked.stream, response.encode_to_vec()).await;
        }
        let SyncParts { pods, containers, .. } = std::mem::take(&mut self.parts);
        let runtime = self.runtime.clone();
        self.ask(
            asked,
            |reply| NriCall::Synchronize { runtime, pods, containers, reply },
            |answer| SynchronizeResponse { update: answer.updates, more: false }.encode_to_vec(),
        )
        .await
    }

    /// Passes a call on that the runtime waits for.
    async fn ask(
        &mut self,
        asked: PendingCall,
        call: impl FnOnce(Reply) -> NriCall,
        encode: fn(NriAnswer) -> Vec<u8>,
    ) -> Result<(), LinkError> {
        let (reply, answer) = Reply::to(asked.arrived.into_std());
        // First, so that it is answered in time even if it is not taken.
        self.answer(asked, answer, encode).await?;
        self.call(call(reply), asked.until).await
    }

    /// Passes a call on, if it is taken before its answer is due.
    async fn call(&mut self, call: NriCall, until: Instant) -> Result<(), LinkError> {
        if self.lost {
            return Ok(());
        }
        match timeout_at(until, self.calls.send(call)).await {
            Ok(sent) => sent.map_err(|_ended| LinkError::Unheard),
            Err(_late) => {
                tracing::warn!(
                    "calls of the container runtime are not taken; they are answered with no change"
                );
                self.lost = true;
                Ok(())
            }
        }
    }

    /// Writes the answer when it is there, or "no change" when its time is up, while other calls go on.
    async fn answer(
        &self,
        asked: PendingCall,
        answer: tokio::sync::oneshot::Receiver<NriAnswer>,
        encode: fn(NriAnswer) -> Vec<u8>,
    ) -> Result<(), LinkError> {
        let answers = self.answers.clone();
        let unwritten = Arc::clone(&self.unwritten).acquire_owned().await;
        let unwritten = unwritten.map_err(|_closed| LinkError::Closed)?;
        tokio::spawn(async move {
            // A reply that was dropped is no change either.
            let answer = timeout_at(asked.until, answer).await;
            let answer = answer.ok().and_then(Result::ok).unwrap_or_default();
            // A closed link needs no answer.
            let _ = answers.send(response(asked.stream, encode(answer), None)).await;
            drop(unwritten);
        });
        Ok(())
    }

    async fn respond(&self, stream: u32, payload: Vec<u8>) -> Result<(), LinkError> {
        self.write(response(stream, payload, None)).await
    }

    async fn unimplemented(&self, stream: u32, request: &TtrpcRequest) -> Result<(), LinkError> {
        let message =
            format!("{}.{} is not served", printable_line(&request.service), printable_line(&request.method));
        let status = TtrpcStatus { code: code::UNIMPLEMENTED, message };
        self.write(response(stream, Vec::new(), Some(status))).await
    }

    async fn write(&self, message: TtrpcMessage) -> Result<(), LinkError> {
        self.answers.send(message).await.map_err(|_ended| LinkError::Closed)
    }
}

/// Longest time from the last byte of a call until it is answered, where its caller waits for so many
/// nanoseconds; 0 if it does not say (`timeout_nano` of ttrpc's `request.proto`, which its client in Go sets
/// to what is left). Half of it is left for the way there and back on a host that is slow.
fn answer_within(timeout_nano: i64) -> Duration {
    let told = u64::try_from(timeout_nano).ok().filter(|nanoseconds| *nanoseconds > 0);
    told.map_or(RUNTIMES_WAIT, Duration::from_nanos).min(LONGEST_WAIT) / 2
}

fn response(stream: u32, payload: Vec<u8>, status: Option<TtrpcStatus>) -> TtrpcMessage {
    let body = TtrpcResponse { status, payload }.encode_to_vec();
    TtrpcMessage { connection: LogicalConnection::Plugin, stream, kind: MessageKind::Response, body }
}

fn accepted(body: &[u8]) -> Result<(), LinkError> {
    let response: TtrpcResponse = decode("RegisterPlugin", body)?;
    match response.status {
        Some(TtrpcStatus { code, message }) if code != code::OK => {
            Err(LinkError::Refused { code, message: printable_line(&message) })
        }
        _ => Ok(()),
    }
}

fn subject(
    method: &'static str,
    request: &TtrpcRequest,
) -> Result<(Box<NriSubject>, LinuxResources), LinkError> {
    bounded(method, &request.payload, 1, MOST_FIELDS)?;
    let told: ContainerCall = decode(&request.method, &request.payload)?;
    let subject = NriSubject::of_message(told.pod, told.container);
    Ok((Box::new(subject), told.linux_resources.unwrap_or_default()))
}

fn created(answer: NriAnswer) -> Vec<u8> {
    let linux = answer.adjust.map(|resources| LinuxChange { resources: Some(resources) });
    let mounts = answer.mounts;
    let changes = linux.is_some() || !mounts.is_empty();
    CreateContainerResponse {
        adjust: changes.then_some(ContainerAdjustment { mounts, linux }),
        update: answer.updates,
    }
    .encode_to_vec()
}

fn updated(answer: NriAnswer) -> Vec<u8> {
    Updates { update: answer.updates }.encode_to_vec()
}

/// The call for an event; `None` for events that do not matter.
fn happened(event: i32, subject: Box<NriSubject>) -> Option<NriCall> {
    match event {
        event::REMOVE_POD_SANDBOX => Some(NriCall::PodRemoved(Box::new(subject.pod))),
        event::POST_START_CONTAINER => Some(NriCall::Started(subject)),
        event::REMOVE_CONTAINER => Some(NriCall::Removed(subject)),
        _ => None,
    }
}

/// How many fields of pods and containers a message has, if it is at most `room`. Pods are its field `pods`,
/// containers the one behind; `LinuxResources` of an update may be the third.
fn bounded(method: &'static str, payload: &[u8], pods: u32, room: usize) -> Result<usize, LinkError> {
    let (pod, container) = (pods, pods + 1);
    // Labels, annotations, limits of huge pages; of a container its environment, too.
    let paths: [&[u32]; 8] = [
        &[pod, 5],
        &[pod, 6],
        &[pod, 8, 2, 3],
        &[container, 5],
        &[container, 6],
        &[container, 8],
        &[container, 11, 3, 3],
        &[3, 3],
    ];
    let mut fields = 0;
    for path in paths {
        fields += counted(method, payload, path, room - fields)?;
        if fields > room {
            return Err(LinkError::TooMany { method });
        }
    }
    Ok(fields)
}

/// How often the field at the end of the path occurs; more than `room` is one more than it.
fn counted(method: &'static str, payload: &[u8], path: &[u32], room: usize) -> Result<usize, LinkError> {
    occurrences(payload, path, room + 1).map_err(|_malformed| LinkError::Unreadable { method })
}

fn decode<M: prost::Message + Default>(method: &str, bytes: &[u8]) -> Result<M, LinkError> {
    M::decode(bytes).map_err(|cause| LinkError::Malformed { method: method.to_owned(), cause })
}

#[cfg(test)]
mod tests;
