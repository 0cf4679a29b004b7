//! Makes a state of the node whenever the kubelet changes what it gives away.
//!
//! A changed file is seen within [`LOOK`], by one `stat` each; the socket is asked every [`ASK`], because
//! devices change their health without any file. A change of a pod in the API counts as one of a file. The
//! kubelet's settings are read when another process of it runs, or when the API server has said something
//! new: it reads its files at its start alone. Each change of a file is a reason to look for the process
//! again.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use enforcer_cluster::{LeaseConditions, NewerEpoch, PublishedObject, WatchedPods, send_if_different};
use enforcer_core::{
    cluster::{
        exported::{ExportInputs, ExportedKind, ReservedAmounts},
        observed::{ApiPod, LocalitySteps, NodeInApi, NodeInputs, NodeObservation, NodeStateSource},
        own_engine::OwnPart,
        state::{InexactSource, MeasuredLocality, NodeState},
    },
    policy::KubeletSettings,
};
use enforcer_host::{HostRoot, topology::read_topology};
use enforcer_runtime::{
    kubelet::{
        self, FileStamps, observe_node,
        settings::{self, EffectiveKubelet, NoKubelet, RunningKubelet},
    },
    manifest::annotation_documents,
};
use numa_topology::{Topology, degraded::Degraded};
use serde_json::Map;
use tokio::sync::{Notify, watch};

use super::{
    ClusterAnswers, MadeObject,
    capacity::{CapacityAge, OfferedDevices},
    features::FeatureWriter,
    predictions::PredictionWatch,
    process_of,
};
use crate::{
    engine::{LedgerSnapshot, SharedLedger},
    serve::Latest,
    wall_clock,
};

/// Interval of checks for changed files.
const LOOK: Duration = Duration::from_millis(250);
/// Longest time between two questions to the socket.
const ASK: Duration = Duration::from_secs(5);
/// Interval of searches for another process of the kubelet, and of looks at the machine.
const SEARCH: Duration = Duration::from_secs(10);

/// Most further looks of a command at files that change.
const MOST_LOOKS_AGAIN: usize = 4;

/// Why a command does not know what containers have.
const ONLY_DAEMON: &str =
    "numa-enforcer places containers there, and only the running daemon knows their grants";

/// Effect of an object of another scheduler that cannot be made.
const NO_OBJECT: &str = "its scheduler sees an older state of this node, or none";
/// Effect of a state that cannot be made.
const NO_STATE: &str = "the cluster sees an older state of this node, or none";

/// Reads the node.
pub(super) struct NodeObserver {
    pub(super) host: HostRoot,
    pub(super) kubelet: KubeletSettings,
    /// What the last turn found, in a daemon.
    pub(super) turns: Option<Latest>,
    /// What this daemon has given to containers.
    pub(super) placed: SharedLedger,
    /// The daemon of this configuration places containers, and this is a command beside it.
    pub(super) is_beside_engine: bool,
    /// Asks for newer answers.
    pub(super) outdated: Arc<Notify>,
    /// Is told of each look.
    pub(super) lease: Arc<LeaseConditions>,
    /// The epoch that states have to exceed.
    pub(super) newer: Arc<NewerEpoch>,
    /// Devices of the looks before.
    pub(super) offered: OfferedDevices,
    /// The feature file, if one is written.
    pub(super) features: Option<FeatureWriter>,
    /// Compares states with those before, in a daemon.
    pub(super) predictions: Option<PredictionWatch>,
}

/// What this daemon has given to containers, and what it measures of them.
type OwnMeasures<'a> = (&'a LedgerSnapshot, Option<MeasuredLocality>);

/// What changes with the kubelet's process and the machine, and not with pods.
pub(super) struct Surroundings {
    /// Where its files are.
    located: KubeletSettings,
    machine: Topology,
    process: Result<RunningKubelet, NoKubelet>,
    settings: EffectiveKubelet,
}

impl Surroundings {
    /// What a state is made from.
    fn inputs<'a>(
        &'a self,
        observation: &'a NodeObservation,
        api: &'a NodeInApi,
        (engine, measured): (OwnPart<'a>, Option<MeasuredLocality>),
        inexact: &'a [InexactSource],
    ) -> NodeInputs<'a> {
        NodeInputs {
            machine: &self.machine,
            kubelet: &self.settings.profile,
            inexact,
            observation,
            api,
            engine,
            measured,
        }
    }
}

/// A node at one moment.
pub(super) struct ReadNode {
    around: Surroundings,
    observation: NodeObservation,
    api: NodeInApi,
    state: NodeState,
}

impl ReadNode {
    /// The content of `NumaNodeState`.
    pub(super) fn own(&self) -> Result<PublishedObject, String> {
        object(&self.state)
    }

    /// The content of an object of another scheduler.
    pub(super) fn exported(&self, kind: ExportedKind) -> Result<PublishedObject, String> {
        exported(kind, &self.around, (&self.observation, &self.api), &self.state)
    }
}

impl NodeObserver {
    /// Sends each new state until the receiver of states is gone.
    pub(super) fn watch(
        mut self,
        mut answers: watch::Receiver<Option<ClusterAnswers>>,
        mut pods: watch::Receiver<WatchedPods>,
        states: &watch::Sender<Option<PublishedObject>>,
        exports: &[MadeObject],
        degraded: &watch::Sender<Option<Degraded>>,
    ) {
        let mut source: Option<NodeStateSource> = None;
        let mut surroundings: Option<Surroundings> = None;
        let (mut stamps, mut asked, mut searched) = (None, Instant::now(), Instant::now());
        let mut exceeded = self.newer.epoch();
        let (mut locality, start) = (LocalitySteps::default(), Instant::now());
        let (mut granted, mut engine) = self.placed.snapshot();
        while !states.is_closed() {
            // The pods follow the first answer at once, and without them a state may be less exact.
            if answers.borrow().is_none() || *pods.borrow() == WatchedPods::Asked {
                thread::sleep(LOOK);
                continue;
            }
            let is_news = answers.has_changed().unwrap_or_default();
            let is_pod_news = pods.has_changed().unwrap_or_default();
            let Some(answer) = answers.borrow_and_update().clone() else { continue };
            let known = pods.borrow_and_update().clone();
            let now = surroundings.as_ref().map(|around| FileStamps::read(&around.located));
            let has_changed = is_news || (now.is_some() && now != stamps);
            // A kubelet that starts again makes its socket anew.
            if has_changed || searched.elapsed() >= SEARCH {
                searched = Instant::now();
                surroundings = match self.surroundings(&answer, surroundings.as_ref()) {
                    Ok(around) => Some(around),
                    Err(fault) => {
                        tell(degraded, Some(fault));
                        None
                    }
                };
            }
            let grants = self.placed.stamp();
            let newer = self.newer.epoch();
            let is_due = has_changed
                || is_pod_news
                || grants != granted
                || newer != exceeded
                || asked.elapsed() >= ASK;
            if grants != granted {
                (granted, engine) = self.placed.snapshot();
            }
            if let Some(around) = surroundings.as_ref().filter(|_| is_due) {
                (stamps, asked) = (now, Instant::now());
                let source = source.get_or_insert_with(|| answer.new_states());
                if newer != exceeded {
                    source.continue_after(newer);
                    exceeded = newer;
                }
                let measured = self.turns.as_ref().and_then(|turns| {
                    locality.note(&turns.borrow().as_ref()?.audit.workloads, start.elapsed())
                });
                let ours = (&engine, measured);
                let observed = self.observe(source, around, ((&answer, &known), ours), states, exports);
                if observed.is_ok() {
                    self.lease.note_look();
                }
                tell(degraded, observed.err());
            }
            thread::sleep(LOOK);
        }
    }

    /// Sends the state of now, if it differs from the last one.
    fn observe(
        &mut self,
        source: &mut NodeStateSource,
        around: &Surroundings,
        ((answer, pods), (engine, measured)): ((&ClusterAnswers, &WatchedPods), OwnMeasures<'_>),
        states: &watch::Sender<Option<PublishedObject>>,
        exports: &[MadeObject],
    ) -> Result<(), String> {
        let observation = observe_node(&self.kubelet, &around.machine, &around.settings.profile);
        let mut inexact = around.settings.inexact.clone();
        let now = Instant::now();
        let api = &self.current_api(answer, pods, &observation, now);
        inexact.extend(self.predictions.as_ref().and_then(|predictions| predictions.doubt(now)));
        let inputs = around.inputs(&observation, api, (engine.as_part(), measured), &inexact);
        let mut state = source.observe(inputs).map_err(|fault| fault.to_string())?;
        let at = (now, wall_clock::unix_ns() / 1_000_000_000);
        if let Some(doubt) = self.predictions.as_mut().and_then(|watch| watch.note(state, api, at)) {
            inexact.push(doubt);
            let inputs = around.inputs(&observation, api, (engine.as_part(), measured), &inexact);
            state = source.observe(inputs).map_err(|fault| fault.to_string())?;
        }
        send_if_different(states, Some(object(state)?));
        if let Some(features) = &mut self.features {
            features.note(state);
        }
        for export in exports {
            let made = exported(export.kind, around, (&observation, api), state);
            let fault = made.as_ref().err().map(|fault| {
                Degraded::new(format!("publish:{}", export.kind.plural()), fault.clone(), NO_OBJECT)
            });
            send_if_different(&export.unmade, fault);
            // What the cluster has stays until it can be replaced by what is so.
            if let Ok(object) = made {
                send_if_different(&export.objects, Some(object));
            }
        }
        Ok(())
    }

    /// What the API says, without a number of devices that may be older than the devices.
    fn current_api(
        &mut self,
        answer: &ClusterAnswers,
        pods: &WatchedPods,
        observation: &NodeObservation,
        now: Instant,
    ) -> NodeInApi {
        if let Some(offered) = observation.offered.content() {
            self.offered.note(&offered.devices, now);
        }
        let age = self.offered.age(answer.asked_at, now);
        if age == CapacityAge::Outdated {
            self.outdated.notify_one();
        }
        let api = in_api(answer, pods);
        let device_capacity = api.device_capacity.filter(|_| age == CapacityAge::Current);
        NodeInApi { device_capacity, ..api }
    }

    /// The node now, without a past.
    pub(super) fn read_once(&self, answer: &ClusterAnswers, pods: &WatchedPods) -> Result<ReadNode, String> {
        let around = self.surroundings(answer, None)?;
        let look = || observe_node(&self.kubelet, &around.machine, &around.settings.profile);
        let mut observation = look();
        // Without an answer of the socket, files that change are not read again by the reader itself.
        for _ in 0..MOST_LOOKS_AGAIN {
            if observation.torn.is_none() {
                break;
            }
            thread::sleep(LOOK);
            observation = look();
        }
        let api = in_api(answer, pods);
        let engine = if self.is_beside_engine { OwnPart::Unknown(ONLY_DAEMON) } else { OwnPart::None };
        let inputs = around.inputs(&observation, &api, (engine, None), &around.settings.inexact);
        let mut source = answer.new_states();
        let state = source.observe(inputs).map_err(|fault| fault.to_string())?.clone();
        Ok(ReadNode { around, observation, api, state })
    }

    /// The machine and the kubelet's settings now. An error is that the machine cannot be read.
    fn surroundings(
        &self,
        answer: &ClusterAnswers,
        before: Option<&Surroundings>,
    ) -> Result<Surroundings, String> {
        let (machine, _) = read_topology(&self.host).map_err(|error| error.to_string())?;
        let mut process = settings::find(&self.host, &self.kubelet);
        // The time of its start is derived from the clock, which may be set: it is published as it was first.
        if let (Ok(now), Some(Surroundings { process: Ok(before), .. })) = (&process, before)
            && process_of(now) == process_of(before)
        {
            process = Ok(now.as_before(before));
        }
        let files = process.as_ref().ok().map(|kubelet| settings::read_files(&self.host, kubelet));
        let version = process.as_ref().ok().and_then(|kubelet| answer.version_of(kubelet));
        if process.as_ref().is_ok_and(|kubelet| answer.is_outdated(kubelet)) {
            self.outdated.notify_one();
        }
        let running = process.as_ref().map_err(|none| *none);
        let configz = process.as_ref().ok().and_then(|kubelet| answer.configz_of(kubelet));
        let mut settings = settings::effective(running, files.as_ref(), configz, version);
        // The files that are missing here are what the kubelet itself was asked for.
        if let Some(reason) =
            answer.no_configz.as_ref().filter(|_| files.is_some_and(|files| !files.is_complete()))
        {
            settings.inexact.push(InexactSource::new("kubelet:configz", reason.clone()));
        }
        Ok(Surroundings { located: kubelet::in_use(&self.kubelet), machine, process, settings })
    }
}

impl ClusterAnswers {
    /// States that are newer than the published one.
    fn new_states(&self) -> NodeStateSource {
        NodeStateSource::new(wall_clock::unix_ns().max(self.published_epoch.saturating_add(1)))
    }
}

/// What the API says, with the pods as far as they are known.
fn in_api(answer: &ClusterAnswers, pods: &WatchedPods) -> NodeInApi {
    let known = match pods {
        WatchedPods::Asked | WatchedPods::Unknown => None,
        WatchedPods::Known(pods) => Some(pods),
    };
    let with_documents = |pod: &ApiPod| {
        let mut pod = pod.clone();
        if let Some(request) = pod.request.as_mut().filter(|request| !request.annotations.is_empty()) {
            Arc::make_mut(request).documents = annotation_documents(&request.annotations);
        }
        pod
    };
    NodeInApi {
        pods: known.map(|known| known.pods.iter().map(with_documents).collect()),
        sequence: known.map(|known| known.sequence).unwrap_or_default(),
        left_out: known.map(|known| known.left_out.clone()).unwrap_or_default(),
        device_capacity: answer.device_capacity.clone(),
    }
}

/// Names what prevents a state, once.
fn tell(degraded: &watch::Sender<Option<Degraded>>, fault: Option<String>) {
    let entry = fault.map(|fault| Degraded::new("publish", fault, NO_STATE));
    send_if_different(degraded, entry);
}

/// The content of the published object.
fn object(state: &NodeState) -> Result<PublishedObject, String> {
    let state = serde_json::to_value(state).map_err(|error| error.to_string())?;
    Ok(PublishedObject { content: Map::from_iter([("state".to_owned(), state)]) })
}

/// The content of an object of another scheduler.
fn exported(
    kind: ExportedKind,
    around: &Surroundings,
    (observation, api): (&NodeObservation, &NodeInApi),
    state: &NodeState,
) -> Result<PublishedObject, String> {
    let EffectiveKubelet { profile, reservations, .. } = &around.settings;
    let eviction = reservations.eviction_memory.as_deref();
    let reserved = ReservedAmounts::of_settings(&reservations.kube, &reservations.system, eviction);
    let inputs = ExportInputs {
        state,
        machine: &around.machine,
        observation,
        api,
        reserved: Some(&reserved).filter(|_| profile.config_from.is_some()),
    };
    kind.content(inputs).map(|content| PublishedObject { content }).map_err(|fault| fault.to_string())
}
